"""Mesa layers trained in bfloat16 with long memories: three ways to solve, three seeds.

    python examples/experiments/stable_training.py                  # minutes of an accelerator
    python examples/experiments/stable_training.py --length 8192 --steps 1000
    python examples/experiments/stable_training.py --quick          # a few small steps, asserted

Gates start so that they remember 1.5 sequences (0.9997 at 2,048 tokens), without a bound, and
ridges just above their floor of 0.25: the Gram matrix of a sequence is large compared with the
ridge.  A third of every sequence is one byte repeated, some sequences are nothing else, as in
stability.py.

- ``exact`` is the package's default solver.
- ``30 steps`` is ``olsq.ConjugateGradient(max_steps=30, tol=0)``.
- ``30 steps, float16 states`` imitates flash-linear-attention's kernel of 2025: it stores the states
  at the borders of chunks in float16, multiplies in bfloat16 and float16, and runs 30 steps of plain
  conjugate gradient, forward and backward.

A step whose loss or gradient is not finite is counted and skipped: without that, every number of
the model would be NaN after it.  Results: docs/results/stable-training.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from panels import COLOURS, in_house_style, label_lines, panels, seed_lines
from task_training import RESULTS, add_result, optimiser

import olsq.datasets
import olsq.nn
from olsq.train import make_step, next_token_loss

NAME = "stable-training"
CHUNK, STEPS_OF_CG, NEAR_ZERO = 64, 30, 1e-5
SEEDS = (0, 1, 2)
LENGTHS = ("2048", "8192")
SIZES: dict[str, Any] = {"dim": 128, "blocks": 2, "heads": 2, "key_size": 64}
TOKENS, LENGTH, EVERY = 8192, 2048, 100  # tokens of a batch and of a sequence


SECTION = """
## Mesa with long memories in bfloat16

Users of flash-linear-attention report that its MesaNet trains to NaN ([issue
1187](https://github.com/fla-org/flash-linear-attention/issues/1187)): its states are stored in float16, and rounding makes the matrix
of its systems indefinite. Here the same model is trained with the exact solver, with 30 steps of conjugate gradient in float32, and with
30 steps from states that are rounded to float16 at the borders of chunks. Gates start so that they remember 1.5 sequences.

{table}

![Loss and largest gradient along training for three ways to solve](stable-training.png)

In float32 nothing breaks. With float16 states each of the three seeds has a step at 8,192 tokens whose loss or gradient is not finite;
the trainer skips such steps. At 2,048 tokens all seeds end with a higher loss. The library itself was not run.

Two blocks of width 128, two heads of 64, rate 0.003, 8,192 tokens per batch, clipping at 1, text with a run of one byte as above.
`python examples/experiments/stable_training.py`, and with `--length 8192 --steps 1000`, {date}, one H200.
"""


def rounded(x: Array, dtype: Any) -> Array:
    """Round float32 numbers to ``dtype``; the derivative is that of x itself."""
    return x + jax.lax.stop_gradient(x.astype(dtype).astype(x.dtype) - x)


def half_state_mesa(
    q: Array, k: Array, v: Array, *, ridge: Array, log_forget: Array, weight: Array
) -> Array:
    """Compute Mesa's outputs (B, T, H, V) from states in float16, T a multiple of ``CHUNK``."""

    def chunks(x: Array) -> Array:  # (n, B, H, CHUNK, ...)
        x = x.reshape(len(x), -1, CHUNK, *x.shape[2:])
        return jnp.moveaxis(x, (1, 3), (0, 2)).astype(jnp.float32)

    queries, keys, values, weights = (chunks(x) for x in (q, k, v, weight))
    keys, values = (rounded(x, jnp.bfloat16) for x in (keys, values))
    sums = jnp.cumsum(chunks(log_forget), -1)  # since the border before the chunk
    lower = jnp.tril(jnp.ones((CHUNK, CHUNK), bool))
    gaps = jnp.where(lower, sums[..., :, None] - sums[..., None, :], -jnp.inf)
    decays = jnp.exp(gaps) * weights[..., None, :]

    def states(right: Array) -> Array:
        """Sum ``decay weight k right^T`` before every chunk, stored in float16."""
        left = keys * (jnp.exp(sums[..., -1:] - sums) * weights)[..., None]
        added = jnp.einsum("nbhtk,nbhtv->nbhkv", left, right)

        def advance(state: Array, chunk: Any) -> tuple[Array, Array]:
            total, new = chunk
            return jnp.exp(total)[..., None, None] * state + new, state

        first = jnp.zeros_like(added[0])
        return rounded(jax.lax.scan(advance, first, (sums[..., -1], added))[1], jnp.float16)

    def read(x: Array, right: Array, state: Array) -> Array:
        """Multiply every token's sum up to it with its x."""
        scores = jnp.einsum("nbhtk,nbhsk->nbhts", rounded(x, jnp.bfloat16), keys) * decays
        inside = rounded(scores, jnp.bfloat16) @ right
        return inside + rounded(x * jnp.exp(sums)[..., None], jnp.float16) @ state

    gram, cross = states(keys), states(values)
    ridges = jnp.asarray(ridge, jnp.float32)[:, None]

    def product(x: Array) -> Array:
        return read(x, keys, gram) + ridges * x

    def solve(product: Any, b: Array) -> Array:
        def step(_: Any, carry: Any) -> Any:
            x, residual, direction, old = carry
            image = product(direction)
            length = (old / ((direction * image).sum(-1) + NEAR_ZERO))[..., None]
            x, residual = x + length * direction, residual - length * image
            new = (residual**2).sum(-1)
            return x, residual, residual + (new / (old + NEAR_ZERO))[..., None] * direction, new

        start = jnp.zeros_like(b), b, b, (b**2).sum(-1)
        return jax.lax.fori_loop(0, STEPS_OF_CG, step, start)[0]

    x = jax.lax.custom_linear_solve(product, queries, solve, symmetric=True)
    outputs = read(x, values, cross)
    return jnp.moveaxis(outputs, (0, 2), (1, 3)).reshape(*v.shape).astype(v.dtype)


class HalfStateMesa(olsq.nn.Mesa):
    """Mesa whose states are float16, for training only."""

    def attend(
        self, q: Array, k: Array, v: Array, arguments: dict[str, Any], **state: Any
    ) -> tuple[Array, None]:
        names = "ridge", "log_forget", "weight"
        return half_state_mesa(q, k, v, **{name: arguments[name] for name in names}), None


olsq.nn.register_mixer("half_state_mesa", HalfStateMesa)
WAYS: dict[str, tuple[str, Any]] = {
    "exact": ("mesa", None),
    "30 steps": ("mesa", olsq.ConjugateGradient(max_steps=STEPS_OF_CG, tol=0.0)),
    "30 steps, float16 states": ("half_state_mesa", None),
}


def batches(seed: int, length: int) -> Iterator[Array]:
    """Yield (B, T + 1) bytes: text with a long run of one byte; every fourth row is all run."""
    text = np.frombuffer(olsq.datasets.austen().encode(), np.uint8)
    rng = np.random.default_rng(seed)
    size = max(1, TOKENS // length)
    for number in itertools.count():
        starts = rng.integers(0, len(text) - length - 1, size)
        rows = text[starts[:, None] + np.arange(length + 1)].astype(np.int32)
        for row, at in zip(rows, rng.integers(0, length - length // 3, size), strict=True):
            row[at : at + length // 3] = ord(" ")
        if number * size % 4 + size >= 4:
            rows[-1] = rng.integers(32, 127)
        yield jnp.asarray(rows)


def new_model(way: str, seed: int, length: int, sizes: dict[str, Any]) -> Any:
    """Return a model whose gates remember 1.5 sequences at first, with ridges near their floor."""
    mixer, solver = WAYS[way]
    bias = 8.0 + math.log(length / LENGTH)
    ridge = {"ridge_floor": 0.25, "ridge_start": 0.26}
    options = {mixer: {"forget_bound": None, "forget_bias": bias, **ridge}}
    key = jax.random.key(seed)
    return olsq.nn.LanguageModel(
        256, mixer=mixer, mixer_options=options, solver=solver, dtype="bfloat16", key=key, **sizes
    )


def run(
    way: str, steps: int, *, lr: float, seeds: Any = SEEDS, sizes: Any = SIZES, length: int = LENGTH
) -> Iterator[dict[str, dict[str, Any]]]:
    """Train all seeds step by step; yield every seed's record after every ``EVERY`` steps."""
    tune = optimiser(lr, steps, warm_up=steps // 20, weight_decay=0.1)
    step = eqx.filter_jit(eqx.filter_vmap(make_step(next_token_loss, tune)))
    models = stacked([new_model(way, seed, length, sizes) for seed in seeds])
    state = eqx.filter_vmap(tune.init)(eqx.filter(models, eqx.is_inexact_array))
    data = zip(*(batches(seed, length) for seed in seeds), strict=True)
    columns = "step", "loss", "largest_gradient", "not_finite"
    record: dict[str, Any] = {str(seed): {name: [] for name in columns} for seed in seeds}
    began, recent = time.perf_counter(), []
    for number in range(1, steps + 1):
        models, state, metrics = step(models, state, jnp.stack(next(data)))
        recent.append((metrics.loss, metrics.gradient_norm, metrics.skipped))
        if number % EVERY and number != steps:
            continue
        for seed, (loss, norm, skipped) in zip(seeds, np.array(recent, float).T, strict=True):
            kept = skipped == 0
            pair = (
                (float(loss[kept].mean()), float(norm[kept].max())) if kept.any() else (None,) * 2
            )
            for name, value in zip(columns, (number, *pair, int((~kept).sum())), strict=True):
                record[str(seed)][name].append(value)
        recent = []
        seconds, device = round(time.perf_counter() - began, 1), jax.devices()[0].device_kind
        yield {"seeds": record, "lr": lr, "seconds": seconds, "device": device}


def stacked(models: list[Any]) -> Any:
    """Return one model whose arrays have the seeds as first axis."""
    arrays, rest = zip(*(eqx.partition(model, eqx.is_array) for model in models), strict=True)
    return eqx.combine(jax.tree.map(lambda *x: jnp.stack(x), *arrays), rest[0])


@in_house_style
def figure(results: dict[str, Any]) -> Any:
    """Loss and largest gradient along training, with a cross at steps that are not finite."""
    fig, axes = panels(2, 2, height=2.3)
    for (left, right), length in zip(axes, LENGTHS, strict=True):
        for way, trained in results[length].items():
            colour = COLOURS[list(WAYS).index(way)]
            runs = list(trained["seeds"].values())
            steps = runs[0]["step"]
            for ax, column in ((left, "loss"), (right, "largest_gradient")):
                seed_lines(ax, steps, [run[column] for run in runs], colour, way)
            for run in runs:
                broken = np.array(run["not_finite"]) > 0
                norms = np.array(run["largest_gradient"])[broken]
                right.plot(np.array(steps)[broken], norms, "x", color=colour, label="_not finite")
        tokens = f"{int(length):,} tokens"
        left.set(title=f"{tokens}: loss, nats per byte", ylim=(0.55, 1.6))
        right.set(title=f"{tokens}: gradient (cross: not finite)")
        right.set_yscale("log")
        label_lines(left)
    for ax in axes[1]:
        ax.set(xlabel="step")
    return fig


def count(results: dict[str, Any], length: str, way: str) -> tuple[int, int]:
    """Return how many steps of all seeds are not finite, and how many there are."""
    seeds = results[length][way]["seeds"].values()
    return sum(sum(x["not_finite"]) for x in seeds), sum(x["step"][-1] for x in seeds)


def section(results: dict[str, Any]) -> str:
    """Return the section of the results page."""
    lines = [
        "| tokens | solver | steps not finite | last losses, by seed | largest gradient |",
        "| --- | --- | --- | --- | --- |",
    ]
    for length in LENGTHS:
        for way, found in results[length].items():
            bad, total = count(results, length, way)
            seeds = found["seeds"].values()
            losses = ", ".join(f"{x['loss'][-1]:.3f}" for x in seeds)
            largest = max(max(x["largest_gradient"]) for x in seeds)
            lines.append(
                f"| {int(length):,} | {way} | {bad} of {total:,} | {losses} | {largest:,.0f} |"
            )
    return SECTION.format(table="\n".join(lines), date=results["date"])


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="WAY")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--length", type=int, default=LENGTH)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--folder", type=Path, default=RESULTS)
    args = parser.parse_args(argv)
    for way in args.ways:
        if args.quick:
            small = {"dim": 32, "blocks": 1, "heads": 1, "key_size": 16}
            for found in run(way, 4, lr=1e-3, seeds=(0, 1), sizes=small, length=128):
                assert sum(found["seeds"]["0"]["not_finite"]) == 0, found
            continue
        add_result(NAME, ("date",), time.strftime("%Y-%m-%d"), folder=args.folder)
        for found in run(way, args.steps, lr=args.lr, length=args.length):
            add_result(NAME, (str(args.length), way), found, folder=args.folder)
            last = {seed: {n: x[-1] for n, x in r.items()} for seed, r in found["seeds"].items()}
            print(way, found["seconds"], json.dumps(last), flush=True)


if __name__ == "__main__":
    main()

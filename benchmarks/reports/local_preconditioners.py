"""Preconditioners of local least squares: steps and time beside softmax attention.

    python -m benchmarks.reports.local_preconditioners    # ten minutes; prints Markdown tables

2 heads, 1,024 tokens, d 64, float32, keys and queries of unit length, residuals down to 1e-6 or to
rounding.  Times are processor times in softmax passes of the same shape
(``olsq.attention.softmax``), the best of several, taken in turn in one process; steps are the mean
over blocks of 128 queries of the block's largest number, which is what a block costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import olsq
from olsq.local.jax import solve, systems

HEADS, LENGTH, WIDTH, ROUNDS = 2, 1024, 64, 4
RIDGES, SCALES = (1e-1, 1e-2, 1e-3, 1e-4), (1.0, 8.0, 64.0)
NAMES = {"none": "plain", "moments": "unweighted", "block": "block's own", "own": "query's own",
         None: "default"}  # fmt: skip


def unit(x: np.ndarray) -> np.ndarray:
    """Rows of length 1."""
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def streams(kind: str, length: int = LENGTH) -> tuple[Array, Array, Array]:
    """Keys, values and queries (H, T, d): keys random, in 16 clusters, or 200 Zipf tokens."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return unit(rng.standard_normal(shape))

    if kind == "random":
        k, q = draw(HEADS, length, WIDTH), draw(HEADS, length, WIDTH)
    else:
        count, noise = (16, 0.3) if kind == "clustered" else (200, 0.01)
        share = np.ones(count) if kind == "clustered" else 1 / np.arange(1, count + 1)
        tokens = draw(HEADS, count, WIDTH)
        chosen = rng.choice(count, (2, HEADS, length), p=share / share.sum())
        k, q = (
            unit(np.take_along_axis(tokens, c[..., None], 1) + noise * draw(HEADS, length, WIDTH))
            for c in chosen
        )
    v = rng.standard_normal((HEADS, length, WIDTH))
    return tuple(jnp.asarray(x, jnp.float32) for x in (k, v, q))  # type: ignore[return-value]


def shared(weigh: Callable[[systems.Systems], Array]) -> Callable[[systems.Systems], Any]:
    """A preconditioner with one covariance of keys, weighted by ``weigh`` (J, C), for a block."""

    def make(system: systems.Systems) -> Any:
        step, keys, shares = system.step, system.keys, weigh(system)

        def per_row(x: Array) -> Array:
            return systems.sum_tiles(x[:, None], step)[:, 0]

        total = per_row(shares.sum(-1, keepdims=True))
        mean = per_row(jnp.einsum("jc,jcd->jd", shares, keys)) / total
        off = keys - mean[step.row][:, None]
        gram = systems.sum_tiles(jnp.einsum("jcd,jce->jde", shares[..., None] * off, off), step)
        matrix = gram / total[..., None] + system.ridge.mean(1)[..., None] * jnp.eye(WIDTH)
        inverse = jnp.linalg.inv(matrix)
        return lambda r: jnp.einsum("rik,rbk->rbi", inverse, r)

    return make


systems.PRECONDITIONERS |= {
    "moments": shared(lambda s: (s.weights > 0).any(1).astype(s.keys.dtype)),
    "block": shared(lambda s: (s.weights * systems.to_tiles(s.inverse_total, s.step)).sum(1)),
}


def passes(name: str | None) -> Callable[..., Any]:
    """A compiled solve."""

    @jax.jit
    def run(k: Array, v: Array, q: Array, ridge: Array, scale: Array) -> Any:
        found = solve.local_lstsq(
            k, v, q, ridge=ridge, scale=scale, tol=1e-6, max_steps=300, preconditioner=name
        )
        return found.value, found.stats.steps

    return run


@jax.jit
def softmax(k: Array, v: Array, q: Array, ridge: Array, scale: Array) -> Array:
    """Softmax attention of the same streams."""
    del ridge
    k, v, q = (jnp.moveaxis(x, 0, 1)[None] for x in (k, v, q))
    return olsq.attention.softmax(q, k, v, scale=scale)[0]  # type: ignore[arg-type]


def seconds(run: Callable[..., Any], *given: Any) -> float:
    """Processor time of one call."""
    began = time.process_time()
    jax.block_until_ready(run(*given))
    return time.process_time() - began


def compare(kind: str, scale: float, ridge: float, runs: dict[Any, Any]) -> list[str]:
    """Cells "steps / softmax passes" of every preconditioner."""
    given = *streams(kind), jnp.float32(ridge), jnp.float32(scale)
    best = best_of({"softmax": softmax, **runs}, given)
    cells = []
    for name, run in runs.items():
        steps = np.asarray(run(*given)[1]).reshape(HEADS, -1, 128).max(-1).mean()
        cells.append(f"{steps:.0f} / {best[name] / best['softmax']:.0f}")
    return cells


def best_of(runs: dict[Any, Callable[..., Any]], given: tuple[Any, ...]) -> dict[Any, float]:
    """The best seconds of each, taken in turn, after one call each to compile."""
    best = dict.fromkeys(runs, np.inf)
    for i in range(1 + ROUNDS):
        for name, run in runs.items():
            taken = seconds(run, *given)
            best[name] = min(best[name], taken) if i else best[name]
    return best


def timed_runs() -> dict[str, Callable[..., Any]]:
    """Softmax attention and the default solve, with their gradients."""
    ours = passes(None)

    def slope(run: Callable[..., Any]) -> Callable[..., Any]:
        return jax.jit(jax.grad(lambda *x: jnp.sin(run(*x)).sum(), (0, 1, 2)))

    return {
        "softmax": softmax,
        "ours": ours,
        "softmax gradient": slope(softmax),
        "gradient": slope(lambda *x: ours(*x)[0]),
    }


def ratios(length: int, ridge: float, runs: dict[str, Callable[..., Any]]) -> list[str]:
    """Steps, and forward and backward times over those of 1 + steps softmax passes."""
    given = *streams("random", length), jnp.float32(ridge), jnp.float32(8.0)
    best = best_of(runs, given)
    steps = np.asarray(runs["ours"](*given)[1]).reshape(HEADS, -1, 128).max(-1).mean()
    unit = (1 + steps) * best["softmax"]
    back = best["gradient"] - best["ours"]
    soft_back = (1 + steps) * (best["softmax gradient"] - best["softmax"])
    return [
        f"{steps:.1f}", f"{1e3 * best['softmax']:.0f}", f"{1e3 * best['ours']:.0f}",
        f"{best['ours'] / unit:.2f}", f"{1e3 * best['gradient']:.0f}", f"{back / unit:.2f}",
        f"{back / soft_back:.2f}",
    ]  # fmt: skip


def main() -> None:
    """Print both tables."""
    print("| keys | scale | ridge | " + " | ".join(NAMES.values()) + " |")
    print("|" + "---|" * (3 + len(NAMES)))
    runs = {name: passes(name) for name in NAMES}
    for kind in ("random", "clustered", "repeated"):
        for scale in SCALES:
            for ridge in RIDGES:
                cells = compare(kind, scale, ridge, runs)
                print(f"| {kind} | {scale:g} | {ridge:.0e} | {' | '.join(cells)} |", flush=True)
    columns = (
        "tokens", "ridge", "steps", "softmax ms", "forward ms", "forward / (1 + steps) passes",
        "gradient ms", "backward / (1 + steps) passes", "the same over softmax's backward",
    )  # fmt: skip
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    timed = timed_runs()
    for length in (1024, 2048):
        for ridge in (1e-1, 1e-2, 1e-3):
            print(
                f"| {length:,} | {ridge:.0e} | {' | '.join(ratios(length, ridge, timed))} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

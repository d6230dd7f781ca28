"""Does Parallax learn the direction that local linear attention solves for?

    python examples/experiments/parallax_direction.py            # minutes; resumes
    python examples/experiments/parallax_direction.py --figures  # from what is there
    python examples/experiments/parallax_direction.py --quick    # small, asserted

``parallax`` reads ``vbar - C r`` with a learned r, and the exact rule ``vbar + C x`` with
``(S + ridge I) x = q - kbar``.  While the models of ``when_to_solve.py`` are trained, this follows
the cosine of -r with x, and of ``-C r`` with ``C x``, over held-out sequences.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from panels import COLOURS, in_house_style, label_lines, panels
from solving_tasks import TASKS, VALID, Task
from task_training import RESULTS, add_result, load_results, optimiser

from olsq.nn.parts import positions, rotate
from olsq.train import Trainer

NAME = "parallax-direction"
SEEDS, RATE, EVERY = (0, 1, 2), 1e-2, 40
FOLLOWED = {"network": "Random networks", "drift-slow": "Linear, slow drift"}
# Ridges in units of a query's mean variance of keys; the last leaves x along q - kbar.
RIDGES = {"0.01": 0.01, "0.1": 0.1, "1": 1.0, "infinite": 1e6}
SHOWN = "0.1"


def cosine(a: Any, b: Any) -> Any:
    """Cosine over the last axis, 0 where either is 0."""
    norm = jnp.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return (a * b).sum(-1) / jnp.where(norm > 0, norm, jnp.inf)


def compare_directions(mixer: Any, h: Any, first: int) -> dict[str, Any]:
    """Mean cosines (H,) of a Parallax layer's direction with exact ones, from token ``first`` on.

    ``size`` is that of the learned correction over that of the mean it corrects.
    """
    q, k, v, given, _ = mixer.read(h, None, None)
    at = positions(jnp.zeros(h.shape[0], jnp.int32), h.shape[1], None)
    q, k, r = (rotate(x, at, mixer.rope_base) for x in (q, k, given["direction"]))
    scores = jnp.einsum("bthd,bihd->bhti", q, k) * k.shape[-1] ** -0.5
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    p = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), -1)
    mean, value_mean = (jnp.einsum("bhti,bihd->bthd", p, x) for x in (k, v))
    square = jnp.einsum("bhti,bihd,bihe->bthde", p, k, k)
    s = square - mean[..., :, None] * mean[..., None, :]  # S_t
    cross = jnp.einsum("bhti,bihm,bihd->bthmd", p, v, k)
    c = cross - value_mean[..., :, None] * mean[..., None, :]  # C_t
    learned = -jnp.einsum("bthmd,bthd->bthm", c, r)
    size = jnp.sqrt((learned**2).sum(-1) / (value_mean**2).sum(-1))
    unit = jnp.trace(s, axis1=-2, axis2=-1)[..., None, None] / k.shape[-1]
    found: dict[str, Any] = {"size": size[:, first:].mean((0, 1))}
    # One decomposition for all ridges: several batched LAPACK calls in one program of JAX 0.10 wait
    # for each other for ever on two cores.
    variances, axes = jnp.linalg.eigh(s / jnp.maximum(unit, 1e-12))
    along = jnp.einsum("bthde,bthd->bthe", axes, q - mean)
    for name, ridge in RIDGES.items():
        x = jnp.einsum("bthde,bthe->bthd", axes, along / (variances + ridge))
        exact = jnp.einsum("bthmd,bthd->bthm", c, x)
        found[f"direction, {name}"] = cosine(-r, x)[:, first:].mean((0, 1))
        found[f"correction, {name}"] = cosine(learned, exact)[:, first:].mean((0, 1))
    return found


@eqx.filter_jit
def look(model: Any, x: Any, first: int) -> list[dict[str, Any]]:
    """:func:`compare_directions` of every block."""
    stream, found = model.first(x), []
    for block in model.backbone.blocks:
        found.append(compare_directions(block.mixer, block.mixer_norm(stream), first))
        stream, _ = block(stream, None, None, None)
    return found


def follow(task: Task, seed: int, *, every: int = EVERY, tests: int = 32) -> dict[str, Any]:
    """Train ``parallax`` and look at its directions every so many steps."""
    model = task.build("parallax", jax.random.key(seed), task.size)
    given, targets = task.draw(np.random.default_rng([VALID, 0]), 8 * tests)
    first = task.scored.start or 0
    predict = eqx.filter_jit(lambda model, x: model(x))
    record: dict[str, Any] = {"step": [], "error": [], "blocks": []}

    def note(step: int, model: Any) -> None:
        wrong = np.asarray(task.errors(predict(model, given), targets))[:, task.scored]
        rows = jax.tree.map(lambda x: np.asarray(x).tolist(), look(model, given[:tests], first))
        record["step"].append(step)
        record["error"].append(float(np.nanmean(wrong)))
        record["blocks"].append(rows)

    def batch(step: int) -> Any:
        return tuple(task.draw(np.random.default_rng([seed, step]), task.batch))

    trainer = Trainer(
        model, batches=batch, loss=task.loss, steps=task.steps,
        optimizer=optimiser(RATE, task.steps, warm_up=50, weight_decay=0.01),
    )  # fmt: skip
    note(0, trainer.model)
    for done in trainer.run():
        if done.step % every == 0:
            note(done.step, trainer.model)
    return {**record, "date": time.strftime("%Y-%m-%d")}


def path_of(run: dict[str, Any], what: str) -> np.ndarray:
    """A measure over training, (looks, blocks, heads)."""
    return np.array([[row[what] for row in rows] for rows in run["blocks"]])


def ends(runs: dict[str, Any], what: str) -> np.ndarray:
    """A measure at the end of training, (seeds, blocks, heads)."""
    return np.stack([path_of(run, what)[-1] for run in runs.values()])


@in_house_style
def figure(results: dict[str, Any]) -> Any:
    """Cosines over training, a panel a task and a measure, a thin line a seed, block and head."""
    tasks = [name for name in FOLLOWED if results.get(name)]
    drawn, axes = panels(2 * len(tasks), height=2.75, squeeze=False, sharex=True)
    panel = iter(np.ravel(axes))
    for name in tasks:
        for what in ("direction", "correction"):
            ax, lines = next(panel), {}
            for run in results[name].values():
                path = path_of(run, f"{what}, {SHOWN}")
                for block in range(path.shape[1]):
                    for head in range(path.shape[2]):
                        (lines[block],) = ax.plot(
                            run["step"], path[:, block, head], lw=0.9, color=COLOURS[block],
                            label=f"block {block + 1}",
                        )  # fmt: skip
            ax.axhline(0.0, color="0.4", lw=0.8, ls=(0, (4, 3)))
            ax.set_ylim(-1, 1)
            ax.set_title(f"{FOLLOWED[name]}: {what}s")
            ax.set_ylabel("cosine, learned with exact")
            ax.margins(x=0)
            ax.ends = list(lines.values())
    for ax in np.ravel(axes)[-2:]:
        ax.set_xlabel("training step")
    for ax in np.ravel(axes):
        label_lines(ax, ax.ends)
    return drawn


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--figures", action="store_true", help="draw only")
    parser.add_argument("--quick", action="store_true", help="small, asserted")
    args = parser.parse_args(argv)
    if args.quick:
        return quick()
    for name in FOLLOWED if not args.figures else ():
        for seed in SEEDS:
            if str(seed) in load_results(NAME, args.results).get(name, {}):
                continue
            found = follow(TASKS[name], seed)
            add_result(NAME, (name, str(seed)), found, args.results)
            print(name, seed, found["error"][-1], found["blocks"][-1], flush=True)
    if results := load_results(NAME, args.results):
        drawn = figure(results)
        drawn.savefig(args.results / f"{NAME}.png", dpi=150)
        plt.close(drawn)
    return None


def quick() -> None:
    """A layer whose direction is set to the exact one has cosines of 1; a run can be drawn."""
    small = {"dim": 16, "blocks": 1, "heads": 1, "key_size": 4}
    task = TASKS["network"]._replace(steps=4, batch=4, size=small)
    run = follow(task, 0, every=2, tests=4)
    assert not np.any(path_of(run, "direction, 0.1")[0]), run  # it starts as softmax attention
    assert np.any(path_of(run, "direction, 0.1")[-1]), run
    figure({"network": {"0": run}}).canvas.draw()
    layer = task.build("parallax", jax.random.key(0), small).backbone.blocks[0].mixer
    x = jax.random.normal(jax.random.key(1), (2, 9, 16))
    q, k, *_ = layer.read(x, None, None)
    assert q.shape == k.shape == (2, 9, 1, 4)

    class Exact:
        """A layer without positions whose direction is kbar - q, the exact one of no slopes."""

        rope_base = 10000.0

        def read(self, h: Any, *_: Any) -> tuple[Any, ...]:
            q, k, v, _, recent = layer.read(h, None, None)
            at = positions(jnp.zeros(h.shape[0], jnp.int32), h.shape[1], None)
            q_at, k_at = rotate(q, at, self.rope_base), rotate(k, at, self.rope_base)
            scores = jnp.einsum("bthd,bihd->bhti", q_at, k_at) / 2
            p = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((9, 9), bool)), scores, -jnp.inf), -1)
            off = jnp.einsum("bhti,bihd->bthd", p, k_at) - q_at
            return q, k, v, {"direction": rotate(off, -at, self.rope_base)}, recent

    found = compare_directions(Exact(), x, 1)
    assert np.allclose(found["direction, infinite"], 1, atol=1e-4), found
    assert np.allclose(found["correction, infinite"], 1, atol=1e-4), found


if __name__ == "__main__":
    main()

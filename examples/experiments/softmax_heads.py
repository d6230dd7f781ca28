"""One softmax head is worse than gradient descent, two nearly reach it: the thesis' figure 2.11.

    python examples/experiments/softmax_heads.py          # three seeds, the figure
    python examples/experiments/softmax_heads.py --quick  # one seed, fewer steps, asserted

One layer of softmax attention without a scale, the query left out of the keys, on the regressions
of regression_tasks.py.  exp(s) is about 1 + s: the difference of two heads is what a linear head
would do (eq. 2.32 to 2.36), so their W_K^T W_Q, each times what its head writes for a target, are
nearly opposite except for a multiple of the identity.  10,000 steps of 2,048 tasks, Adam at 1e-3
with a cosine to 0, from N(0, 0.2^2): from the code's 0.002 the first thousands of steps do nothing.
Results: docs/results/softmax-heads.json and .png.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import optax
from icl_training import Claim, adam, options, run_notes, train
from one_step_gd import construction
from panels import COLOURS, WIDTH, in_house_style, label_lines, line
from regression_tasks import DIM, alignment, half_mse, predict, query_gradient, start, tasks
from task_training import RESULTS, add_result, load_results, save_results

from olsq.icl import products

NAME = "softmax-heads"


def learn(heads: int, seed: int, test: Any, steps: int, batch: int, lr: float) -> dict[str, Any]:
    """A trained layer: its record, its loss, and the sum over heads that should be the identity."""
    reference, _ = construction()
    theirs = query_gradient([reference], test)

    def measure(weights: Any, given: Any) -> dict[str, Any]:
        test, theirs = given
        return {
            "test": half_mse(predict([weights], test, softmax=True), test),
            "cosine": alignment(query_gradient([weights], test, softmax=True), theirs),
        }

    weights, record = train(
        lambda w, task: half_mse(predict([w], task, softmax=True), task),
        start(seed, heads=heads, scale=0.2), lambda key: tasks(key, batch),
        adam(optax.cosine_decay_schedule(lr, steps), 10.0),
        steps=steps, key=jax.random.key(seed, impl="rbg"), every=max(steps // 25, 1),
        measure=measure, test=(test, theirs), say=f"{heads} heads, seed {seed}",
    )  # fmt: skip
    kq, pv = products(weights)
    scaled = pv[:, DIM, DIM, None, None] * kq[:, :DIM, :DIM]
    return {
        "loss": record["test"][-1], "cosine": record["cosine"][-1], "record": record,
        "gd": float(half_mse(predict([reference], test), test)),
        "heads": np.asarray(scaled).round(4).tolist(),
    }  # fmt: skip


def cancelled(found: dict[str, Any]) -> float:
    """Size of the off-diagonal entries of the sum over heads, relative to those of single heads."""
    heads = np.array(found["heads"])
    off = heads[:, ~np.eye(DIM, dtype=bool)]
    return float(np.linalg.norm(off.sum(0)) / np.linalg.norm(off, axis=1).mean())


def claims(runs: dict[str, Any]) -> dict[str, Claim]:
    """Figure 2.11 in numbers, seed by seed."""
    gaps, seeds = {}, sorted({key.split(", ")[1] for key in runs})
    for heads in (1, 2):
        gaps[heads] = np.array([runs[f"{heads}, {s}"]["loss"] - runs[f"{heads}, {s}"]["gd"]
                                for s in seeds])  # fmt: skip
    two = [runs[f"2, {s}"] for s in seeds]
    share = gaps[2] / gaps[1]
    return {
        "B11": Claim(
            "one softmax head is worse than gradient descent, two close most of the gap; what is "
            "off the diagonals cancels (figures 2.10, 2.11)",
            f"loss above gradient descent's {two[0]['gd']:.4f}: one head "
            f"{gaps[1].mean():.4f}, two {gaps[2].mean():.4f} (share of the gap "
            f"{share.min():.3f} to {share.max():.3f} over {len(seeds)} seeds); off-diagonal "
            f"entries of the sum {np.mean([cancelled(r) for r in two]):.2f} of a head's",
            "gap of two heads < .3 of the gap of one, every seed",
            share.max() < 0.3,
        )
    }


@in_house_style
def figure(runs: dict[str, Any]) -> Any:
    """Losses, alignment, and the two heads' products and their sum."""
    fig = plt.figure(figsize=(WIDTH, 6.8), layout="constrained")
    grid = fig.add_gridspec(3, 3, height_ratios=(1.3, 1.3, 1))
    curves = [fig.add_subplot(grid[i, :]) for i in range(2)]
    for key, r in runs.items():
        heads, seed = key.split(", ")
        label = f"{heads} softmax\nhead" + "s" * (heads == "2") if seed == "0" else "_seed"
        for ax, name in zip(curves, ("test", "cosine"), strict=True):
            ax.plot(r["record"]["step"], r["record"][name], color=COLOURS[int(heads)], lw=0.9,
                    label=label)  # fmt: skip
    one = runs["2, 0"]
    line(curves[0], one["gd"], "gradient descent", across=0.4, below=True)
    curves[0].set(xlabel="step", ylabel="loss of the query", title="Training", ylim=(0.17, None))
    curves[1].set(xlabel="step", title="Cosine with gradient descent", ylim=(-0.05, 1.05))
    parts = dict(zip(("head 1", "head 2"), np.array(one["heads"]), strict=True))
    parts["sum"] = sum(parts.values())
    top = max(np.abs(x).max() for x in parts.values())
    for i, (title, values) in enumerate(parts.items()):
        ax = fig.add_subplot(grid[2, i])
        image = ax.imshow(values, cmap="RdBu_r", vmin=-top, vmax=top)
        ax.set(title=title, xticks=[], yticks=[])
        if i == 0:
            ax.set_ylabel("η W$_K^T$W$_Q$")
    fig.colorbar(image, ax=ax, shrink=0.8)
    for ax in curves:
        label_lines(ax)
    return fig


def main(argv: list[str] | None = None) -> None:
    args = options(__doc__, [0, 1, 2]).parse_args(argv)
    began = time.perf_counter()
    test = tasks(jax.random.key(4_000), 10_000)
    if args.quick:
        test = jax.tree.map(lambda part: part[:3_000], test)
        runs = {f"{h}, 0": learn(h, 0, test, steps=1_200, batch=256, lr=1e-2) for h in (1, 2)}
        claim = claims(runs)["B11"]
        assert claim["passed"], claim
        return
    results = load_results(NAME)
    for seed in args.seeds:
        for heads in (1, 2):
            if (key := f"{heads}, {seed}") not in results.get("runs", {}):
                found = learn(heads, seed, test, steps=10_000, batch=2_048, lr=1e-3)
                results = add_result(NAME, ("runs", key), found)
    results["claims"] = claims(results["runs"])
    command, earlier = "python examples/experiments/softmax_heads.py", results.get("run")
    results["run"] = run_notes(command, began, earlier)
    save_results(NAME, results)
    figure(results["runs"]).savefig(RESULTS / f"{NAME}.png", dpi=150)


if __name__ == "__main__":
    main()

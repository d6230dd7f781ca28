"""Trained linear attention on autoregressive sequences: Sander et al. (2024), figures 5, 7, 8, 9.

    python examples/experiments/sander_trained.py                # all figures; goes on where it was
    python examples/experiments/sander_trained.py --parts fig5   # some; several processes may run
    python examples/experiments/sander_trained.py --quick        # reduced further, asserted

Every sequence is s[t + 1] = W s[t] with an orthogonal W of its own; the W do not commute, s[1] is
the same for all, contexts go up to 50, d = 5; 2^14 sequences to train on and 2^10 to test, the same
for all models of a figure and for gradient descent.  Errors are means over the contexts T >= 2, the
sequences and the coordinates; predicting zero has 1 / d.

Reduced for a CPU: batches of STEPS below instead of the paper's 2,000 epochs of 16 batches of 1,024
(figure 5) or 200 (figure 7), with a cosine decay of the learning rate in exchange.
Figure 5 (tokens (0, s[t], s[t - 1]), one head a layer, layer norms, biases) has two rules for the
steps of gradient descent: eta / (t - 1), the mean over the pairs, or the same eta for all t; both
eta are tuned for every depth, on training sequences.
Figure 7 has d = 5 instead of 10 and up to 32 heads instead of 64.  Figure 8 also has sequences with
a random s[1]: the same s[1] for all makes its direction special to the heads.  Figure 9 has one
head, 2^10 independent eigenvalues, contexts up to 10 and full batches.
Results: docs/results/sander-trained.json.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import sander_models as models
from icl_training import options, run_notes
from panels import COLOURS, in_house_style, label_lines, panels
from sander_claims import (
    DEEP,
    FIRST,
    HEADS,
    LONGER,
    TEST,
    claim_5,
    claim_7,
    claim_8,
    claim_9,
    mean_of,
)
from sander_models import DEPTHS, RULES, fit, orthogonal_sequences, orthogonality
from task_training import RESULTS, add_result, load_results

from olsq.icl.autoregressive import contexts, sequences

NAME = "sander-trained"
TRAIN = 2**14  # sequences


def deep(data: Any, table: Any, layers: int, seed: int, **changed: int) -> dict[str, Any]:
    """Figure 5: one model and gradient descent with as many steps, on the same sequences."""
    key = jax.random.key(seed)
    _, tested, record = fit("fig5", models.Augmented(layers, key), *data, seed=seed, **changed)
    record = {"layers": layers} | record
    for rule, row in table.items():
        eta, reference = row[layers - 1]
        excess = tested - reference
        error = excess.std(ddof=1) / len(excess) ** 0.5
        record[f"descent, {rule}"] = float(reference.mean())
        record[f"eta, {rule}"] = eta
        record[f"model minus descent, {rule}"] = float(excess.mean())
        record[f"its standard error, {rule}"] = float(error)
    return record


def wide(data: Any, heads: int, copies: int, seed: int, **changed: int) -> dict[str, Any]:
    """Figure 7: one model."""
    model = models.Bare(heads, copies, jax.random.key(seed))
    record = fit("fig7", model, *data, seed=seed, **changed)[-1]
    return {"heads": heads, "copies": copies} | record


def aligned(first: str, data: Any, seed: int, *, heads: int = 8, **changed: int) -> dict[str, Any]:
    """Figure 8: heads that begin nearly equal."""
    start = models.Bare(heads, 2, jax.random.key(seed), spread=0.05)
    model, _, record = fit("fig8", start, *data, seed=seed, **changed)
    before, after = orthogonality(start), orthogonality(model)
    return {"first state": first, "heads": heads} | record | {
        "off / diagonal, start": before[1], "off / diagonal, end": after[1],
        "folded, start": before[2], "folded, end": after[2],
        "sum of B^T B": [before[0].tolist(), after[0].tolist()],
    }  # fmt: skip


def scalar(softmax: bool, mlp: bool, seed: int, **changed: int) -> dict[str, Any]:
    """Figure 9: one model."""
    states = sequences(contexts(2 * models.BATCH["fig9"], seed), 10)
    halves = states[: models.BATCH["fig9"]], states[models.BATCH["fig9"] :]
    start = models.Scalar(10, jax.random.key(seed), softmax=softmax, mlp=mlp)
    record = fit("fig9", start, *halves, seed=seed, **changed)[-1]
    return {"softmax": softmax, "mlp": mlp} | record


@in_house_style
def figure_5(rows: list[dict[str, Any]]) -> Any:
    fig, ax = panels(1, height=3.2)
    for seed in sorted({row["seed"] for row in rows}):  # not their mean: some runs get stuck
        errors = [mean_of(rows, layers=n, steps=DEEP, seed=seed) for n in DEPTHS]
        ax.plot(DEPTHS, errors, "o-", color=COLOURS[0], lw=0.9, ms=4, label=f"model, seed {seed}")
    longer = mean_of(rows, layers=4, steps=LONGER)
    ax.plot(4, longer, "*", color=COLOURS[0], label="_longer")
    ax.annotate("trained longer", (4, longer), (6, -3), textcoords="offset points", fontsize=8,
                color=COLOURS[0])  # fmt: skip
    for rule, colour in zip(RULES, COLOURS[1:3], strict=True):
        errors = [mean_of(rows, f"descent, {rule}", layers=n) for n in DEPTHS]
        ax.plot(DEPTHS, errors, "s--", color=colour, lw=0.9, ms=4, label=f"descent,\nsteps {rule}")
    ax.set(xlabel="depth, steps", ylabel="mean squared error", yscale="log")
    label_lines(ax)
    return fig


@in_house_style
def figure_7(rows: list[dict[str, Any]]) -> Any:
    fig, ax = panels(1, height=3.0)
    for i, (copies, name) in enumerate(((1, "$e_t = s_t$"), (2, "$e_t = (s_t, s_t)$"))):
        for seed in sorted({row["seed"] for row in rows}):
            errors = [mean_of(rows, heads=n, copies=copies, seed=seed) for n in HEADS]
            ax.plot(HEADS, errors, "o-", color=COLOURS[i], lw=0.9, ms=3,
                    label="_seed" if seed else name)  # fmt: skip
    ax.set(xlabel="heads", ylabel="mean squared error", xscale="log", xticks=HEADS)
    ax.set_xticks(HEADS, [str(n) for n in HEADS])
    ax.minorticks_off()
    ax.set_ylim(0)
    label_lines(ax)
    return fig


@in_house_style
def figure_8(rows: list[dict[str, Any]]) -> Any:
    fig, axes = panels(len(FIRST), 2, height=2.3)
    for line, first in zip(axes, FIRST, strict=True):
        row = next(row for row in rows if row["first state"] == first)
        for ax, values, when in zip(line, row["sum of B^T B"], ("start", "end"), strict=True):
            fig.colorbar(ax.imshow(np.abs(values), cmap="viridis"), ax=ax, shrink=0.8)
            ax.set_title(f"{first} $s_1$, {when}: {row[f'off / diagonal, {when}']:.2f}")
            ax.grid(visible=False)
    fig.suptitle(r"$|\sum_h B_h^\top B_h|$ and its mean off the diagonal over that on it")
    return fig


@in_house_style
def figure_9(rows: list[dict[str, Any]]) -> Any:
    fig, ax = panels(1, height=3.2)
    for row in rows:
        name = ("softmax" if row["softmax"] else "linear") + (", MLP" if row["mlp"] else "")
        losses = row["training loss"]
        steps = row["steps"] * (np.arange(len(losses)) + 0.5) / len(losses)
        color, style = COLOURS[int(row["softmax"])], "--" if row["mlp"] else "-"
        label = name if row["seed"] == rows[0]["seed"] else "_seed"
        ax.plot(steps, losses, style, color=color, lw=0.9, label=label)
    ax.set(xlabel="step", ylabel="training loss", yscale="log")
    label_lines(ax)
    return fig


def jobs(part: str, seeds: list[int]) -> dict[str, Any]:
    """A training run for every key of the results file; the data are the same for all."""
    if part == "fig9":
        return {
            f"softmax={s}, mlp={m}, seed={seed}": partial(scalar, s, m, seed)
            for seed in seeds
            for s in (False, True)
            for m in (False, True)
        }
    sets = {
        first: [orthogonal_sequences(n, s, first=first) for s, n in ((1, TRAIN), (2, TEST))]
        for first in FIRST
    }
    if part == "fig8":
        return {
            f"first={first}, seed={seed}": partial(aligned, first, sets[first], seed)
            for seed in seeds
            for first in FIRST
        }
    data = sets["same"]
    if part == "fig7":
        return {
            f"heads={heads}, copies={copies}, seed={seed}": partial(wide, data, heads, copies, seed)
            for seed in seeds
            for heads in HEADS
            for copies in (2, 1)
        }
    table = models.descent_table(data[0][:TEST], data[1])
    grid = {
        f"layers={layers}, seed={seed}": partial(deep, data, table, layers, seed)
        for seed in seeds
        for layers in DEPTHS
    }
    return grid | {"layers=4, longer": partial(deep, data, table, 4, 0, steps=LONGER)}


PARTS = {
    "fig5": ("E3", claim_5, figure_5), "fig7": ("E5", claim_7, figure_7),
    "fig8": ("E6", claim_8, figure_8), "fig9": ("E7", claim_9, figure_9),
}  # fmt: skip


def run(part: str, seeds: list[int]) -> None:
    """Train what the results file has not got yet, then judge and draw the part."""
    for key, job in jobs(part, seeds).items():
        if key not in load_results(NAME).get(part, {}):
            record = job()
            add_result(NAME, (part, key), record)
            print(f"{part}, {key}: mse {record['mse']:.3g}, {record['seconds']} s", flush=True)
    rows = list(load_results(NAME)[part].values())
    name, claim, figure = PARTS[part]
    found = claim(rows)
    add_result(NAME, ("claims", name), found)
    command = f"python examples/experiments/sander_trained.py --parts {part}"
    seconds = round(sum(row["seconds"] for row in rows), 1)
    notes = run_notes(command, time.perf_counter(), seconds=seconds)
    add_result(NAME, ("run", part), notes)
    figure(rows).savefig(RESULTS / f"sander-{part}.png", dpi=150)
    plt.close("all")
    print(part, found, flush=True)


def quick() -> None:
    """Every criterion at a size for a test."""
    data = orthogonal_sequences(2**12, 1), orthogonal_sequences(TEST, 2)
    table = models.descent_table(data[0][:256], data[1])
    found = np.array([errors.mean() for _, errors in table[RULES[0]]])
    assert np.abs(found / models.REFERENCE - 1.0).max() < 0.05, found
    one = deep(data, table, 1, 0, steps=240, batch=64, marks=1)
    assert one["mse"] < 1.1 * found[0], one["mse"]
    data = data[0], data[1][:64]
    small: Any = {"steps": 120, "batch": 16, "marks": 1}
    few = wide(data, 1, 2, 0, **small)["mse"]
    several = aligned("same", data, 0, heads=4, **small)
    assert several["mse"] < 0.95 * few, (several["mse"], few)
    assert several["off / diagonal, end"] < several["off / diagonal, start"]
    linear, softmax = (scalar(s, False, 0, steps=300, marks=1)["mse"] for s in (False, True))
    assert softmax > 10 * linear, (linear, softmax)


def main(argv: list[str] | None = None) -> None:
    parser = options(__doc__, [0, 1])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    args = parser.parse_args(argv)
    if args.quick:
        quick()
        return
    for part in args.parts:
        run(part, args.seeds)


if __name__ == "__main__":
    main()

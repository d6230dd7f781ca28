"""What a trained MesaNet loses when it solves less, and how hard its systems are.

    python examples/experiments/test_time_compute.py                 # a model of noisy recall
    python examples/experiments/test_time_compute.py models/mesa-0.003-0.safetensors
    python examples/experiments/test_time_compute.py --quick         # an untrained model, asserted

Two models: one trained here on noisy recall for 400 steps, whose answers need what it has stored,
and one of language_models.py, if named.  Fixed numbers of conjugate-gradient steps, and tolerances,
against test loss and the mean number of steps; condition numbers by head over position (MesaNet,
section 6, figures 7 and 13).  Results: docs/results/test-time-compute.json, a figure for each.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import matplotlib.pyplot as plt
import noisy_recall
import numpy as np
from language_models import load_corpus, make_model
from matplotlib.ticker import LogLocator
from noisy_recall import SEQUENCES
from panels import COLOURS, in_house_style, label_points, panels
from scipy.stats import spearmanr
from task_training import RESULTS, add_result, batches, loss_of, paper_gates, train

import olsq
import olsq.nn
from olsq.tasks import mad
from olsq.train import evaluate

NAME = "test-time-compute"
STEPS = (0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 30)
TOLERANCES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5)


def mean_steps(model: Any, windows: Any) -> float:
    """Steps per token, over layers, heads and tokens."""
    found = olsq.nn.diagnose(model, windows[:, :-1], every=windows.shape[1])
    return float(np.mean([np.mean(d.steps) for d in found.values()]))


def spend(
    model: Any,
    measure: Callable[[Any], float],
    windows: Any,
    numbers: Any = STEPS,
    tolerances: Any = TOLERANCES,
) -> dict[str, Any]:
    """Loss at fixed numbers of steps and at tolerances, against the exact solution's."""
    exact = measure(model.with_solver(None))
    fixed, adaptive = [], []
    for steps in numbers:
        start = "query" if steps == 0 else "jacobi"
        solver = olsq.ConjugateGradient(max_steps=steps, tol=0.0, start=start)
        fixed.append(measure(model.with_solver(solver)))
        print(f"{steps:3d} steps: loss {fixed[-1]:.4f} (exact {exact:.4f})", flush=True)
    for tol in tolerances:
        spent = model.with_solver(olsq.ConjugateGradient(max_steps=200, tol=tol))
        loss = measure(spent)
        adaptive.append([tol, mean_steps(spent, windows[:8]), loss])
        print(f"tol {tol:g}: {adaptive[-1][1]:.2f} steps, loss {loss:.4f}", flush=True)
    return {"exact": exact, "steps": numbers, "fixed": fixed, "adaptive": adaptive}


def conditions(model: Any, windows: Any, every: int = 8) -> dict[str, Any]:
    """Condition numbers, gates, ridges and steps by head, means over sequences."""
    solver = olsq.ConjugateGradient(max_steps=200, tol=1e-4)
    found = olsq.nn.diagnose(model.with_solver(solver), windows[:, :-1], every=every)
    heads = []
    for block, d in found.items():
        for h in range(d.ridge.shape[0]):
            heads.append({
                "block": block, "head": h,
                "condition": np.exp(np.log(np.asarray(d.condition)[..., h]).mean(0)).tolist(),
                "forget": float(np.mean(d.forget[..., h])),
                "weight": float(np.mean(d.weight[..., h])),
                "ridge": float(np.mean(d.ridge[h])),
                "steps": float(np.mean(d.steps[..., h])),
            })  # fmt: skip
        positions = d.positions.tolist()
    return {"positions": positions, "heads": heads}


@in_house_style
def figure(found: dict[str, Any], trained: int) -> Any:
    """Losses by steps, condition numbers by position, and the steps that they take."""
    fig, axes = panels(3, height=2.9)
    spent, heads = found["spend"], found["conditions"]["heads"]
    ax = axes[0]
    tol, steps, loss = np.array(spent["adaptive"]).T
    excess = loss - spent["exact"]
    ax.plot(spent["steps"], np.array(spent["fixed"]) - spent["exact"], "o-", ms=3,
            color=COLOURS[0])  # fmt: skip
    ax.plot(steps, excess, "o-", ms=3, color=COLOURS[1])
    # Signed: fewer steps may also gain.  Linear around 0, where rounding is all there is.
    ax.set_yscale("symlog", linthresh=1e-5)
    ax.axhline(0, color="0.6", lw=0.8, zorder=0)
    ax.set(xlabel="conjugate-gradient steps per token", ylabel="loss - loss of the exact solution",
           title="Steps fixed (blue), or by a tolerance (named)", xlim=(-0.3, 12))  # fmt: skip
    at = np.array(found["conditions"]["positions"]) + 1
    bar = plt.cm.ScalarMappable(plt.Normalize(0, 1), "viridis_r")
    for head in heads:
        axes[1].loglog(at, smoothed(head["condition"]), color=bar.to_rgba(head["forget"]), lw=1)
    label_log(axes[1].yaxis, heads)
    axes[1].axvline(trained, color="0.6", ls=":", lw=0.8)
    axes[1].set(xlabel="position", ylabel="condition number", title="Condition number by head")
    kappa = [head["condition"][-1] for head in heads]
    gates, spent_steps = ([head[name] for head in heads] for name in ("forget", "steps"))
    axes[2].scatter(kappa, spent_steps, c=bar.to_rgba(gates))
    axes[2].set(xscale="log", xlabel="condition number at the end", ylabel="steps to 1e-4",
                title="Harder heads take more steps")  # fmt: skip
    label_log(axes[2].xaxis, heads)
    fig.colorbar(bar, ax=axes[1:], label="mean forget gate")
    names = [(t, n, y) for t, n, y in zip(tol, steps, excess, strict=True)]
    fixed = np.array(spent["fixed"]) - spent["exact"]
    label_points(ax, [
        *((n, y, f"{t:g}", COLOURS[1]) for t, n, y in names),
        *((n, y, "", "k") for n, y in zip(spent["steps"], fixed, strict=True)),
    ], fontsize=8)  # fmt: skip
    return fig


def smoothed(values: list[float], width: int = 9) -> Any:
    """A running geometric mean of long series, whose window shrinks towards both ends."""
    logs = np.log(values)
    if len(logs) < 4 * width:
        return np.exp(logs)
    half = [min(i, len(logs) - 1 - i, width // 2) for i in range(len(logs))]
    return np.exp([logs[i - h : i + h + 1].mean() for i, h in enumerate(half)])


def label_log(axis: Any, heads: list[dict[str, Any]]) -> None:
    """Condition numbers on a logarithmic axis, with as many labels as there is room for."""
    seen = [x for head in heads for x in head["condition"]]
    axis.set_major_formatter("{x:g}")
    if max(seen) > 4 * min(seen):
        axis.set_minor_locator(LogLocator(subs=(2, 5)))
    axis.set_minor_formatter("{x:.2g}")


def study(name: str, measure: Any, model: Any, windows: Any, longer: Any) -> dict[str, Any]:
    """All of it for one model, stored and drawn."""
    found = {"spend": spend(model, measure, windows), "conditions": conditions(model, longer)}
    heads = found["conditions"]["heads"]
    order = spearmanr([h["forget"] for h in heads], [h["condition"][-1] for h in heads])
    found["rank_correlation_gate_condition"] = float(order.statistic)
    print(f"{name}: rank correlation of gate and condition number: {order.statistic:.2f}")
    add_result(NAME, (name,), found)
    return found


def recall() -> tuple[Any, Any]:
    """A Mesa model trained on noisy recall, and the test set."""
    setting = mad.BASELINES["noisy_recall"]._replace(n_train=SEQUENCES)
    data, test = mad.split(setting, 0, n_test=320)
    model = olsq.nn.LanguageModel(
        setting.classes, mixer="mesa", mixer_options=paper_gates("mesa"),
        key=jax.random.key(0), **noisy_recall.MODEL,
    )  # fmt: skip
    stream = batches(data, noisy_recall.BATCH, 400, 0)
    model, _ = train(model, stream, test, steps=400, lr=noisy_recall.LR, target=2.0)
    return model, test


def token_loss(test: Any) -> Callable[[Any], float]:
    """Mean cross entropy of a model on a test set."""
    parts = [(test.inputs[i : i + 32], test.targets[i : i + 32]) for i in range(0, 320, 32)]
    one = eqx.filter_jit(loss_of)
    return lambda model: float(np.mean([one(model, *part) for part in parts]))


def token_mean(windows: Any) -> Callable[[Any], float]:
    """Loss of a language model on windows of tokens."""
    return lambda model: evaluate(model, windows, batch=8).loss


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    if args.quick:
        model = make_model("mesa", 64, 0, dim=32, blocks=1, heads=2, key_size=16)
        windows = np.asarray(jax.random.randint(jax.random.key(0), (8, 49), 0, 64))
        found = spend(
            model, lambda m: evaluate(m, windows, batch=8).loss, windows, (0, 30), (1e-4,)
        )
        assert abs(found["fixed"][-1] - found["exact"]) < 1e-3, found
        return
    if args.model is None:
        model, test = recall()
        found = study("noisy recall", token_loss(test), model, test.inputs, test.inputs[:64])
        figure(found, test.inputs.shape[1]).savefig(RESULTS / f"{NAME}-recall.png", dpi=150)
        return
    model = olsq.nn.load(args.model)
    corpus, _ = load_corpus(model.vocab_size)
    windows = corpus.windows(args.length, args.sequences)
    longer = corpus.windows(4 * args.length, 8)
    found = study(
        "language", token_mean(windows), model, windows, longer
    )  # fmt: skip
    add_result(NAME, ("language", "model"), args.model.name)
    figure(found, args.length).savefig(RESULTS / f"{NAME}-language.png", dpi=150)


if __name__ == "__main__":
    main()

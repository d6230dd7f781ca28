"""What a trained MesaNet loses when it solves less, and how hard its systems are.

    python examples/experiments/test_time_compute.py models/mesa-0.003-0.safetensors
    python examples/experiments/test_time_compute.py --quick   # an untrained model, asserted

Reads a model of language_models.py.  Fixed numbers of conjugate-gradient steps, and tolerances,
against validation loss and the mean number of steps; condition numbers by head over position
(MesaNet, section 6, figures 7 and 13).  Results: docs/results/test-time-compute.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
from language_models import load_corpus, make_model
from scipy.stats import spearmanr
from task_training import RESULTS, save_results

import olsq
import olsq.nn
from olsq.train import evaluate

NAME = "test-time-compute"
STEPS = (0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 30)
TOLERANCES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5)


def mean_steps(model: Any, windows: Any) -> float:
    """Steps per token, over layers, heads and tokens."""
    found = olsq.nn.diagnose(model, windows[:, :-1], every=windows.shape[1])
    return float(np.mean([np.mean(d.steps) for d in found.values()]))


def spend(
    model: Any, windows: Any, numbers: Any = STEPS, tolerances: Any = TOLERANCES
) -> dict[str, Any]:
    """Loss at fixed numbers of steps and at tolerances, against the exact solution's."""
    exact = evaluate(model.with_solver(None), windows, batch=8).loss
    fixed, adaptive = [], []
    for steps in numbers:
        start = "query" if steps == 0 else "jacobi"
        solver = olsq.ConjugateGradient(max_steps=steps, tol=0.0, start=start)
        fixed.append(evaluate(model.with_solver(solver), windows, batch=8).loss)
        print(f"{steps:3d} steps: loss {fixed[-1]:.4f} (exact {exact:.4f})", flush=True)
    for tol in tolerances:
        spent = model.with_solver(olsq.ConjugateGradient(max_steps=200, tol=tol))
        loss = evaluate(spent, windows, batch=8).loss
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


def figure(found: dict[str, Any], trained: int) -> Any:
    """The four panels of the page."""
    fig, axes = plt.subplots(1, 4, figsize=(17, 3.9), layout="constrained")
    spent, heads = found["spend"], found["conditions"]["heads"]
    excess = np.maximum(np.array(spent["fixed"]) - spent["exact"], 1e-6)
    axes[0].semilogy(spent["steps"], excess, "o-")
    axes[0].set(xlabel="conjugate-gradient steps, fixed", ylabel="loss above exact (floor 1e-6)",
                title="Fixed steps")  # fmt: skip
    tol, steps, loss = np.array(spent["adaptive"]).T
    axes[1].semilogy(steps, np.maximum(loss - spent["exact"], 1e-6), "o-", color="C1")
    for t, x, y in zip(tol, steps, np.maximum(loss - spent["exact"], 1e-6), strict=True):
        axes[1].annotate(f"{t:g}", (x, y), (4, 4), textcoords="offset points", fontsize=7)
    axes[1].set(xlabel="mean steps a token", title="Stopping at a tolerance (labels)")
    at = np.array(found["conditions"]["positions"]) + 1
    for head in heads:
        axes[2].loglog(at, head["condition"], color=plt.cm.viridis(head["forget"]), lw=1.2)
    axes[2].axvline(trained, color="0.6", ls=":", lw=0.8)
    axes[2].set(xlabel="position", title="Condition number by head (colour: mean gate)")
    bar = plt.cm.ScalarMappable(plt.Normalize(0, 1), "viridis")
    fig.colorbar(bar, ax=axes[2], label="mean forget gate")
    kappa = [head["condition"][-1] for head in heads]
    gates, spent_steps = ([head[name] for head in heads] for name in ("forget", "steps"))
    axes[3].scatter(kappa, spent_steps, c=gates, cmap="viridis", vmin=0, vmax=1)
    axes[3].set(xscale="log", xlabel="condition number at the end", ylabel="steps to 1e-4",
                title="Harder heads take more steps")  # fmt: skip
    return fig


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--sequences", type=int, default=64)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    if args.quick:
        model = make_model("mesa", 64, 0, dim=32, blocks=2, heads=2, key_size=16)
        windows = np.asarray(jax.random.randint(jax.random.key(0), (8, 49), 0, 64))
        found = spend(model, windows, (0, 30), (1e-4,))
        assert abs(found["fixed"][-1] - found["exact"]) < 1e-3, found
        return
    if args.model is None:
        parser.error("name a model that language_models.py trained")
    model = olsq.nn.load(args.model)
    corpus, _ = load_corpus(model.vocab_size)
    windows = corpus.windows(args.length, args.sequences)
    found = {
        "model": args.model.name, "spend": spend(model, windows),
        "conditions": conditions(model, corpus.windows(4 * args.length, 8)),
    }  # fmt: skip
    heads = found["conditions"]["heads"]
    order = spearmanr([h["forget"] for h in heads], [h["condition"][-1] for h in heads])
    found["rank_correlation_gate_condition"] = float(order.statistic)
    print(f"rank correlation of gate and condition number: {order.statistic:.2f}")
    save_results(NAME, found)
    figure(found, args.length).savefig(RESULTS / f"{NAME}.png", dpi=150)


if __name__ == "__main__":
    main()

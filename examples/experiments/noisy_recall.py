"""Noisy recall from scratch, every mixer in the same two blocks.

    python examples/experiments/noisy_recall.py            # all mixers, then the figure
    python examples/experiments/noisy_recall.py --mixers mesa gla
    python examples/experiments/noisy_recall.py --quick    # Mesa, on 2 keys in short sequences

The MAD task at its baseline (32 tokens of which 16 are noise, 128 long, 20 % noise) with 6,400
training sequences, and a model of width 64: minutes on two CPU cores.  Results go to
docs/results/noisy-recall.json as they come; mixers that are there already are not run again.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
from panels import COLOURS, in_house_style, panels
from task_training import RESULTS, add_result, batches, load_results, paper_gates, train

import olsq
import olsq.nn
from olsq.tasks import mad

NAME = "noisy-recall"
MODEL: dict[str, Any] = {
    "dim": 64, "blocks": 2, "heads": 4, "key_size": 16, "initialisation": "fan-in",
}  # fmt: skip
STEPS, LR, BATCH, SEQUENCES = 1500, 3e-3, 32, 6400
GOAL = 0.99
SOLVED = ("mesa", "mesa_discounted", "mesa_window", "kalman", "hawk-mesa")
# Two keys with one of two values each: a guess is right half of the time.  Conjugate gradient
# compiles in half of the exact solver's time, which is most of it.
QUICK_OPTIONS = {"vocab": 8, "noise_vocab": 4, "length": 32}
QUICK_MODEL = {"dim": 32, "heads": 2, "solver": olsq.ConjugateGradient(max_steps=8)}
QUICK_LR, QUICK_BATCH = 1e-2, 16


def run(
    mixer: Any, seed: int, *, steps: int, target: float = 0.999, quick: bool = False
) -> dict[str, Any]:
    """Train one mixer from scratch; its learning curve."""
    setting = mad.BASELINES["noisy_recall"]
    options = {**setting.options, **(QUICK_OPTIONS if quick else {})}
    setting = setting._replace(n_train=SEQUENCES, options=options)
    data, test = mad.split(setting, seed, n_test=128 if quick else 320)
    size = {**MODEL, **(QUICK_MODEL if quick else {})}
    gates = paper_gates(*([mixer] if isinstance(mixer, str) else mixer))
    model = olsq.nn.LanguageModel(
        setting.classes, mixer=mixer, mixer_options=gates, key=jax.random.key(seed), **size
    )
    stream = batches(data, QUICK_BATCH if quick else BATCH, steps, seed)
    lr, every = (QUICK_LR, 25) if quick else (LR, 50)
    _, record = train(model, stream, test, steps=steps, lr=lr, target=target, every=every)
    record["parameters"] = olsq.nn.count_parameters(model)
    return record


@in_house_style
def figure(results: dict[str, Any]) -> Any:
    """Learning curves, a lane for each mixer, in the order in which they reach the goal."""

    def reached(name: str) -> tuple[float, float]:
        found = results[name]
        steps = [s for s, a in zip(found["step"], found["micro"], strict=True) if a >= GOAL]
        return (steps[0] if steps else np.inf), -max(found["micro"])

    order = sorted(results, key=reached)
    fig, ax = panels(1, height=0.4 + 0.21 * len(order))
    for i, name in enumerate(order):
        found, solved = results[name], name in SOLVED
        step, height = [0, *found["step"]], -i + 0.9 * np.array([0, *found["micro"]])
        colour = COLOURS[0] if solved else COLOURS[-1]
        ax.fill_between(step, -i, height, color=colour, alpha=0.25, lw=0)
        ax.plot(step, height, color=colour, lw=1.0)
        if np.isfinite(reached(name)[0]):
            ax.plot(reached(name)[0], -i + 0.9 * GOAL, "o", color=colour, ms=3.5)
        else:
            best = f"not {GOAL:.0%}: {max(found['micro']):.3f}"
            ax.annotate(best, (found["step"][-1], height[-1]), (0, -3), fontsize=8,
                        textcoords="offset points", ha="right", va="top", color=colour)  # fmt: skip
    ax.set_yticks(np.arange(len(order)) * -1.0 + 0.35, order)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.set(xlabel=f"step (dot: {GOAL:.0%}; blue: solves a regression)", xlim=(0, None))
    ax.set(ylim=(0.1 - len(order), 1.05), title="Test accuracy, 0 to 1 in each lane")
    return fig


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    known = [n for n, kind in olsq.nn.MIXERS.items() if kind.causal] + ["hawk-mesa"]
    parser.add_argument("--mixers", nargs="+", choices=known, default=known, metavar="MIXER")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a small Mesa model, asserted")
    args = parser.parse_args(argv)
    if args.quick:
        record = run("mesa", args.seed, steps=100, target=0.9, quick=True)
        assert record["micro"][-1] >= 0.9, record["micro"]
        return
    results = load_results(NAME)
    for name in args.mixers:
        if name in results and results[name]["seed"] == args.seed:
            continue
        print(f"== {name}", flush=True)
        mixer = ("hawk", "mesa") if name == "hawk-mesa" else name
        found = {**run(mixer, args.seed, steps=STEPS), "seed": args.seed}
        results = add_result(NAME, (name,), found)
        figure(results).savefig(RESULTS / f"{NAME}.png", dpi=150)
        plt.close("all")


if __name__ == "__main__":
    main()

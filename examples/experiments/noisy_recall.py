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
from task_training import RESULTS, add_result, batches, load_results, train

import olsq
import olsq.nn
from olsq.tasks import mad

NAME = "noisy-recall"
MODEL: dict[str, Any] = {
    "dim": 64, "blocks": 2, "heads": 4, "key_size": 16, "initialisation": "fan-in",
}  # fmt: skip
STEPS, LR, BATCH, SEQUENCES = 1500, 3e-3, 32, 6400
GOAL = 0.99
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
    model = olsq.nn.LanguageModel(setting.classes, mixer=mixer, key=jax.random.key(seed), **size)
    stream = batches(data, QUICK_BATCH if quick else BATCH, steps, seed)
    lr, every = (QUICK_LR, 25) if quick else (LR, 50)
    _, record = train(model, stream, test, steps=steps, lr=lr, target=target, every=every)
    record["parameters"] = olsq.nn.count_parameters(model)
    return record


def figure(results: dict[str, Any]) -> Any:
    """Learning curves, one panel per kind of memory, the goal as a line."""
    kinds = {
        "attention": ("softmax", "sliding_window"),
        "sums": ("linear", "retention", "mamba2", "gla", "hgrn2", "rwkv6", "mlstm"),
        "entry by entry": ("mamba", "longhorn", "hawk", "hawk-mesa"),
        "delta rules, test-time training": (
            "delta", "gated_delta", "preconditioned_delta", "ttt_linear", "ttt_mlp",
        ),
        "regressions solved": ("mesa", "mesa_discounted", "mesa_window", "kalman"),
    }  # fmt: skip
    shape = {"figsize": (16, 3.6), "sharex": True, "sharey": True, "layout": "constrained"}
    fig, axes = plt.subplots(1, len(kinds), **shape)
    for ax, (title, names) in zip(axes, kinds.items(), strict=True):
        for i, name in enumerate(names):
            if name not in results:
                continue
            r = results[name]
            ax.plot(
                r["step"], r["micro"], label=name, lw=1.8, color=f"C{i}",
                ls=("-", "--", ":", "-.")[i % 4], marker="o", ms=2.5,
            )  # fmt: skip
        ax.axhline(GOAL, color="0.6", lw=0.8, zorder=0)
        ax.set(title=title, xlabel="step", xlim=(0, None), ylim=(0, 1.02))
        if ax.lines[:-1]:
            ax.legend(fontsize=8, loc="lower right", frameon=False)
    axes[0].set_ylabel("test accuracy of recalled values")
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

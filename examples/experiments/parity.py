"""Parity separates gates in (-1, 1) from gates in (0, 1): MesaNet, appendix H, figure 8.

    python examples/experiments/parity.py          # both models, seeds 0 to 2, and the figure
    python examples/experiments/parity.py --gates "(-1, 1)" --steps 4000 --seeds 1    # beside them
    python examples/experiments/parity.py --quick  # strings of 12, asserted

Two blocks of width 32 with 2 heads of 16, bit strings of length 40, batches of 128 fresh strings;
tested at lengths up to 256.  The state-tracking MesaNet has a ridge of at least 49 and gates in
(-1, 1); the other is the same with gates in (0, 1).  Results: docs/results/parity.json.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from icl_training import Claim, options, run_notes
from panels import COLOURS, in_house_style, label_lines, line, panels
from task_training import RESULTS, add_result, load_results, save_results, train

import olsq
import olsq.nn
from olsq.tasks import Tokens, parity

NAME = "parity"
MODEL: dict[str, Any] = {
    "dim": 32, "blocks": 2, "heads": 2, "key_size": 16, "initialisation": "fan-in",
}  # fmt: skip
LENGTH, LONG, BATCH, STEPS = 40, 256, 128, 2000
GATES = {
    "(-1, 1)": {"signed": True},
    "(0, 1)": {"forget_bias": 0.0, "ridge_floor": 49.0, "ridge_start": 50.0},
}


def fresh(seed: int, steps: int, batch: int, length: int) -> Iterator[tuple[Any, Any]]:
    """New strings in every batch."""
    for step in range(steps):
        yield parity(batch, seed * 1_000_000 + step, length=length)


def by_length(model: Any, seed: int) -> list[float]:
    """Accuracy at each position of long strings, never seen in training."""
    data = parity(512, 7_000_000 + seed, length=LONG)
    guess = np.asarray(jax.jit(lambda x: jnp.argmax(model(x), -1))(data.inputs))
    return (guess == data.targets).mean(0).tolist()


def run(
    gates: str,
    seed: int,
    steps: int,
    *,
    length: int = LENGTH,
    batch: int = BATCH,
    lr: float = 1e-3,
    every: int = 100,
    **sizes: Any,
) -> tuple[Any, dict[str, Any]]:
    """Train one model; accuracy as it goes."""
    model = olsq.nn.LanguageModel(
        2,
        mixer="mesa",
        mixer_options={"mesa": GATES[gates]},
        key=jax.random.key(seed),
        **{**MODEL, **sizes},
    )
    test = Tokens(*parity(512, 8_000_000 + seed, length=length))
    return train(
        model, fresh(seed, steps, batch, length), test, steps=steps, lr=lr, weight_decay=0.03,
        every=every, target=1.1,
    )  # fmt: skip


@in_house_style
def figure(runs: dict[str, Any]) -> Any:
    """Learning curves at length 40, and accuracy by position up to length 256; a line a seed."""
    fig, axes = panels(2)
    for i, gates in enumerate(GATES):
        for key, found in runs.items():
            if not (key.startswith(gates) and usual(key)):
                continue
            own = {"color": COLOURS[i], "lw": 0.9}
            own["label"] = f"gates in\n{gates}" if key.endswith("seed 2") else "_seed"
            axes[0].plot(found["step"], found["micro"], **own)
            means = np.convolve(found["by_position"], np.ones(8) / 8, "valid")
            axes[1].plot(np.arange(len(means)) + 4.5, means, **own)
    for ax in axes:
        line(ax, 0.5, "guessing", below=True)
        ax.set_ylim(0.4, 1.03)
        ax.set_ylabel("accuracy")
    axes[0].set(xlabel="step", title=f"Training on length {LENGTH}")
    axes[1].axvline(LENGTH, color="0.6", lw=0.8, ls=":")
    axes[1].set(xlabel="position (running mean of 8)", title=f"Tested up to length {LONG}")
    for ax in axes:
        label_lines(ax)
    return fig


def name_of(gates: str, seed: int, steps: int = STEPS) -> str:
    """The key of a run."""
    return f"{gates}, seed {seed}" + (f", {steps} steps" if steps != STEPS else "")


def claims(runs: dict[str, Any]) -> dict[str, Claim]:
    """D3."""
    shares = {
        gates: [
            (float(np.mean(r["by_position"])), end_of(r))
            for key, r in runs.items() if key.startswith(gates) and usual(key)
        ]
        for gates in GATES
    }  # fmt: skip
    signed, plain = ([tail for _, tail in found] for found in shares.values())
    longer = [f"{key}: {end_of(r):.3f}" for key, r in runs.items() if not usual(key)]
    return {
        "D3": Claim(
            "gates in (-1, 1) solve parity at length 256, in (0, 1) chance (MesaNet, figure 8)",
            f"last 40 of 256 positions (all of them) after {STEPS:,} steps, by seed: "
            + "; ".join(
                f"gates in {gates}: {', '.join(f'{tail:.3f} ({mean:.3f})' for mean, tail in found)}"
                for gates, found in shares.items()
            ),
            "last 40: > .95 and < .70, every seed",
            min(signed) > 0.95 and max(plain) < 0.7,
            "all lose track slowly past position 150, and how far is near the criterion: seed 1 "
            "ended at .939 in an earlier run that decayed more weights; over whole strings all are "
            "above .98" + (f"; longer, gates in {'; '.join(longer)}" if longer else ""),
        )
    }


def usual(key: str) -> bool:
    """Whether a run has the usual number of steps."""
    return not key.endswith("steps")


def end_of(found: dict[str, Any]) -> float:
    """Accuracy at the last 40 of 256 positions."""
    return float(np.mean(found["by_position"][-40:]))


def main(argv: list[str] | None = None) -> None:
    parser = options(__doc__, [0, 1, 2])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--gates", nargs="+", choices=GATES, default=list(GATES))
    args = parser.parse_args(argv)
    began = time.perf_counter()
    if args.quick:
        small: Any = {"length": 12, "batch": 64, "lr": 3e-3, "every": 35, "blocks": 1}
        # Compiles in half of the exact solver's time, and ridges of 50 are solved in no time.
        small["solver"] = olsq.ConjugateGradient(max_steps=8)
        signed, plain = (run(gates, 0, 70, **small)[1]["micro"] for gates in GATES)
        assert signed[-1] > 0.99, signed
        assert plain[-1] < 0.9, plain
        return
    results = load_results(NAME)
    for seed in args.seeds:
        for gates in args.gates:
            if (key := name_of(gates, seed, args.steps)) not in results.get("runs", {}):
                print(f"== {key}", flush=True)
                model, record = run(gates, seed, args.steps)
                found = {**record, "by_position": by_length(model, seed)}
                results = add_result(NAME, ("runs", key), found)
    results["claims"] = claims(results["runs"])
    command = "python examples/experiments/parity.py"
    spent = sum(found["seconds"] for found in results["runs"].values())
    results["run"] = run_notes(command, began, seconds=round(spent, 1))
    save_results(NAME, results)
    figure(results["runs"]).savefig(RESULTS / f"{NAME}.png", dpi=150)


if __name__ == "__main__":
    main()

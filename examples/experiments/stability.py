"""A thousand steps at high learning rates on text with long runs of one token: no mixer may break.

    python examples/experiments/stability.py          # all mixers, three learning rates
    python examples/experiments/stability.py --quick  # Mesa, 40 steps, asserted

bfloat16 activations, width 32, two blocks, sequences of 256.  A third of every sequence is one byte
repeated ("don't scream at your solver", MesaNet appendix F.5), some sequences are nothing else.
Counts steps whose loss, gradient or weights are not finite.  Results: docs/results/stability.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from task_training import DECAYED, add_result, load_results, optimiser, paper_gates

import olsq.datasets
import olsq.nn
from olsq.train import Trainer

NAME = "stability"
RATES = (3e-4, 1e-3, 3e-3)
MODEL: dict[str, Any] = {
    "dim": 32, "blocks": 2, "heads": 2, "key_size": 16, "dtype": "bfloat16",
    "initialisation": "fan-in",
}  # fmt: skip
BATCH, LENGTH = 4, 256


def screaming(steps: int, seed: int) -> Iterator[Any]:
    """Batches (B, T + 1) of bytes: text, with a long run of one byte; the last row is all run."""
    text = np.frombuffer(olsq.datasets.austen().encode(), np.uint8)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        starts = rng.integers(0, len(text) - LENGTH - 1, BATCH)
        rows = text[starts[:, None] + np.arange(LENGTH + 1)].astype(np.int32)
        for row, at in zip(rows, rng.integers(0, LENGTH - LENGTH // 3, BATCH), strict=True):
            row[at : at + LENGTH // 3] = ord(" ")
        rows[-1] = rng.integers(32, 127)
        yield rows


def run(mixer: str, lr: float, steps: int) -> dict[str, Any]:
    """Losses, and how many steps met a number that is not finite."""
    model = olsq.nn.LanguageModel(
        256, mixer=mixer, mixer_options=paper_gates(mixer), key=jax.random.key(0), **MODEL
    )
    trainer = Trainer(
        model, batches=screaming(steps, seed=0), steps=steps,
        optimizer=optimiser(lr, steps, warm_up=steps // 20, weight_decay=0.1),
    )  # fmt: skip
    began = time.perf_counter()
    log = trainer.fit().log
    losses, broken = log["loss"].tolist(), log.skipped
    # A step of finite numbers leaves finite weights, unless an update overflows.
    weights = jax.tree.leaves(eqx.filter(trainer.model, eqx.is_inexact_array))
    broken += not all(bool(jnp.isfinite(x).all()) for x in weights)
    return {
        "first_loss": losses[0], "last_loss": float(np.mean(losses[-50:])), "largest": max(losses),
        "not_finite": broken, "steps": steps, "decayed": DECAYED,
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    known = [name for name, kind in olsq.nn.MIXERS.items() if kind.causal]
    parser.add_argument("--mixers", nargs="+", choices=known, default=known, metavar="MIXER")
    parser.add_argument("--rates", type=float, nargs="+", default=sorted(RATES, reverse=True))
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(argv)
    if args.quick:
        found = run("mesa", 3e-3, 40)
        assert found["not_finite"] == 0, found
        return
    results = load_results(NAME)
    for lr in args.rates:
        for mixer in args.mixers:
            if (key := f"{mixer}, lr {lr:g}") not in results:
                found = run(mixer, lr, 1000)
                print(key, found, flush=True)
                add_result(NAME, (key,), found)


if __name__ == "__main__":
    main()

"""The section of the results page on models of 3M parameters; see ``language_models_3m.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
from tables import table


def parts(key: str) -> tuple[str, str]:
    """Mixer and rate of a key."""
    mixer, _, lr = key.rpartition(", lr ")
    return mixer, lr


def ended(runs: dict[str, Any], search: dict[str, Any]) -> str:
    """A line a mixer, the least loss first.

    Times are of the short run at the same rate: a long one may have been stopped and resumed.
    """
    rows = []
    for key, row in sorted(runs.items(), key=lambda item: item[1]["loss"]):
        mixer, lr = parts(key)
        short = search[key]
        seconds = f"{short['processor_seconds'] / short['steps'][-1]:.2f}"
        late = f"{row['by_position'][-1]:.3f}"
        rows.append([f"`{mixer}`", lr, f"{row['loss']:.4f}", late, seconds])
    head = ["mixer", "rate", "validation loss", "of the last positions",
            "processor seconds per step"]  # fmt: skip
    return table(head, rows)


def untrained(search: dict[str, Any], runs: dict[str, Any]) -> str:
    """Mixers of the search that have no long run."""
    mixers = dict.fromkeys(parts(key)[0] for key in search)
    short = [name for name in mixers if name not in {parts(key)[0] for key in runs}]
    if not short:
        return ""
    names = ", ".join(f"`{name}`" for name in short)
    return f" Without a long run after the search: {names}."


def section(results: dict[str, Any]) -> str:
    """The rates that were tried, and where the long runs ended."""
    search, runs = results.get("search", {}), results.get("runs", {})
    if len(runs) < 2:
        return ""
    losses = [row["loss"] for row in runs.values()]
    dates = sorted(row["date"] for row in (*search.values(), *runs.values()))
    when = " to ".join(dict.fromkeys([dates[0], dates[-1]]))
    steps = max(row["steps"][-1] for row in runs.values())
    tokens = steps * 4 * 512 / 1e6
    first, last = (row[-1] for row in next(iter(runs.values()))["position"])
    return f"""
## Language models of 3M parameters

`python examples/experiments/language_models_3m.py`, {when}. Four blocks of width 256, 4 heads
of 64, bytes of two novels, {steps:,} steps of 4 sequences of 512 tokens ({tokens:.1f}M tokens).
Losses are nats per byte; "the last positions" are {first:,} to {last:,}. One seed of each: the
spread between seeds is unknown. **The gates start differently**: those of `mesa` near 0.99, those
of `gla`, `gated_delta` and `mamba2` at one half. `softmax` has no short
convolution.{untrained(search, runs)}

![Loss over training, and by position against softmax with a convolution](language-models-3m.png)

{ended(runs, search)}
They are {np.ptp(losses):.3f} nats apart. Peak rates were chosen from three by the loss after 300
steps, or more while the best was an end of the grid.
"""

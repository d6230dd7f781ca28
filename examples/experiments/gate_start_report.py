"""The section of the results page on where gates start; see ``gate_start.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
from gate_start import SEEDS, STARTS, STEPS, TASKS, at_best, best_rate
from tables import table

PAPER = "0.5"
GOAL = 0.99
RECALL = """\
**Noisy recall** at its MAD baseline, 127 tokens, batches of 16, width 32 with heads of 8; 128 test sequences."""
LANGUAGE = """\
**Bytes of two novels**, sequences of 256, batches of 4, width 64 with heads of 16; 48 test sequences."""

CHOICE = """
No seed from one half learned recall in this time, and all from 0.99 did or nearly did. On bytes the starts' means end within 1.4 % of
each other, which is inconclusive. So layers of every rule [start near 0.99](../layers.md#initialisation).
A list such as `forget_bias=[2.2, 3.8, 5.4, 6.9]` spreads the heads.
"""


def steps_to(record: dict[str, Any], goal: float = GOAL) -> float:
    """The step at which accuracy reached the goal, between two measurements by a straight line."""
    steps, found = np.array(record["step"], float), np.array(record["accuracy"])
    above = np.flatnonzero(found >= goal)
    if not above.size:
        return np.inf
    i = int(above[0])
    near = slice(max(i - 1, 0), i + 1)
    return float(np.interp(goal, found[near], steps[near]))


def paired(runs: dict[str, Any], task: str, start: str) -> np.ndarray:
    """Test losses less those of the paper's start, by seed: same weights otherwise, same data."""
    ours, theirs = (at_best(runs, task, name) for name in (start, PAPER))
    return np.array(
        [a["test_loss"][-1] - b["test_loss"][-1] for a, b in zip(ours, theirs, strict=True)]
    )


def verdict(runs: dict[str, Any], task: str) -> str:
    """How each start compares with the paper's, and whether seeds agree on it."""
    parts = []
    for start in STARTS:
        if start == PAPER:
            continue
        gaps = paired(runs, task, start)
        agreed = (gaps < 0).all() or (gaps > 0).all()
        parts.append(f"`{start}` {gaps.mean():+.3f}" + ("" if agreed else " (seeds disagree)"))
    return ", ".join(parts)


def section(results: dict[str, Any]) -> str:
    """The results page's section; nothing while runs are missing."""
    runs = results["runs"]
    if len(runs) < len(TASKS) * len(STARTS) * (len(SEEDS) + 2):
        return ""
    text = f"""
## Where gates start

`python examples/experiments/gate_start.py`, {max(r["date"] for r in runs.values())}, {len(runs)} runs,
{sum(r["cpu_seconds"] for r in runs.values()) / 60:.0f} minutes of processor time. Two Mesa blocks with four heads whose gates start
near `0.5` (the paper's), `0.9`, `0.99`, `0.999`, or `spread`: memories of 10, 46, 215 and 1,000 tokens, one for each head. {STEPS["recall"]}
steps; three learning rates with seed 0, then seeds 1 and 2 at the rate of least test loss. A seed fixes the data and all other
weights.

![Accuracy and loss in training, by start](gate-start.png)
"""
    for task, words in (("recall", RECALL), ("language", LANGUAGE)):
        rows = []
        for start in STARTS:
            found = at_best(runs, task, start)
            losses = " / ".join(f"{r['test_loss'][-1]:.3f}" for r in found)
            steps = (steps_to(r) for r in found)
            reached = " / ".join(f"{n:.0f}" if np.isfinite(n) else "never" for n in steps)
            cells = [f"`{start}`", f"{best_rate(runs, task, start):g}", losses]
            rows.append([*cells, reached])
        lines = ["start", "best rate", "test loss, by seed", "steps to 99 %"]
        text += f"\n{words}\n\n"
        if task == "recall":
            text += table(lines, rows)
        else:
            text += f"Test loss compared with `{PAPER}`, in nats: {verdict(runs, task)}.\n"
    return text + CHOICE

"""The section of the results page on heads over training; see ``heads_over_training.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

LONG = 0.9  # mean gate of a head that remembers ten tokens and more
SHOWN = (1, 3, 5)  # fixed numbers of steps in the table


def heads_of(runs: list[dict[str, Any]], name: str, at: int) -> np.ndarray:
    """All heads of all runs at a look, in one row."""
    return np.concatenate([np.ravel(run["heads"][name][at]) for run in runs])


def by_memory(runs: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Steps at the end, of the heads whose mean gate is above ``LONG`` then, and of the others."""
    long = heads_of(runs, "forget", -1) > LONG
    steps = heads_of(runs, "steps", -1)
    return steps[long], steps[~long]


def hardest(starts: dict[str, list[dict[str, Any]]]) -> float:
    """The largest of all heads at any look, each a geometric mean over tokens."""
    return max(np.max(run["heads"]["condition"]) for runs in starts.values() for run in runs)


def signed(gap: float) -> str:
    """A difference in nats, 0 where it rounds to it."""
    return f"{gap:+.4f}" if round(gap, 4) else "0"


def lost_by(starts: dict[str, list[dict[str, Any]]], steps: int) -> float:
    """The most that a run loses by so many steps in place of the exact solution."""
    spent = [run["spend"] for runs in starts.values() for run in runs]
    return max(s["fixed"][s["steps"].index(steps)] - s["exact"] for s in spent)


def section(results: dict[str, Any]) -> str:
    """What heads did, what fewer steps cost, and what that says of the paper's claims."""
    starts: dict[str, list[dict[str, Any]]] = {}
    for key, run in results["runs"].items():
        starts.setdefault(key.rpartition(", seed ")[0], []).append(run)
    first = next(iter(results["runs"].values()))
    lost = []
    for start, runs in starts.items():
        for run in runs:
            spent = run["spend"]
            gaps = [signed(spent["fixed"][spent["steps"].index(n)] - spent["exact"]) for n in SHOWN]
            tol = next(row for row in spent["adaptive"] if row[0] == 1e-4)
            lost.append(
                f"| {start} | {run['loss']:.3f} | {' | '.join(gaps)} | {tol[1]:.1f} | "
                f"{run['rank_correlation']:+.2f} ({run['rank_correlation_p']:.1g}) |"
            )
    every = [run for runs in starts.values() for run in runs]
    (long, short), (held, let_go) = by_memory(every), by_memory(starts["one half"])
    fixed = ["1 step" if n == 1 else f"{n} steps" for n in SHOWN]
    days = sorted(run["date"] for run in results["runs"].values())
    dates = " to ".join(dict.fromkeys([days[0], days[-1]]))
    return f"""
## Heads over training

`python examples/experiments/heads_over_training.py`, {dates}, {len(results["runs"])} runs: the
language model with Mesa layers (4 blocks of 4 heads), {first["steps"][-1]:,} steps of 8
sequences of 256 tokens at a rate of 3e-3. Gates start near one half, as in the paper, or near 0.99,
as in new layers. Condition numbers, geometric means, and steps are of tokens 129 to 256 of 16 held-out
sequences.

![Gates, condition numbers and steps of every head over training](heads-over-training.png)

After training: how much fixed numbers of conjugate-gradient steps lose against the exact solution,
in nats; steps per token to a tolerance of 1e-4; rank correlation of mean gate and condition number
over the 16 heads (p):

| start | validation loss | {" | ".join(fixed)} | steps to 1e-4 | correlation |
| --- | --- | {" | ".join("---" for _ in fixed)} | --- | --- |
{chr(10).join(lost)}

In the end heads with a mean gate above {LONG:g} take
{long.min():.1f} to {long.max():.1f} steps to 1e-4, the others {short.min():.1f} to {short.max():.1f}; of those that began at one half
{held.size} of {held.size + let_go.size} are above it. No head's mean condition number is above {hardest(starts):.0f} at any time, so
three steps lose at most {lost_by(starts, 3):.4f} nats and five {signed(lost_by(starts, 5))}. The paper's findings that five steps cost
something and that condition numbers grow over training do not show here.
"""

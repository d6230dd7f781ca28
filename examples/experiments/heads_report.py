"""The section of the results page on heads over training; see ``heads_over_training.py``."""

from __future__ import annotations

from typing import Any

import numpy as np


def heads_of(runs: list[dict[str, Any]], name: str, at: int) -> np.ndarray:
    """All heads of all runs at a look, in one row."""
    return np.concatenate([np.ravel(run["heads"][name][at]) for run in runs])


def spread(values: np.ndarray, form: str) -> str:
    """Median, and least to most in brackets."""
    low, middle, high = (format(x, form) for x in (values.min(), np.median(values), values.max()))
    return f"{middle} ({low} to {high})"


def section(results: dict[str, Any]) -> str:
    """What heads did, what fewer steps cost, and what that says of the paper's claims."""
    starts: dict[str, list[dict[str, Any]]] = {}
    for key, run in results["runs"].items():
        starts.setdefault(key.rpartition(", seed ")[0], []).append(run)
    first = next(iter(results["runs"].values()))
    rows, lost = [], []
    for start, runs in starts.items():
        for at in (0, len(first["steps"]) // 2, -1):
            heads = [spread(heads_of(runs, name, at), form) for name, form in
                     (("forget", ".2f"), ("condition", ".3g"), ("steps", ".1f"))]  # fmt: skip
            rows.append(f"| {start} | {first['steps'][at]} | {' | '.join(heads)} |")
        for run in runs:
            spent = run["spend"]
            gaps = (f"{loss - spent['exact']:+.4f}" for loss in spent["fixed"])
            tol = next(row for row in spent["adaptive"] if row[0] == 1e-4)
            lost.append(
                f"| {start} | {run['loss']:.3f} | {' | '.join(gaps)} | {tol[1]:.1f} | "
                f"{run['rank_correlation']:+.2f} |"
            )
    fixed = [str(n) for n in first["spend"]["steps"]]
    dates = max(run["date"] for run in results["runs"].values())
    return f"""
## Heads over training

`python examples/experiments/heads_over_training.py`, {dates}, {len(results["runs"])} runs: the
language model above with Mesa layers (4 blocks of 4 heads), {first["steps"][-1]:,} steps of 8
sequences of 256 tokens at a rate of 3e-3. Gates start near one half, as in the paper, or near .99,
as those of new layers do. Condition numbers and steps are of tokens 129 to 256 of 16 sequences that
it does not train on.

![Gates, condition numbers and steps of every head over training](heads-over-training.png)

| start | step | gate: median (range over heads) | condition number | steps to 1e-4 |
| --- | --- | --- | --- | --- |
{chr(10).join(rows)}

What fixed numbers of conjugate-gradient steps lose at the end against the exact solution, in nats;
steps a token to a tolerance of 1e-4; rank correlation over heads of mean gate and condition number:

| start | validation loss | {" | ".join(fixed)} | steps to 1e-4 | correlation |
| --- | --- | {" | ".join("---" for _ in fixed)} | --- | --- |
{chr(10).join(lost)}
"""

"""Maximum likelihood of drifting coefficients beside statsmodels' state-space models.

    python -m benchmarks.reports.time_varying [--rounds 3]

Writes ``benchmarks/results/time_varying.json`` and the table of docs/measurements/rows.md.  Both
sides of a ratio run in turn in one process on one thread; each number is the least processor time
of the rounds.  Nothing is timed before likelihood, coefficients and errors agree at the same
parameters.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..support.machine import describe, sentence
from .polars_expressions import least
from .registry import write_blocks

RESULT = Path(__file__).parents[1] / "results" / "time_varying.json"
SIZES = ((200, 2), (2_000, 4), (20_000, 8), (100_000, 8))
MANY = 10_000  # rows from which one round is enough
MOST_FITTED = 20_000  # by statsmodels, whose fit of 100,000 rows did not end in 10 minutes
GATE = 1e-9


def difference(ours: Any, theirs: Any) -> float:
    """Largest difference of two arrays over the largest entry."""
    import numpy as np

    return float(np.abs(np.asarray(ours) - theirs).max() / np.abs(theirs).max())


def measure(n: int, d: int, rounds: int) -> dict[str, Any]:
    """Seconds of the fit, of one likelihood with scores, and of the smoother, ours and theirs."""
    import numpy as np

    import olsq
    from olsq.drift.likelihood import evaluate, score

    from ..suites.peers import state_space, walking

    X, y = walking(n, d)
    model = state_space(X, y)
    fit = olsq.time_varying(X, y, fit_intercept=False)
    params = fit.noise * np.r_[1.0, fit.drift]
    theirs = model.smooth(params)
    constant = 0.5 * d * np.log(2 * np.pi)  # they count it for the rows of the start, too
    errors = np.sqrt(np.diagonal(theirs.smoothed_state_cov))
    gaps = [
        abs((fit.log_likelihood - constant) / theirs.llf - 1),
        difference(fit.coef, theirs.smoothed_state.T),
        difference(fit.stderr, errors),
    ]
    if not max(gaps) < GATE:
        raise SystemExit(f"{n} rows, {d} coefficients: differences {gaps}")
    rows, drift = fit._rows, fit.drift

    def at_once() -> None:
        olsq.time_varying(X, y, fit_intercept=False, drift=drift, noise=fit.noise)

    few = rounds if n < MANY else 1
    calls: dict[str, tuple[Callable[[], Any], Callable[[], Any] | None]] = {
        "likelihood": (lambda: evaluate(rows, drift), lambda: model.loglike(params)),
        "score": (lambda: score(rows, evaluate(rows, drift)), None),
        "smoothed": (at_once, lambda: model.smooth(params)),
        "fit": (
            lambda: olsq.time_varying(X, y, fit_intercept=False),
            (lambda: model.fit(disp=False, maxiter=500)) if n <= MOST_FITTED else None,
        ),
    }
    case: dict[str, Any] = {"n": n, "d": d, "difference": max(gaps)}
    for name, pair in calls.items():
        case[name] = least(few, *(call for call in pair if call is not None))
    if n <= MOST_FITTED:
        found = model.fit(disp=False, maxiter=500)
        case["likelihood gained"] = float(fit.log_likelihood - constant - found.llf)
    print(case, flush=True)
    return case


def table(cases: list[dict[str, Any]]) -> str:
    """Rows of the page: seconds of olsq, and statsmodels' time over olsq's."""
    lines = [
        "| rows, coefficients | likelihood | smoothed coefficients | fit | difference |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for case in cases:
        cells = []
        for name in ("likelihood", "smoothed", "fit"):
            ours, *theirs = case[name]
            beside = f", {theirs[0] / ours:.2g}x" if theirs else ""
            cells.append(f"{ours:.2g} s{beside}")
        label = f"{case['n']:,}, {case['d']}"
        lines.append("| " + " | ".join([label, *cells, f"{case['difference']:.0e}"]) + " |")
    return "\n".join(lines)


def text(found: dict[str, Any]) -> str:
    """The block of the page: the table, and what it was measured on."""
    return f"{table(found['cases'])}\n\n{sentence(found['machine'], 'statsmodels')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # before NumPy's import
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    cases = [measure(n, d, options.rounds) for n, d in SIZES]
    stored = {"machine": describe(), "cases": cases}
    RESULT.write_text(json.dumps(stored, indent=1) + "\n")
    write_blocks("time_varying", stored)
    print(table(cases))


if __name__ == "__main__":
    main()

"""Ways of forgetting on six streams: how far predictions are off, what a row costs, what rounds.

    python -m benchmarks.reports.forgetting            # errors, times, rounding; page and figure
    python -m benchmarks.reports.forgetting --report   # page and figure from the stored numbers

Results go to ``benchmarks/results/forgetting.json``, the table and the figure to
``docs/measurements/rows.md``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import olsq
from olsq import forgetting as F

from ..support import machine
from ..support.peers import Padasip
from .forgetting_report import write_page
from .forgetting_streams import ROWS, SEED, STREAMS, D, one_stream, stream

RESULTS = Path(__file__).parents[1] / "results" / "forgetting.json"
SEEDS, SETTLED = 20, 200
CYCLE, AFTER = [1, 2, 0], [2, 0, 1]
LONG = 100_000  # rows of the rounding test

# One setting each for all streams, for a memory of about 100 rows where nothing says otherwise.
STRATEGIES: dict[str, Any] = {
    "none (forget=1)": 1.0,
    "Exponential(.99)": F.Exponential(0.99),
    "PerCoefficient(.98, .98, 1, 1)": F.PerCoefficient([0.98, 0.98, 1.0, 1.0]),
    "Variable(200, shortest=10)": F.Variable(200, shortest=10),
    "Directional(.97)": F.Directional(0.97),
    "ExponentialResetting(.99, information=50)": F.ExponentialResetting(0.99, information=50.0),
    "BoundedTrace(.99, trace=.1)": F.BoundedTrace(0.99, trace=0.1),
    "ResetOnBreak(.998)": F.ResetOnBreak(0.998),
    "RandomWalk(1e-4)": F.RandomWalk(1e-4),
}


def estimator(forget: Any) -> olsq.RecursiveLeastSquares:
    return olsq.RecursiveLeastSquares(forget=forget, fit_intercept=False, ridge=1e-3)


def excess(forget: Any, X: np.ndarray, signal: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Squares of the one-step-ahead prediction less the signal, by row."""
    path = estimator(forget).partial_fit_path(X, y)
    return (y - path.residual - signal) ** 2


def errors() -> dict[str, dict[str, list[float]]]:
    """By strategy and stream: the root mean square over rows and seeds, least and most by seed.

    "back" is of the ten rows after the quiet stretch alone.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for label, forget in STRATEGIES.items():
        each: dict[str, list[float]] = {}
        for name in STREAMS:
            for seed in range(SEEDS):
                squares = excess(forget, *stream(name, seed))
                each.setdefault(name, []).append(squares[SETTLED:].mean())
                if name == "quiet":
                    end = 3 * ROWS // 4
                    each.setdefault("back", []).append(squares[end : end + 10].mean())
        found[label] = {
            name: [float(np.sqrt(v)) for v in (np.mean(e), min(e), max(e))]
            for name, e in each.items()
        }
    return found


def along_one_stream() -> dict[str, list[float]]:
    """The root mean square over seeds in pieces of 20 rows."""
    found = {}
    for label, forget in STRATEGIES.items():
        mean = np.mean([excess(forget, *one_stream(s)) for s in range(SEEDS)], 0)
        found[label] = [float(v) for v in np.sqrt(mean.reshape(-1, 20).mean(1)).round(4)]
    return found


def processor_time(run: Callable[[], Any]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def times(repeats: int = 9) -> dict[str, dict[str, float]]:
    """Microseconds per row, least of ``repeats`` in turn: in blocks of 4000 rows, and alone."""
    X, _, y = stream("drift", 0)
    few = X[:400], y[:400]
    subjects: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {}

    def add(label: str, forget: Any) -> None:
        est = estimator(forget).fit(X, y)

        def rows() -> None:
            for x, target in zip(*few, strict=True):
                est.step(x, target)

        subjects[label] = (lambda: est.partial_fit(X, y), rows)

    for label, forget in STRATEGIES.items():
        add(label, forget)
    outside: dict[str, Callable[[], Any]] = {
        "padasip FilterRLS(.99)": lambda: Padasip(D, 0.99, 1e-3).run(*few),
        "filterpy KalmanFilter(Q=1e-4)": lambda: kalman(*few, 1e-4),
    }
    found: dict[str, dict[str, float]] = {}
    for _ in range(repeats):
        for label, (block, rows) in subjects.items():
            keep(found, label, "block", processor_time(block) / len(X))
            keep(found, label, "row", processor_time(rows) / len(few[0]))
        for label, run in outside.items():
            keep(found, label, "row", processor_time(run) / len(few[0]))
    return found


def keep(found: dict[str, dict[str, float]], label: str, kind: str, seconds: float) -> None:
    """The least of what was measured, in microseconds."""
    entry = found.setdefault(label, {})
    entry[kind] = min(entry.get(kind, np.inf), 1e6 * seconds)


def kalman(X: np.ndarray, y: np.ndarray, drift: float) -> np.ndarray:
    """filterpy's Kalman filter on the same problem; its coefficients."""
    from filterpy.kalman import KalmanFilter

    theirs = KalmanFilter(dim_x=D, dim_z=1)
    theirs.x, theirs.P, theirs.Q = np.zeros((D, 1)), np.eye(D) / 1e-3, drift * np.eye(D)
    theirs.R[:] = 1.0
    for x, target in zip(X, y, strict=True):
        theirs.predict()
        theirs.update(target, H=x[None])
    return theirs.x[:, 0]


def agreement() -> dict[str, float]:
    """Largest difference of coefficients, relative, from padasip and filterpy after 4000 rows."""
    X, _, y = stream("drift", 0)
    theirs = Padasip(D, 0.99, 1e-3)
    theirs.run(X, y)
    pairs = {
        "padasip FilterRLS(.99)": (theirs.coef(), F.Exponential(0.99)),
        "filterpy KalmanFilter(Q=1e-4)": (kalman(X, y, 1e-4), F.RandomWalk(1e-4)),
    }
    return {
        label: float(np.abs(coef / estimator(forget).fit(X, y).coef_ - 1).max())
        for label, (coef, forget) in pairs.items()
    }


def inverses(A: np.ndarray) -> np.ndarray:
    """Of symmetric matrices (b, 3, 3), by cofactors."""
    C = A[:, CYCLE][:, :, CYCLE] * A[:, AFTER][:, :, AFTER]
    C -= A[:, CYCLE][:, :, AFTER] * A[:, AFTER][:, :, CYCLE]
    return C / (A[:, 0] * C[:, 0]).sum(1)[:, None, None]


def rounding() -> dict[str, dict[str, float]]:
    """After 1e5 rows: the error of the coefficients in standard errors (of noise 1), against the
    dense recursion in extended precision (64 bits of mantissa), all strategies in one loop.

    collinear: the last two of three regressors agree to 1e-4; quiet: both are zero after row 1000.
    """
    strategies = {
        "PerCoefficient(.98, .98, 1)": F.PerCoefficient([0.98, 0.98, 1.0]),
        "Directional(.97)": F.Directional(0.97),
        "ExponentialResetting(.99, information=50)": F.ExponentialResetting(0.99, information=50.0),
        "BoundedTrace(.99, trace=.1)": F.BoundedTrace(0.99, trace=0.1),
        "RandomWalk(1e-4)": F.RandomWalk(1e-4),
    }
    names, count = ("collinear", "quiet"), len(strategies)
    rng = np.random.default_rng(SEED)
    X = rng.standard_normal((2, LONG, 3))
    X[0, :, 2] = X[0, :, 1] + 1e-4 * X[0, :, 2]
    X[1, 1000:, 1:] = 0.0
    y = X @ [1.0, -2.0, 3.0] + rng.standard_normal((2, LONG))
    wide = np.longdouble
    factor, walk = np.array([0.98, 0.98, 1.0], wide), 1e-4 * np.eye(3, dtype=wide)
    root = np.sqrt(np.outer(factor, factor))
    R = np.tile(1e-3 * np.eye(3, dtype=wide), (2 * count, 1, 1))  # two streams of each strategy
    P, theta = inverses(R), np.zeros((2 * count, 3), wide)
    share = 50 * (1 - wide(0.99) ** 3)
    for t in range(LONG):
        x = np.tile(X[:, t].astype(wide), (count, 1))
        R[:2] *= root
        u = (R[2:4] * x[2:4, None]).sum(2)
        R[2:4] -= (1 - wide(0.97)) / (u * x[2:4]).sum(1)[:, None, None] * u[:, :, None] * u[:, None]
        R[4:6] *= wide(0.99)
        R[4:6, t % 3, t % 3] += share
        trace = P[6:8, 0, 0] + P[6:8, 1, 1] + P[6:8, 2, 2]
        R[6:8] *= np.clip(trace / wide(0.1), wide(0.99), 1)[:, None, None]
        R[8:] = inverses(P[8:] + walk)
        R += x[:, :, None] * x[:, None]
        P = inverses(R)
        error = np.tile(y[:, t], count) - (theta * x).sum(1)
        theta += (P * x[:, None]).sum(2) * error[:, None]
    found: dict[str, dict[str, float]] = {label: {} for label in strategies}
    for j, (label, strategy) in enumerate(strategies.items()):
        for k, name in enumerate(names):
            if name == "quiet" and label.startswith("PerCoefficient"):
                continue  # it is held, which its recursion is not
            b = 2 * j + k
            deviation = np.sqrt(np.diagonal(P[b]))
            off = np.abs((estimator(strategy).fit(X[k], y[k]).coef_ - theta[b]) / deviation).max()
            found[label][name] = float(off)
    return found


def main() -> None:
    if "--report" not in sys.argv:
        result = {
            "command": "python -m benchmarks.reports.forgetting", "seed": SEED, "seeds": SEEDS,
            "machine": machine.describe(), "errors": errors(),
            "one_stream": along_one_stream(), "times": times(), "agreement": agreement(),
        }  # fmt: skip
        result["rounding"] = rounding()
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    write_page(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()

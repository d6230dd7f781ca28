"""Cost of complex rows: the real embedding of ``RecursiveLeastSquares`` and a complex kernel.

    python -m benchmarks.reports.complex_embedding [--rounds 10]

Writes ``benchmarks/results/complex_embedding.json`` and the table of docs/measurements/rows.md.
The textbook recursion in complex128 has no guards, statistics or residuals: a lower bound of what a
native form would cost.  Errors are the largest difference of the last coefficients to a dense
complex128 solve, relative to the largest coefficient.  Least processor times of rounds in turn.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

import olsq
from olsq.online.calls.call import embedded
from olsq.online.rows import complex_rows

from ..support.machine import describe, sentence
from .registry import write_blocks

RESULT = Path(__file__).parents[1] / "results" / "complex_embedding.json"
SIZES, ROWS, FORGET, RIDGE = (4, 8, 16, 32), 12_000, 0.99, 1e-3
LABELS = {
    "native": "textbook recursion in complex128, Numba",
    "fit": "`RecursiveLeastSquares.fit`, complex rows",
    "real": "`RecursiveLeastSquares.fit`, real rows of 2d (2n rows)",
}


@njit
def recursion(X: Any, y: Any, gates: Any, P: Any, theta: Any) -> None:  # pragma: no cover
    """Update P and theta by the rows X (n, k), complex or real."""
    n, k = X.shape
    u = np.empty(k, X.dtype)
    for t in range(n):
        power, error = 0.0, y[t]
        for i in range(k):
            total = X[t, 0] * 0
            for j in range(k):
                total += P[i, j] * np.conj(X[t, j])
            u[i] = total
            power += (X[t, i] * total).real
            error -= X[t, i] * theta[i]
        scale = 1.0 / (gates[t] + power)
        inverse = 1.0 / gates[t]
        for i in range(k):
            theta[i] += u[i] * (error * scale)
            ui = u[i] * scale
            for j in range(i + 1):
                P[i, j] = (P[i, j] - ui * np.conj(u[j])) * inverse
                P[j, i] = np.conj(P[i, j])
            P[i, i] = P[i, i].real  # an imaginary rounding error would grow as 1 / forget^t


def dense(X: Any, y: Any) -> Any:
    """Solve for the coefficients after the last row, in complex128."""
    zeta = FORGET ** np.arange(len(X))[::-1]
    roots = np.sqrt(np.append(zeta, np.full(X.shape[1], RIDGE * FORGET ** len(X))))
    A = np.vstack([X, np.eye(X.shape[1])]) * roots[:, None]
    return np.linalg.lstsq(A, np.append(y, np.zeros(X.shape[1])) * roots)[0]


def measure(rounds: int) -> dict[str, dict[str, dict[str, float]]]:
    """Nanoseconds a complex row, and errors, by size and side."""
    found = {}
    for d in SIZES:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((ROWS, d)) + 1j * rng.standard_normal((ROWS, d))
        y = X @ np.ones(d) + 0.1 * rng.standard_normal(ROWS)
        R, r = embedded(X), complex_rows.embed_targets(y[:, None])[:, 0]
        gates = np.full(ROWS, FORGET)
        options: dict[str, Any] = {"ridge": RIDGE, "fit_intercept": False}

        def native(X: Any = X, y: Any = y, gates: Any = gates, d: int = d) -> Any:
            P, theta = np.eye(d, dtype=complex) / RIDGE, np.zeros(d, complex)
            recursion(X, y, gates, P, theta)
            return theta

        def fit(X: Any = X, y: Any = y, options: Any = options) -> Any:
            return olsq.RecursiveLeastSquares(forget=FORGET, **options).fit(X, y).coef_

        def real(R: Any = R, r: Any = r, options: Any = options) -> Any:
            return olsq.RecursiveLeastSquares(forget=np.sqrt(FORGET), **options).fit(R, r).coef_

        sides = {"native": native, "fit": fit, "real": real}
        want = dense(X, y)
        # The real rows forget within a pair too: another problem, which has the pair's time.
        errors = {
            name: float(np.abs(sides[name]() - want).max() / np.abs(want).max())
            for name in ("native", "fit")
        }
        assert max(errors.values()) < 1e-9
        least = dict.fromkeys(sides, np.inf)
        for _ in range(rounds):
            for name, side in sides.items():
                start = time.process_time()
                side()
                least[name] = min(least[name], time.process_time() - start)
        found[str(d)] = {
            "times": {name: 1e9 * seconds / ROWS for name, seconds in least.items()},
            "errors": errors,
        }
    return found


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """Make a table of times a complex row, as multiples of the textbook's, and errors."""
    lines = ["| a complex row | " + " | ".join(f"d = {d}" for d in found) + " |"]
    lines.append("|---|" + "---:|" * len(found))
    for name, label in LABELS.items():
        cells = []
        for own in found.values():
            times, error = own["times"], own["errors"].get(name)
            cell = f"{times[name] / 1000:.2f} µs ({times[name] / times['native']:.1f})"
            cells.append(cell if error is None else f"{cell}, {error:.0e}")
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text(found: dict) -> str:
    """The block of the page: the table, and what it was measured on."""
    return f"{table(found['cases'])}\n\n{sentence(found['machine'], 'numba')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    found = measure(parser.parse_args().rounds)
    stored = {"machine": describe(), "cases": found}
    RESULT.write_text(json.dumps(stored, indent=1) + "\n")
    print(table(found))
    write_blocks("complex_embedding", stored)


if __name__ == "__main__":
    main()

"""Cost of complex rows: the real embedding of ``RecursiveLeastSquares`` beside a complex kernel.

    python -m benchmarks.reports.complex_embedding [--rounds 10]

Writes ``benchmarks/results/complex_embedding.json`` and the table of docs/complex-signals.md.  The
native kernel is the textbook recursion in complex128, without guards, statistics or files: a lower
bound of what a native form would cost.  The same recursion on the embedded real rows shows what the
embedding alone costs.  Least times of rounds in one process.
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
from olsq.online.rows import complex_rows

from ..support.machine import describe, sentence
from ..support.marked import replace_between

RESULT = Path(__file__).parents[1] / "results" / "complex_embedding.json"
PAGE = Path(__file__).parents[2] / "docs" / "complex-signals.md"
SIZES, ROWS, FORGET, RIDGE = (4, 8, 16, 32), 4_000, 0.99, 1e-3
LABELS = {
    "native": "textbook recursion in complex128, Numba",
    "embedded": "the same recursion on the embedded real rows",
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


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Nanoseconds a complex row, by size and side."""
    found = {}
    for d in SIZES:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((ROWS, d)) + 1j * rng.standard_normal((ROWS, d))
        y = X @ np.ones(d) + 0.1 * rng.standard_normal(ROWS)
        R, r = complex_rows.embed_rows(X), complex_rows.embed_targets(y[:, None])[:, 0]
        gates = np.full(ROWS, FORGET)
        options: dict[str, Any] = {"ridge": RIDGE, "fit_intercept": False}

        def native(X: Any = X, y: Any = y, gates: Any = gates, d: int = d) -> Any:
            P, theta = np.eye(d, dtype=complex) / RIDGE, np.zeros(d, complex)
            recursion(X, y, gates, P, theta)
            return theta

        def embedded(R: Any = R, r: Any = r, gates: Any = gates, d: int = d) -> Any:
            P, theta = np.eye(2 * d) / RIDGE, np.zeros(2 * d)
            recursion(R, r, complex_rows.embed_gates(gates), P, theta)
            return complex_rows.combine_coefficients(theta)

        def fit(X: Any = X, y: Any = y, options: Any = options) -> Any:
            return olsq.RecursiveLeastSquares(forget=FORGET, **options).fit(X, y).coef_

        def real(R: Any = R, r: Any = r, options: Any = options) -> Any:
            return olsq.RecursiveLeastSquares(forget=np.sqrt(FORGET), **options).fit(R, r).coef_

        sides = {"native": native, "embedded": embedded, "fit": fit, "real": real}
        want = native()
        assert all(np.allclose(sides[s](), want, atol=1e-7) for s in ("embedded", "fit"))
        least = dict.fromkeys(sides, np.inf)
        for _ in range(rounds):
            for name, side in sides.items():
                start = time.perf_counter()
                side()
                least[name] = min(least[name], time.perf_counter() - start)
        found[str(d)] = {name: 1e9 * seconds / ROWS for name, seconds in least.items()}
    return found


def table(found: dict[str, dict[str, float]]) -> str:
    """Times a complex row, and as multiples of the native kernel's."""
    lines = ["| a complex row | " + " | ".join(f"d = {d}" for d in found) + " |"]
    lines.append("|---|" + "---:|" * len(found))
    for name, label in LABELS.items():
        cells = [
            f"{own[name] / 1000:.2f} µs ({own[name] / own['native']:.1f})"
            for own in found.values()
        ]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    found = measure(parser.parse_args().rounds)
    facts = describe()
    RESULT.write_text(json.dumps({"machine": facts, "cases": found}, indent=1) + "\n")
    print(table(found))
    replace_between(PAGE, "complex", f"{table(found)}\n\n{sentence(facts)}")


if __name__ == "__main__":
    main()

"""Ten million float32 rows against the same rows in float64.

    python -m benchmarks.reports.long_float32  # some minutes

Rows: an intercept of 3 and three white regressors with coefficients 1, -2, .5, standing ``offset``
standard deviations from zero; noise of standard deviation 1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

import olsq

TRUTH, INTERCEPT, CHUNK = np.array([1.0, -2.0, 0.5]), 3.0, 200_000


def rows(n: int, offset: float) -> Iterator[tuple[NDArray, NDArray]]:
    """Chunks of float32 X and y."""
    rng = np.random.default_rng(14)
    for start in range(0, n, CHUNK):
        size = min(CHUNK, n - start)
        X = (rng.standard_normal((size, 3)) + offset).astype(np.float32)
        noise = rng.standard_normal(size)
        yield X, (INTERCEPT + X.astype(np.float64) @ TRUTH + noise).astype(np.float32)


def distance(one: olsq.RecursiveLeastSquares, two: olsq.RecursiveLeastSquares) -> tuple[float, ...]:
    """Largest distances of slopes and of the intercept, in two's standard errors."""
    slopes = np.max(np.abs(one.coef_ - two.coef_) / two.coef_stderr_)
    return float(slopes), float(abs(one.intercept_ - two.intercept_) / two.intercept_stderr_)


def long_memory(n: int = 10_000_000) -> None:
    """float32 rows against float64 rows, in batches."""
    print("| forget | offset | method | slopes | intercept | truth: slopes | intercept |")
    print("|---|---|---|---|---|---|---|")
    for forget in (1.0, 0.99999):
        for offset in (0.0, 1000.0):
            for method in ("covariance", "sqrt"):
                make = {"forget": forget, "method": method, "ridge": 1e-3}
                narrow, wide = (olsq.RecursiveLeastSquares(**make) for _ in range(2))
                for X, y in rows(n, offset):
                    narrow.partial_fit(X, y)
                    wide.partial_fit(X.astype(np.float64), y.astype(np.float64))
                off = distance(narrow, wide)
                true = np.max(np.abs(narrow.coef_ - TRUTH) / wide.coef_stderr_)
                level = abs(narrow.intercept_ - INTERCEPT) / wide.intercept_stderr_
                cells = [f"{v:.1g}" for v in off] + [f"{true:.1f}", f"{level:.1f}"]
                print(f"| {forget:g} | {offset:g} | {method} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Command line."""
    long_memory()


if __name__ == "__main__":
    main()

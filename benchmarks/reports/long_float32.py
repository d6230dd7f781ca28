"""Ten million float32 rows against the same rows in float64, and what a float32 state forgets.

    python -m benchmarks.reports.long_float32  # some minutes
    python -m benchmarks.reports.long_float32 --states  # only the second: float32 states

Rows: an intercept of 3 and three white regressors with coefficients 1, -2, .5, standing ``offset``
standard deviations from zero; noise of standard deviation 1.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

import olsq
from olsq.kernels import kernel
from olsq.online.forms.rows import Trace
from olsq.online.forms.square_root_kernels import update

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


@kernel()
def feed(form, spread, rows, batch, limits, residual, trace):
    """Calls of ``batch`` rows each to a square-root form that is stored in float32 between them."""
    n = rows[0].shape[0]
    for start in range(0, n, batch):
        update(form, spread, rows, (start, min(start + batch, n)), limits, residual, trace)
        for A in form[:2]:
            for i in range(A.shape[0]):
                for j in range(A.shape[1]):
                    A[i, j] = np.float64(np.float32(A[i, j]))


def small_states() -> None:
    """float32 states against float64 states, for calls of one row and of more.

    The estimator takes the first hundred rows; after them its kernel is called in a compiled loop,
    which does what calls of the estimator do.
    """
    print()  # ends the table above
    print("| memory | offset | rows a call | slopes | intercept |\n|---|---|---|---|---|")
    for memory, offset, batch in [
        (1e4, 0.0, 1), (1e5, 0.0, 1), (1e6, 0.0, 1), (1e7, 0.0, 1), (1e4, 10.0, 1), (1e5, 10.0, 1),
        (1e6, 0.0, 100), (1e5, 10.0, 100),
    ]:  # fmt: skip
        make = {"forget": 1 - 1 / memory, "method": "sqrt"}
        small = olsq.RecursiveLeastSquares(**make, state_dtype="float32")
        wide = olsq.RecursiveLeastSquares(**make)
        for number, (X, y) in enumerate(rows(int(max(4e5, min(4 * memory, 1e7))), offset)):
            wide.partial_fit(X, y)
            first = 100 if number == 0 else 0
            if first:
                small.partial_fit(X[:first], y[:first])
            A = np.insert(X[first:].astype(np.float64), 0, 1.0, axis=1)
            Y, n = y[first:, None].astype(np.float64), len(A)
            form = small._engine.form
            form.widen()
            feed(
                form.in_kernels, form.spread, (A, Y, np.full(n, make["forget"]), np.ones(n)), batch,
                form.limits.square_root, np.empty((n, 1)), Trace.none(1, 4).arrays,
            )  # fmt: skip
            form.narrow()
        off = [f"{v:.1g}" for v in distance(small, wide)]
        print(f"| {memory:g} | {offset:g} | {batch} | {' | '.join(off)} |", flush=True)


def main() -> None:
    """Command line."""
    if "--states" not in sys.argv[1:]:
        long_memory()
    small_states()


if __name__ == "__main__":
    main()

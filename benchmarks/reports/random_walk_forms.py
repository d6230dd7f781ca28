"""Drifting coefficients by the covariance recursion, O(d^2) a row, and by olsq's square root.

    python -m benchmarks.reports.random_walk_forms

Prints the largest error of a coefficient after 1000 rows, each in units of its column, relative to
the largest: against the covariance recursion in extended precision (64 bits of mantissa).
"""

from __future__ import annotations

import numpy as np

import olsq
from olsq.forgetting import RandomWalk

N, D, SEED = 1000, 4, 1


def covariance_form(
    X: np.ndarray, y: np.ndarray, drift: float, ridge: float, dtype: type
) -> np.ndarray:
    """The Kalman filter on P itself, made symmetric after every row."""
    P, theta = np.eye(D, dtype=dtype) / dtype(ridge), np.zeros(D, dtype)
    for x, target in zip(X.astype(dtype), y.astype(dtype), strict=True):
        P = P + np.eye(D, dtype=dtype) * dtype(drift)
        gain = P @ x / (1 + x @ P @ x)
        theta = theta + gain * (target - x @ theta)
        P = P - np.outer(gain, x @ P)
        P = (P + P.T) / 2
    return theta


def stream(kind: str) -> tuple[np.ndarray, np.ndarray, float, float]:
    """X, y, the drift's variance and the ridge."""
    rng = np.random.default_rng(SEED)
    X, ridge, drift = rng.standard_normal((N, D)), 1e-3, 1e-4
    if "collinear" in kind:
        X[:, 1], drift = X[:, 0] + 1e-6 * X[:, 1], 1e-8
    if "units" in kind:
        X *= [1e-5, 1.0, 1e4, 1e2]
    if "quiet" in kind:
        X[300:900] *= 1e-6
    if "diffuse" in kind:
        ridge, drift = 1e-12, 1e-8
    y = X @ np.ones(D) / np.abs(X).max(0).sum() + 0.1 * rng.standard_normal(N)
    return X, y, drift, ridge


def main() -> None:
    """One line a stream, as a table of Markdown."""
    print("| | covariance form | square root |\n|---|---:|---:|")
    for kind in ("white", "quiet", "mixed units", "collinear", "diffuse", "collinear, diffuse"):
        X, y, drift, ridge = stream(kind)
        size = np.abs(X).max(0)
        want = covariance_form(X, y, drift, ridge, np.longdouble)
        plain = covariance_form(X, y, drift, ridge, np.float64)
        est = olsq.RecursiveLeastSquares(
            forget=RandomWalk(drift), ridge=ridge, fit_intercept=False
        ).fit(X, y)
        errors = [np.abs((c - want) * size).max() / np.abs(want * size).max()
                  for c in (plain, est.coef_)]  # fmt: skip
        print(f"| {kind} | {errors[0]:.0e} | {errors[1]:.0e} |")


if __name__ == "__main__":
    main()

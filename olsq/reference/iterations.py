"""Iterative solvers of one system as plain float64 loops: the definition of "k steps" for any
backend.

Nothing here shares code with what it checks.  A system is a dense matrix (d, d), a right-hand side
a vector (d,).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def conjugate_gradient(
    system: ArrayLike, b: ArrayLike, *, max_steps: int, tol: float = 0.0, start: str = "jacobi"
) -> tuple[np.ndarray, int]:
    """Run conjugate gradient until ``|b - M x| <= tol |b|``; return the iterate and its steps.

    Hestenes and Stiefel (1952). ``start``: "jacobi" is ``b / diag(M)``, "query" is b.
    """
    m, q = np.asarray(system, np.float64), np.asarray(b, np.float64)
    size = np.abs(q).max()
    if size == 0:
        return np.zeros_like(q), 0
    q = q / size
    x = q / np.diag(m) if start == "jacobi" else q.copy()
    r = q - m @ x
    p, steps = r.copy(), 0
    while steps < max_steps and r @ r > tol * tol * (q @ q):
        step = (r @ r) / (p @ m @ p)
        x, new = x + step * p, r - step * (m @ p)
        p = new + (new @ new) / (r @ r) * p
        r, steps = new, steps + 1
    return x * size, steps


def chebyshev(
    system: ArrayLike, b: ArrayLike, *, steps: int, low: float, high: float
) -> np.ndarray:
    """Apply the polynomial of degree ``steps`` that is smallest on [low, high] (Golub and Varga
    1961).

    Written with the Chebyshev polynomials themselves, not with the three-term recurrence of their
    ratios: the residual after k steps is ``T_{k+1}((middle - M) / half) / T_{k+1}(middle / half)``.
    """
    m, b = np.asarray(system, np.float64), np.asarray(b, np.float64)
    middle, half = (high + low) / 2, (high - low) / 2
    if half == 0:
        return b / middle
    values, vectors = np.linalg.eigh(m)
    degree = steps + 1
    series = np.polynomial.Chebyshev([0] * degree + [1])
    residual = series((middle - values) / half) / series(middle / half)
    return vectors @ ((1 - residual) / values * (vectors.T @ b))


def neumann(system: ArrayLike, b: ArrayLike, *, terms: int, scale: float) -> np.ndarray:
    """Sum ``1/c sum_{j < terms} (I - M / c)^j b`` with c the ``scale``."""
    m, term = np.asarray(system, np.float64), np.asarray(b, np.float64) / scale
    total = np.zeros_like(term)
    for _ in range(terms):
        total, term = total + term, term - m @ term / scale
    return total

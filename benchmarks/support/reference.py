"""Extended-precision reference for exponentially weighted least squares.

The rows of ``[sqrt(w) X, sqrt(w) y]`` are triangularised by Householder reflections in
``numpy.longdouble`` (80-bit on x86: 11 more bits than float64), carrying the triangle from one
checkpoint to the next. No recursion on an inverse takes place, no information is dropped, and the
work is linear in the number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LD = np.longdouble


@dataclass(frozen=True)
class Solution:
    """Exact solution after ``n`` rows.

    Attributes
    ----------
    n : int
        Rows seen.
    factor : ndarray of longdouble, shape (d, d)
        Upper triangle R with ``R'R = X'WX + ridge``.
    coef : ndarray of longdouble, shape (d,)
        Solution of the normal equations, by back substitution in R.
    total_weight : float
        Sum of the weights of the rows.
    """

    n: int
    factor: np.ndarray
    coef: np.ndarray
    total_weight: float

    def fit_error(self, coef: np.ndarray) -> float:
        """Root of the weighted mean squared difference of the fitted values to the exact ones."""
        if not np.all(np.isfinite(coef)):
            return np.inf
        difference = self.factor @ (np.asarray(coef).astype(LD) - self.coef)
        # scaled so that a hopeless coefficient (1e200) gives a number and not an overflow
        size = np.max(np.abs(difference))
        if size == 0:
            return 0.0
        return float(size * np.sqrt(np.sum((difference / size) ** 2) / LD(self.total_weight)))


def triangularise(A: np.ndarray) -> np.ndarray:
    """Upper triangle of the QR factorisation of ``A`` (n, k), by Householder reflections."""
    A = A.copy()
    k = A.shape[1]
    for j in range(min(k, A.shape[0])):
        column = A[j:, j]
        size = np.max(np.abs(column))
        if size == 0:
            continue
        v = column / size
        norm = np.sqrt(v @ v)
        v[0] += np.copysign(norm, v[0])
        v /= np.sqrt(v @ v)
        A[j:, j:] -= 2 * np.outer(v, v @ A[j:, j:])
        A[j + 1 :, j] = 0
    return A[:k]


def back_substitute(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve ``factor @ x = right`` with an upper-triangular factor."""
    x = np.zeros_like(right)
    for i in range(len(right) - 1, -1, -1):
        x[i] = (right[i] - factor[i, i + 1 :] @ x[i + 1 :]) / factor[i, i]
    return x


def solve_at(
    X: np.ndarray, y: np.ndarray, checkpoints: list[int], forget: float, ridge: float
) -> list[Solution]:
    """Solve the discounted problem at each checkpoint.

    Parameters
    ----------
    X : ndarray, shape (n, d)
    y : ndarray, shape (n,)
    checkpoints : list of int
        Increasing row counts, the last at most n. With ``ridge=0`` the first must determine all d
        coefficients.
    forget : float
        Forgetting factor in (0, 1].
    ridge : float
        Ridge at the start, forgotten with the data.
    """
    d = X.shape[1]
    forget = LD(forget)
    triangle = np.zeros((d + 1, d + 1), LD)
    triangle[range(d), range(d)] = np.sqrt(LD(ridge))
    total_weight, previous, solutions = LD(0), 0, []
    for n in checkpoints:
        count = n - previous
        age = np.arange(count - 1, -1, -1).astype(LD)
        weight = forget**age
        rows = np.column_stack([X[previous:n], y[previous:n]]).astype(LD)
        stacked = np.vstack([np.sqrt(forget**count) * triangle, np.sqrt(weight)[:, None] * rows])
        triangle = triangularise(stacked)
        total_weight = forget**count * total_weight + weight.sum()
        factor = triangle[:d, :d].copy()
        coef = back_substitute(factor, triangle[:d, d])
        solutions.append(Solution(n, factor, coef, float(total_weight)))
        previous = n
    return solutions


def checkpoints(n: int, dense: int = 50, until: int = 5000, growth: float = 1.1) -> list[int]:
    """Row counts to look at: every ``dense`` rows at first, then in geometric progression."""
    points = list(range(dense, min(n, until) + 1, dense))
    while points and points[-1] < n:
        points.append(min(n, int(points[-1] * growth)))
    return points or [n]

"""Oracle of the forgetting strategies: the information matrix updated as defined, dense.

``R_t = Rbar_t + w_t x_t x_t^T`` and ``b_t = Rbar_t theta_{t-1} + w_t x_t y_t``, solved at every row
by elimination, in float64 or any dtype that has more digits.  A rule makes Rbar from R.  Nothing
is forgotten while a diagonal entry of R is zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Row(NamedTuple):
    """Arguments of a rule: R (k, k), x (k,), the weight, the errors e (m,) and ``s = 1 + w x.P x``.
    """

    R: NDArray
    x: NDArray
    weight: Any
    error: NDArray
    s: Any


Rule = Callable[[Row], NDArray]


class Path(NamedTuple):
    """Result: coef (n, m, k), the matrix P as inverse (n, k, k), residual (n, m)."""

    coef: NDArray
    inverse: NDArray
    residual: NDArray


def solve(A: NDArray, B: NDArray) -> NDArray:
    """Compute ``A^-1 B`` by elimination with pivoting, in the arrays' own dtype."""
    A, B = A.copy(), B.copy()
    k = A.shape[0]
    for i in range(k):
        best = i + int(np.argmax(np.abs(A[i:, i])))
        if best != i:
            A[[i, best]], B[[i, best]] = A[[best, i]], B[[best, i]]
        B[i] /= A[i, i]
        A[i] /= A[i, i]
        for j in range(k):
            if j != i:
                B[j] -= A[j, i] * B[i]
                A[j] -= A[j, i] * A[i]
    return B


def path(
    X: NDArray, Y: NDArray, rule: Rule, *, weights: NDArray, ridge: NDArray, dtype: Any = np.float64
) -> Path:
    """Run a rule over X (n, k), Y (n, m), weights (n,), ridge (k,). O(n k^3)."""
    X, Y, w, ridge = (np.asarray(a, dtype) for a in (X, Y, weights, ridge))
    (n, k), m = X.shape, Y.shape[1]
    R, theta = np.diag(ridge), np.zeros((k, m), dtype)
    coef, inverse, residual = (np.empty(s, dtype) for s in ((n, m, k), (n, k, k), (n, m)))
    eye = np.eye(k, dtype=dtype)
    for t in range(n):
        x = X[t]
        residual[t] = Y[t] - x @ theta
        bar = R
        if (np.diagonal(R) > 0).all():
            s = 1 + w[t] * (x @ solve(R, x[:, None])[:, 0])
            bar = rule(Row(R, x, w[t], residual[t], s))
        R = bar + w[t] * np.outer(x, x)
        b = bar @ theta + w[t] * np.outer(x, Y[t])
        both = solve(R, np.hstack([b, eye]))
        theta, inverse[t] = both[:, :m], both[:, m:]
        coef[t] = theta.T
    return Path(coef, inverse, residual)


def per_coefficient(factors: NDArray) -> Rule:
    root = np.sqrt(np.asarray(factors))
    return lambda row: root[:, None] * row.R * root


def directional(factor: float, smallest: float = 0.0) -> Rule:
    """Return the rule of SIFt for one row; below ``smallest``, rows need weight 0 to be skipped."""

    def rule(row: Row) -> NDArray:
        u = row.R @ row.x
        size = row.x @ u
        if row.weight == 0 or row.weight * (row.x @ row.x) < smallest**2 or size == 0:
            return row.R
        return row.R - (1 - factor) * np.outer(u, u) / size

    return rule


def resetting(factor: float, information: NDArray, cyclic: bool) -> Rule:
    k = np.size(information)
    turn = [0]

    def rule(row: Row) -> NDArray:
        if not cyclic:
            return factor * row.R + (1 - factor) * np.diag(information)
        added = np.zeros(k)
        added[turn[0]] = (1 - factor**k) * information[turn[0]]
        turn[0] = (turn[0] + 1) % k
        return factor * row.R + np.diag(added)

    return rule


def bounded_trace(factor: float, trace: float) -> Rule:
    def rule(row: Row) -> NDArray:
        now = np.trace(solve(row.R, np.eye(row.R.shape[0], dtype=row.R.dtype)))
        return min(1, max(factor, now / trace)) * row.R

    return rule


def random_walk(Q: NDArray) -> Rule:
    def rule(row: Row) -> NDArray:
        eye = np.eye(row.R.shape[0], dtype=row.R.dtype)
        return solve(solve(row.R, eye) + Q, eye)

    return rule


def _noise(given: float | None, rows: float, k: int) -> Callable[[Row, bool], Any]:
    """Return a function with the squares ``w e^2 / (s sigma2)`` of a row, None before the noise is
    known.
    """
    variances, counted, seen = [None], [0.0], [0]

    def squares(row: Row, restart: bool = False) -> Any:
        if restart:
            seen[0] = 0
            return None
        seen[0] += 1
        own = row.weight * row.error**2 / row.s
        if given is not None:
            return own / given if seen[0] > k else None
        if seen[0] <= k:
            return None
        known, before = counted[0] >= k + 10, variances[0]
        counted[0] = min(counted[0] + 1, max(rows, k + 10))
        if before is None:
            before = np.zeros_like(own)
        target = np.minimum(own, 9 * before) / 0.9950 if known else own
        variances[0] = before + (target - before) / counted[0]
        return own / before if known else None

    return squares


def variable(
    memory: float, shortest: float, noise: float | None, k: int, factors: list[float]
) -> Rule:
    """Return the rule of a variable factor; ``factors`` receives the factor of every row."""
    squares = _noise(noise, 10 * memory, k)

    def rule(row: Row) -> NDArray:
        if row.weight == 0:
            factors.append(factors[-1] if factors else 1.0)
        else:
            z = squares(row, False)
            wanted = 1.0 if z is None else 1 - z.mean() / memory
            factors.append(float(min(max(wanted, 1 - 1 / shortest), 1.0)))
        return factors[-1] * row.R

    return rule


def reset_on_break(
    factor: float, ratio: float, rows: float, keep: float, outlier: float, noise: float | None,
    k: int, breaks: list[int],
) -> Rule:  # fmt: skip
    """Return the rule of resets at breaks; ``breaks`` receives the row of each, among those it saw.
    """
    squares = _noise(noise, 1000, k)
    statistic, at = [0.0], [-1]

    def rule(row: Row) -> NDArray:
        at[0] += 1
        z = squares(row, False) if row.weight > 0 else None
        if z is None:
            return factor * row.R
        llr = ((1 - 1 / ratio) * np.minimum(z, outlier**2) - math.log(ratio)) / 2
        statistic[0] = max(0.0, statistic[0] + float(llr.sum()))
        if statistic[0] < math.log(rows):
            return factor * row.R
        statistic[0] = 0.0
        squares(row, True)
        breaks.append(at[0])
        return keep * row.R

    return rule

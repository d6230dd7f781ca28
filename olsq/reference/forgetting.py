"""Oracle of the forgetting strategies: the information matrix updated as defined, dense.

``R_t = Rbar_t + w_t x_t x_t^T`` and ``b_t = Rbar_t theta_{t-1} + w_t x_t y_t``, solved at every row
by elimination, in float64 or any dtype that has more digits.  A rule makes Rbar from R, or Rbar and
thetabar.  Nothing is forgotten while a diagonal entry of R is zero, but that coefficients walk.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Row(NamedTuple):
    """Arguments of a rule: R (k, k), theta (k, m), the row x (k,) and y (m,), its weight,
    the errors e (m,) and ``s = 1 + w x.P x``.
    """

    R: NDArray
    theta: NDArray
    x: NDArray
    y: NDArray
    weight: Any
    error: NDArray
    s: Any


Rule = Callable[[Row], Any]  # Rbar, or Rbar and thetabar


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
    X: NDArray,
    Y: NDArray,
    rule: Rule,
    *,
    weights: NDArray,
    ridge: NDArray,
    dtype: Any = np.float64,
    at_any_rank: bool = False,
) -> Path:
    """Run a rule over X (n, k), Y (n, m), weights (n,), ridge (k,). O(n k^3).

    ``at_any_rank`` is for a rule that holds while a diagonal entry of R is zero, too.
    """
    X, Y, w, ridge = (np.asarray(a, dtype) for a in (X, Y, weights, ridge))
    (n, k), m = X.shape, Y.shape[1]
    R, theta = np.diag(ridge), np.zeros((k, m), dtype)
    coef, inverse, residual = (np.empty(s, dtype) for s in ((n, m, k), (n, k, k), (n, m)))
    eye = np.eye(k, dtype=dtype)
    for t in range(n):
        x = X[t]
        residual[t] = Y[t] - x @ theta
        bar = R
        full = (np.diagonal(R) > 0).all()
        if full or at_any_rank:
            s = spread(R, x, w[t]) if full else np.inf
            bar = rule(Row(R, theta, x, Y[t], w[t], residual[t], s))
            bar, theta = bar if isinstance(bar, tuple) else (bar, theta)
        R = bar + w[t] * np.outer(x, x)
        b = bar @ theta + w[t] * np.outer(x, Y[t])
        both = solve(R, np.hstack([b, eye]))
        theta, inverse[t] = both[:, :m], both[:, m:]
        coef[t] = theta.T
    return Path(coef, inverse, residual)


def spread(R: NDArray, x: NDArray, weight: Any) -> Any:
    """Compute ``s = 1 + w x . R^-1 x``."""
    return 1 + weight * (x @ solve(R, x[:, None])[:, 0])


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


def random_walk(Q: NDArray, elapsed: NDArray | None = None) -> Rule:
    """Let coefficients walk; with ``elapsed`` (n,) the walk of row t is ``elapsed[t] Q``.

    ``Rbar = (R^-1 + Q)^-1 = (1 + R Q)^-1 R``, which R of any rank has.
    """
    at = [-1]

    def rule(row: Row) -> NDArray:
        at[0] += 1
        step = Q if elapsed is None else elapsed[at[0]] * Q
        eye = np.eye(row.R.shape[0], dtype=row.R.dtype)
        return solve(eye + row.R @ step, row.R)

    return rule


class Noise:
    """Estimate of the noise variance from clipped squared errors; None while unknown."""

    def __init__(self, fixed: float | None, rows: float, k: int) -> None:
        self.fixed, self.rows, self.k = fixed, rows, k
        self.variance: Any = None
        self.counted, self.n_errors = 0.0, 0

    def squares(self, row: Row) -> Any:
        """Compute ``w e^2 / (s sigma2)`` of a row (m,), or None where they say nothing yet."""
        if not row.error.any() and row.s == 1:
            return None
        self.n_errors += 1
        square = row.weight * row.error**2 / row.s
        if self.fixed is not None:
            return square / self.fixed if self.n_errors > self.k else None
        if self.n_errors <= self.k:
            return None
        established, before = self.counted >= self.k + 10, self.variance
        self.counted = min(self.counted + 1, max(self.rows, self.k + 10))
        before = np.zeros_like(square) if before is None else before
        target = np.minimum(square, 9 * before) / 0.9950 if established else square
        self.variance = before + (target - before) / self.counted
        return square / before if established else None


def variable(
    memory: float, shortest: float, noise: float | None, k: int, factors: list[float]
) -> Rule:
    """Forget by a factor that follows errors; ``factors`` receives that of every row."""
    estimate = Noise(noise, 10 * memory, k)
    stretch: list[Any] = []
    before: list[Any] = [None]

    def follow(square: NDArray, z: NDArray) -> None:
        """Take over the level of errors that stay large for two stretches in turn."""
        stretch.append((square, z.mean() > 9))
        if noise is not None or len(stretch) < k + shortest:
            return
        total, large = sum(s[0] for s in stretch), 2 * sum(s[1] for s in stretch) > len(stretch)
        lasting = large and before[0] is not None and (total >= before[0] / 2).all()
        if lasting:
            estimate.variance = np.maximum(estimate.variance, total / len(stretch))
            estimate.counted = min(estimate.counted, max(len(stretch), k + 10))
        before[0] = total if large and not lasting else None
        stretch.clear()

    def rule(row: Row) -> NDArray:
        if row.weight == 0:
            factors.append(factors[-1] if factors else 1.0)
        else:
            z = estimate.squares(row)
            if z is not None:
                follow(row.weight * row.error**2 / row.s, z)
            target = 1.0 if z is None else 1 - z.mean() / memory
            factors.append(float(min(max(target, 1 - 1 / shortest), 1.0)))
        return factors[-1] * row.R

    return rule


class Trial:
    """The state beside a reset one that goes on as if nothing had happened, and their errors."""

    def __init__(self, row: Row, factor: float) -> None:
        self.R, self.theta, self.factor = row.R, row.theta, factor
        self.squares: list[tuple[NDArray, NDArray]] = []
        self.logs = 0.0
        self.learn(row)

    def learn(self, row: Row) -> None:
        R = self.factor * self.R
        b = R @ self.theta + row.weight * np.outer(row.x, row.y)
        self.R = R + row.weight * np.outer(row.x, row.x)
        self.theta = solve(self.R, b)

    def compare(self, row: Row) -> None:
        s = spread(self.R, row.x, row.weight)
        error = row.y - row.x @ self.theta
        if not (error.any() or row.error.any()):
            return
        self.squares.append((row.weight * error**2 / s, row.weight * row.error**2 / row.s))
        self.logs += float(np.log(s) - np.log(row.s))

    def sums(self) -> tuple[NDArray, NDArray]:
        """Compute the sums of both states (m,), without the largest of each."""
        both = [np.array(list(terms)) for terms in zip(*self.squares, strict=True)]
        return both[0].sum(0) - both[0].max(0), both[1].sum(0) - both[1].max(0)


def reset_on_break(
    factor: float,
    ratio: float,
    rows: float,
    keep: float,
    outlier: float,
    noise: float | None,
    k: int,
    breaks: list[int],
) -> Rule:
    """Reset on a break; ``breaks`` receives the number of each that lasts, among rows seen."""
    estimate = Noise(noise, 1000, k)
    statistic, at = [0.0], [-1]
    trial: list[Trial | None] = [None]

    def judge(row: Row) -> bool:
        """Test whether the row makes an alarm."""
        z = estimate.squares(row) if row.weight > 0 else None
        if z is None or trial[0] is not None:
            return False
        llr = ((1 - 1 / ratio) * np.minimum(z, outlier**2) - math.log(ratio)) / 2
        statistic[0] = max(0.0, statistic[0] + float(llr.sum()))
        return statistic[0] >= math.log(rows)

    def decide(row: Row, rival: Trial) -> Row | None:
        """Return the row beside the state that goes on; None where it takes more rows to tell."""
        n = len(rival.squares) - 1
        if n < k + 10:
            return None
        unchanged, changed = rival.sums()
        score = rival.logs * unchanged.size / 2 + float(n / 2 * np.log(unchanged / changed).sum())
        if abs(score) < 3 and n < 4 * (k + 10):
            return None
        mean = (changed if score > 0 else unchanged) / n
        if noise is None:
            more = mean > estimate.variance * (1 + 3 * math.sqrt(2 / n))
            estimate.variance = np.where(more, mean, estimate.variance)
            estimate.counted = min(estimate.counted, n) if more.any() else estimate.counted
        trial[0] = None
        if score > 0:
            return row
        breaks.pop()
        return row._replace(R=rival.R, theta=rival.theta)

    def rule(row: Row) -> Any:
        at[0] += 1
        rival = trial[0]
        kept = row
        if rival is not None:
            if row.weight > 0 and estimate.n_errors >= 2 * k:
                rival.compare(row)
            decided = decide(row, rival)
            if decided is None:
                rival.learn(row)
            else:
                kept = decided
        if not judge(row):
            return factor * kept.R, kept.theta
        statistic[0], estimate.n_errors = 0.0, 0
        breaks.append(at[0])
        trial[0] = Trial(kept, factor)
        return keep * kept.R, kept.theta

    return rule

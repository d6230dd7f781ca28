"""Streams in which rows many times larger than the others enter a rolling window and leave it.

Once they have left, the window's coefficients must be as good as those of a fit of its rows: errors
are given beside the condition number, against solutions in extended precision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KINDS = ("row", "regressor", "weight", "row and target")
DESIGNS = ("white", "integers", "offset", "nearly collinear", "complex")


class Departed(NamedTuple):
    """Rows, and which windows are judged."""

    X: NDArray
    y: NDArray
    weights: NDArray | None
    times: NDArray | None
    window: int | float
    intercept: bool
    huge: NDArray[np.bool_]  # (n,)
    forget: float = 1.0  # inside the window

    @property
    def options(self) -> dict:
        fading = {} if self.forget == 1 else {"forget": self.forget}
        return {"window": self.window, "fit_intercept": self.intercept} | fading

    @property
    def given(self) -> dict:
        """Weights and times, where the stream has them."""
        pairs = {"sample_weight": self.weights, "times": self.times}
        return {name: values for name, values in pairs.items() if values is not None}

    def inside(self, t: int) -> slice:
        """The rows in the window after row t."""
        if self.times is None:
            return slice(max(0, t + 1 - int(self.window)), t + 1)
        return slice(int(np.searchsorted(self.times, self.times[t] - self.window, "right")), t + 1)

    def judged(self) -> list[int]:
        """Rows after which the window is full, without a huge row, and had one before."""
        first, d = int(np.argmax(self.huge)), self.X.shape[1] + self.intercept
        fewest = self.window if self.has_few_rows else d + 3
        return [
            t
            for t in range(first, len(self.X))
            if not self.huge[(rows := self.inside(t))].any() and rows.stop - rows.start >= fewest
        ]

    @property
    def has_few_rows(self) -> bool:
        """Whether a window has fewer rows than coefficients."""
        return self.times is None and self.window < self.X.shape[1] + self.intercept


def make(
    seed: int, kind: str, design: str = "white", d: int | None = None, rows: int = 6,
    few: bool = False, forget: float = 1.0,
) -> Departed:  # fmt: skip
    """Make a stream of about ``rows`` windows; ``kind`` says what of a few rows is huge.

    Windows have fewer rows than coefficients where they are ``few``; rows fade where ``forget`` is
    below 1.
    """
    rng = np.random.default_rng([seed, KINDS.index(kind), DESIGNS.index(design)])
    d = int(rng.integers(1, 9)) if d is None else d
    intercept = bool(rng.integers(2))
    window = int(rng.integers(d + 5, 3 * d + 30))
    if few:
        d += 3
        window = int(rng.integers(2, d + intercept))
    n = rows * window + (20 if few else 0)
    X = rng.standard_normal((n, d))
    if design == "integers":
        X = rng.integers(-4, 5, (n, d)).astype(float)
    elif design == "offset":
        X += 10.0
    elif design == "nearly collinear" and d > 1:
        X[:, -1] = X[:, 0] + 1e-5 * X[:, -1]
    elif design == "complex":
        X = X + 1j * rng.standard_normal((n, d))
    y = X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n)
    if design == "integers":
        y = np.round(4 * y)
    weights = rng.choice([0.5, 1.0, 2.0], n) if kind == "weight" or rng.integers(3) == 0 else None
    times, length = None, window
    if rng.integers(4) == 0 and not few:
        times, length = np.cumsum(rng.choice([0.5, 1.0, 1.5], n)), float(window)
    huge = np.zeros(n, np.bool_)
    huge[rng.integers(window // 2, n - 2 * window, rng.integers(1, 5))] = True
    for t in np.flatnonzero(huge):
        size = 10 ** rng.uniform(1, 9)
        if kind == "weight":
            weights[t] *= size
        elif kind == "regressor":
            X[t, rng.integers(d)] *= size
        else:
            X[t] *= size
        if kind == "row and target":
            y[t] *= size * 10 ** rng.uniform(-2, 4)
    return Departed(X, y, weights, times, length, intercept, huge, forget)


def example() -> Departed:
    """Make a stream whose last slope is -26/71; -0.36018 where the errors of its huge row stay."""
    x, y = np.tile([0.0, 1, 3, 2, 4], 12), np.tile([0.0, 2, 3, 1, 5, 3, 4], 9)[:60]
    x[24], y[24] = 1500, 4.5e6
    return Departed(x[:, None], y, None, None, 12, True, np.arange(60) == 24)


def factors(A: NDArray) -> tuple[NDArray, NDArray, NDArray, float]:
    """Factor ``A = Q R lengths`` in extended precision; return A's scaled condition too."""
    wide = np.clongdouble if np.iscomplexobj(A) else np.longdouble
    A = A.astype(wide)
    lengths = np.sqrt((abs(A) ** 2).sum(0))
    lengths[lengths == 0] = 1
    Q, d = A / lengths, A.shape[1]
    condition = np.linalg.cond(Q.astype(complex if np.iscomplexobj(Q) else float))
    R = np.eye(d, dtype=wide)
    for _ in range(2):  # twice is enough: Q is then orthogonal to extended precision
        for k in range(d):
            along = Q[:, :k].conj().T @ Q[:, k]
            Q[:, k] -= Q[:, :k] @ along
            length = np.sqrt((abs(Q[:, k]) ** 2).sum())
            Q[:, k] /= length
            R[:k] += along[:, None] * R[k]
            R[k] *= length
    return Q, R, lengths, float(condition)


def solve(A: NDArray, b: NDArray) -> tuple[NDArray, float]:
    """Solve least squares in extended precision; return the condition of the scaled columns too."""
    Q, R, lengths, condition = factors(A)
    theta = Q.conj().T @ b
    for k in range(len(R) - 1, -1, -1):
        theta[k] = (theta[k] - R[k, k + 1 :] @ theta[k + 1 :]) / R[k, k]
    return theta / lengths, condition


def shortest(A: NDArray, b: NDArray, intercept: bool) -> tuple[NDArray, float]:
    """Solve for the coefficients of minimum norm of few rows, the first column's aside if asked."""
    first = int(intercept)
    rows, targets = A[:, first:].astype(np.longdouble), b.astype(np.longdouble)
    if intercept:
        rows, targets = rows[1:] - rows[0], targets[1:] - targets[0]
    Q, R, lengths, condition = factors(rows.T)
    c = targets / lengths
    for k in range(len(R)):
        c[k] = (c[k] - R[:k, k] @ c[:k]) / R[k, k]
    slopes = Q @ c
    return np.append(b[0] - A[0, 1:] @ slopes, slopes) if intercept else slopes, condition


def errors(
    stream: Departed, coef: NDArray, intercept: NDArray, judged: list[int] | None = None
) -> NDArray[np.float64]:
    """Errors of coef (n, d) and intercept (n,) after each judged row, over the condition number.

    Relative to the largest coefficient, in units of the weighted columns' lengths.
    """
    found = []
    for t in stream.judged() if judged is None else judged:
        rows = stream.inside(t)
        A, b = stream.X[rows], stream.y[rows]
        if stream.intercept:
            A = np.column_stack([np.ones(len(A)), A])
        if not stream.has_few_rows:
            root = np.sqrt(np.longdouble(stream.forget)) ** np.arange(len(A))[::-1]
            if stream.weights is not None:
                root *= np.sqrt(stream.weights[rows].astype(np.longdouble))
            A, b = A * root[:, None], b * root
        # Coefficients fit few rows exactly, whatever the weights.
        few = stream.has_few_rows
        truth, condition = shortest(A, b, stream.intercept) if few else solve(A, b)
        if not condition < 1e8:
            continue
        got = np.append(intercept[t], coef[t]) if stream.intercept else coef[t]
        lengths = np.sqrt((abs(A) ** 2).sum(0))
        off, size = (lengths * abs(got - truth)).max(), (lengths * abs(truth)).max()
        found.append(float(off / size) / condition)
    return np.array(found)

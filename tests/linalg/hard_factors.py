"""Hard factors and rows for :mod:`olsq.linalg`, and errors in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

D, K = 6, 3  # one shape, so that JAX compiles once


def cases(tiny: float = 1e-300) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """R (D, D), upper triangular, and X (K, D) by name."""
    rng = np.random.default_rng(7)
    R = np.linalg.qr(rng.standard_normal((12, D)))[1]
    X = rng.standard_normal((K, D))
    columns, rows = np.logspace(0, -12, D), np.logspace(0, -13, D)
    alternate = np.where(np.arange(D) % 2, 1e300, tiny)
    collinear = np.triu(np.ones((D, D))) * 0.2 ** np.arange(D)[:, None] ** 2
    gap, late = R.copy(), X.copy()
    gap[:, 2], late[:, 2] = 0, 0  # a column that has always been zero
    tail = R.copy()
    tail[1, 1] = 0  # singular, but the row is not zero
    return {
        "random": (R, X),
        "signs": (R * np.where(np.arange(D) % 2, -1.0, 1.0)[:, None], X),
        "graded columns": (R * columns, X * columns),
        "ill-conditioned": (R * rows[:, None], X @ (R * rows[:, None])),
        "collinear": (collinear, 0.3 * X @ collinear),
        "repeated rows": (R, np.repeat(X[:1], K, 0)),
        "rows far larger": (R, 1e7 * X),
        "rows far smaller": (R, 1e-7 * X),
        "one row zero": (R, X * np.array([1.0, 0.0, 1.0])[:, None]),
        "zero column": (gap, late),
        "zero pivot": (tail, X),
        "nothing yet": (np.zeros((D, D)), X),
        "nothing at all": (np.zeros((D, D)), np.zeros((K, D))),
        "huge": (1e300 * R, 1e300 * X),
        "tiny": (tiny * R, tiny * X),
        "huge and tiny": (R * alternate, X * alternate),
    }


def exact_gram(*blocks: np.ndarray) -> list[list[Fraction]]:
    """``sum B^T B`` without rounding."""
    rows = [[Fraction(float(x)) for x in row] for block in blocks for row in np.asarray(block)]
    d = np.shape(blocks[0])[-1]
    return [[sum((r[i] * r[j] for r in rows), Fraction(0)) for j in range(d)] for i in range(d)]


def error(found: list[list[Fraction]], wanted: list[list[Fraction]], size: list[Fraction]) -> float:
    """Largest ``|found - wanted|_ij / sqrt(size_i size_j)``: the same in any units of columns."""
    worst = 0.0
    for i, (one, other) in enumerate(zip(found, wanted, strict=True)):
        for j, (x, y) in enumerate(zip(one, other, strict=True)):
            gap, scale = (x - y) ** 2, size[i] * size[j]
            if gap > 0:
                worst = max(worst, float(gap / scale) ** 0.5 if scale > 0 else np.inf)
    return worst


def diagonal(gram: list[list[Fraction]]) -> list[Fraction]:
    return [gram[i][i] for i in range(len(gram))]

"""Oracle in rational arithmetic: a weighted ridge regression without a single rounding.

Every float is a fraction, so that the normal equations of floats can be formed and solved exactly,
however far apart the weights of old and new rows are.  O(n d^2 + d^3) operations on fractions whose
digits grow: for some 25 rows of three coefficients.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Matrix = list[list[Fraction]]


def solve(
    X: NDArray, y: NDArray, gates: NDArray, weights: NDArray, ridge: NDArray
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Compute coefficients (d,) after all rows, and the condition number of each; None if singular.

    X (n, d) has its column of ones where there is an intercept; the ridge (d,) is forgotten with
    the rows. The condition number of coefficient j is ``sqrt(P_jj H_jj)``, the square root of its
    variance inflation factor: it has no units, and is 1 for a column orthogonal to the others.
    """
    n, d = X.shape
    H = [[Fraction(0)] * d for _ in range(d)]
    G = [Fraction(0)] * d
    for j in range(d):
        H[j][j] = Fraction(float(ridge[j]))
    for t in range(n):
        gate, weight = Fraction(float(gates[t])), Fraction(float(weights[t]))
        row = [Fraction(float(v)) for v in X[t]]
        target = Fraction(float(y[t]))
        for i in range(d):
            for j in range(d):
                H[i][j] = gate * H[i][j] + weight * row[i] * row[j]
            G[i] = gate * G[i] + weight * row[i] * target
    inverse = _inverse(H)
    if inverse is None:
        return None
    theta = [sum((inverse[i][j] * G[j] for j in range(d)), Fraction(0)) for i in range(d)]
    most = Fraction(np.finfo(np.float64).max)
    inflation = [float(min(inverse[j][j] * H[j][j], most)) for j in range(d)]
    return np.array([float(v) for v in theta]), np.sqrt(inflation)


def kalman(
    X: NDArray, y: NDArray, drift: NDArray, ridge: NDArray, elapsed: NDArray | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Run the Kalman filter of coefficients that walk: means and variances (n, d) after each row.

    Before row t they walk by ``elapsed[t] drift`` (a number 1 where it is not given); ``drift``
    (d, d) and the prior's precision ``ridge`` (d,) > 0 are in units of the noise's variance.
    """
    n, d = X.shape
    P = [
        [1 / Fraction(float(ridge[i])) if i == j else Fraction(0) for j in range(d)]
        for i in range(d)
    ]
    Q = [[Fraction(float(drift[i, j])) for j in range(d)] for i in range(d)]
    theta = [Fraction(0)] * d
    means, variances = np.empty((n, d)), np.empty((n, d))
    for t in range(n):
        step = Fraction(1 if elapsed is None else float(elapsed[t]))
        row = [Fraction(float(v)) for v in X[t]]
        P = [[P[i][j] + step * Q[i][j] for j in range(d)] for i in range(d)]
        u = [sum((P[i][j] * row[j] for j in range(d)), Fraction(0)) for i in range(d)]
        s = 1 + sum((row[i] * u[i] for i in range(d)), Fraction(0))
        error = Fraction(float(y[t])) - sum((row[i] * theta[i] for i in range(d)), Fraction(0))
        theta = [theta[i] + u[i] * error / s for i in range(d)]
        P = [[P[i][j] - u[i] * u[j] / s for j in range(d)] for i in range(d)]
        means[t], variances[t] = [float(v) for v in theta], [float(P[i][i]) for i in range(d)]
    return means, variances


def _inverse(H: Matrix) -> Matrix | None:
    """Invert by Gauss-Jordan elimination; None if a pivot is 0 (H is semidefinite)."""
    d = len(H)
    rows = [[*H[i], *(Fraction(int(i == j)) for j in range(d))] for i in range(d)]
    for i in range(d):
        if rows[i][i] == 0:
            return None
        pivot = rows[i][i]
        rows[i] = [v / pivot for v in rows[i]]
        for k in range(d):
            if k != i and rows[k][i] != 0:
                factor = rows[k][i]
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i], strict=True)]
    return [row[d:] for row in rows]

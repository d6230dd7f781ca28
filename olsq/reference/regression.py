"""Oracle of streaming regression: one dense least-squares problem per step, no recursion.

For each t the rows seen so far are stacked, multiplied by the square root of their weight
``zeta_ti beta_i``, the ridge is appended as extra rows, and the stack is handed to an SVD.
Nothing is carried from one step to the next.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class OraclePath(NamedTuple):
    """Coefficients at every step: coef (n, m, d), intercept (n, m), residual (n, m),
    loss (n, m) the minimised objective without its 1/2, rank (n,), condition (n,)."""

    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    residual: NDArray[np.float64]
    loss: NDArray[np.float64]
    rank: NDArray[np.int64]
    condition: NDArray[np.float64]


def row_weights(gates: NDArray, weights: NDArray, t: int, window: int | None) -> NDArray:
    """Compute ``zeta_ti beta_i`` for i = 0..t; zero for rows that have left the window."""
    later = np.append(np.cumprod(gates[t:0:-1])[::-1], 1.0)  # of row i: the gates of i + 1 to t
    out = weights[: t + 1] * later
    if window is not None:
        out[: max(0, t + 1 - window)] = 0.0
    return out


def solve(
    X: NDArray, Y: NDArray, weights: NDArray, ridge: NDArray, fit_intercept: bool
) -> tuple[NDArray, NDArray, NDArray, int, float]:
    """Solve the weighted ridge regression of Y (n, m) on X (n, d); minimum norm if undetermined.

    The intercept is not penalised and not part of the norm: with an intercept the weighted
    means are removed first.  The condition number is that of the whole system, intercept included,
    with columns scaled to unit length, since no method here depends on the columns' units.
    """
    root = np.sqrt(weights)[:, None]
    if fit_intercept and weights.sum() > 0:
        x_mean = (weights @ X) / weights.sum()
        y_mean = (weights @ Y) / weights.sum()
    else:
        x_mean, y_mean = np.zeros(X.shape[1]), np.zeros(Y.shape[1])
    A = np.vstack([root * (X - x_mean), np.diag(np.sqrt(ridge))])
    B = np.vstack([root * (Y - y_mean), np.zeros((X.shape[1], Y.shape[1]))])
    length = np.linalg.norm(A, axis=0)
    length[length == 0] = 1.0
    theta, _, rank, _ = np.linalg.lstsq(A / length, B, rcond=None)
    theta = theta / length[:, None]
    if rank < X.shape[1]:
        theta = np.linalg.lstsq(A, B, rcond=None)[0]
    design = np.vstack([root * X, np.diag(np.sqrt(ridge))])
    if fit_intercept:
        design = np.hstack([design, np.vstack([root, np.zeros((X.shape[1], 1))])])
    length = np.linalg.norm(design, axis=0)
    singular = np.linalg.svd(design / np.where(length > 0, length, 1.0), compute_uv=False)
    determined = rank == X.shape[1] and singular[-1] > 0
    condition = float(singular[0] / singular[-1]) if determined else np.inf
    loss = ((A @ theta - B) ** 2).sum(0)
    return theta.T, y_mean - theta.T @ x_mean, loss, int(rank), condition


def coefficient_path(
    X: NDArray,
    Y: NDArray,
    *,
    gates: NDArray,
    weights: NDArray,
    ridge: NDArray,
    ridge_mode: str = "discounted",
    window: int | None = None,
    fit_intercept: bool = False,
) -> OraclePath:
    """Solve the regression problem of :mod:`olsq.problem` afresh at each of the n rows.

    X (n, d), Y (n, m), gates (n,), weights (n,), ridge (d,), all float64. O(n^2 d^2).
    """
    n, d = X.shape
    m = Y.shape[1]
    coef, intercept = np.zeros((n, m, d)), np.zeros((n, m))
    residual, loss = np.zeros((n, m)), np.zeros((n, m))
    rank, condition = np.zeros(n, dtype=np.int64), np.zeros(n)
    theta, bias = np.zeros((m, d)), np.zeros(m)
    for t in range(n):
        residual[t] = Y[t] - theta @ X[t] - bias
        w = row_weights(gates, weights, t, window)
        ridge_t = ridge * np.prod(gates[: t + 1]) if ridge_mode == "discounted" else ridge
        theta, bias, loss[t], rank[t], condition[t] = solve(
            X[: t + 1], Y[: t + 1], w, ridge_t, fit_intercept
        )
        coef[t], intercept[t] = theta, bias
    return OraclePath(coef, intercept, residual, loss, rank, condition)

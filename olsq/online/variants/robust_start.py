"""The M-estimate of the first rows of a stream, before there is a scale to judge rows by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olsq.online.variants.robust_kernels import weight_of

MEDIAN_STEPS, STEPS = 30, 50


def weights_together(
    X: NDArray[np.float64], Y: NDArray[np.float64], weights: NDArray[np.float64],
    ridge: NDArray[np.float64], rule: tuple[int, float, float],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
    """Robust weights (n,) of rows X (n, k), Y (n, m), and what the residuals (n, m) are in scale.

    ``weights`` (n,) are those of forgetting and of the samples, ``ridge`` (k,) what is left of it.
    Iteratively reweighted least squares: first for least absolute residuals, which a minority of
    outliers does not move far, from there for the loss of ``rule``, its scale the median of the
    residuals, raised by ``sqrt(n / (n - k))`` for what the fit has taken from them.
    """
    kind, parameter, quartile = rule
    known = weights > 0
    raised = np.sqrt(known.sum() / max(known.sum() - X.shape[1], 1))
    robust = np.ones(len(X))
    residual = Y - _fit(X, Y, weights, ridge)
    for step in range(MEDIAN_STEPS + STEPS):
        scale = raised * np.median(np.abs(residual[known]), axis=0) / quartile
        if not (scale > 0).all():
            break  # most rows fit exactly: the others are outliers, and have their weights
        before = robust
        if step < MEDIAN_STEPS:
            size = np.sqrt(((residual / scale) ** 2).mean(1))
            robust = 1.0 / np.maximum(size, 1e-3)
        else:
            robust = np.array([weight_of(r, scale, kind, parameter) for r in residual])
        residual = Y - _fit(X, Y, weights * robust, ridge)
        if step > MEDIAN_STEPS and np.abs(robust - before).max() < 1e-10:
            break
    return robust, raised * residual


def _fit(X: NDArray, Y: NDArray, weights: NDArray, ridge: NDArray) -> NDArray[np.float64]:
    """The fitted values (n, m) of weighted ridge regression, of minimum norm."""
    root = np.sqrt(weights)[:, None]
    A = np.vstack([root * X, np.diag(np.sqrt(ridge))])
    B = np.vstack([root * Y, np.zeros((ridge.size, Y.shape[1]))])
    length = np.linalg.norm(A, axis=0)
    length[length == 0] = 1.0
    return X @ (np.linalg.lstsq(A / length, B, rcond=None)[0] / length[:, None])

"""The M-estimate of the first rows of a stream, before there is a scale to judge rows by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olsq.online.variants.robust_kernels import scales_of, weight_of

MEDIAN_STEPS, STEPS = 30, 50


def weights_together(
    X: NDArray[np.float64], Y: NDArray[np.float64], weights: NDArray[np.float64],
    ridge: NDArray[np.float64], rule: tuple[int, float, float], noise: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
    """Compute robust weights (n,) of rows X (n, k), Y (n, m), and the residuals (n, m) in scale.

    ``weights`` (n,) are those of forgetting and of the samples, ``ridge`` (k,) what is left of it,
    ``noise`` the relative rounding error of fitted values; residuals below it are 0.
    Iteratively reweighted least squares: first for least absolute residuals, which a minority of
    outliers does not move far, from there for the loss of ``rule``, its scale that of the
    residuals, raised by ``sqrt(n / (n - k))`` for what the fit has taken from them.
    """
    kind, parameter, quartile = rule
    known = weights > 0
    raised = np.sqrt(known.sum() / max(known.sum() - X.shape[1], 1))
    robust, scale = np.ones(len(X)), np.empty(Y.shape[1])
    residual = _residuals(X, Y, weights, ridge, noise)
    for step in range((MEDIAN_STEPS + STEPS) if known.any() else 0):
        scales_of(residual[known], int(known.sum()), quartile, scale)
        scale *= raised
        before = robust
        if step < MEDIAN_STEPS:
            with np.errstate(divide="ignore"):  # a scale of 0: outliers from an exact fit
                sizes = np.divide(residual, scale, out=np.zeros_like(Y), where=residual != 0)
            robust = 1.0 / np.maximum(np.sqrt((sizes**2).mean(1)), 1e-3)
        else:
            robust = np.array([weight_of(r, scale, kind, parameter) for r in residual])
        residual = _residuals(X, Y, weights * robust, ridge, noise)
        if step > MEDIAN_STEPS and np.abs(robust - before).max() < 1e-10:
            break
    return robust, raised * residual


def _residuals(
    X: NDArray, Y: NDArray, weights: NDArray, ridge: NDArray, noise: float
) -> NDArray[np.float64]:
    """Compute the residuals (n, m) of weighted ridge regression of minimum norm."""
    root = np.sqrt(weights)[:, None]
    A = np.vstack([root * X, np.diag(np.sqrt(ridge))])
    B = np.vstack([root * Y, np.zeros((ridge.size, Y.shape[1]))])
    length = np.linalg.norm(A, axis=0)
    length[length == 0] = 1.0
    fitted = X @ (np.linalg.lstsq(A / length, B, rcond=None)[0] / length[:, None])
    residual = Y - fitted
    residual[np.abs(residual) <= noise * (np.abs(Y) + np.abs(fitted))] = 0.0
    return residual

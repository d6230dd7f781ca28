"""Noise variance and standard errors from what a form remembers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def noise_variance(
    loss: NDArray, coef: NDArray, variance: NDArray, counts: NDArray, ridge: NDArray
) -> NDArray[np.float64]:
    """Estimate of the noise variance, inf where there are no degrees of freedom for one.

    The weighted residual sum of squares over ``n - k n2 / n``, with n the (forgotten) number of
    rows, n2 the sum of their squared forgetting weights and ``k = rank - tr(Lambda_t P_t)`` the
    effective number of coefficients.  At forget = 1 that is n - k; under forgetting it makes the
    estimate unbiased for regressors whose distribution does not change.

    loss (..., m), coef (..., m, d), variance (..., d), counts (..., 4), ridge (..., d) already
    discounted.  Returns (..., m).
    """
    if ridge.any():
        known = np.where(np.isfinite(variance), variance, 0.0)  # undetermined: no ridge is left
        prior = np.minimum(ridge * known, 1.0).sum(-1)
        penalty = (coef**2 @ ridge[..., :, None])[..., 0]
    else:
        prior = penalty = 0.0
    rows, squared = counts[..., 0], counts[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = rows - (counts[..., 3] - prior) * np.where(rows > 0, squared / rows, 1.0)
    sum_squares = np.maximum(loss - penalty, 0.0)
    usable = (freedom > 1e-9 * np.maximum(rows, 1e-300))[..., None]
    out = np.full(sum_squares.shape, np.inf)
    np.divide(sum_squares, freedom[..., None], out=out, where=usable)
    return out


def standard_errors(sigma2: NDArray, variance: NDArray) -> NDArray[np.float64]:
    """``sqrt(sigma2 P_jj)`` (..., m, d); inf where sigma2 (..., m) or P_jj (..., d) is."""
    with np.errstate(invalid="ignore", over="ignore"):
        product = np.sqrt(sigma2)[..., :, None] * np.sqrt(variance)[..., None, :]
    if not np.isfinite(sigma2).all():
        product[np.isnan(product)] = np.inf
    return product

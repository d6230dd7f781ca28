"""Noise variance and standard errors from what a form remembers."""

from __future__ import annotations

import math

from numpy.typing import NDArray

from olsq.online._jit import kernel
from olsq.online._square_root_kernels import COUNT, COUNT_SQUARED, DECAY, RANK


def statistics(
    loss: NDArray,
    coef: NDArray,
    variance: NDArray,
    counts: NDArray,
    ridge: NDArray,
    discounted: bool,
    sigma2: NDArray,
    stderr: NDArray,
) -> None:
    """Estimates of the noise variance and standard errors of the coefficients, for n states.

    sigma2 (n, m) receives the weighted residual sum of squares over ``rows - k squared / rows``,
    where ``rows`` is the forgotten number of rows, ``squared`` the sum of their squared forgetting
    weights and ``k = rank - tr(Lambda_t P_t)`` the effective number of coefficients.  At forget =
    1 that is n - k; under forgetting it makes the estimate unbiased for regressors whose
    distribution does not change.  inf where there are no degrees of freedom.

    stderr (n, m, d) receives ``sqrt(sigma2 P_jj)``, inf where either is.

    loss (n, m), coef (n, m, d), variance (n, d) the diagonal of P, counts (n, 4), ridge (d,).
    """
    _fill(loss, coef, variance, counts, ridge, discounted, sigma2, stderr)


@kernel()
def _fill(loss, coef, variance, counts, ridge, discounted, sigma2, stderr):
    n, m, d = coef.shape
    for t in range(n):
        rows = counts[t, COUNT]
        decay = counts[t, DECAY] if discounted else 1.0
        prior = 0.0
        for j in range(d):
            if math.isfinite(variance[t, j]):
                prior += min(decay * ridge[j] * variance[t, j], 1.0)
        share = counts[t, COUNT_SQUARED] / rows if rows > 0 else 1.0
        freedom = rows - (counts[t, RANK] - prior) * share
        for target in range(m):
            penalty = 0.0
            for j in range(d):
                penalty += ridge[j] * float(coef[t, target, j]) ** 2
            squares = max(loss[t, target] - decay * penalty, 0.0)
            estimate = squares / freedom if freedom > 1e-9 * rows else math.inf
            sigma2[t, target] = estimate
            if not math.isfinite(estimate):
                stderr[t, target] = math.inf
                continue
            root = math.sqrt(estimate)
            for j in range(d):
                stderr[t, target, j] = root * math.sqrt(variance[t, j])
            if estimate == 0:  # 0 * inf: an undetermined coefficient of a perfect fit
                for j in range(d):
                    if not math.isfinite(variance[t, j]):
                        stderr[t, target, j] = math.inf

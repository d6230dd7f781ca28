"""The likelihood-ratio test of constant coefficients against random walks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_integer
from olsq.arrays.seeds import generator
from olsq.drift.kernels import Array, Rows
from olsq.drift.likelihood import evaluate, most_likely_drift
from olsq.threads import one_blas_thread


class LikelihoodRatio(NamedTuple):
    """Result of the likelihood-ratio test of constant coefficients.

    Attributes
    ----------
    statistic : float
        Twice the gain of the log likelihood by the estimated drifts.
    p_value : float
        Of a chi-squared mixture, which is too large; exact for normal noise with draws.
    n_drifts : int
        Drifts that were estimated, all 0 under constancy.
    draws : int
        Samples that the p-value was computed from; 0: the mixture.
    """

    statistic: float
    p_value: float
    n_drifts: int
    draws: int

    __repr__ = brief_repr


@one_blas_thread
def likelihood_ratio(
    rows: Rows,
    drift: Array,
    estimated: NDArray[np.bool_],
    noise: float | None,
    draws: int,
    random_state: Any,
) -> LikelihoodRatio:
    """Compute the statistic, and its p-value by a mixture or by ``draws`` of constant samples."""
    if not estimated.any():
        raise ValueError("likelihood_ratio tests drifts that were estimated, and all were given")
    check_integer("draws", draws, 0)
    statistic = _statistic(rows, drift, estimated, noise)
    count = int(estimated.sum())
    if not draws:
        return LikelihoodRatio(statistic, _mixture(statistic, count), count, 0)
    rng = generator(random_state, "random_state")
    # The statistic depends neither on the start nor, where it is estimated, on the noise.
    size = 1.0 if noise is None else np.sqrt(noise)
    spread = np.sqrt(np.where(np.isfinite(rows.noise), rows.noise, 0.0))
    steps = np.sqrt(np.outer(rows.steps, np.where(estimated, 0.0, drift)))
    unknown = np.where(estimated, np.nan, drift)
    larger = 0
    for _ in range(draws):
        walk = np.cumsum(steps * rng.standard_normal(steps.shape), axis=0)
        y = (rows.X * walk).sum(axis=1) + spread * rng.standard_normal(len(spread))
        other = rows._replace(y=size * y)
        refitted = most_likely_drift(other, unknown, noise)
        larger += _statistic(other, refitted, estimated, noise) >= statistic
    return LikelihoodRatio(statistic, (1 + larger) / (1 + draws), count, int(draws))


def _statistic(
    rows: Rows, drift: Array, estimated: NDArray[np.bool_], noise: float | None
) -> float:
    constant = np.where(estimated, 0.0, drift)
    gain = evaluate(rows, drift, noise).value - evaluate(rows, constant, noise).value
    return max(0.0, 2.0 * gain)


def _mixture(statistic: float, count: int) -> float:
    """Return the probability of more under a mixture of chi-squared with binomial weights."""
    from scipy.stats import binom, chi2

    if statistic == 0:
        return 1.0
    freedom = np.arange(1, count + 1)
    return float(binom.pmf(freedom, count, 0.5) @ chi2.sf(statistic, freedom))

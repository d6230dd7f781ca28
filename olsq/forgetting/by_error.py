"""Forgetting driven by the one-step-ahead prediction errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.forgetting.base import Forgetting, read_factor, read_number, sum_of_weights
from olsq.forgetting.entries import (
    FACTOR,
    KEEP,
    LONGEST,
    NOISE,
    NOISE_ROWS,
    OUTLIER,
    RATIO,
    RESET,
    SHORTEST,
    THRESHOLD,
    VARIABLE,
)

LARGE = 1e300  # upper limit of options that must be finite


def _read_noise(value: Any) -> float | None:
    rule = "be positive and finite, or None to estimate it"
    return None if value is None else read_number(value, "noise_variance", 0.0, LARGE, rule)


@dataclass(frozen=True)
class Variable(Forgetting):
    """A forgetting factor that falls where the prediction errors are larger than the noise.

    With the a-priori error ``e_t``, its variance in units of the noise's ``s_t = 1 + w_t x_t .
    P_{t-1} x_t`` and the noise's variance ``sigma2``::

        factor_t = 1 - (w_t e_t^2 / (s_t sigma2)) / memory,
        clipped to [1 - 1 / shortest, 1 - 1 / longest];      Rbar_t = factor_t R_{t-1}

    Parameters
    ----------
    memory : float
        Rows, above 1: the window while errors are what noise alone makes.
    shortest : float, optional
        Rows, the smallest window, which large errors lead to; above 1.  Default: a tenth of
        ``memory``, at least 2.  Fewer than there are coefficients forget them all in one error.
    longest : float, optional
        Rows, the largest window, which small errors lead to.  Default: no bound.
    noise_variance : float, optional
        ``sigma2``, of a row of weight 1.  Default: estimated along the stream, for each target, by
        the mean of ``w e^2 / s`` over ``10 memory`` rows, each clipped to 9 times the mean so that
        breaks and outliers do not pass for noise.  Until 10 rows and twice the coefficients have
        come nothing is forgotten.  It is nowhere less than rounding makes of an error, and a row
        that says nothing of it (y and its prediction are 0: a sensor that is off) does not count.

    Notes
    -----
    Steady-state window: ``memory`` rows, since ``E[w e^2 / (s sigma2)] = 1``.  It is an estimate
    with weights that the data choose: at each row the exact minimiser for the factors so far, but
    standard errors take the factors for given.  Several targets share the factor of their mean
    ratio, so ``missing="skip_target"`` is refused.  An outlier is taken for a break, and costs the
    memory of a row of factor ``1 - 1 / shortest``.  A noise level that rises by more than 9 times
    for good keeps the window short for two or three stretches of ``shortest`` rows and as many as
    there are coefficients: where most rows of two in turn were clipped, and the second's sum of
    squares is not below half the first's, it is noise (a change of coefficients is forgotten to
    ``exp(-2)`` in each), and the second's mean is taken over.  A smaller rise is followed in some
    ``10 memory`` rows.  The first k rows, k the coefficients, are not judged, with a given
    ``noise_variance`` neither: the ridge they start from says nothing of the coefficients' sizes.
    A row of weight 0 repeats the last factor.  Does not merge: the factors depend on what came
    before.

    References: Fortescue, Kershenbaum & Ydstie 1981, "Implementation of self-tuning regulators with
    variable forgetting factors" (``Sigma_0 = sigma2 memory``), whose one bound is
    ``shortest``.  Paleologu, Benesty & Ciochina 2008 compare short and long averages of the error
    instead, which needs rows enough in the short one to see a break.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1000, 2))
    >>> y = np.where(np.arange(1000) < 500, X[:, 0], -X[:, 0]) + 0.1 * rng.standard_normal(1000)
    >>> path = olsq.coefficient_path(X, y, forget=olsq.forgetting.Variable(200, shortest=5))
    >>> path.coef[[490, 580]].round(1) + 0.0
    array([[ 1.,  0.],
           [-1.,  0.]])
    """

    memory: float
    shortest: float | None = None
    longest: float | None = None
    noise_variance: float | None = None
    code: ClassVar[int] = VARIABLE
    error_driven: ClassVar[bool] = True

    def __post_init__(self) -> None:
        memory = read_number(self.memory, "memory", 1.0, LARGE, "be more than 1 row, and finite")
        shortest = max(2.0, memory / 10) if self.shortest is None else self.shortest
        rule = "be more than 1 row"
        shortest = read_number(shortest, "shortest", 1.0, LARGE, rule)
        longest = self.longest
        if longest is not None:
            longest = read_number(longest, "longest", 1.0, LARGE, rule)
        if self.shortest is None:
            shortest = min(shortest, memory)
        if not shortest <= memory <= (math.inf if longest is None else longest):
            raise ValueError(
                f"shortest <= memory <= longest must hold, got {shortest!r}, {memory!r} and "
                f"{longest!r}"
            )
        noise = _read_noise(self.noise_variance)
        self._set(memory=memory, shortest=shortest, longest=longest, noise_variance=noise)

    @property
    def window(self) -> float:
        return self.memory

    def options(self) -> NDArray[np.float64]:
        options = super().options()
        options[FACTOR] = 1.0 / self.memory
        options[SHORTEST] = 1.0 - 1.0 / float(self.shortest or 2.0)
        options[LONGEST] = 1.0 if self.longest is None else 1.0 - 1.0 / self.longest
        options[NOISE] = self.noise_variance or 0.0
        options[NOISE_ROWS] = 10.0 * self.memory
        return options


@dataclass(frozen=True)
class ResetOnBreak(Forgetting):
    """Covariance reset where a sequential test on the prediction errors finds a break.

    With ``z_t^2 = w_t e_t^2 / (s_t sigma2)`` the squared standardised a-priori error (see
    :class:`Variable`), Page's CUSUM for a variance that has grown from 1 to ``ratio``::

        llr_t = ((1 - 1 / ratio) min(z_t^2, outlier^2) - log(ratio)) / 2
        g_t   = max(0, g_{t-1} + llr_t)          break where g_t >= log(rows_between_false_alarms)
        Rbar_t = keep R_{t-1} at a break (and g_t = 0), else factor R_{t-1}

    Parameters
    ----------
    factor : float, default 1
        Forgetting between breaks, in (0, 1].
    ratio : float, default 4
        By how much a break that must be found soon enlarges the variance of the errors; above 1.
    rows_between_false_alarms : float, default 10_000
        On average at least so many rows pass between breaks that are none, for Gaussian noise of
        the variance ``sigma2`` (Lorden's bound; the clipping only lengthens them); above 1.
    keep : float, default 1e-4
        The share of the information that a break leaves, in (0, 1).  The coefficients stay where
        they are and the next rows move them.
    outlier : float, default 3
        Standard deviations beyond which an error counts no more.  At the defaults four
        such errors in a row make a break and three do not.
    noise_variance : float, optional
        ``sigma2``; default: estimated as in :class:`Variable`, over 1000 rows.

    Notes
    -----
    Steady-state window: ``1 / (1 - factor)`` rows, at ``factor=1`` all rows since the last break
    (or, at a share of ``keep``, before it).  A break of size f, in the variance of the errors, is
    found after about ``log(rows_between_false_alarms) / E[llr]`` rows.  Slow drift is not found
    until its errors add up.

    Rising noise raises the same alarm as changing coefficients; the rows that follow tell them
    apart.  So every alarm starts a trial: one copy of the state is reset at once, and another goes
    on as if nothing had happened.  After 2 k rows, k the coefficients, both predict k + 10 rows or
    more, until their Bayes factor, for noise of unknown variance, is beyond 20 (at most four times
    as many).  Where the old state predicts better, it and all it has learned is put back, and the
    alarm counts as no break.  Where the winner's errors are larger than chance makes of ``sigma2``,
    their mean is the new estimate.  During a trial, as in the first k rows, no row is judged, with
    a given ``noise_variance`` neither: the ridge, or ``keep``, that these start from says nothing
    of the coefficients' sizes.  The state is twice as large, because it contains both copies.

    Several targets add up their ``llr``, so ``missing="skip_target"`` is refused.
    ``est.forgetting_["breaks"]`` counts the breaks (one on trial too).  Does not merge.

    References: Page 1954; Moustakides 1986 (optimality); Lorden 1971; Goodwin & Teoh 1983
    (covariance resetting); Basseville & Nikiforov 1993, ch. 2; O'Hagan 1995, "Fractional Bayes
    factors for model comparison" (partial Bayes factors).

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1000, 2))
    >>> y = np.where(np.arange(1000) < 500, X[:, 0], -X[:, 0]) + 0.1 * rng.standard_normal(1000)
    >>> est = olsq.RecursiveLeastSquares(forget=olsq.forgetting.ResetOnBreak()).fit(X, y)
    >>> est.forgetting_["breaks"], est.coef_.round(1)
    (1, array([-1., -0.]))
    """

    factor: float = 1.0
    ratio: float = 4.0
    rows_between_false_alarms: float = 10_000.0
    keep: float = 1e-4
    outlier: float = 3.0
    noise_variance: float | None = None
    code: ClassVar[int] = RESET
    error_driven: ClassVar[bool] = True

    def __post_init__(self) -> None:
        rows = "rows_between_false_alarms"
        self._set(
            factor=read_factor(self.factor),
            ratio=read_number(self.ratio, "ratio", 1.0, LARGE, "be more than 1"),
            rows_between_false_alarms=read_number(
                getattr(self, rows), rows, 1.0, LARGE, "be above 1"
            ),
            keep=read_number(self.keep, "keep", 0.0, 1.0, "lie in (0, 1)"),
            outlier=read_number(self.outlier, "outlier", 0.0, LARGE, "be positive"),
            noise_variance=_read_noise(self.noise_variance),
        )
        # where llr at the clipped error is 0: with a smaller `outlier` no error raises the CUSUM
        least = math.sqrt(math.log(self.ratio) / (1 - 1 / self.ratio))
        if self.outlier <= least:
            raise ValueError(
                f"outlier must be more than {least:.3g} to find breaks of ratio={self.ratio!r}: "
                f"smaller errors speak for none, got {self.outlier!r}"
            )

    @property
    def window(self) -> float:
        return round(sum_of_weights(self.factor), 9)

    def options(self) -> NDArray[np.float64]:
        options = super().options()
        options[FACTOR], options[RATIO], options[KEEP] = self.factor, self.ratio, self.keep
        options[OUTLIER] = self.outlier**2
        options[THRESHOLD] = math.log(self.rows_between_false_alarms)
        options[NOISE], options[NOISE_ROWS] = self.noise_variance or 0.0, 1000.0
        return options

"""Result of :func:`olsq.time_varying`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.brief import brief
from olsq.drift.constancy import LikelihoodRatio, likelihood_ratio
from olsq.drift.data import Data
from olsq.drift.kernels import Array, Rows
from olsq.online import CoefficientPath, RecursiveLeastSquares
from olsq.online.rows.durations import time_between
from olsq.online.rows.times import read_times, same_clock

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class TimeVaryingFit:
    """A regression whose coefficients drift, fitted to n rows; :func:`olsq.time_varying` makes it.

    Attributes
    ----------
    smoothed : CoefficientPath
        Coefficients and standard errors at each row given all n rows; the residuals are those of
        ``filtered``.  It has ``to_frame`` and ``plot``.
    filtered : CoefficientPath
        Coefficients after each row given the rows up to it, and one-step-ahead errors.
    drift : array (k,)
        Variance of a step of each coefficient, in units of ``noise``; the intercept's first.
    noise : float
        Variance of the noise, in units of y squared.
    log_likelihood : float
        The diffuse log likelihood: of n rows less the k that determine the start, which count
        with the logarithm of their diffuse variance only.  (statsmodels counts them with ``log 2
        pi`` too: ``k / 2 log 2 pi`` less.)
    estimator : RecursiveLeastSquares
        The filter after the last row, with ``forget=RandomWalk(drift)``: it goes on online.
    coef, stderr : arrays (n, d)
        Of ``smoothed``.
    intercept, intercept_stderr : arrays (n,)
        Of ``smoothed``; 0 without an intercept.

    Examples
    --------
    >>> import olsq
    >>> from olsq.datasets import nile
    >>> level = olsq.time_varying([[1.0]] * 100, nile()["volume"], fit_intercept=False)
    >>> round(level.noise, -2), round(float(level.drift[0] * level.noise), -1), level.coef.shape
    (15100.0, 1470.0, (100, 1))
    """

    smoothed: CoefficientPath
    filtered: CoefficientPath
    drift: Array
    noise: float
    log_likelihood: float
    estimator: RecursiveLeastSquares
    _data: Data = field(repr=False)
    _rows: Rows = field(repr=False)
    _estimated: NDArray[np.bool_] = field(repr=False)
    _known_noise: float | None = field(repr=False)

    def __repr__(self) -> str:
        numbers = f"drift={brief(self.drift)}, noise={self.noise:.6g}"
        likelihood = f"log_likelihood={self.log_likelihood:.6g}"
        return f"TimeVaryingFit({len(self.coef)} rows, {numbers}, {likelihood})"

    @property
    def coef(self) -> NDArray[np.float64]:
        """Coefficients (n, d) at each row, given all rows."""
        return self.smoothed.coef

    @property
    def stderr(self) -> NDArray[np.float64]:
        """Standard errors (n, d) of ``coef``, for drift and noise as they are."""
        return self.smoothed.stderr

    @property
    def intercept(self) -> NDArray[np.float64]:
        """Intercept (n,) at each row, given all rows; 0 without one."""
        return self.smoothed.intercept

    @property
    def intercept_stderr(self) -> NDArray[np.float64]:
        """Standard error (n,) of ``intercept``."""
        return self.smoothed.intercept_stderr

    def forecast(
        self, X_new: ArrayLike, *, times: Any = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Forecast the targets of the next h rows, all from the rows fitted.

        Parameters
        ----------
        X_new : array (h, d)
            Regressors of the rows 1, 2, ... h steps ahead.
        times : array (h,), optional
            When they are; needed where the fit had times.

        Returns
        -------
        mean, std : arrays (h,)
            Of a target of weight 1: its noise, the error of the last coefficients and their drift
            until then, ``noise (1 + x.P x + h x.Q x)``.  NaN where X_new has a missing value.

        Raises
        ------
        ValueError
            If X_new has not the columns of the fit, or times are missing or not needed, or lie
            before the last row.

        Notes
        -----
        Errors of several horizons are not independent.  Those of drift and noise are left out.

        Examples
        --------
        >>> import olsq
        >>> from olsq.datasets import nile
        >>> level = olsq.time_varying([[1.0]] * 100, nile()["volume"], fit_intercept=False)
        >>> mean, std = level.forecast([[1.0]] * 10)
        >>> mean[[0, 9]].round(), std[[0, 9]].round()
        (array([798., 798.]), array([144., 184.]))
        """
        mean = self.estimator.predict(X_new)
        ahead = self._steps_ahead(len(mean), times)
        rows = np.asarray(X_new, np.float64)
        first = self.drift[: self._data.labels.intercept].sum()
        walked = first + rows**2 @ self.drift[self._data.labels.intercept :]
        # The estimator's leverage is that of the next row, one step on, unless rows have times.
        further = ahead - (self._data.per is None)
        variance = self.noise * (1.0 + self.estimator.leverage(X_new) + further * walked)
        return mean, np.sqrt(variance)

    def _steps_ahead(self, h: int, times: Any) -> Array:
        """Return the steps (h,) from the last row to each of the next."""
        data = self._data
        if data.times is None or data.per is None:
            if times is not None:
                raise ValueError("times are not used here: the fit had none, and rows are steps")
            return np.arange(1.0, h + 1.0)
        if times is None:
            raise ValueError("times must be given for the rows ahead, as they were for the fit")
        read = read_times(times, h)
        if read.kind != data.times.kind:
            raise ValueError(f"times must be {data.times.kind}, as in the fit, got {read.kind}")
        same_clock(data.times.zoned, read.zoned)
        last = data.times.values[-1:]
        if h and read.values[0] < last[0]:
            raise ValueError("times must not lie before the last row of the fit")
        return time_between(np.repeat(last, h), read.values) / data.per.length

    def likelihood_ratio(self, *, draws: int = 0, random_state: Any = None) -> LikelihoodRatio:
        """Test whether the coefficients whose drift was estimated are constant.

        Parameters
        ----------
        draws : int, default 0
            Samples with constant coefficients to draw and fit for an exact p-value; 199 or more.
        random_state : int or numpy Generator, optional
            Of the draws.

        Returns
        -------
        LikelihoodRatio

        Raises
        ------
        ValueError
            If no drift was estimated.

        Notes
        -----
        Twice the log likelihood over that with these drifts at 0.  Under constancy a drift is at
        the boundary of its range.  The p-value without draws is that of a mixture of chi-squared
        distributions with binomial weights (Self & Liang 1987), which is too large here: the
        likelihood of a random walk's variance has its maximum at 0 in about two of three samples
        instead of one in two, so that the test rejects too seldom.  With draws it is the exact
        p-value of a Monte Carlo test for normal noise (Dufour 2006), as the distribution depends
        on X alone; each draw costs a fit.  :func:`olsq.stability.nyblom` tests the same without
        fitting.

        References
        ----------
        S. G. Self and K.-Y. Liang, J. Amer. Statist. Assoc. 82 (1987) 605-610.  J.-M. Dufour,
        Journal of Econometrics 133 (2006) 443-477.

        Examples
        --------
        >>> import olsq
        >>> from olsq.datasets import nile
        >>> level = olsq.time_varying([[1.0]] * 100, nile()["volume"], fit_intercept=False)
        >>> test = level.likelihood_ratio()
        >>> float(round(test.statistic, 1)), test.p_value < 1e-6
        (36.5, True)
        """
        return likelihood_ratio(
            self._rows, self.drift, self._estimated, self._known_noise, draws, random_state
        )

    def plot(self, *, names: Sequence[str] | None = None, x: ArrayLike | None = None) -> Figure:
        """Draw every smoothed coefficient over time with its 95 % band.

        Parameters
        ----------
        names : sequence of str (d,), optional
            Names of the coefficients; default: those of X's columns.
        x : array (n,), optional
            Horizontal positions; default: the times, dates of the index, or row numbers from 1.

        Returns
        -------
        matplotlib.figure.Figure

        Examples
        --------
        >>> import olsq
        >>> from olsq.datasets import nile
        >>> level = olsq.time_varying([[1.0]] * 100, nile()["volume"], fit_intercept=False)
        >>> figure = level.plot(names=["level"], x=nile()["year"])
        >>> figure.axes[0].get_title(loc="left")
        'level'
        """
        return self.smoothed.plot(names=names, x=x)

    def summary(self) -> str:
        """Summarise drift, noise, likelihood and the last coefficients as text.

        Returns
        -------
        str
            A line for each coefficient: the standard deviation of its step in its own units, its
            smoothed value at the first and at the last row, and the last one's standard error.

        Examples
        --------
        >>> import olsq
        >>> from olsq.datasets import nile
        >>> level = olsq.time_varying([[1.0]] * 100, nile()["volume"], fit_intercept=False)
        >>> print(level.summary())
        Coefficients that change over time: 100 rows, 0 of them missing
        Log-likelihood -632.55    noise std. 122.88
        <BLANKLINE>
            drift std. per row      first       last  std. err.
        x0               38.33     1111.7     798.37     63.499
        """
        per = self._data.per
        step = "row" if per is None else "step"
        n, missing = len(self._data.y), int((~self._data.usable).sum())
        coef = np.column_stack([self.intercept, self.coef])[:, -len(self.drift) :]
        errors = np.column_stack([self.intercept_stderr, self.stderr])[:, -len(self.drift) :]
        names = self._data.names
        wide = max(map(len, names))
        lines = [
            f"Coefficients that change over time: {n:,} rows, {missing:,} of them missing",
            f"Log-likelihood {self.log_likelihood:.5g}    noise std. {math.sqrt(self.noise):.5g}",
            "",
            f"{'':{wide}}{f'drift std. per {step}':>20}{'first':>11}{'last':>11}{'std. err.':>11}",
        ]
        for j, name in enumerate(names):
            walk = math.sqrt(self.noise * self.drift[j])
            numbers = f"{coef[0, j]:11.5g}{coef[-1, j]:11.5g}{errors[-1, j]:11.5g}"
            lines.append(f"{name:<{wide}}{walk:20.5g}{numbers}")
        return "\n".join(lines)

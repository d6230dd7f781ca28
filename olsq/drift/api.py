"""Fit a regression with drifting coefficients: :func:`olsq.time_varying`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from olsq.drift.data import Data, read_data, read_drift, read_noise
from olsq.drift.kernels import Array
from olsq.drift.likelihood import evaluate, most_likely_drift, smooth
from olsq.drift.result import TimeVaryingFit
from olsq.forgetting import RandomWalk
from olsq.online import CoefficientPath, RecursiveLeastSquares
from olsq.online.many.labels import group_rows, taken_out
from olsq.progress import PassProgress, count_groups
from olsq.threads import one_blas_thread

EXPECTED_PASSES = 40  # evaluations of the likelihood: 20 to 46 of 1 to 6 regressors


@overload
def time_varying(
    X: ArrayLike,
    y: ArrayLike,
    *,
    drift: ArrayLike | None = None,
    noise: float | None = None,
    fit_intercept: bool = True,
    times: Any = None,
    by: None = None,
    per: Any = None,
    sample_weight: ArrayLike | None = None,
) -> TimeVaryingFit: ...


@overload
def time_varying(
    X: ArrayLike,
    y: ArrayLike,
    *,
    drift: ArrayLike | None = None,
    noise: float | None = None,
    fit_intercept: bool = True,
    times: Any = None,
    by: Any,
    per: Any = None,
    sample_weight: ArrayLike | None = None,
) -> dict[Any, TimeVaryingFit]: ...


def time_varying(
    X: ArrayLike,
    y: ArrayLike,
    *,
    drift: ArrayLike | None = None,
    noise: float | None = None,
    fit_intercept: bool = True,
    times: Any = None,
    by: Any = None,
    per: Any = None,
    sample_weight: ArrayLike | None = None,
) -> TimeVaryingFit | dict[Any, TimeVaryingFit]:
    """Fit a regression whose coefficients change over time, as random walks, by maximum likelihood.

    ``y_t = x_t . theta_t + e_t`` and ``theta_t = theta_{t-1} + eta_t``, with independent normal
    noise: ``e_t`` of variance ``noise / w_t``, ``eta_t`` of covariance ``noise diag(drift)``.
    Nothing is assumed of the first coefficients (a diffuse start).

    Parameters
    ----------
    X : array or frame (n, d)
        Regressors, in the order of time.
    y : array or series (n,)
        Target.  A row with a missing value (NaN) in X, y or ``sample_weight``, or of weight 0, is
        predicted through: coefficients go on drifting in it.
    drift : float or array (k,), optional
        Variance of a coefficient's step from one row to the next, in units of the noise's variance:
        of every coefficient, or of each, the intercept's first where there is one.  0: the
        coefficient is constant.  NaN: estimated; default: all of them are.
    noise : float, optional
        Variance of the noise of a row of weight 1, > 0; estimated by default.
    fit_intercept : bool, default True
        Whether to add an intercept, which may drift too.
    times : array, series or index (n,), or str, optional
        When the rows were, dates or numbers, in order.  A step's variance is then ``drift`` times
        the time elapsed, in units of ``per``.  Or the name of a level of X's or y's index (pandas).
        Without times rows are one step apart.
    by : sequence (n,) or str, optional
        A label for every row, or the name of the column of a frame X that holds them: the rows of
        each label are fitted by themselves, and the result is a dict of fits by label.  Rows
        without a label are left out.
    per : str, timedelta or float, optional
        The length of time in which coefficients drift by ``drift``: "1D" by default for dates, 1
        for numbers.
    sample_weight : array (n,), optional
        Weights >= 0, the inverse of the noise's variance in each row, in units of ``1 / noise``.

    Returns
    -------
    TimeVaryingFit, or dict of them by label with ``by``

    Raises
    ------
    ValueError
        If rows do not determine the coefficients (dependent columns, too few rows), if constant
        coefficients fit y exactly, or an argument is out of range.

    Notes
    -----
    The likelihood is the exact diffuse one of Durbin & Koopman (2012, sections 5.2 and 7.2), with
    the start as unknowns of a least-squares problem (de Jong 1991), and the noise's variance at
    its best for each drift; statsmodels' is ``k / 2 log 2 pi`` less, for k coefficients.  It is
    maximised over the logarithms of the drifts by L-BFGS-B, with derivatives from one pass
    backwards (Koopman & Shephard 1992).  A drift may be estimated as
    exactly 0, and often is: where the coefficient is constant, in about two of three samples
    (Shephard & Harvey 1990).  A local maximum is found, from the best of nine starts with equal
    drifts; drifts are searched up to 1e6 times the noise's variance over the regressor's mean
    square.  Errors and forecasts take drift and noise for known.

    O(n k^2) time for each evaluation, O(n k^3) for the result, O(n k) memory.

    References
    ----------
    J. Durbin and S. J. Koopman, "Time series analysis by state space methods", 2nd ed. (2012).
    P. de Jong, "The diffuse Kalman filter", Annals of Statistics 19 (1991) 1073-1083.
    S. J. Koopman and N. Shephard, "Exact score for time series models in state space form",
    Biometrika 79 (1992) 823-826.  N. Shephard and A. C. Harvey, "On the probability of estimating a
    deterministic component in the local level model", J. Time Series Anal. 11 (1990) 339-347.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal((400, 1))
    >>> slope = 1.0 + np.cumsum(0.1 * rng.standard_normal(400))
    >>> fit = olsq.time_varying(x, 2.0 + slope * x[:, 0] + rng.standard_normal(400))
    >>> fit.drift.round(3), round(fit.noise, 2)
    (array([0.   , 0.012]), 0.83)
    >>> inside = np.abs(fit.coef[:, 0] - slope) < 1.96 * fit.stderr[:, 0]
    >>> bool(inside.mean() > 0.9)
    True
    """
    if by is not None:
        X, by = taken_out(X, by)
    data = read_data(X, y, sample_weight, times, per, fit_intercept, in_order=by is None)
    walk = read_drift(drift, data.X.shape[1] + bool(fit_intercept))
    variance = read_noise(noise)
    if by is None:
        with PassProgress("time-varying coefficients", EXPECTED_PASSES) as progress:
            return _fit(data, walk, variance, progress.advance)
    groups = group_rows(by, len(data.y))
    if not groups:
        raise ValueError("by has no label in any row: no group is left to fit")
    fits = {}
    for key, rows in count_groups(groups.items(), "time-varying coefficients", len(groups)):
        try:
            fits[key] = _fit(data.take(rows), walk, variance)
        except ValueError as error:
            raise ValueError(f"in group {key!r}: {error}") from None
    return fits


@one_blas_thread
def _fit(
    data: Data,
    drift: Array,
    noise: float | None,
    after_pass: Callable[[], None] = lambda: None,
) -> TimeVaryingFit:
    """Fit the drifts and the noise of one series by maximum likelihood, then smooth it."""
    constant = _constant_coefficients(data, len(drift), noise, bool(np.isnan(drift).any()))
    rows = data.rows(constant)
    if np.isnan(drift).any() and not rows.steps.any():
        raise ValueError(
            "times must differ for a drift to be estimated, but all rows have one time"
        )
    walk = most_likely_drift(rows, drift, noise, after_pass)
    at = evaluate(rows, walk, noise)
    coef, variance = smooth(rows, walk, at)
    estimator, filtered = _online(data, walk, at.s2)
    smoothed = _as_path(data, coef + constant, np.sqrt(at.s2 * variance), filtered)
    return TimeVaryingFit(
        smoothed, filtered, walk, at.s2, at.value, estimator, data, rows, np.isnan(drift), noise
    )


def _constant_coefficients(data: Data, k: int, noise: float | None, estimated: bool) -> Array:
    """Return the coefficients (k,) of the regression with constant ones; refuse what has none."""
    usable, n = data.usable, int(data.usable.sum())
    needed = k + (noise is None)
    if n < needed:
        raise ValueError(
            f"X and y must have {needed} complete rows or more, for {k} coefficients"
            f"{' and the noise' if noise is None else ''}, got {n}: give more rows or fewer columns"
        )
    est = RecursiveLeastSquares(fit_intercept=data.labels.intercept)
    est.fit(data.X[usable], data.y[usable], data.weights[usable])
    if est.rank_ < k:
        free = ", ".join(
            name for name, fixed in zip(data.names, _determined(est), strict=True) if not fixed
        )
        raise ValueError(
            f"X does not determine every coefficient: its columns have rank {est.rank_}, with {k} "
            f"coefficients, and nothing tells {free} apart. Leave a column out"
        )
    size = np.sqrt(np.mean(data.y[usable] ** 2))
    if (noise is None or estimated) and np.sqrt(est.sigma2_) <= 1e-13 * size:
        raise ValueError(
            "y is fitted exactly by constant coefficients, so that neither noise nor drift can be "
            "estimated: give both, or use RecursiveLeastSquares"
        )
    intercept = [float(est.intercept_)] if data.labels.intercept else []
    return np.array([*intercept, *est.coef_], np.float64)


def _determined(est: RecursiveLeastSquares) -> list[bool]:
    first = [bool(np.isfinite(est.intercept_stderr_))] if est.fit_intercept else []
    return [*first, *np.isfinite(est.coef_stderr_).tolist()]


def _online(data: Data, drift: Array, noise: float) -> tuple[Any, CoefficientPath]:
    """Return the estimator that goes on after the last row, and its path over the rows."""
    est = RecursiveLeastSquares(
        forget=RandomWalk(drift, per=data.written_per),
        fit_intercept=data.labels.intercept,
        noise_variance=noise,
    )
    path = est.partial_fit_path(data.X, data.y, data.weights, times=data.times)
    residual, recursive = (
        np.where(data.usable, errors, np.nan) for errors in (path.residual, path.recursive_residual)
    )
    path = path._replace(residual=residual, recursive_residual=recursive)
    return est, path.labelled(data.labels)


def _as_path(data: Data, coef: Array, stderr: Array, filtered: CoefficientPath) -> CoefficientPath:
    """Return smoothed coefficients as a path, with the one-step-ahead errors of the filter."""
    first = int(data.labels.intercept)
    fields: dict[str, Any] = {"coef": coef[:, first:], "stderr": stderr[:, first:]}
    if first:
        fields |= {"intercept": coef[:, 0], "intercept_stderr": stderr[:, 0]}
    return filtered._replace(**fields)

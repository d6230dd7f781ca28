"""Forecasts of a horizon: predictions from what was known some rows, or some time, before.

The target of a row becomes known one horizon later.  So row t is predicted with the coefficients
after the last row whose target is known by then (:mod:`olsq.online.known_rows`).  A horizon of one
row is what a path has anyhow.

Errors of forecasts whose horizons overlap are correlated over h - 1 rows, however good the model;
standard errors of their means add that (Hansen & Hodrick 1980; Newey & West 1987 for the weights).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import is_integer
from olsq.arrays.reals import real_array
from olsq.online.estimators.recursive import RecursiveLeastSquares
from olsq.online.forms.student import check_level, half_widths
from olsq.online.inference.robust import bartlett_products
from olsq.online.known_rows import (
    NO_ROW,
    check_horizon,
    fewest_rows,
    last_known_rows,
    or_without,
    without_estimate,
)
from olsq.online.many.labels import rows_of_groups, taken_out
from olsq.online.paths.arrays import predict_each
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows.complex_rows import complex_array, holds_complex
from olsq.online.rows.durations import Duration
from olsq.online.rows.times import check_kind, read_times_in_any_order, times_or_index


class Forecasts(NamedTuple):
    """Forecasts of a path's rows and their scores; arrays (n,) or (n, m), numbers or (m,).

    Attributes
    ----------
    prediction, residual : array
        Prediction of every row with the coefficients known one horizon before, and its error; NaN
        in skipped rows.
    lower, upper : array
        Interval around the prediction; NaN before any error was known to judge by.
    mse, mse_stderr, rmse, bias : float or array (m,)
        Mean squared error of the scored rows with its standard error, root, and mean error.
    coverage, coverage_stderr : float or array (m,)
        Share of rows inside their interval, with its standard error.
    n_scored : int or array (m,)
        Rows scored.
    lags : int
        Over how many rows the standard errors take errors for correlated.
    """

    prediction: NDArray[Any]
    residual: NDArray[Any]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    mse: Any
    mse_stderr: Any
    rmse: Any
    bias: Any
    coverage: Any
    coverage_stderr: Any
    n_scored: Any
    lags: int

    __repr__ = brief_repr


def path_with_horizon(
    alone: Callable[..., CoefficientPath], X: Any, y: Any, horizon: Any, options: dict[str, Any]
) -> CoefficientPath:
    """Compute ``alone(X, y, **options)`` with the residuals of forecasts of a horizon.

    Raises ValueError for a horizon that is none, or that no row has another one before.
    """
    length = check_horizon(horizon)
    path = alone(X, y, **options)
    if length == 1:
        return path
    times = None
    regressors = taken_out(X, options["by"])[0]
    if isinstance(length, Duration):
        parameter = f"horizon={horizon!r}"
        stamps = times_or_index(options["times"], X, y, length, parameter)
        read = read_times_in_any_order(stamps, len(path.residual))
        check_kind(read.kind, length, parameter)
        times = read.values
    source = last_known_rows(_groups_of(path), len(path.residual), length, times)
    if (source == NO_ROW).all():
        raise longer_than_data(horizon)
    dtypes = complex_array if holds_complex(X) or holds_complex(y) else real_array
    without = without_estimate(options["min_samples"])
    path = with_errors_from(path, dtypes(regressors, "X"), dtypes(y, "y"), source, without)
    return path.labelled(path.labels._replace(forecast_from=source))


def with_errors_from(
    path: CoefficientPath,
    X: NDArray,
    y: NDArray,
    source: NDArray[np.int64],
    without: float = 0.0,
) -> CoefficientPath:
    """Return the path with the errors of forecasts by the coefficients after rows ``source``.

    ``without`` as in :func:`predictions_from`.
    """
    residual = y.reshape(path.residual.shape) - predictions_from(path, X, source, without)
    residual = np.where(np.isnan(path.residual), np.nan, residual).astype(path.residual.dtype)
    return path._replace(residual=residual)


def longer_than_data(horizon: Any) -> ValueError:
    """Return the error of a horizon that no two rows are apart."""
    return ValueError(
        f"horizon={horizon!r} is longer than the data: no row's target is known so long before "
        "another row. Give more rows or a shorter horizon"
    )


def predictions_from(
    path: CoefficientPath, X: NDArray, source: NDArray[np.int64], without: float = 0.0
) -> NDArray[Any]:
    """Predict rows X (n, d) with the coefficients after rows ``source`` (n,).

    Where there is no such row, or no estimate after it (no row in its window), coefficients are
    ``without``.  NaN where X is.
    """
    begun = source != NO_ROW
    coef, intercept = (
        or_without(array[source], begun, without) for array in (path.coef, path.intercept)
    )
    with np.errstate(invalid="ignore"):
        return predict_each(coef, intercept, X)


def _groups_of(path: CoefficientPath) -> list[NDArray[np.int64]]:
    """Return the rows of each group, in order; all rows where a path has no groups."""
    if path.labels.groups is None:
        return [np.arange(len(path.residual))]
    return list(rows_of_groups(path).values())


def score_forecasts(
    path: CoefficientPath,
    y: ArrayLike,
    *,
    level: float = 0.95,
    half_life: float | None = None,
    burn_in: int | None = None,
    lags: int | None = None,
) -> Forecasts:
    """Score the forecasts of a path, with intervals from their past errors.

    Parameters
    ----------
    path : CoefficientPath
        With its ``horizon``; of one row if none was given.
    y : array (n,) or (n, m)
        The targets that the path was made with.
    level : float, default 0.95
        Of the intervals.
    half_life : float, optional
        Rows after which a past error counts half for the width of the intervals; by default
        all count alike.
    burn_in : int, optional
        Rows that a forecast must rest on to be scored.  Default: as many horizons as there are
        coefficients, but at most half of the rows (of the mean group), and no fewer than there
        are coefficients.
    lags : int, optional
        Over how many rows errors are correlated, for standard errors.  Default: the rows whose
        horizons overlap, ``horizon - 1``.

    Returns
    -------
    Forecasts

    Raises
    ------
    ValueError
        For a ``y`` of another shape, a level, burn_in or lags out of range, and if no row is
        left to score.

    Notes
    -----
    The interval of row t is ``prediction -+ q sqrt(mean squared error)`` over the forecasts
    whose targets were known when the prediction was made; q is Student's, of one degree of
    freedom for each ``lags + 1`` of them, and infinite below one.  A regression's own interval
    (:meth:`RecursiveLeastSquares.predict_interval`) takes coefficients for constant over the
    horizon and is too narrow where they move.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 2))
    >>> y = X @ [1.0, -2.0] + rng.standard_normal(500)
    >>> path = olsq.coefficient_path(X, y, horizon=24)
    >>> found = olsq.score_forecasts(path, y, level=0.9)
    >>> found.lags, found.n_scored
    (23, 429)
    >>> bool(abs(found.mse - 1.0) < 2 * found.mse_stderr)
    True
    """
    level = check_level(level)
    if np.iscomplexobj(path.residual):
        raise ValueError(
            "score_forecasts is for real rows, and these are complex: use path.residual"
        )
    targets = real_array(y, "y").astype(np.float64)
    if targets.shape != path.residual.shape:
        raise ValueError(
            f"y must be the target of the path, {path.residual.shape}, got {targets.shape}"
        )
    for name, value in (("burn_in", burn_in), ("lags", lags)):
        if value is not None and not is_integer(value, 0):
            raise ValueError(f"{name} must be a whole number of rows, 0 or more, got {value!r}")
    n_coefs = path.coef.shape[-1] + int(path.labels.intercept)
    n, groups = len(targets), _groups_of(path)
    longest = max(rows.size for rows in groups)
    if lags is not None and lags >= longest:
        raise ValueError(f"lags must be fewer than the {longest} rows of a regression, got {lags}")
    source = path.labels.forecast_from
    if source is None:
        source = last_known_rows(groups, n, 1, None)
    residual = path.residual.reshape(n, -1).astype(np.float64)
    learned = np.isfinite(path.recursive_residual.reshape(n, -1))
    place, behind = np.zeros(n, np.int64), np.zeros(residual.shape, np.int64)
    for rows in groups:
        place[rows] = np.arange(rows.size)
        behind[rows] = np.cumsum(learned[rows], axis=0)
    begun = (source != NO_ROW)[:, None]
    overlap = int((place - place[source])[begun[:, 0]].max(initial=1))
    lags = overlap - 1 if lags is None else int(lags)
    if burn_in is None:
        each = int(learned.sum(axis=0).min()) // max(len(groups), 1)
        burn_in = fewest_rows(n_coefs, overlap, each)
    least = max(int(burn_in), 1)
    scored = np.isfinite(residual) & begun & (behind[source] >= least)
    n_scored = scored.sum(axis=0)
    if not n_scored.all():
        raise ValueError(
            f"no row is left to score: its forecast has to rest on {least} rows "
            "(burn_in). Give more rows or a smaller burn_in"
        )

    # Errors known when the forecast is made: their mean square, and how many they are.
    squares = np.where(scored, residual**2, np.nan)
    forecast, count = np.zeros(residual.shape), np.zeros(residual.shape)
    for rows in groups:
        if not scored[rows].any():
            continue
        mean = RecursiveLeastSquares(
            half_life=half_life, fit_intercept=False, missing="skip_target"
        ).partial_fit_path(np.ones((rows.size, 1)), squares[rows], statistics=False)
        forecast[rows], count[rows] = mean.coef[:, :, 0], np.cumsum(scored[rows], axis=0)
    forecast = forecast[source]
    count = np.where(begun, count[source], 0.0)
    freedom = count / (lags + 1)
    with np.errstate(invalid="ignore"):
        reach = half_widths(np.sqrt(forecast), freedom, level)
    reach[count == 0] = np.nan
    prediction = targets.reshape(n, -1) - residual
    judged = scored & np.isfinite(reach)
    inside = np.where(judged, np.abs(residual) <= reach, np.nan)

    def shaped(values: NDArray) -> Any:
        if path.residual.ndim == 2:
            return values
        return values[:, 0] if values.ndim == 2 else values[0].item()

    mse, mse_stderr = _mean_of_correlated(squares, groups, lags)
    coverage, coverage_stderr = _mean_of_correlated(inside, groups, lags)
    bias, _ = _mean_of_correlated(np.where(scored, residual, np.nan), groups, lags)
    return Forecasts(
        prediction=shaped(prediction),
        residual=path.residual,
        lower=shaped(prediction - reach),
        upper=shaped(prediction + reach),
        mse=shaped(mse),
        mse_stderr=shaped(mse_stderr),
        rmse=shaped(np.sqrt(mse)),
        bias=shaped(bias),
        coverage=shaped(coverage),
        coverage_stderr=shaped(coverage_stderr),
        n_scored=shaped(n_scored),
        lags=lags,
    )


def _mean_of_correlated(
    values: NDArray, groups: list[NDArray[np.int64]], lags: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means (m,) of columns that are NaN in some rows, with standard errors.

    A missing row is a deviation of 0 where it stands, so that lags count rows.
    """
    present = np.isfinite(values)
    count = np.maximum(present.sum(axis=0), 1)
    mean = np.where(present.any(axis=0), np.where(present, values, 0.0).sum(axis=0) / count, np.nan)
    deviation = np.where(present, values - mean, 0.0)
    variance = np.zeros(values.shape[1])
    for rows in groups:
        for j in range(values.shape[1]):
            variance[j] += bartlett_products(deviation[rows, j : j + 1], lags)[0, 0]
    return mean, np.where(np.isnan(mean), np.nan, np.sqrt(variance) / count)

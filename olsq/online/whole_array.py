"""The function `coefficient_path`, for whole arrays at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from olsq.arrays.checks import check_flags, is_integer, shown
from olsq.arrays.reals import real_array
from olsq.online.horizon import path_with_horizon
from olsq.online.inference.robust import errors_in_window, refuse_maxlags
from olsq.online.many.labels import rows_of_groups
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows.complex_rows import complex_array, holds_complex, refuse_complex_data
from olsq.online.rows.frames import Labels
from olsq.online.rows.inputs import check_size, no_usable_row
from olsq.online.rows.times import check_times_shape, named_times, with_times

SET_APART = ("X", "y", "by", "horizon")  # parameters that groups are not learned with


def coefficient_path(
    X: ArrayLike,
    y: ArrayLike,
    *,
    forget: Any = 1.0,
    half_life: Any = None,
    sample_weight: ArrayLike | None = None,
    ridge: ArrayLike = 0.0,
    ridge_mode: str = "discounted",
    window: Any = None,
    min_samples: int | None = None,
    fit_intercept: bool = False,
    method: str = "auto",
    missing: str = "skip",
    cov: str = "posterior",
    maxlags: int | None = None,
    window_of: str | None = None,
    noise_variance: ArrayLike | None = None,
    times: Any = None,
    by: Any = None,
    statistics: bool = True,
    horizon: Any = 1,
) -> CoefficientPath:
    """Compute the coefficients of a regression after every row: expanding, exponential or rolling.

    Parameters
    ----------
    X : array or frame (n, d)
        Regressors, float32 or float64 (anything else becomes float64), or complex.  Of a frame of
        pandas, Polars or Arrow the path keeps names, index and dates, for
        :meth:`CoefficientPath.to_frame` and :meth:`CoefficientPath.plot`.
    y : array or series (n,), or array or frame (n, m)
        Targets.
    forget : float, array (n,) or Forgetting, default 1
        Forgetting factors in [0, 1]; row t's factor multiplies everything before row t.  Or a
        strategy of :mod:`olsq.forgetting`.
    half_life : float, str or timedelta, optional
        Samples, or time ("30D"), after which a weight has halved; instead of ``forget``.  See
        :class:`RecursiveLeastSquares`.
    sample_weight : array (n,), optional
        Weights >= 0; a row whose weight is missing (NaN) has a missing value.
    ridge : float or array (d,), default 0
        Penalty on squared coefficients (the intercept is never penalised).  0 is exact ordinary
        least squares from the first row on.  As in statsmodels and R, the matrix is used as given,
        with no intercept unless asked for, unlike in :class:`RecursiveLeastSquares`.
    ridge_mode : {"discounted", "fixed"}
        Whether the ridge is forgotten with the data.  "fixed" takes O(d^3) time per row.
    window : int, float, str or timedelta, optional
        Only the last ``window`` rows count (rolling regression), or the rows of the last "90D".
        With ``forget`` or ``half_life`` rows fade inside the window; a ridge does not, whatever
        ``ridge_mode`` is.  See :class:`RollingLeastSquares`.
    min_samples : int, optional
        Rows whose estimate is made of fewer samples (rows that were learned, of their group, in
        the ``window``) read NaN, except their residuals.  Default: 1 with ``window``, else 0.
    fit_intercept : bool, default False
        Whether to add an intercept.
    method : {"auto", "covariance", "sqrt", "information"}
        See :class:`RecursiveLeastSquares`.
    missing : {"skip", "raise", "skip_target"}
        What to do with a row that has a non-finite value; see :class:`RecursiveLeastSquares`.
    cov : {"posterior", "sandwich", "nonrobust", "HC0", "HC1", "HC2", "HC3", "HAC"}
        What standard errors mean; see :class:`RecursiveLeastSquares`.  "nonrobust" is another name
        of "posterior".  With ``window`` those that are robust against unequal variances (White
        1980, MacKinnon & White 1985) or correlation ("HAC", Newey & West 1987), in any case,
        statsmodels' of the same names (t distribution, no small-sample factors but that of HC1);
        "sandwich" is for forgetting without a window.
    maxlags : int, optional
        With ``cov="HAC"``, the rows over which noise is correlated; fewer than ``window``.
        Default: ``floor(4 (n / 100)^(2/9))`` for n rows in the window (Newey & West 1994).
    window_of : {"samples", "positions"}, optional
        With ``window``, what it counts; see :class:`RollingLeastSquares`.
    noise_variance : float or array (m,), optional
        The variance of the noise, where it is known; see :class:`RecursiveLeastSquares`.
    times : array, series or index (n,), or str, optional
        When the rows were: dates or numbers, in order, several rows at one time allowed.  Needed
        by a ``window`` or ``half_life`` that is a length of time, unless X or y has an index of
        dates; if given, the path keeps them, and plots and frames show them.  Or the name of a
        level of X's or y's index (pandas).
    by : sequence (n,) or str, optional
        A label for every row, of any kind that can be the key of a dict: numbers, text, dates,
        tuples, a categorical.  Or the name of the column of a frame X that holds them, which is no
        regressor then, or of a level of its index (pandas).  The rows of each label are a
        regression of their own, in order; row i of the path is the estimate of its group after row
        i.  A row whose label is missing (NaN, None) reads NaN, or is refused with
        ``missing="raise"``.
    statistics : bool, default True
        Whether to compute ``sigma2`` and the standard errors.  Without them a path takes half the
        memory and less time; they read NaN, and frames leave them out.
    horizon : int, float, str or timedelta, default 1
        After how many rows (of its group), or how long ("1D"; a float between times that are
        numbers), the target of a row is known.  ``residual`` is then the error of the forecast
        made one horizon before, with ``coef`` after the last row known by then; 1 is the row
        before.  Nothing else changes; :func:`score_forecasts` has scores and intervals.

    Returns
    -------
    CoefficientPath

    Raises
    ------
    ValueError
        If an argument is out of range or shapes do not fit; nothing has been computed then.

    Notes
    -----
    With ``by``, all groups share one compiled loop.  ``ridge_mode="fixed"`` and strategies of
    ``olsq.forgetting`` compute one group after another.

    O(n d^2) time, with ``ridge_mode="fixed"`` O(n d^3), and O(n d) memory.  No derivatives: see
    ``olsq.online_lstsq``.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 2))
    >>> y = X @ [1.0, -2.0] + 0.1 * rng.standard_normal(500)
    >>> path = olsq.coefficient_path(X, y, forget=0.98)
    >>> path.coef.shape, path.stderr.shape
    ((500, 2), (500, 2))
    >>> bool(np.all(np.abs(path.coef[-1] - [1.0, -2.0]) < 0.05))
    True
    """
    options = {name: v for name, v in locals().items() if name not in SET_APART}
    check_flags(fit_intercept=fit_intercept, statistics=statistics)
    if type(horizon) is not int or horizon != 1:
        options["by"] = by
        return path_with_horizon(coefficient_path, X, y, horizon, options)
    cov = "posterior" if isinstance(cov, str) and cov.lower() == "nonrobust" else cov
    if window is not None:
        errors_in_window(cov, maxlags, window)
    elif maxlags is not None:
        refuse_maxlags(cov)
    if window is None and min_samples is not None:
        check_fewest(min_samples)
        unhidden: dict[str, Any] = options | {"min_samples": None}
        path = coefficient_path(X, y, by=by, **unhidden)
        path = hide_first(path, min_samples, sample_weight)
        return path if statistics else path.bare()
    times = named_times(times, X, y)
    if by is not None:
        options |= {"cov": cov, "times": times}
        from olsq.online.many.groups import grouped_path
        from olsq.online.many.labels import taken_out

        column = {"group_name": by} if isinstance(by, str) else {}
        X, by = taken_out(X, by)
        refuse_complex_data(
            "by=", "make one coefficient_path for each label, or use a FilterBank", X=X, y=y
        )
        path = grouped_path(coefficient_path, X, y, by, options)
        path = path.labelled(path.labels._replace(**column))
        return path if statistics else path.bare()
    from olsq.online.conventions import from_options
    from olsq.online.estimators.recursive import RecursiveLeastSquares
    from olsq.online.estimators.rolling import RollingLeastSquares

    if window is None:
        if window_of is not None:
            raise ValueError("window_of needs window")
        estimator = from_options(RecursiveLeastSquares, options | {"cov": cov})
        return path_of(estimator, X, y, sample_weight, times, statistics=statistics)
    rolling = from_options(RollingLeastSquares, options)
    errors = {"cov": cov, "maxlags": maxlags}
    return path_of(rolling, X, y, sample_weight, times, statistics=statistics, **errors)


def check_fewest(min_samples: Any) -> None:
    """Raise ValueError for a ``min_samples`` that is no positive whole number."""
    if not is_integer(min_samples, 1):
        raise ValueError(
            f"min_samples must be a positive whole number of rows, got {shown(min_samples)}"
        )


def hide_first(
    path: CoefficientPath, fewest: int, weights: Any, before: Any = 0
) -> CoefficientPath:
    """Return the path of a regression without a window, NaN where it rests on too few samples.

    Those are the rows learned so far, of the same group, whose weight is not 0; ``before`` (m,) of
    them precede the path.
    """
    learned = np.isfinite(path.recursive_residual)
    if weights is not None:
        positive = real_array(weights, "sample_weight") > 0
        learned &= positive.reshape(-1, *[1] * (learned.ndim - 1))
    count = np.zeros(learned.shape, np.int64)
    for rows in rows_of_groups(path).values() or [slice(None)]:
        count[rows] = np.cumsum(learned[rows], axis=0) + before
    return hide(path, count < fewest)


def hide(path: CoefficientPath, few: np.ndarray) -> CoefficientPath:
    """Return the path with NaN where ``few``, (n,) or (n, m), except its residuals."""

    def hidden(array: np.ndarray) -> np.ndarray:
        return np.where(few.reshape(*few.shape, *[1] * (array.ndim - few.ndim)), np.nan, array)

    kept = {name: getattr(path, name) for name in ("residual", "recursive_residual")}
    return path.each(hidden)._replace(**kept)


def path_of(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    times: Any,
    forget: Any = None,
    statistics: bool = True,
    need_usable: bool = True,
    **errors: Any,
) -> CoefficientPath:
    """Return the path of an estimator over its next rows; times that do not count are labels.

    With ``need_usable`` a fresh one refuses rows of which it can learn none.
    ``errors`` are what standard errors of a window mean.
    """
    options = {"forget": forget} if statistics else {"forget": forget, "statistics": False}
    fresh = need_usable and not estimator.__sklearn_is_fitted__()
    labels_only = times is not None and estimator._duration(True) is None
    labelled = with_times(Labels(), times) if labels_only else None
    path = estimator.partial_fit_path(
        X, y, sample_weight, times=None if labels_only else times, **options, **errors
    )
    if fresh:
        rows = len(path.residual), path.coef.shape[-1]
        check_size(rows, estimator, None, allow_empty=False)
    if fresh and np.isnan(path.residual).all():
        raise no_usable_row(complex_array(y, "y") if holds_complex(y) else real_array(y, "y"))
    if labelled is None or labelled.times is None:
        return path
    check_times_shape(labelled.times, len(path.residual))
    of_time = {name: getattr(labelled, name) for name in ("times", "time_name", "time_zone")}
    return path.labelled(path.labels._replace(**of_time))

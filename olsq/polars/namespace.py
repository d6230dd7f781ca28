"""The namespace ``olsq`` of Polars' expressions, with its four methods."""

from __future__ import annotations

import datetime
from typing import Any

import polars as pl

from olsq.forgetting.base import Forgetting
from olsq.polars.arguments import build


@pl.api.register_expr_namespace("olsq")
class LeastSquares:
    """Least squares as methods of a Polars expression, the target of the regression.

    They are found under ``pl.col("y").olsq``.
    ``import olsq.polars`` registers them.  The methods take regressors and return an expression:

    ========================  =====================================================================
    :meth:`ols`               one fit of all rows
    :meth:`expanding`         a fit after every row, of all rows up to it
    :meth:`rls`               the same with exponential forgetting
    :meth:`rolling`           a fit after every row, of the last rows or of the last days
    ========================  =====================================================================

    What all of them take:

    ``regressors`` : str or Expr
        Columns' names or expressions of one column each, with different names.  An expression of
        one value per group (``pl.lit(1.0)``, ``pl.col("a").mean()``) is that value in every row.
        Integers, Booleans and float32 are computed as float64.
    ``ridge`` : float or sequence (d,), default 0
        Penalty on squared coefficients, never on the intercept.
    ``fit_intercept`` : bool, default False
        Whether to add a constant regressor.
    ``sample_weight`` : str or Expr, optional
        Column of weights >= 0; a row whose weight is missing has a missing value.
    ``missing`` : {"skip", "raise"}
        Nulls, NaN and infinities are missing.  Rows with one in the target or a regressor are
        passed over, or refused.
    ``output`` : {"coef", "prediction", "residual", "stderr", ...}
        "coef" and "stderr" (standard errors) are structs with a field for each regressor, named
        as it is, after a field "intercept" if there is one.  So are "tvalues", "pvalues" and the
        bounds of 95 % confidence intervals, "lower" and "upper".  "prediction" and "residual" are
        numbers, as are "r_squared", "adj_r_squared", "n_rows" (that the fit is made of) and
        "in_sample_residual"; see :class:`olsq.CoefficientPath`.  :meth:`ols` returns one struct or
        number, or the fit in every row; the others return a row for every row, and predict it from
        the rows before (one step ahead, a priori).

    Results are float64 and have the target's name, as Polars' own expressions do, so that
    ``with_columns`` replaces the target unless the result is named: ``.alias("beta")`` or
    ``beta=...``.  They are null where they are not known: a prediction where a regressor is
    missing, a residual also where the target is, everything in a group without a complete row.
    Standard errors are infinite where coefficients are not determined.

    Raises
    ------
    ValueError, TypeError
        For arguments that are wrong whatever the data are, when the expression is made: options
        out of range, regressors without a name or of the same name.  For data that are no numbers,
        lengths that differ and weights or times out of range, when the query runs.

    Notes
    -----
    Every method works in ``select``, ``with_columns``, ``over``, ``group_by(...).agg`` and lazy
    frames, whose schemas are known before they run.  All groups of a query go through one call of
    compiled loops, except with ``ridge_mode="fixed"`` and strategies of :mod:`olsq.forgetting`,
    which compute one group after another.  The streaming engine takes the expressions too, but
    gathers all rows of a group (without groups: all rows) first.  Sort the rows of a group by time
    before, or say so with ``over("group", order_by="time")``.  No derivatives.

    Examples
    --------
    >>> import polars as pl
    >>> import olsq.polars
    >>> frame = pl.DataFrame({"a": [1.0, 2.0, 4.0], "y": [3.0, 6.0, 12.0]})
    >>> frame.select(pl.col("y").olsq.ols("a").struct.field("a").round(6)).item()
    3.0
    """

    def __init__(self, expr: pl.Expr) -> None:
        self._target = expr

    def ols(
        self,
        *regressors: str | pl.Expr,
        ridge: Any = 0.0,
        fit_intercept: bool = False,
        sample_weight: str | pl.Expr | None = None,
        missing: str = "skip",
        cov: str = "posterior",
        noise_variance: float | None = None,
        output: str = "coef",
    ) -> pl.Expr:
        """Fit all rows (of each group) once: ordinary least squares, or ridge regression.

        Parameters
        ----------
        *regressors, ridge, fit_intercept, sample_weight, missing, output
            See :class:`LeastSquares`.  "coef" and "stderr" are one struct (a group), which
            ``with_columns`` and ``over`` repeat in every row; "prediction" and "residual" are
            in-sample.
        cov : {"posterior", "sandwich"}
            What standard errors mean; see :class:`olsq.RecursiveLeastSquares`.
        noise_variance : float, optional
            The variance of the noise, where it is known, for standard errors.

        Returns
        -------
        Expr

        Raises
        ------
        ValueError, TypeError
            See :class:`LeastSquares`.

        Notes
        -----
        The coefficients are those of :func:`olsq.coefficient_path` after the last row.
        O(n d^2) time.

        Examples
        --------
        >>> import polars as pl
        >>> import olsq.polars
        >>> frame = pl.DataFrame(
        ...     {"g": ["u", "u", "v", "v"], "a": [1.0, 2.0, 1.0, 2.0], "y": [2.0, 4.0, 5.0, 10.0]}
        ... )
        >>> fit = pl.col("y").olsq.ols("a").struct.field("a").round(6)
        >>> frame.group_by("g", maintain_order=True).agg(fit)["a"].to_list()
        [2.0, 5.0]
        """
        return build(self._target, locals(), one_fit=True)

    def expanding(
        self,
        *regressors: str | pl.Expr,
        ridge: Any = 0.0,
        fit_intercept: bool = False,
        sample_weight: str | pl.Expr | None = None,
        missing: str = "skip",
        cov: str = "posterior",
        noise_variance: float | None = None,
        method: str = "auto",
        min_samples: int | None = None,
        output: str = "coef",
    ) -> pl.Expr:
        """Fit after every row the rows up to it, without forgetting.

        Parameters
        ----------
        *regressors, ridge, fit_intercept, sample_weight, missing, output
            See :class:`LeastSquares`.  While rows do not determine the coefficients they are the
            smallest that fit (minimum norm), and 0 before the first complete row.
        cov, method, min_samples, noise_variance
            See :func:`olsq.coefficient_path`.

        Returns
        -------
        Expr

        Raises
        ------
        ValueError, TypeError
            See :class:`LeastSquares`.

        Notes
        -----
        Equals ``olsq.coefficient_path(X, y, ...)``.  O(n d^2) time.

        Examples
        --------
        >>> import polars as pl
        >>> import olsq.polars
        >>> frame = pl.DataFrame({"y": [1.0, 2.0, 6.0]})
        >>> mean = pl.col("y").olsq.expanding(pl.lit(1.0).alias("mean"))
        >>> frame.select(mean.struct.field("mean").round(6))["mean"].to_list()
        [1.0, 1.5, 3.0]
        """
        return build(self._target, locals(), one_fit=False)

    def rls(
        self,
        *regressors: str | pl.Expr,
        forget: float | pl.Expr | Forgetting = 1.0,
        half_life: float | str | datetime.timedelta | None = None,
        times: str | pl.Expr | None = None,
        ridge: Any = 0.0,
        ridge_mode: str = "discounted",
        fit_intercept: bool = False,
        sample_weight: str | pl.Expr | None = None,
        missing: str = "skip",
        cov: str = "posterior",
        noise_variance: float | None = None,
        method: str = "auto",
        min_samples: int | None = None,
        output: str = "coef",
    ) -> pl.Expr:
        """Fit after every row the rows up to it, older ones with less and less weight.

        Parameters
        ----------
        *regressors, ridge, fit_intercept, sample_weight, missing, output
            See :class:`LeastSquares`.
        forget : float, Expr or Forgetting, default 1
            Factor in [0, 1] on everything before a row: a number, an expression of a factor for
            each row, or a strategy of :mod:`olsq.forgetting`.
        half_life : float, str or timedelta, optional
            Rows after which a weight has halved, instead of ``forget``; or a length of time such as
            "30D" between the ``times``.
        times : str or Expr, optional
            Column of dates or numbers, in order and none missing, for a half-life in time.
        ridge_mode : {"discounted", "fixed"}
            Whether the ridge is forgotten with the data.
        cov, method, min_samples, noise_variance
            See :func:`olsq.coefficient_path`.

        Returns
        -------
        Expr

        Raises
        ------
        ValueError, TypeError
            See :class:`LeastSquares`.

        Notes
        -----
        Equals ``olsq.coefficient_path(X, y, forget=..., ...)``.  O(n d^2) time.

        Examples
        --------
        >>> import polars as pl
        >>> import olsq.polars
        >>> frame = pl.DataFrame({"a": [1.0, 1.0, 1.0], "y": [4.0, 4.0, 1.0]})
        >>> frame.select(pl.col("y").olsq.rls("a", forget=0.5, output="prediction"))["y"].to_list()
        [0.0, 4.0, 4.0]
        """
        return build(self._target, locals(), one_fit=False)

    def rolling(
        self,
        *regressors: str | pl.Expr,
        window: float | str | datetime.timedelta,
        forget: float | pl.Expr = 1.0,
        half_life: float | str | datetime.timedelta | None = None,
        min_samples: int | None = None,
        window_of: str | None = None,
        times: str | pl.Expr | None = None,
        ridge: Any = 0.0,
        fit_intercept: bool = False,
        sample_weight: str | pl.Expr | None = None,
        missing: str = "skip",
        cov: str = "nonrobust",
        maxlags: int | None = None,
        noise_variance: float | None = None,
        output: str = "coef",
    ) -> pl.Expr:
        """Fit after every row the rows in a window that ends with it.

        Parameters
        ----------
        *regressors, ridge, fit_intercept, sample_weight, missing, output
            See :class:`LeastSquares`.
        window : int, float, str or timedelta
            Rows in the window, or a length of time such as "90D" between the ``times``.
        forget : float or Expr, default 1
            Forgetting factor in [0, 1] inside the window, or one for each row.
        half_life : float, str or timedelta, optional
            Instead of ``forget``: samples, or a length of time, after which a weight inside the
            window has halved.
        min_samples : int, optional
            Coefficients, standard errors and predictions from fewer rows are null.  Default: 1.
        window_of : {"samples", "positions"}, optional
            Whether a window of rows counts complete rows or all rows.  Default: "samples".
        times : str or Expr, optional
            Column of dates or numbers, in order and none missing, for a window or half-life in
            time.
        cov : {"nonrobust", "HC0", "HC1", "HC2", "HC3", "HAC"}
            What standard errors, tests and bounds mean.
        maxlags : int, optional
            Lags of "HAC"; see :func:`olsq.coefficient_path`.
        noise_variance : float, optional
            The variance of the noise, where it is known, for standard errors.

        Returns
        -------
        Expr

        Raises
        ------
        ValueError, TypeError
            See :class:`LeastSquares`.

        Notes
        -----
        Equals ``olsq.coefficient_path(X, y, window=..., ...)``.  O(n d^2) time, whatever the
        window's length.

        Examples
        --------
        >>> import polars as pl
        >>> import olsq.polars
        >>> frame = pl.DataFrame({"a": [1.0, 1.0, 1.0], "y": [4.0, 2.0, 0.0]})
        >>> beta = pl.col("y").olsq.rolling("a", window=2).struct.field("a").round(6)
        >>> frame.select(beta)["a"].to_list()
        [4.0, 3.0, 1.0]
        """
        if window is None:
            raise ValueError("window must be a number of rows or a length of time, got None")
        return build(self._target, locals(), one_fit=False)

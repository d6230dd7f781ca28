"""The coefficient path: coefficients, statistics and residuals after every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_flags, is_integer, shown
from olsq.online.forms.student import check_level, p_values, t_inference, t_values
from olsq.online.paths.arrays import LabelledArrays
from olsq.online.rows import frames
from olsq.online.rows.labels import same_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class CoefficientPath(LabelledArrays):
    """Coefficients and statistics after each of n rows; m targets, or none for a 1-D y.

    A named tuple of NumPy arrays. The index, dates and names of a frame are kept for
    :meth:`to_frame` and :meth:`plot`.

    Attributes
    ----------
    coef : array (n, d) or (n, m, d)
        Coefficients after the row; minimum norm while undetermined.
    intercept : array (n,) or (n, m)
        Intercept after the row; 0 without one.
    residual : array (n,) or (n, m)
        A-priori (one-step-ahead) residual ``y_t - x_t . theta_{t-1} - b_{t-1}``, or that of a
        longer ``horizon``.  NaN in a row that was skipped because it has a missing value, and
        nowhere else (with a longer horizon also where ``min_samples`` hides the coefficients).
    recursive_residual : array (n,) or (n, m)
        The residual divided by the square root of its variance in units of the noise variance
        (Brown, Durbin & Evans 1975, eq. 1); 0 in a row that determined a coefficient for the
        first time; NaN where ``residual`` is.
    sigma2 : array (n,) or (n, m)
        Estimate of the noise variance; inf without degrees of freedom for one.  The
        ``noise_variance`` where that was given.
    stderr : array (n, d) or (n, m, d)
        Standard errors of ``coef``; inf where undetermined.
    intercept_stderr : array (n,) or (n, m)
        Standard error of ``intercept``; 0 without one.
    r_squared, adj_r_squared, in_sample_residual, n_rows : arrays (n,) or (n, m)
        Goodness of fit after the row, for the rows that the estimate is made of.
    tvalues, pvalues : arrays (n, d) or (n, m, d)
        Tests that a coefficient is 0; :meth:`conf_int` has confidence intervals.

    Notes
    -----
    These statistics are no fields of the tuple.  They are those of the regression of the rows that
    count at row t: all so far, those in the window, or all with what forgetting has left of their
    weights.  Without a ridge they equal what statsmodels' ``OLS`` or ``WLS`` of these rows gives.
    A column of X that has one value (not 0) in all of them is an intercept, as there.  They are NaN
    with ``statistics=False`` and for estimators other than least squares; ``in_sample_residual``
    also in a row that was skipped; ``r_squared`` also where the targets do not vary, and with
    strategies of :mod:`olsq.forgetting` that forget directions or choose their factors while they
    learn (all except ``Exponential``, ``Stabilised`` and ``ByTime``), because their estimates are
    not weighted fits of the rows. ``summary()`` compares the last estimate with an intercept alone.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> X = np.arange(1.0, 5.0)[:, None]
    >>> path = olsq.coefficient_path(X, 2.0 * X[:, 0])
    >>> path.coef[:, 0]
    array([2., 2., 2., 2.])
    """

    # Not fields: a path unpacks and compares as its arrays do.
    __repr__ = brief_repr

    @property
    def in_sample_residual(self) -> NDArray[Any]:
        """Residual (n,) or (n, m) of the row's own target, ``y_t - x_t . theta_t - b_t``."""
        return self._statistics_or_nan.in_sample_residual

    @property
    def r_squared(self) -> NDArray[np.float64]:
        """R-squared (n,) or (n, m): about the mean with an intercept or a column that has had one
        value in every row learned so far, else about 0.
        """
        return self._statistics_or_nan.r_squared

    @property
    def adj_r_squared(self) -> NDArray[np.float64]:
        """R-squared (n,) or (n, m) adjusted for degrees of freedom; NaN where there are none."""
        return self._statistics_or_nan.adj_r_squared

    @property
    def n_rows(self) -> NDArray[np.float64]:
        """Number of rows (n,) or (n, m) that the estimate is made of.

        Rows of weight 0 are none.  With a window a whole number, of the rows inside, also where
        they fade.  Without one, forgetting counts a row by what is left of it, as the effective
        rows of ``summary()``.
        """
        return self._statistics_or_nan.n_rows

    @property
    def tvalues(self) -> NDArray[Any]:
        """t statistics of ``coef``, shaped as that; NaN where undetermined."""
        return t_values(self.coef, self.stderr)

    @property
    def pvalues(self) -> NDArray[np.float64]:
        """Two-sided p-values of ``tvalues``, with the degrees of freedom of ``sigma2``.

        Normal instead of t with a known ``noise_variance``.
        """
        self._refuse_complex("pvalues")
        return p_values(self.tvalues, self._freedom)

    def conf_int(self, level: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Compute confidence intervals of ``coef`` after every row.

        Parameters
        ----------
        level : float, default 0.95
            Probability in (0, 1) that an interval covers its coefficient.

        Returns
        -------
        lower, upper : arrays (n, d) or (n, m, d)
            Infinite where nothing is known: while undetermined, or below one degree of
            freedom.

        Raises
        ------
        ValueError
            If level is not in (0, 1), or the coefficients are complex.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> x = np.arange(8.0)
        >>> path = olsq.coefficient_path(x[:, None], 2 * x + [0, 1, 0, 1, 0, 1, 0, 1], window=5)
        >>> lower, upper = path.conf_int(0.9)
        >>> lower[-1].round(2), upper[-1].round(2)
        (array([2.01]), array([2.22]))
        """
        check_level(level)
        self._refuse_complex("conf_int")
        return t_inference(self.coef, self.stderr, self._freedom, level)[2:]

    @property
    def _freedom(self) -> NDArray[np.float64]:
        return self._statistics_or_nan.freedom[..., None]

    def _refuse_complex(self, name: str) -> None:
        if np.iscomplexobj(self.coef):
            raise ValueError(
                f"{name} is for real coefficients, and these are complex: use coef and stderr, "
                "sqrt(E |error|^2)"
            )

    def to_frame(
        self,
        *,
        names: Sequence[str] | None = None,
        kind: str | None = None,
        statistics: bool = False,
        index: bool = True,
    ) -> Any:
        """Convert the path to a data frame, one row for each row of the data.

        Parameters
        ----------
        names : sequence of str (d,), optional
            Names of the coefficients.  Default: those of the columns of X as text; "x0", "x1", ...
            for arrays.
        kind : {"pandas", "polars", "pyarrow"}, optional
            Library of the frame.  Default: the one X came in (or else y); for arrays pandas, or
            Polars where pandas is not installed.
        statistics : bool, default False
            Whether to add the statistics of every row.
        index : bool, default True
            False leaves out the column of labels of ``by=``, the times, and the index of pandas.

        Returns
        -------
        data frame
            Columns: the intercept (if there is one), a coefficient for each name, "residual",
            "recursive_residual", "sigma2", and the standard errors "intercept_stderr" and
            "<name>_stderr".  With several targets each has all of them: under two levels of
            columns (target, name) in pandas, and as "target:name" in Polars and Arrow; without
            names the targets are "y0", "y1", ....  What is not known is NaN in pandas and null in
            Polars and Arrow.  pandas frames have the index of X (or y).
            ``times`` that were given are a first column, "time" or what their series is called,
            and the index where pandas gets arrays, which have none.  A path made with ``by=`` has
            the labels as its first column, "group" or what their series or column is called.
            With ``statistics`` also "in_sample_residual", "r_squared", "adj_r_squared", "n_rows",
            and "<name>_tvalue", "<name>_pvalue", "<name>_lower" and "<name>_upper" (of the 95 %
            interval).

        Raises
        ------
        ValueError
            If ``names`` has another length, or a name would be there twice.
        ImportError
            If no library is there to make the frame with.

        Examples
        --------
        >>> import numpy as np, pandas as pd, olsq
        >>> days = pd.date_range("2024-01-01", periods=3)
        >>> X = pd.DataFrame({"beta": [1.0, 2.0, 4.0]}, index=days)
        >>> table = olsq.coefficient_path(X, 2.0 * X["beta"]).to_frame()
        >>> list(table)
        ['beta', 'residual', 'recursive_residual', 'sigma2', 'beta_stderr']
        >>> float(table.loc["2024-01-02", "beta"])
        2.0
        """
        if kind is not None and kind not in frames.KINDS:
            raise ValueError(f"kind must be one of {frames.KINDS}, got {kind!r}")
        check_flags(statistics=statistics, index=index)
        features, labels = self._feature_names(names), self.labels
        if not index:
            labels = labels._replace(groups=None, times=None, index=None, time_zone=None)
        if self.residual.ndim == 1:
            return frames.frame(self._columns(features, statistics), labels, kind)
        targets = self._target_names()
        frames.refuse_twice(targets)
        columns = {
            (target, name): values
            for k, target in enumerate(targets)
            for name, values in self.of_target(k)._columns(features, statistics).items()
        }
        return frames.frame(columns, labels, kind)

    def of_target(self, target: int | str) -> Self:
        """Return the path of one of several targets, by number or name, as for a 1-D y."""
        if self.residual.ndim == 1:
            raise ValueError("the path has one target, of a one-dimensional y")
        names = self._target_names()
        if isinstance(target, str):
            if target not in names:
                raise ValueError(f"target must be one of {names}, got {target!r}")
            target = names.index(target)
        elif not is_integer(target) or not -len(names) <= target < len(names):
            raise ValueError(f"target must be one of {names} or its number, got {shown(target)}")
        label = None if self.labels.targets is None else (names[target],)
        return self.each(lambda array: array[:, target]).labelled(
            self.labels._replace(targets=label)
        )

    def of_group(self, key: Any) -> Self:
        """Return the rows of one group of a path made with ``by=``, in order.

        Parameters
        ----------
        key : label
            One of those in ``by``.

        Returns
        -------
        CoefficientPath
            With the times and the index of these rows.

        Raises
        ------
        KeyError
            If no row has that label.
        ValueError
            If the path was made without ``by=``.

        Examples
        --------
        >>> import olsq
        >>> path = olsq.coefficient_path([[1.0]] * 3, [1.0, 5.0, 3.0], by=["a", "b", "a"])
        >>> path.of_group("a").coef[:, 0]
        array([1., 2.])
        """
        if self.labels.groups is None:
            raise ValueError("the path has no groups: it was made without by=")
        wanted = {same_label(key)}
        rows = np.flatnonzero([same_label(label) in wanted for label in self.labels.groups])
        if not rows.size:
            raise KeyError(key)
        return self.each(lambda array: array[rows]).labelled(self.labels.take(rows))

    def plot(
        self,
        *,
        names: Sequence[str] | None = None,
        x: ArrayLike | None = None,
        target: int | str | None = None,
    ) -> Figure:
        """Draw every coefficient over time with its 95 % band; see :func:`olsq.plot.plot_path`.

        A path made with ``by=`` has a row of panels for each group, up to nine.

        Parameters
        ----------
        names : sequence of str (d,), optional
            Names of the coefficients; default as in :meth:`to_frame`.
        x : array (n,), optional
            Horizontal positions.  Default: ``times`` if they were given, else the dates of the
            index if it has such, else row numbers from 1.
        target : int or str, optional
            Which of several targets.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ValueError
            If the path has several targets and none is chosen, or more than nine groups
            (:meth:`of_group` chooses one); if names or x do not fit, or the coefficients are
            complex.

        Examples
        --------
        >>> import pandas as pd, olsq
        >>> X = pd.DataFrame({"beta": [1.0, 2.0, 4.0]}, index=pd.date_range("2024", periods=3))
        >>> figure = olsq.coefficient_path(X, [1.0, 3.0, 3.0]).plot()
        >>> figure.axes[0].get_title(loc="left")
        'beta'
        """
        if np.iscomplexobj(self.coef):
            raise ValueError(
                "plot draws real coefficients, and these are complex: plot their real part, "
                "path._replace(coef=path.coef.real, intercept=path.intercept.real).plot(), their "
                "imaginary part or their magnitude"
            )
        from olsq.plot import plot_path  # matplotlib is for those who draw

        if self.residual.ndim == 2 and target is None:
            raise ValueError(f"several targets: choose one, target= one of {self._target_names()}")
        path = self if target is None else self.of_target(target)
        labels = None if names is None else self._feature_names(names)
        if names is None and self.labels.features is not None:  # whose dollars are no mathematics
            labels = [label.replace("$", r"\$") for label in self._feature_names(None)]
        times, name = self.labels.dates() if x is None else None, self.labels.time_name
        if times is not None and times.dtype.kind == "m":  # Matplotlib has no axis of lengths
            long = times.max() - times.min() >= np.timedelta64(2, "D")
            times = times / np.timedelta64(1, "D" if long else "s")
            name = f"{name} ({'days' if long else 's'})"
        figure = plot_path(path, names=labels, x=x if times is None else times)
        if times is not None and times.dtype.kind in "fiu":  # dates speak for themselves
            figure.axes[-1].set_xlabel(name)
        return figure

    def _feature_names(self, names: Sequence[str] | None) -> list[str]:
        d, features = self.coef.shape[-1], self.labels.features if names is None else names
        if features is not None and len(features) != d:
            raise ValueError(
                f"names must have one entry for each of {d} coefficients, got {len(features)}"
            )
        return frames.names_or_numbers(features, d)

    def _target_names(self) -> list[str]:
        return list(self.labels.targets or [f"y{k}" for k in range(self.residual.shape[1])])

    def _columns(self, features: list[str], with_statistics: bool) -> dict[str, NDArray]:
        """Return the columns of a path with one target."""
        first = ["intercept"] if self.labels.intercept else []
        coefs = [*([self.intercept] if first else []), *self.coef.T]
        errors = [*([self.intercept_stderr] if first else []), *self.stderr.T]
        names = [*first, *features]
        has_statistics = self._has_statistics
        statistics = ("residual", "recursive_residual", *(["sigma2"] if has_statistics else []))
        errors, stderr = (
            (errors, [f"{name}_stderr" for name in names]) if has_statistics else ([], [])
        )
        tests = self._tests(names) if with_statistics else {}
        frames.refuse_twice([*names, *statistics, *stderr, *tests])
        return (
            dict(zip(names, coefs, strict=True))
            | {name: getattr(self, name) for name in statistics}
            | dict(zip(stderr, errors, strict=True))
            | tests
        )

    def _tests(self, names: list[str]) -> dict[str, NDArray]:
        """Return the statistics of every row of a path with one target, by column."""
        self._refuse_complex("to_frame(statistics=True)")
        shared = "in_sample_residual", "r_squared", "adj_r_squared", "n_rows"
        columns = {name: getattr(self, name) for name in shared}
        for label, values in self.of_coefficients().items():
            pairs = zip(names, values.T[-len(names) :], strict=True)
            columns |= {f"{name}_{label}": column for name, column in pairs}
        return columns

    def of_coefficients(self, level: float = 0.95) -> dict[str, NDArray[np.float64]]:
        """Return tests and interval bounds (n, d + 1) of a path with one target, the intercept's
        first.
        """
        coef = np.column_stack([self.intercept, self.coef])
        stderr = np.column_stack([self.intercept_stderr, self.stderr])
        columns = t_inference(coef, stderr, self._freedom, level)
        return dict(zip(("tvalue", "pvalue", "lower", "upper"), columns, strict=True))

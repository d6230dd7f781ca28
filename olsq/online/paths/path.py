"""The coefficient path: coefficients, statistics and residuals after every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.brief import brief_repr
from olsq.online.rows import frames
from olsq.online.rows.frames import Labels

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class PathArrays(NamedTuple):
    """The arrays of a :class:`CoefficientPath`, which documents them."""

    coef: NDArray[Any]
    intercept: NDArray[Any]
    residual: NDArray[Any]
    recursive_residual: NDArray[Any]
    sigma2: NDArray[Any]
    stderr: NDArray[Any]
    intercept_stderr: NDArray[Any]


class CoefficientPath(PathArrays):
    """Coefficients and statistics after each of n rows; m targets, or none for a 1-D y.

    A named tuple of NumPy arrays.  What a frame says beside its numbers (index, dates, names) is
    kept along for :meth:`to_frame` and :meth:`plot`.

    Attributes
    ----------
    coef : array (n, d) or (n, m, d)
        Coefficients after the row; minimum norm while undetermined.
    intercept : array (n,) or (n, m)
        Intercept after the row; 0 without one.
    residual : array (n,) or (n, m)
        A-priori (one-step-ahead) residual ``y_t - x_t . theta_{t-1} - b_{t-1}``.  NaN in a row
        that was skipped because it has a missing value, and nowhere else.
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

    Examples
    --------
    >>> import numpy as np, olsq
    >>> X = np.arange(1.0, 5.0)[:, None]
    >>> path = olsq.coefficient_path(X, 2.0 * X[:, 0])
    >>> path.coef[:, 0]
    array([2., 2., 2., 2.])
    """

    labels: Labels = Labels()  # not a field: a path unpacks and compares as its arrays do

    __repr__ = brief_repr

    def labelled(self, labels: Labels) -> Self:
        """Return the path with other labels."""
        other = self._make(self)
        other.labels = labels
        return other

    def _replace(self, **fields: Any) -> Self:
        """Return the path with some arrays replaced, and its labels."""
        return super()._replace(**fields).labelled(self.labels)

    def bare(self) -> Self:
        """Return the path without noise variances and standard errors, which read NaN."""
        names = "sigma2", "stderr", "intercept_stderr"
        nothing = {n: np.broadcast_to(np.nan, getattr(self, n).shape) for n in names}
        return self._replace(**nothing)

    @property
    def _has_statistics(self) -> bool:
        """True if sigma2 and standard errors were computed: else they are one number, spread."""
        return any(self.stderr.strides) or not self.stderr.size

    def to_frame(self, *, names: Sequence[str] | None = None, kind: str | None = None) -> Any:
        """Convert the path to a data frame, one row for each row of the data.

        Parameters
        ----------
        names : sequence of str (d,), optional
            Names of the coefficients.  Default: those of the columns of X as text; "x0", "x1", ...
            for arrays.
        kind : {"pandas", "polars", "pyarrow"}, optional
            Library of the frame.  Default: the one X came in (or else y); for arrays pandas, or
            Polars where pandas is not installed.

        Returns
        -------
        data frame
            Columns: the intercept (if there is one), a coefficient for each name, "residual",
            "recursive_residual", "sigma2", and the standard errors "intercept_stderr" and
            "<name>_stderr".  With several targets each has all of them: under two levels of
            columns (target, name) in pandas, and as "target:name" in Polars and Arrow; without
            names the targets are "y0", "y1", ....  pandas frames have the index of X (or y).
            ``times`` that were given are a first column, "time" or what their series is called,
            and the index where pandas gets arrays, which have none.  A path made with ``by=`` has
            the labels as its first column, "group" or what their series or column is called.

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
        features = self._feature_names(names)
        if self.residual.ndim == 1:
            return frames.frame(self._columns(features), self.labels, kind)
        targets = self._target_names()
        frames.refuse_twice(targets)
        columns = {
            (target, name): values
            for k, target in enumerate(targets)
            for name, values in self.of_target(k)._columns(features).items()
        }
        return frames.frame(columns, self.labels, kind)

    def of_target(self, target: int | str) -> Self:
        """Return the path of one of several targets, by number or name, as for a 1-D y."""
        if self.residual.ndim == 1:
            raise ValueError("the path has one target, of a one-dimensional y")
        names = self._target_names()
        if isinstance(target, str):
            if target not in names:
                raise ValueError(f"target must be one of {names}, got {target!r}")
            target = names.index(target)
        label = None if self.labels.targets is None else (names[target],)
        return self._make(a[:, target] for a in self).labelled(self.labels._replace(targets=label))

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
        rows = np.flatnonzero([bool(label == key) for label in self.labels.groups])
        if not rows.size:
            raise KeyError(key)
        return self._make(a[rows] for a in self).labelled(self.labels.take(rows))

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
        named = names is None and self.labels.features is None
        labels = None if named else self._feature_names(names)
        times, name = self.labels.dates() if x is None else None, self.labels.time_name
        if times is not None and times.dtype.kind == "m":  # Matplotlib has no axis of lengths
            long = times.max() - times.min() >= np.timedelta64(2, "D")
            times = times / np.timedelta64(1, "D" if long else "s")
            name = f"{name} ({'days' if long else 's'})"
        figure = plot_path(path, names=labels, x=x if times is None else times)
        if times is not None and times.dtype.kind == "f":  # dates speak for themselves
            figure.axes[-1].set_xlabel(name)
        return figure

    def _feature_names(self, names: Sequence[str] | None) -> list[str]:
        d = self.coef.shape[-1]
        found = names if names is not None else self.labels.features
        if found is None:
            return [f"x{j}" for j in range(d)]
        if len(found) != d:
            raise ValueError(
                f"names must have one entry for each of {d} coefficients, got {len(found)}"
            )
        return [str(name) for name in found]

    def _target_names(self) -> list[str]:
        return list(self.labels.targets or [f"y{k}" for k in range(self.residual.shape[1])])

    def _columns(self, features: list[str]) -> dict[str, NDArray]:
        """Return the columns of a path with one target."""
        first = ["intercept"] if self.labels.intercept else []
        coefs = [*([self.intercept] if first else []), *self.coef.T]
        errors = [*([self.intercept_stderr] if first else []), *self.stderr.T]
        names = [*first, *features]
        known = self._has_statistics
        statistics = ("residual", "recursive_residual", *(["sigma2"] if known else []))
        errors, stderr = (errors, [f"{name}_stderr" for name in names]) if known else ([], [])
        frames.refuse_twice([*names, *statistics, *stderr])
        return (
            dict(zip(names, coefs, strict=True))
            | {name: getattr(self, name) for name in statistics}
            | dict(zip(stderr, errors, strict=True))
        )

"""The arrays of a coefficient path, the statistics of its rows, and their labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from olsq.online.rows.frames import Labels


class PathArrays(NamedTuple):
    """The arrays of a :class:`CoefficientPath`, which documents them."""

    coef: NDArray[Any]
    intercept: NDArray[Any]
    residual: NDArray[Any]
    recursive_residual: NDArray[Any]
    sigma2: NDArray[Any]
    stderr: NDArray[Any]
    intercept_stderr: NDArray[Any]


class RowStatistics(NamedTuple):
    """Arrays (n,) or (n, m) of a :class:`CoefficientPath`, which documents them.

    ``freedom`` are the degrees of freedom of t statistics.
    """

    in_sample_residual: NDArray[Any]
    r_squared: NDArray[np.float64]
    adj_r_squared: NDArray[np.float64]
    n_rows: NDArray[np.float64]
    freedom: NDArray[np.float64]


class LabelledArrays(PathArrays):
    """The arrays with their labels, and the statistics of every row, or what computes them."""

    labels: Labels = Labels()
    _row_statistics: RowStatistics | Callable[[], RowStatistics] | None = None

    @classmethod
    def of_columns(
        cls, columns: tuple[NDArray, ...], intercept: bool, *constants: NDArray, without: Any = 0.0
    ) -> Self:
        """Build a path from coefficients and standard errors (n, ..., k), the intercept's first,
        residuals, recursive residuals and noise variances.

        Without an intercept it and its standard error read ``without`` (n, ...).
        """
        (theta, stderr), (residual, recursive, sigma2) = columns, constants
        first = int(intercept)
        constant, error = theta[..., 0], stderr[..., 0]
        if not intercept:
            constant = np.broadcast_to(without, constant.shape).astype(theta.dtype)
            error = np.broadcast_to(np.real(without), error.shape).astype(stderr.dtype)
        slopes, errors = theta[..., first:], stderr[..., first:]
        return cls(slopes, constant, residual, recursive, sigma2, errors, error)

    def labelled(self, labels: Labels) -> Self:
        """Return the path with other labels."""
        other = self._make(self)
        other.labels, other._row_statistics = labels, self._row_statistics
        return other

    def with_statistics(self, statistics: RowStatistics | Callable[[], RowStatistics]) -> Self:
        """Return the path with the statistics of every row, or what computes them when read."""
        other = self.labelled(self.labels)
        other._row_statistics = statistics
        return other

    def each(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Self:
        """Return the path with every array changed, the statistics' when they are read."""
        other = self._make(change(array) for array in self)
        return other.labelled(self.labels).with_statistics(
            lambda: RowStatistics(*(change(array) for array in self._statistics_or_nan))
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return labels and statistics for pickle and copy."""
        return {"labels": self.labels, "_row_statistics": self._statistics_or_nan}

    @property
    def every_array(self) -> tuple[NDArray[Any], ...]:
        """The fields and the statistics of every row, NaN where there are none."""
        return (*self, *self._statistics_or_nan)

    @classmethod
    def of_arrays(cls, arrays: Iterable[NDArray[Any]]) -> Self:
        """Rebuild a path from what :attr:`every_array` gave."""
        arrays = list(arrays)
        fields = len(cls._fields)
        return cls(*arrays[:fields]).with_statistics(RowStatistics(*arrays[fields:]))

    @property
    def _statistics_or_nan(self) -> RowStatistics:
        if callable(self._row_statistics):
            self._row_statistics = self._row_statistics()
        if self._row_statistics is not None:
            return self._row_statistics
        nothing = np.broadcast_to(np.nan, self.recursive_residual.shape)
        return RowStatistics(*(nothing,) * len(RowStatistics._fields))

    def _replace(self, **fields: Any) -> Self:
        """Return the path with some arrays replaced, and its labels."""
        other = super()._replace(**fields).labelled(self.labels)
        other._row_statistics = self._row_statistics
        return other

    def bare(self) -> Self:
        """Return the path without noise variances and standard errors, which read NaN."""
        names = "sigma2", "stderr", "intercept_stderr"
        nothing = {n: np.broadcast_to(np.nan, getattr(self, n).shape) for n in names}
        other = self._replace(**nothing)
        other._row_statistics = None
        return other

    @property
    def _has_statistics(self) -> bool:
        """True if sigma2 and standard errors were computed: else they are one number, spread."""
        return any(self.stderr.strides) or not self.stderr.size


def rows_like(part: LabelledArrays, n: int) -> list[NDArray]:
    """Return arrays for n rows, NaN so far, like those of a path; what it leaves out stays out."""
    return [
        np.full((n, *a.shape[1:]), np.nan, a.dtype)
        if any(a.strides) or not a.size
        else np.broadcast_to(a.dtype.type(np.nan), (n, *a.shape[1:]))
        for a in part.every_array
    ]


def fill_rows(arrays: list[NDArray], rows: Any, part: LabelledArrays) -> None:
    """Write the rows of a path into those arrays."""
    for array, piece in zip(arrays, part.every_array, strict=True):
        if array.flags.writeable:
            array[rows] = piece


def predict_each(coef: NDArray, intercept: NDArray | float, X: NDArray) -> NDArray:
    """Predict every row of X (n, d) by coefficients of its own (n, ..., d)."""
    return np.einsum("n...d,nd->n...", coef, X) + intercept

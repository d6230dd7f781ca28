"""A regression on lists of rows, which Polars calls once for all groups of a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olsq.online import CoefficientPath, coefficient_path
from olsq.online.many.group_fits import fit_groups, predict_groups
from olsq.polars.lists import GroupedRows, as_lists, as_series, read_lists

OUTPUTS = ("coef", "prediction", "residual", "stderr")
STRUCTS = ("coef", "stderr")
TRANSPOSED = 4096  # rows copied to columns at a time: both sides stay in the cache


@dataclass(frozen=True)
class Regression:
    """A regression with all its options, as a function of a struct of lists.

    The fields are the target, the regressors ``names`` and the ``columns`` of per-row options;
    each row of the struct is a group, and its lists are the group's rows.  ``whole`` means one fit
    of all rows of a group, otherwise one after every row.
    """

    names: tuple[str, ...]
    output: str
    options: dict[str, Any]
    columns: tuple[str, ...]
    whole: bool

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the coefficients, the intercept's first where there is one."""
        return ("intercept", *self.names) if self.options["fit_intercept"] else self.names

    @property
    def returns_scalar(self) -> bool:
        """True if a group has one result instead of one per row."""
        return self.whole and self.output in STRUCTS

    @property
    def return_dtype(self) -> Any:
        """The result's type before lists are exploded into rows."""
        struct = pl.Struct({name: pl.Float64() for name in self.fields})
        inner = struct if self.output in STRUCTS else pl.Float64()
        return inner if self.returns_scalar else pl.List(inner)

    def __call__(self, groups: pl.Series) -> pl.Series:
        """Fit every group and return the output, a row or list for each."""
        rows = read_lists(groups, self.names, self.columns)
        if self.whole:
            found = self._fit_outputs(rows)
        elif len(rows.y) == 0 or not self._can_learn(rows):
            found = self._nan_outputs(len(rows.y))
        else:
            found = self._path_outputs(rows)
        series = as_series(groups.name, found, self.fields if self.output in STRUCTS else None)
        return series if self.returns_scalar else as_lists(series, rows.lengths)

    def _nan_outputs(self, n: int) -> list[NDArray]:
        """Return NaN for n rows or groups without a row to learn from."""
        return [np.full(n, np.nan)] * (len(self.fields) if self.output in STRUCTS else 1)

    def _can_learn(self, rows: GroupedRows) -> bool:
        """Test whether any row is complete; with ``missing="raise"`` the fit itself checks."""
        return self.options["missing"] == "raise" or rows.any_usable()

    # -- after every row ----------------------------------------------------------------------

    def _path_outputs(self, rows: GroupedRows) -> list[NDArray]:
        options: dict[str, Any] = self.options | rows.per_row
        options["statistics"] = self.output == "stderr"
        several = np.count_nonzero(rows.lengths) > 1
        if several:
            options["by"] = rows.codes()
        path = coefficient_path(rows.X, rows.y, **options)
        if self.output == "prediction":
            return [self._predict_ahead(path, rows)]
        if self.output == "residual":
            return [path.residual]
        found = path.coef, path.intercept
        if self.output == "stderr":
            found = path.stderr, path.intercept_stderr
        columns = _split_columns(*found, self.options["fit_intercept"])
        if several and self.options["missing"] == "skip":
            # as in a group fitted alone, whose coefficients are not known
            # A group without a row to learn from reads as it would alone: nothing is known.
            lost = np.add.reduceat(~np.isnan(path.residual), rows.begins()) == 0
            if lost.any():
                where = np.repeat(lost, rows.lengths[rows.lengths > 0])
                columns[:, where] = np.nan
        return list(columns)

    def _predict_ahead(self, path: CoefficientPath, rows: GroupedRows) -> NDArray:
        """Predict every row with the coefficients after the row before it.

        Also where the target is missing.  A group's first row is predicted as 0, as
        ``RecursiveLeastSquares.step`` does, unless a number of samples must be in the window.
        """
        prediction = np.empty(len(rows.y))
        with np.errstate(invalid="ignore", over="ignore"):
            np.einsum("ij,ij->i", rows.X[1:], path.coef[:-1], out=prediction[1:])
            if self.options["fit_intercept"]:
                prediction[1:] += path.intercept[:-1]
        prediction[rows.begins()] = np.nan if self.options.get("min_samples") else 0.0
        prediction[~np.isfinite(rows.X).all(axis=1)] = np.nan
        return prediction

    # -- one fit ------------------------------------------------------------------------------

    def _fit_outputs(self, rows: GroupedRows) -> list[NDArray]:
        weights = rows.per_row.get("sample_weight")
        fits = fit_groups(rows.X, rows.y, rows.lengths, weights, self.options)
        if self.output in STRUCTS:
            return list((fits.stderr if self.output == "stderr" else fits.coef).T)
        intercept = bool(self.options["fit_intercept"])
        prediction = predict_groups(rows.X, rows.lengths, fits.coef, intercept)
        if self.output == "prediction":
            return [prediction]
        with np.errstate(invalid="ignore", over="ignore"):
            residual = rows.y - prediction
        residual[np.isinf(residual)] = np.nan
        return [residual]


def _split_columns(coef: NDArray, intercept: NDArray, fit_intercept: bool) -> NDArray:
    """Copy coefficients after every row (n, d) to contiguous columns (k, n)."""
    n, d = coef.shape
    first = int(fit_intercept)
    columns = np.empty((first + d, n))
    if first:
        columns[0] = intercept
    for start in range(0, n, TRANSPOSED):
        some = slice(start, start + TRANSPOSED)
        columns[first:, some] = coef[some].T
    return columns

"""A regression on Polars' lists of rows, which Polars calls once for all groups of a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olsq.online import CoefficientPath, coefficient_path
from olsq.online.known_rows import or_without, without_estimate
from olsq.online.many.group_fits import fit_groups, predict_groups
from olsq.online.paths.arrays import predict_each

TESTS = {"tvalues": "tvalue", "pvalues": "pvalue", "lower": "lower", "upper": "upper"}
GOODNESS = ("r_squared", "adj_r_squared", "n_rows", "in_sample_residual")
OUTPUTS = ("coef", "prediction", "residual", "stderr", *TESTS, *GOODNESS)
STRUCTS = ("coef", "stderr", *TESTS)
PER_ROW = ("prediction", "residual", "in_sample_residual")  # of one fit too
TRANSPOSED = 4096  # rows copied to columns at a time: both sides stay in the cache


@dataclass(frozen=True)
class Regression:
    """A regression with all its options, as a function of a struct of lists.

    The fields are the target, the regressors ``names`` and the ``columns`` of per-row options;
    each row of the struct is a group, and its lists are the group's rows.  ``one_fit`` means one
    fit of all rows of a group, otherwise one after every row.
    """

    names: tuple[str, ...]
    output: str
    options: dict[str, Any]
    columns: tuple[str, ...]
    one_fit: bool

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the coefficients, the intercept's first where there is one."""
        return ("intercept", *self.names) if self.options["fit_intercept"] else self.names

    @property
    def _asks_statistics(self) -> bool:
        """True if the output of one fit is in a path alone: a residual of it is in-sample."""
        return self.output in TESTS or (self.output in GOODNESS and self.output not in PER_ROW)

    @property
    def returns_scalar(self) -> bool:
        """True if a group has one result instead of one per row."""
        return self.one_fit and self.output not in PER_ROW

    @property
    def return_dtype(self) -> Any:
        """The result's type before lists are exploded into rows."""
        struct = pl.Struct({name: pl.Float64() for name in self.fields})
        inner = struct if self.output in STRUCTS else pl.Float64()
        return inner if self.returns_scalar else pl.List(inner)

    def __call__(self, groups: pl.Series) -> pl.Series:
        """Fit every group and return the output, a row or list for each."""
        rows = read_lists(groups, self.names, self.columns)
        if self.one_fit:
            outputs = (
                self._fit_statistics(rows) if self._asks_statistics else self._fit_outputs(rows)
            )
        elif len(rows.y) == 0 or not self._can_learn(rows):
            outputs = self._nan_outputs(len(rows.y))
        else:
            outputs = self._path_outputs(rows)
        series = as_series(groups.name, outputs, self.fields if self.output in STRUCTS else None)
        return series if self.returns_scalar else as_lists(series, rows.lengths)

    def _nan_outputs(self, n: int) -> list[NDArray]:
        """Return NaN for n rows, none of which can be learned."""
        columns = len(self.fields) if self.output in STRUCTS else 1
        return [np.full(n, np.nan) for _ in range(columns)]

    def _can_learn(self, rows: GroupedRows) -> bool:
        """Test whether any row is complete; with ``missing="raise"`` the fit itself checks."""
        return self.options["missing"] == "raise" or rows.any_usable()

    # -- after every row ----------------------------------------------------------------------

    def _path_outputs(self, rows: GroupedRows) -> list[NDArray]:
        options: dict[str, Any] = self.options | rows.per_row
        options["statistics"] = self.output not in ("coef", "prediction", "residual")
        several = np.count_nonzero(rows.lengths) > 1
        if several:
            options["by"] = rows.codes()
        path = coefficient_path(rows.X, rows.y, **options)
        if self.output == "residual":
            return [path.residual]
        if self.output == "prediction":
            columns = self._predict_ahead(path, rows)[None]
        elif self.output in GOODNESS:
            columns = getattr(path, self.output)[None]
        elif self.output in TESTS:
            columns = path.of_coefficients()[TESTS[self.output]].T[-len(self.fields) :]
        else:
            estimates = path.coef, path.intercept
            if self.output == "stderr":
                estimates = path.stderr, path.intercept_stderr
            columns = _split_columns(*estimates, self.options["fit_intercept"])
        if several and self.options["missing"] == "skip":
            # A group without a row to learn from reads as it would alone: nothing is known.
            lost = np.add.reduceat(~np.isnan(path.residual), rows.begins()) == 0
            if lost.any():
                where = np.repeat(lost, rows.lengths[rows.lengths > 0])
                columns = np.where(where, np.nan, columns)
        return list(columns)

    def _predict_ahead(self, path: CoefficientPath, rows: GroupedRows) -> NDArray:
        """Predict every row with the coefficients after the row before it.

        Also where the target is missing.  A group's first row is predicted as 0, as
        ``RecursiveLeastSquares.step`` does, unless a number of samples must be in the window.
        """
        prediction = np.empty(len(rows.y))
        without = without_estimate(self.options.get("min_samples"))
        follows = np.ones(max(len(rows.y) - 1, 0), np.bool_)
        coef, intercept = (
            or_without(a[:-1], follows, without) for a in (path.coef, path.intercept)
        )
        with np.errstate(invalid="ignore", over="ignore"):
            prediction[1:] = predict_each(coef, intercept, rows.X[1:])
        prediction[rows.begins()] = without
        prediction[~np.isfinite(rows.X).all(axis=1)] = np.nan
        return prediction

    # -- one fit ------------------------------------------------------------------------------

    def _fit_statistics(self, rows: GroupedRows) -> list[NDArray]:
        """Return the statistics of the fit of every group: those of a path after its last row."""
        statistics = self._nan_outputs(rows.lengths.size)
        if len(rows.y) > 0 and self._can_learn(rows):
            filled = rows.lengths > 0
            last = np.cumsum(rows.lengths)[filled] - 1
            for column, path in zip(statistics, self._path_outputs(rows), strict=True):
                column[filled] = path[last]
        weights = rows.per_row.get("sample_weight")
        if weights is not None and self.output in TESTS:  # null where the coefficients are
            taught = rows.usable(slice(None)) & (weights > 0)
            empty = np.bincount(rows.codes()[taught], minlength=rows.lengths.size) == 0
            for column in statistics:
                column[empty] = np.nan
        return statistics

    def _fit_outputs(self, rows: GroupedRows) -> list[NDArray]:
        weights = rows.per_row.get("sample_weight")
        fits = fit_groups(rows.X, rows.y, rows.lengths, weights, self.options)
        if self.output in STRUCTS:
            return list((fits.stderr if self.output == "stderr" else fits.coef).T)
        intercept = bool(self.options["fit_intercept"])
        prediction = predict_groups(rows.X, rows.lengths, fits.coef, intercept)
        if self.output == "prediction":
            return [prediction]
        # Of one fit "residual" and "in_sample_residual" are the same.
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


class GroupedRows(NamedTuple):
    """The rows of all groups, one group after the other.

    X (n, d) in Fortran order, y (n,), ``lengths`` (groups,) of the groups, and the columns (n,) of
    per-row options by their names.
    """

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    lengths: NDArray[np.int64]
    per_row: dict[str, Any]

    def begins(self) -> NDArray[np.int64]:
        """Return the index of the first row of every group that has rows."""
        filled = self.lengths[self.lengths > 0]
        return np.cumsum(filled) - filled

    def codes(self) -> NDArray[np.int64]:
        """Return the number of every row's group (n,)."""
        return np.repeat(np.arange(self.lengths.size), self.lengths)

    def usable(self, rows: slice) -> NDArray[np.bool_]:
        """Test of some rows whether they have no missing value."""
        finite = np.isfinite(self.y[rows]) & np.isfinite(self.X[rows]).all(axis=1)
        if "sample_weight" in self.per_row:
            finite &= ~np.isnan(self.per_row["sample_weight"][rows])
        return finite

    def any_usable(self) -> bool:
        """Test whether any row has no missing value; most often the first few rows decide."""
        return any(self.usable(rows).any() for rows in (slice(0, 64), slice(64, None)))


def read_lists(groups: pl.Series, names: tuple[str, ...], columns: tuple[str, ...]) -> GroupedRows:
    """Return the rows of a struct of lists: the target, the regressors, per-row options.

    A regressor or option that is one value per group (a literal, ``pl.col("a").mean()``) is that
    value in every row of it.

    Raises TypeError for columns that hold no numbers, ValueError for those of another length.
    """
    fields = [groups.struct.field(name) for name in groups.struct.fields]
    target, inputs = fields[0], fields[1:]
    lengths = target.list.len().to_numpy().astype(np.int64)
    y = _to_float64(_concatenate(target, lengths), f"the target {groups.name!r}")
    X = np.empty((len(names), y.size))
    for j, (name, field) in enumerate(zip(names, inputs, strict=False)):
        what = f"regressor {name!r}"
        X[j] = _to_float64(_spread_over_rows(field, lengths, what), what)
    per_row = {}
    for name, field in zip(columns, inputs[len(names) :], strict=True):
        flat = _spread_over_rows(field, lengths, name)
        per_row[name] = flat if name == "times" else _to_float64(flat, name)
    return GroupedRows(X.T, y, lengths, per_row)


def _concatenate(lists: pl.Series, lengths: NDArray[np.int64]) -> pl.Series:
    """Concatenate the entries of the lists."""
    if lengths.size and not lengths.all():  # an empty list is exploded into a null
        lists = lists.filter(pl.Series(lengths > 0))
    return lists.explode() if len(lists) else pl.Series(lists.name, [], lists.dtype.inner)  # type: ignore[attr-defined]


def _spread_over_rows(lists: pl.Series, lengths: NDArray[np.int64], what: str) -> pl.Series:
    """Concatenate the entries of the lists; repeat single entries for all rows of their group."""
    if not isinstance(lists.dtype, pl.List):  # Polars 1.31 makes no lists of these
        sizes, values = np.ones(lengths.size, np.int64), lists
    else:
        sizes = lists.list.len().to_numpy().astype(np.int64)
        values = _concatenate(lists, sizes)
    if np.array_equal(sizes, lengths):
        return values
    if not (sizes == 1).all():
        g = int(np.argmax(sizes != lengths))
        raise ValueError(
            f"{what} has {sizes[g]} rows where the target has {lengths[g]}: all must be of one "
            "length"
        )
    return values.gather(np.repeat(np.arange(lengths.size), lengths))


def _to_float64(values: pl.Series, what: str) -> NDArray[np.float64]:
    """Return float64 entries, nulls as NaN; no copy of a Float64 column without nulls."""
    dtype = values.dtype
    if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
        raise TypeError(
            f"{what} must be numeric, got {dtype}: cast it, for instance with .cast(pl.Float64)"
        )
    return values.cast(pl.Float64).to_numpy()


def as_series(name: str, columns: list[NDArray], fields: tuple[str, ...] | None) -> pl.Series:
    """Return one column, or a struct of ``fields``; NaN becomes null."""
    series = [
        _null_where_nan(pl.Series(n, column))
        for n, column in zip(fields or (name,), columns, strict=True)
    ]
    return series[0] if fields is None else pl.DataFrame(series).to_struct(name)


def _null_where_nan(series: pl.Series) -> pl.Series:
    return series.fill_nan(None) if series.is_nan().any() else series


def as_lists(rows: pl.Series, lengths: NDArray[np.int64]) -> pl.Series:
    """Return the rows as one list per group, of these lengths."""
    if lengths.size == 1:
        return rows.implode()
    if lengths.all():
        codes = pl.Series("group", np.repeat(np.arange(lengths.size), lengths)).set_sorted()
        frame = pl.DataFrame({"group": codes, "rows": rows})
        return frame.group_by("group", maintain_order=True).agg("rows")["rows"].alias(rows.name)
    ends = np.cumsum(lengths).tolist()
    pieces = [rows[end - n : end] for n, end in zip(lengths.tolist(), ends, strict=True)]
    return pl.Series(rows.name, pieces, pl.List(rows.dtype))

"""Turn a chunk into the rows to learn: levels, lags and intercept; usable rows only."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.cli.errors import InputError
from olsq.cli.fit.checkpoint import pack, unpack
from olsq.cli.sources.categories import OTHER
from olsq.cli.sources.columns import Chunk, Columns
from olsq.cli.sources.grouping import GroupedRows, extend
from olsq.cli.sources.table import TableBuilder


class Design:
    """Builds the regressors of every chunk, and remembers the last targets for the lags.

    Parameters
    ----------
    columns : Columns
        Of the source.
    table : TableBuilder
        Of the source: the levels of its categories.
    lags : int
        The targets of so many rows before are regressors.
    intercept : bool
        Whether there is one; then the first level of a category has no column.

    Raises
    ------
    InputError
        If there are no regressors.

    Notes
    -----
    Rows count, not samples: where a target is missing, so are the lags of it in the rows after.
    With labels the rows before are those of the same group; rows without labels are one group.
    """

    def __init__(
        self, columns: Columns, table: TableBuilder, lags: int, *, intercept: bool
    ) -> None:
        if not columns.features and not lags:
            raise InputError(
                "no regressors: no column is left besides "
                f"{' and '.join(map(repr, columns.targets))}"
            )
        self.columns, self.lags = columns, lags
        self._categories, self._intercept = table.categories, intercept
        self.history = np.empty((0, lags, len(columns.targets)))  # of every group

    def count(self) -> int:
        """Return the number of regressors; the levels must be settled."""
        categories = self._categories.names
        dummies = [self._categories.dummies(name, intercept=self._intercept) for name in categories]
        plain = len(self.columns.features) - len(categories)
        return plain + sum(map(len, dummies)) + self.lags * len(self.columns.targets)

    def names(self) -> list[str]:
        """Return the names of the regressors; the levels must be settled.

        Raises
        ------
        InputError
            If two of them are the same.
        """
        names: list[str] = []
        for feature in self.columns.features:
            if feature in self._categories.names:
                dummies = self._categories.dummies(feature, intercept=self._intercept)
                names += [name for _, name in dummies]
            else:
                names.append(feature)
        for target in self.columns.targets:
            names += [f"{target}_lag{k}" for k in range(1, self.lags + 1)]
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise InputError(
                f"two regressors would be named {twice[0]!r}: rename a column, or list the levels "
                f"without * if {OTHER!r} is one of them"
            )
        return names

    def matrix(self, chunk: Chunk) -> NDArray[np.float64]:
        """Build the regressors (n, d) of a chunk, in C order."""
        if not self._categories.names and not self.lags:
            return chunk.X
        parts = []
        for feature, cells in zip(self.columns.features, chunk.X.T, strict=True):
            if feature in self._categories.names:
                missing = np.isnan(cells)
                for code, _ in self._categories.dummies(feature, intercept=self._intercept):
                    parts.append(np.where(missing, np.nan, cells == code))
            else:
                parts.append(cells)
        if self.lags:
            parts += list(self._lagged_targets(chunk).reshape(len(chunk.X), -1).T)
        return np.column_stack(parts) if parts else np.empty((len(chunk.X), 0))

    def _lagged_targets(self, chunk: Chunk) -> NDArray[np.float64]:
        """Return the earlier targets (n, m, lags) of every row, the row just before it first."""
        lagged = np.full((*chunk.y.shape, self.lags), np.nan)
        groups, places, joined = self._join_history(chunk)
        for k in range(1, self.lags + 1):
            lagged[groups.rows, :, k - 1] = joined[places - k]
        return lagged

    def _join_history(
        self, chunk: Chunk
    ) -> tuple[GroupedRows, NDArray[np.int64], NDArray[np.float64]]:
        """Join each group's targets in this chunk to those before it; return the rows by group,
        their places, and the targets.

        ``joined`` (n + groups lags, m) has the targets of each group's rows after those it had
        before.
        """
        groups = GroupedRows.of(chunk.by, len(chunk.X))
        rows, codes, begins = groups
        self.history = extend(self.history, int(codes.max(initial=-1)) + 1, np.nan)
        number = np.arange(begins.size)
        places = np.arange(rows.size) + self.lags * (np.repeat(number, groups.counts) + 1)
        joined = np.empty((rows.size + self.lags * begins.size, chunk.y.shape[1]))
        joined[(begins + self.lags * number)[:, None] + np.arange(self.lags)] = self.history[
            codes[begins]
        ]
        joined[places] = chunk.y[rows]
        return groups, places, joined

    def advance(self, chunk: Chunk) -> None:
        """Append the targets of a chunk that was learned to the history."""
        if not self.lags:
            return
        groups, places, joined = self._join_history(chunk)
        last = groups.begins + groups.counts - 1
        ends = places[last, None] + 1 + np.arange(-self.lags, 0)
        self.history[groups.codes[last]] = joined[ends]

    def as_dict(self) -> dict[str, Any]:
        """Return the targets that later rows need, for the checkpoint."""
        return {"history": pack(np.where(np.isnan(self.history), np.nan, self.history))}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the targets saved by :meth:`as_dict`."""
        if self.lags:
            self.history = unpack(saved["history"]).reshape(-1, *self.history.shape[1:])


def usable_rows(
    chunk: Chunk, X: NDArray, columns: Columns, missing: str
) -> tuple[NDArray, NDArray | None, NDArray[np.bool_]]:
    """Return targets (NaN in rows that lack one), weights, and the mask of the rows to learn.

    Raises
    ------
    InputError
        If a weight is negative, or (``missing="raise"``) a value is missing.
    """
    y, weight = chunk.y, chunk.weight
    # A sum is much cheaper than a test of every cell, and finite only if all of them are.
    with np.errstate(over="ignore", invalid="ignore"):
        total = X.sum() + y.sum()
    labelled = chunk.by is None or bool((chunk.by >= 0).all())
    if weight is None and labelled and math.isfinite(total):
        return y, None, np.ones(len(y), np.bool_)
    if missing == "raise":
        _refuse_missing(chunk, columns)
    # Rows are skipped by the estimator for X and y: without all targets, none is learned.
    used = np.ones(len(y), np.bool_)
    for part in (X, y):
        used &= np.isfinite(part).all(axis=1)
    if chunk.by is not None:
        used &= chunk.by >= 0
        y = np.where(chunk.by[:, None] >= 0, y, np.nan)
    if weight is not None:
        used &= np.isfinite(weight)
        negative = np.flatnonzero(weight < 0)
        if negative.size:
            raise InputError(
                f"weight column {columns.weight!r} is negative in row "
                f"{chunk.start + negative[0] + 1:,}"
            )
        # A row without a weight has no usable target.
        y = np.where(np.isfinite(weight[:, None]), y, np.nan)
        weight = np.where(used, weight, 0.0)
    complete = np.logical_and.reduce(np.isfinite(y), axis=1, keepdims=True)
    y = np.where(complete, y, np.nan)
    return y, weight, used


def _refuse_missing(chunk: Chunk, columns: Columns) -> None:
    weight = [] if chunk.weight is None else [chunk.weight]
    label = [] if chunk.by is None else [np.where(chunk.by >= 0, 1.0, np.nan)]
    finite = np.isfinite(np.column_stack([chunk.X, chunk.y, *weight, *label]))
    if finite.all():
        return
    row = int(np.flatnonzero(~np.logical_and.reduce(finite, axis=1))[0])
    weights = [] if columns.weight is None else [columns.weight]
    labels = [] if columns.by is None else [columns.by]
    names = [*columns.features, *columns.targets, *weights, *labels]
    column = names[int(np.flatnonzero(~finite[row])[0])]
    raise InputError(
        f"row {chunk.start + row + 1:,} has no value in column {column!r} "
        "(--missing skip passes over such rows)"
    )

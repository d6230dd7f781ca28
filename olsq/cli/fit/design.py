"""From the columns of a chunk to regressors: levels become 0/1 columns, past targets join them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.cli.errors import InputError
from olsq.cli.sources.columns import Chunk, Columns
from olsq.cli.sources.table import TableBuilder


class Design:
    """Builds the regressors of every chunk; remembers the last targets.

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
    """

    def __init__(
        self, columns: Columns, table: TableBuilder, lags: int, *, intercept: bool
    ) -> None:
        if not columns.features and not lags:
            raise InputError(
                "no regressors: the data have no column besides "
                f"{' and '.join(map(repr, columns.targets))}"
            )
        self.columns, self.lags = columns, lags
        self._categories, self._intercept = table.categories, intercept
        self.history = np.full((lags, len(columns.targets)), np.nan)

    def names(self) -> list[str]:
        """Names of the regressors; the levels must be settled.

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
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"two regressors would be named {twice[0]!r}: rename a column")
        return names

    def matrix(self, chunk: Chunk) -> NDArray[np.float64]:
        """Regressors (n, d) of a chunk, in C order."""
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
        n, lags = len(chunk.X), self.lags
        past = np.concatenate([self.history, chunk.y]) if lags else chunk.y
        for target in range(chunk.y.shape[1] if lags else 0):
            parts += [past[lags - k : lags - k + n, target] for k in range(1, lags + 1)]
        return np.column_stack(parts) if parts else np.empty((n, 0))

    def advance(self, y: NDArray[np.float64]) -> None:
        """Remember the targets (n, m) of rows that are done."""
        if self.lags:
            self.history = np.concatenate([self.history, y])[-self.lags :]

    def as_dict(self) -> dict[str, Any]:
        """The targets that later rows need, for the checkpoint."""
        known = np.isfinite(self.history)
        return {
            "history": [
                [float(value) if there else None for value, there in zip(row, ok, strict=True)]
                for row, ok in zip(self.history, known, strict=True)
            ]
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Undo :meth:`as_dict`."""
        self.history = np.array(saved["history"], np.float64).reshape(self.history.shape)

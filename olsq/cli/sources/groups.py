"""The column of labels that assign rows to regressions."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray


class GroupColumn:
    """Numbers labels in the order in which they appear in the table.

    Labels are text, also those of a column of numbers, so that one table's are found again in
    another's.

    Parameters
    ----------
    name : str
        Of the column.
    missing : list of str
        Cells without a value.
    """

    def __init__(self, name: str, missing: list[str]) -> None:
        self.name = name
        self._missing = [*missing, "NaN"]
        self._numbers: dict[str | None, int] = {None: -1}
        self._labels = np.empty(0, object)

    def codes(self, cells: pl.Series) -> NDArray[np.int64]:
        """Return the number (n,) of every cell's label, -1 where it is missing."""
        text = cells.cast(pl.String).str.strip_chars()
        labels = text.set(text.is_in(self._missing).fill_null(False), None).to_list()
        for label in dict.fromkeys(labels):
            self._numbers.setdefault(label, len(self._numbers) - 1)
        return np.fromiter(map(self._numbers.__getitem__, labels), np.int64, len(labels))

    @property
    def labels(self) -> list[str]:
        """All labels so far, in order of their numbers."""
        return [label for label in self._numbers if label is not None]

    def of(self, codes: NDArray) -> NDArray[np.object_]:
        """Return the labels (n,) of some numbers, None for -1."""
        if len(self._labels) != len(self._numbers):
            self._labels = np.array([*self.labels, None], object)
        return self._labels[codes.astype(np.int64)]

    def series(self, codes: NDArray) -> pl.Series:
        """Return labels as a column for output."""
        return pl.Series(self.name, self.of(codes).tolist(), dtype=pl.String)

    def as_dict(self) -> dict[str, Any]:
        """Return all labels for the checkpoint."""
        return {"labels": self.labels}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the labels saved by :meth:`as_dict`."""
        self._numbers = {None: -1} | {label: i for i, label in enumerate(saved["labels"])}

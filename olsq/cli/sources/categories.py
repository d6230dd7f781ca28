"""Levels of categorical columns, fixed for good by the user or by the first chunk.

A stream cannot be asked for all its levels beforehand, and coefficients cannot be added to a
regression that has begun.  So levels that turn up later share one more level, ``other``, unless
the user listed all there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olsq.cli.errors import InputError

MOST_LEVELS = 200  # of a column taken from the data; more are probably numbers or identifiers
REST = "*"  # in a list of levels: whatever is not in it
OTHER = "other"


class Categories:
    """The categorical columns of a table and their levels.

    Parameters
    ----------
    wanted : dict
        Levels by column; None takes those of the first chunk.
    missing : list of str
        Cells without a value.
    """

    def __init__(self, wanted: dict[str, tuple[str, ...] | None], missing: list[str]) -> None:
        self.names = list(wanted)
        self._missing = missing
        self.levels: dict[str, list[str]] = {}
        self.open: dict[str, bool] = {}  # whether a level that is not listed is OTHER
        for name, levels in wanted.items():
            if levels is not None:
                self.levels[name] = [level for level in levels if level != REST]
                self.open[name] = REST in levels

    @property
    def settled(self) -> bool:
        """True if the levels of all columns are known."""
        return len(self.levels) == len(self.names)

    def settle(self, name: str, cells: pl.Series) -> None:
        """Take the levels from ``cells``, in alphabetical order, unless they are known."""
        if name in self.levels:
            return
        found = sorted(self._strip_cells(cells).drop_nulls().unique().to_list())
        if len(found) > MOST_LEVELS:
            raise InputError(
                f"--categorical {name}: the first {len(cells):,} rows hold {len(found):,} levels; "
                f"list the ones that matter: --categorical '{name}={found[0]}|{found[1]}|{REST}'"
            )
        if not found:
            raise InputError(
                f"--categorical {name}: the first {len(cells):,} rows hold no value; list the "
                f"levels: --categorical '{name}=a|b|{REST}'"
            )
        self.levels[name], self.open[name] = found, True

    def codes(self, name: str, cells: pl.Series, first_row: int, where: str) -> NDArray[np.float64]:
        """Return the number of every cell's level; OTHER's is the last plus one, a missing value is
        NaN.
        """
        levels = self.levels[name]
        text = self._strip_cells(cells)
        code = text.replace_strict(
            levels, range(len(levels)), default=len(levels), return_dtype=pl.Float64
        )
        code = (
            code.to_frame("code")
            .select(pl.when(text.is_null()).then(None).otherwise(pl.col("code")))
            .to_series()
        )
        if not self.open[name]:
            unknown = (code == len(levels)).fill_null(False).arg_true()
            if len(unknown):
                row = int(unknown[0])
                raise InputError(
                    f"column {name!r}: row {first_row + row + 1:,} of {where} holds "
                    f"{text[row]!r}, which is not among its levels {', '.join(levels)} "
                    f"(add it, or {REST} for all others)"
                )
        return np.array(code.to_numpy(), np.float64)

    def _strip_cells(self, cells: pl.Series) -> pl.Series:
        text = cells.cast(pl.String).str.strip_chars()
        return text.set(text.is_in(self._missing).fill_null(False), None)

    def dummies(self, name: str, *, intercept: bool) -> list[tuple[int, str]]:
        """Return (code, name) of the 0/1 regressors; with an intercept the first level has none."""
        levels = [*self.levels[name], *([OTHER] if self.open[name] else [])]
        named = [(code, f"{name}={level}") for code, level in enumerate(levels)]
        return named[int(intercept) :]

    def as_dict(self) -> dict[str, Any]:
        """Return all levels for the checkpoint."""
        return {"levels": self.levels, "open": self.open}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore the levels saved by :meth:`as_dict`."""
        self.levels, self.open = dict(saved["levels"]), dict(saved["open"])

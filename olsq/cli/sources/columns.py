"""Which columns are the target, the regressors and the weights, and what is in a cell."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from olsq.cli.errors import InputError

# Cells that mean "no value", besides the empty one and NaN in any spelling Polars reads.
MISSING_WORDS = ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "null", "NULL", "None", "nan", "NAN"]


class Chunk(NamedTuple):
    """Consecutive rows, missing cells as NaN; ``start`` counts the data rows before the first.

    ``X`` (n, d) in C order, ``y`` (n,), ``weight`` (n,) or None.
    """

    start: int
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    weight: NDArray[np.float64] | None

    def part(self, start: int, stop: int) -> Chunk:
        """Rows ``start`` to ``stop`` of this chunk, as views."""
        weight = None if self.weight is None else self.weight[start:stop]
        return Chunk(self.start + start, self.X[start:stop], self.y[start:stop], weight)


class Columns(NamedTuple):
    """The columns a regression uses, by name."""

    target: str
    features: tuple[str, ...]
    weight: str | None

    @property
    def all(self) -> tuple[str, ...]:
        """Regressors, then the target, then the weights if there are any."""
        return (*self.features, self.target, *([self.weight] if self.weight is not None else []))


def choose_columns(
    header: list[str], target: str, features: Sequence[str] | None, weight: str | None
) -> Columns:
    """Check the wanted names against the header; without ``features``, take all other columns.

    Raises
    ------
    InputError
        If a name is not in the header (near names are suggested), is there twice, is asked for
        twice, or no regressor is left.
    """
    if features is None:
        features = [name for name in header if name not in (target, weight)]
    columns = Columns(target, tuple(features), weight)
    for name in columns.all:
        if name not in header:
            raise InputError(f"no column {name!r} in the data; {_suggestion(name, header)}")
        if header.count(name) > 1:
            raise InputError(f"the data have more than one column named {name!r}")
        if columns.all.count(name) > 1:
            raise InputError(f"column {name!r} is used twice (target, features and weight differ)")
    if not columns.features:
        raise InputError(f"no regressors: the data have no column besides {target!r}")
    return columns


def _suggestion(name: str, header: list[str]) -> str:
    by_lower = {candidate.strip().lower(): candidate for candidate in header}
    near = difflib.get_close_matches(name.strip().lower(), by_lower, n=3, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(repr(by_lower[key]) for key in near) + "?"
    shown = ", ".join(map(repr, header[:12])) + (", ..." if len(header) > 12 else "")
    return f"it has {shown}"


def to_chunk(start: int, frame: pl.DataFrame, keys: Sequence[str], columns: Columns) -> Chunk:
    """Arrays from a frame that holds ``columns.all`` under the names ``keys``; null becomes NaN."""
    d = len(columns.features)
    X = np.empty((frame.height, d))
    for j, key in enumerate(keys[:d]):
        X[:, j] = frame[key].to_numpy()
    y = np.array(frame[keys[d]].to_numpy(), np.float64)
    weight = None if columns.weight is None else np.array(frame[keys[d + 1]].to_numpy(), np.float64)
    return Chunk(start, X, y, weight)

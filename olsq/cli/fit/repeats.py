"""Find out whether a table begins with the last rows that a state has learned.

Only hashes of rows are kept, of the values that are used: a table that holds the rows in another
format is found too.
"""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray

from olsq.cli.errors import InputError
from olsq.cli.sources.columns import Chunk
from olsq.cli.sources.source import Source

KEPT_ROWS = 1024
# Rows of a file that are looked through, half a second's at 500,000 a second.
SEARCHED_ROWS = 1 << 18
# Equal rows are no chance if their frequencies among the rows kept make up so many bits: two rows
# of measurements, or sixteen throws of a coin.
CERTAIN_BITS = 16
Hashes = NDArray[np.uint64]


def row_hashes(chunk: Chunk) -> Hashes:
    """Return a hash of each row (n,) of a chunk, the same for all missing values."""
    roles = [part for part in (chunk.weight, chunk.time, chunk.by) if part is not None]
    values = np.column_stack([chunk.X, chunk.y, *roles]).astype(np.float64) + 0.0  # -0 is 0
    bits = np.where(np.isnan(values), np.nan, values).view(np.uint64)
    # the finaliser of MurmurHash3; each column begins elsewhere
    bits = bits + np.arange(1, bits.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(factor)
    return (bits ^ (bits >> np.uint64(33))).sum(axis=1, dtype=np.uint64)


class LastRows:
    """Hashes of the last rows that were learned."""

    def __init__(self, saved: str = "") -> None:
        self.hashes = np.frombuffer(base64.b64decode(saved), "<u8").astype(np.uint64)

    def add(self, chunk: Chunk) -> None:
        """Append the rows of a chunk, of which the last ones are kept."""
        parts = {name: part[-KEPT_ROWS:] for name, part in chunk.arrays().items()}
        last = chunk._replace(**parts)
        self.hashes = np.concatenate([self.hashes, row_hashes(last)])[-KEPT_ROWS:]

    def as_text(self) -> str:
        """Return the hashes as text for the checkpoint."""
        return base64.b64encode(self.hashes.astype("<u8").tobytes()).decode("ascii")


class Repetition:
    """Looks for the last rows that were learned at the beginning of a new table.

    Parameters
    ----------
    learned : array (n,)
        Hashes of the last rows that were learned.
    state, where : str
        What to call the state and the new table in messages.

    Attributes
    ----------
    is_possible : bool
        False once the rows so far, and those to come, cannot be among the ones that are kept.
    """

    def __init__(self, learned: Hashes, state: str, where: str) -> None:
        self._learned, self._state, self._where = learned, state, where
        self._recent = np.empty(0, np.uint64)
        self._rows = 0
        self.is_possible = learned.size > 0

    def check(self, chunk: Chunk) -> None:
        """Raise InputError if the table's rows up to one of this chunk are the last learned."""
        new = row_hashes(chunk)
        learned, size = self._learned, self._learned.size
        recent = np.concatenate([self._recent, new])
        before = recent.size - new.size
        for place in before + np.flatnonzero(new == learned[-1])[::-1]:
            rows = min(place + 1, size)
            same = np.array_equal(recent[place + 1 - rows : place + 1], learned[size - rows :])
            if same and self._is_certain(rows):
                n = self._rows + place - before + 1
                first = f"the first {n:,} rows" if n > 1 else "the first row"
                raise InputError(
                    f"cannot continue: {first} of {self._where} are the last that {self._state} "
                    "has learned: leave them out"
                )
        self._rows += new.size
        self._recent = recent[-size:]
        starts = np.flatnonzero(learned[: max(size - self._rows, 0)] == recent[0])
        self.is_possible = any(
            np.array_equal(learned[start : start + self._rows], recent) for start in starts
        )

    def _is_certain(self, rows: int) -> bool:
        """Test whether equality with the last ``rows`` that were learned cannot be chance."""
        learned = self._learned
        last = learned[learned.size - rows :]
        _, kind, count = np.unique(learned, return_inverse=True, return_counts=True)
        bits = np.log2(learned.size / count)[kind[learned.size - rows :]]
        # A row equal to the one above it says nothing: sensors stand still.
        if bits[0] + bits[1:][last[1:] != last[:-1]].sum() < CERTAIN_BITS:
            return False
        # Nor do rows that come again and again: a day without noise is like the day before.
        last = last[-(learned.size // 2) :]
        windows = np.lib.stride_tricks.sliding_window_view(learned[:-1], last.size)
        return not (windows == last).all(axis=1).any()


def check_file(again: Source, repetition: Repetition) -> None:
    """Raise InputError if the file opened ``again``, to be continued with, repeats rows."""
    for chunk in again.chunks():
        repetition.check(again.table.in_order(chunk))
        if again.rows >= SEARCHED_ROWS:
            return

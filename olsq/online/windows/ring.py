"""The ring that holds a rolling window's rows, and which of them leave."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.rows import Rows
from olsq.online.rows.durations import Duration
from olsq.online.windows.arrays import FILLED, POSITIONS, SLOT

NO_ROWS = np.empty(0, np.int64)  # of rows that leave: the ring is the window
NO_FADES = np.empty(0)  # of rows that have not faded


class Ring:
    """The rows in the window, in the stored precision, and the times of those of a window of time.

    ``place`` = [rows in the window, slot of the next row, whether rows of weight 0 take a place].
    ``paired``: rows are pairs (complex rows, see ``rows/complex_rows.py``), which leave together
    once a whole pair has come in.  Otherwise the second row's residual would be that of a window
    without the oldest pair, and the two real rows would not be one complex row.
    """

    paired: bool
    ring_X: NDArray
    ring_Y: NDArray
    ring_w: NDArray
    ring_fade: NDArray | None
    weights: NDArray
    ring_t: NDArray | None
    place: NDArray
    duration: Duration | None

    @property
    def most_rows(self) -> int:
        """The number of rows that the ring holds after a call, if the window counts rows."""
        return self.ring_w.size - (2 if self.paired else 0)

    @property
    def advances_on_missing(self) -> bool:
        """True if a row that cannot be learned moves the window on."""
        return self.duration is not None or bool(self.place[POSITIONS])

    def rows(self) -> Rows:
        """Return the window's rows, oldest first."""
        order, count = self._order, self.place[FILLED]
        X, Y = self.ring_X[order], self.ring_Y[order]
        return Rows.of(X, Y, np.ones(count), self.weights)

    @property
    def _order(self) -> NDArray[np.int64]:
        """Slots of the window's rows, oldest first."""
        count, slot, _ = self.place
        return (slot - count + np.arange(count)) % self.ring_w.size

    @property
    def times(self) -> NDArray:
        """Times of the window's rows, oldest first."""
        assert self.ring_t is not None
        return self.ring_t[self._order]

    def _count_leaving(self, rows: Rows, times: NDArray | None) -> NDArray[np.int64]:
        """Count the rows that leave with each that comes; empty where the ring is the window.

        Makes slots in a ring of a window of time for all rows that stay.
        """
        if times is None and not self.paired:
            return NO_ROWS
        enters = (rows.weights > 0) | bool(self.place[POSITIONS])
        came = int(self.place[FILLED]) + np.cumsum(enters)
        old = came - self.most_rows if times is None else self._expired(times, enters)
        gone = np.maximum(old, 0)
        if self.paired:  # those that would leave with the first row of a pair leave with the second
            gone[0::2] = np.append(0, gone[1:-1:2])
        emptied = np.where(rows.gates == 0, came - enters, 0)
        gone = np.maximum(gone, np.maximum.accumulate(emptied))
        if times is not None:
            self._make_room(times[enters], int((came - gone).max(initial=0)))
        return np.diff(gone, prepend=0)

    def _expired(self, times: NDArray, enters: NDArray[np.bool_]) -> Any:
        """Count the rows, of the ring and the call, that are too old for each time (n,).

        A row of time s stays until a row comes at s + duration: (t - duration, t].
        """
        assert self.duration is not None
        assert self.ring_t is not None
        since = self.duration.expired(times)
        # Counted piece by piece, so that a row costs no copy of the ring.
        count, slot, _ = self.place
        ring, first = self.ring_t, slot - count
        held = [ring[first:slot]] if first >= 0 else [ring[first:], ring[:slot]]
        pieces = (*held, times[enters])
        return sum(np.searchsorted(piece, since, side="right") for piece in pieces)

    def _make_room(self, entering: NDArray, most: int) -> None:
        """Make slots for ``most`` rows, and write the times of those that enter to their slots."""
        assert self.ring_t is not None
        if most > self.ring_w.size:
            self._grow(2 ** (most - 1).bit_length())
        # The kernels put rows into these slots, and do not look at times.
        kept = entering[-self.ring_t.size :]
        end = self.place[SLOT] + entering.size
        self.ring_t[np.arange(end - kept.size, end) % self.ring_t.size] = kept

    def _grow(self, slots: int) -> None:
        """Replace the ring by a larger one with the same rows."""
        order, count = self._order, int(self.place[FILLED])
        for name in ("ring_X", "ring_Y", "ring_w", "ring_t", "ring_fade"):
            old = getattr(self, name)
            if old is None:
                continue
            new = np.zeros((slots, *old.shape[1:]), old.dtype)
            new[:count] = old[order]
            setattr(self, name, new)
        self.place[SLOT] = count % slots

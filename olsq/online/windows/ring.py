"""The ring that holds a rolling window's rows, and which of them leave."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.rows import Rows
from olsq.online.rows.durations import Duration
from olsq.online.windows.arrays import FILLED, POSITIONS, SLOT

NO_ROWS = np.empty(0, np.int64)  # of rows that leave: the ring is the window


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

    def _count_leaving(self, weights: NDArray, times: NDArray | None) -> NDArray[np.int64]:
        """Count the rows that leave with each that comes; empty where the ring is the window."""
        if times is not None:
            return self._make_room(weights > 0, times)
        return self._pairs_leaving(weights > 0) if self.paired else NO_ROWS

    def _pairs_leaving(self, enters: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count the rows that leave with each that comes, in a window that counts pairs."""
        if self.place[POSITIONS]:
            enters = np.ones(enters.size, np.bool_)
        came = int(self.place[FILLED]) + np.cumsum(enters)[1::2]
        leaving = np.zeros(enters.size, np.int64)
        leaving[1::2] = np.diff(np.maximum(came - self.most_rows, 0), prepend=0)
        return leaving

    def _make_room(self, enters: NDArray[np.bool_], times: NDArray) -> NDArray[np.int64]:
        """Count the rows that leave with each that comes; make slots in the ring for all that stay.

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
        gone: Any = sum(np.searchsorted(piece, since, side="right") for piece in pieces)
        if self.paired:  # those that leave with the first row of a pair leave with the second
            gone[0::2] = np.append(0, gone[1:-1:2])
        most = int((count + np.cumsum(enters) - gone).max(initial=0))
        if most > self.ring_w.size:
            self._grow(2 ** (most - 1).bit_length())
        # The kernels put rows into these slots, and do not look at times.
        kept = times[enters][-self.ring_t.size :]
        end = self.place[SLOT] + np.count_nonzero(enters)
        self.ring_t[np.arange(end - kept.size, end) % self.ring_t.size] = kept
        return np.diff(gone, prepend=0)

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

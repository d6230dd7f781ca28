"""The rolling windows of many groups: their states in one stack, and a ring for each."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from olsq.online.calls.call import Call, prepare
from olsq.online.forms.counting import FAINTEST
from olsq.online.forms.factor.form import FactorForm
from olsq.online.forms.factor.stack import Stack
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.statistics import Turns
from olsq.online.many.in_line import InLine
from olsq.online.many.learning import PARALLEL_FROM, PIECE_ENTRIES
from olsq.online.many.parallel import in_pieces, share
from olsq.online.many.state import FORM_ARRAYS, BankState, Kind
from olsq.online.paths.collector import PathCollector
from olsq.online.windows.arrays import FILLED, POSITIONS, SAMPLES, SCALE, SLOT
from olsq.online.windows.members import count_leaving, keep_times
from olsq.online.windows.ring import NO_FADES, NO_ROWS
from olsq.online.windows.rolling import roll, roll_path
from olsq.online.windows.window import SMALLEST_RING, RollingWindow

RINGS = ("X", "Y", "weights", "times", "fades")  # of a slot each
MEMBERS = ("first", "slots", "faded", "place", "bounds", "squares", "counts", "fading")
OWN = ("place", "bounds", "squares", "counts", "fading")  # as a window has them


class HeldRows(NamedTuple):
    """Rows in the windows of members, oldest first, with what is left of their weights."""

    members: NDArray[np.int64]
    Y: NDArray[np.float64]
    weights: NDArray[np.float64]
    times: NDArray | None


class WindowStack:
    """Windows of one kind, each with the arrays of a :class:`RollingWindow`, members first.

    ``state`` holds their factors.  The rings lie in line: member i has the slots ``first[i]`` to
    ``first[i] + slots[i]`` of X, Y, weights, and, where there are any, times and fades (of members
    that have ``faded``).  One that has to grow moves behind all others.  ``like`` is a window
    before any row.
    """

    def __init__(self, like: RollingWindow, n_targets: int) -> None:
        form, d = like.form, like.ridge.size
        self.like, self.kind = like, Kind(bool(form.intercept), True, form.precision)
        self.state = BankState.start(self.kind, np.empty((0, d)), n_targets)
        self.X, self.Y = np.empty((0, d)), np.empty((0, n_targets))
        self.weights = np.empty(0)
        self.times = None if like.ring_t is None else np.empty(0, like.ring_t.dtype)
        self.fades: NDArray[np.float64] | None = None
        self.used = 0  # slots of the arrays that are some ring's, or were
        for name in MEMBERS:
            setattr(self, name, self._start_of(name, 0))

    first: NDArray[np.int64]
    slots: NDArray[np.int64]
    faded: NDArray[np.bool_]
    place: NDArray[np.int64]
    bounds: NDArray[np.float64]
    squares: NDArray[np.float64]
    counts: NDArray[np.int64]
    fading: NDArray[np.float64]

    def _start_of(self, name: str, n: int) -> NDArray:
        """Return an array of n members before any row, which have no ring yet."""
        m = self.state.n_targets
        shape = {"bounds": (self.like.ridge.size,), "squares": (3, m)}.get(name, ())
        if name in ("place", "counts", "fading"):
            return np.tile(getattr(self.like, name), (n, 1))
        kind = {"first": np.int64, "slots": np.int64, "faded": np.bool_}.get(name, np.float64)
        return np.zeros((n, *shape), kind)

    def __len__(self) -> int:
        return len(self.state)

    @property
    def samples(self) -> NDArray[np.int64]:
        """Number of samples (n,) in each window."""
        return self.counts[:, SAMPLES]

    @property
    def advances_on_missing(self) -> bool:
        return self.like.advances_on_missing

    def copy(self) -> Self:
        other = copy.copy(self)
        other.state = self.state.copy()
        for name in (*RINGS, *MEMBERS):
            array = getattr(self, name)
            setattr(other, name, None if array is None else array.copy())
        return other

    def grown(self, n: int) -> Self:
        """Return a stack of at least n members; few calls make arrays for more."""
        if n <= len(self):
            return self
        more = max(n - len(self), len(self) // 2)
        other, ridge = copy.copy(self), np.tile(self.like.ridge, (more, 1))
        other.state = self.state.joined(BankState.start(self.kind, ridge, self.state.n_targets))
        for name in MEMBERS:
            fresh = self._start_of(name, more)
            setattr(other, name, np.concatenate([getattr(self, name), fresh]))
        return other

    # -- single windows ---------------------------------------------------------------------------

    def window(self, i: int) -> RollingWindow:
        """Return a copy of member i, in a ring that depends on its rows alone."""

        def of_member(array: NDArray, at: Any = i) -> NDArray:
            return array[at].copy()

        state, own = self.state, slice(i, i + 1)
        F, D, *rest = (
            of_member(getattr(state, name), own if name == "held" else i) for name in FORM_ARRAYS
        )
        form = FactorForm(F, D, *rest, intercept=self.kind.intercept, precision=self.kind.precision)
        ring = slice(self.first[i], self.first[i] + self.slots[i])
        fades = None if self.fades is None or not self.faded[i] else of_member(self.fades, ring)
        window = RollingWindow(
            form,
            *(of_member(array, ring) for array in (self.X, self.Y, self.weights)),
            ridge=of_member(state.ridge),
            **{name: of_member(getattr(self, name)) for name in OWN},
            ring_t=None if self.times is None else of_member(self.times, ring),
            ring_fade=fades,
            duration=self.like.duration,
        )
        of_time = self.like.duration is not None
        window._grow(self._ring_size(self.place[i, FILLED]) if of_time else self.like.most_rows)
        return window

    def put(self, i: int, window: RollingWindow) -> None:
        """Replace member i by a window."""
        self.state.set_switch(i, window, 0)  # pyright: ignore[reportArgumentType]
        self.state.ridge[i] = window.ridge
        for name in OWN:
            getattr(self, name)[i] = getattr(window, name)
        count, order = int(window.place[FILLED]), window._order
        if count > self.slots[i]:
            self.place[i, FILLED] = 0  # no row of the old ring moves
            self._enlarge(np.array([i]), np.array([count]))
        self.place[i, :POSITIONS] = count, count % max(self.slots[i], 1)
        ring = slice(self.first[i], self.first[i] + count)
        self.X[ring], self.Y[ring] = window.ring_X[order], window.ring_Y[order]
        self.weights[ring] = window.ring_w[order]
        if self.times is not None:
            self.times[ring] = window.times
        self.faded[i] = window.ring_fade is not None
        if window.ring_fade is not None:
            self._fades()[ring] = window.ring_fade[order]

    # -- rings ------------------------------------------------------------------------------------

    def _fades(self) -> NDArray[np.float64]:
        if self.fades is None:
            self.fades = np.zeros(self.weights.size)
        return self.fades

    def _let_fade(self, members: NDArray[np.int64]) -> None:
        """Give members whose rows begin to fade the products of gates that their rows have seen."""
        new = np.unique(members[~self.faded[members]])
        if new.size:
            rings = _ranges(self.first[new], self.slots[new])
            self._fades()[rings] = self.weights[rings] > 0
            self.faded[new] = True

    def _ring_size(self, counts: Any) -> Any:
        """Return how many slots the rings have that are made for so many rows."""
        slots = np.maximum(
            2 ** np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64), SMALLEST_RING
        )
        return slots if self.like.duration is not None else np.minimum(slots, self.like.most_rows)

    def _enlarge(self, members: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Move the rows of some members, oldest first, to new rings for so many rows or more."""
        slots = self._ring_size(counts)
        total = int(slots.sum())
        if self.used + total > self.weights.size:
            self._close_gaps(total)
        first = self.used + np.cumsum(slots) - slots
        filled = self.place[members, FILLED]
        self._move(self._rows_of(members), _ranges(first, filled))
        self.place[members, SLOT] = filled % slots
        self.first[members], self.slots[members] = first, slots
        self.used += total

    def _rows_of(self, members: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the slots of the rows of some members, oldest first."""
        filled = self.place[members, FILLED]
        of_row = np.repeat(members, filled)
        slot = np.repeat(self.place[members, SLOT] - filled, filled) + _ranges(0 * filled, filled)
        return self.first[of_row] + slot % self.slots[of_row]

    def rows_of(self, members: NDArray[np.int64]) -> HeldRows:
        """Return the rows in the windows of some members."""
        slots, of_row = self._rows_of(members), np.repeat(members, self.place[members, FILLED])
        weights = self.weights[slots]
        if self.fades is not None:
            faded = np.maximum(weights * self.fading[of_row, SCALE], FAINTEST)
            weights = np.where(self.faded[of_row] & (weights > 0), faded, weights)
        times = None if self.times is None else self.times[slots]
        return HeldRows(of_row, self.Y[slots], weights, times)

    def _close_gaps(self, total: int) -> None:
        """Put the rings in line, with room for as many more slots, and spare ones."""
        first = np.cumsum(self.slots) - self.slots
        self.used = int(self.slots.sum())
        members = np.arange(len(self))
        source = self._rows_of(members)
        shift = np.repeat(first - self.first, self.place[:, FILLED])
        self._move(source, source + shift, self.used + total + self.used // 2)
        self.first = first

    def _move(
        self, source: NDArray[np.int64], target: NDArray[np.int64], size: int | None = None
    ) -> None:
        """Copy slots to others, or to those of new arrays of a size."""
        for name in RINGS:
            array = getattr(self, name)
            if array is None:
                continue
            new = array if size is None else np.zeros((size, *array.shape[1:]), array.dtype)
            new[target] = array[source]
            setattr(self, name, new)

    # -- learning ---------------------------------------------------------------------------------

    def learn(
        self,
        call: Call,
        members: NDArray[np.int64],
        order: NDArray[np.int64],
        times: NDArray | None,
        path: PathCollector | None = None,
    ) -> NDArray[np.float64]:
        """Learn rows, each in the window of its member (n,); collect their path if there is one.

        ``order`` (n,) has the rows one member after the other.  Returns the a-priori residuals
        (n, m), NaN in rows that are not learned.
        """
        usable = call.usable
        empty = usable if self.advances_on_missing else None
        if usable is not None and empty is None:
            order = order[usable[order]]
        of_row = members[order]
        begins = np.flatnonzero(np.diff(of_row, prepend=-1))
        ends = np.append(begins[1:], order.size)[: begins.size]
        own, bounds = of_row[begins], np.append(begins, order.size)
        gates, weights = call.gates[order], call.weights[order]
        if empty is not None:
            weights = np.where(empty[order], weights, 0.0)
        leaving = np.zeros(len(call.Y), np.int64)
        own_times = None if times is None else times[order]
        leaving[order] = self._make_room((own, begins, ends), gates, weights, own_times)
        if (gates != 1).any():
            self._let_fade(of_row[gates != 1])
        residual, in_line = np.full(call.Y.shape, np.nan), InLine(own, order, bounds)

        def take(begin: int, end: int) -> None:
            some = in_line.of(begin, end)
            for turns, numbers in some.pieces(max(64, PIECE_ENTRIES // self.state.n_coefs)):
                rows = prepare(call, numbers, empty, self.kind.intercept)
                errors = np.empty(rows.Y.shape)
                if path is None:
                    self._roll(turns, rows, leaving[numbers], errors)
                else:
                    self._roll_path(turns, rows, leaving[numbers], errors, path, numbers)
                residual[numbers] = errors

        if own.size:
            in_pieces(take, share((ends - begins) * self.state.n_coefs**2, PARALLEL_FROM))
        if empty is not None:
            residual[~empty] = np.nan
            if path is not None:
                path.recursive[~empty] = np.nan
                path.in_sample[~empty[: len(path.in_sample)]] = np.nan
        return residual

    def _make_room(
        self, turns: Turns, gates: NDArray, weights: NDArray, times: NDArray | None
    ) -> NDArray[np.int64]:
        """Count the rows that leave with each that comes; make slots for all that stay."""
        duration, n = self.like.duration, len(weights)
        size, expired, held = self.like.most_rows, NO_FADES, NO_FADES
        if duration is not None:
            assert times is not None
            size, expired, held = 0, duration.expired(times), self.times
        entering = (weights > 0) | bool(self.like.place[POSITIONS])
        times, leaving = NO_FADES if times is None else times, np.zeros(n, np.int64)
        rings = self.first, self.slots, self.place, held
        how = entering, gates, size, times, expired
        most = count_leaving(rings, turns, *how, leaving)
        short = most > self.slots[turns[0]]
        if short.any():
            self._enlarge(turns[0][short], most[short])
        if duration is not None:
            rings = self.first, self.slots, self.place, self.times
            keep_times(rings, turns, entering, times)
        return leaving

    @property
    def _stack(self) -> Stack:
        """The windows as their rows are taken; kernels write into the arrays."""
        rings = self.X, self.Y, self.weights, NO_FADES if self.fades is None else self.fades
        windows = self.first, self.slots, self.faded, self.place, self.state.ridge
        windows = *windows, self.bounds, self.squares, self.counts, self.fading
        stack = self.state.stack(self.kind)
        return stack._replace(arrays=(stack.arrays[:5], rings, windows))

    def _roll(
        self, turns: Turns, rows: Rows, leaving: NDArray[np.int64], errors: NDArray[np.float64]
    ) -> None:
        """Take rows into windows, and write their a-priori errors."""
        members, position, ends = turns
        roll(self._stack, (members, position.copy(), ends), rows, leaving, NO_ROWS, errors)

    def _roll_path(
        self,
        turns: Turns,
        rows: Rows,
        leaving: NDArray[np.int64],
        errors: NDArray[np.float64],
        path: PathCollector,
        numbers: slice | NDArray[np.int64],
    ) -> None:
        """Do :func:`_roll`, and add the states after the rows to a path."""
        (n, m), state, kind = rows.Y.shape, self.state, self.kind
        trace = Trace.empty(n, m, state.n_coefs, **path.wants)
        samples, (members, begins, ends) = np.zeros(n, np.int64), turns

        def write(at: NDArray[np.int64], members: NDArray[np.int64]) -> None:
            state.write(trace, at, members, kind)

        taken = rows, leaving, samples, errors
        roll_path(self._stack, (members, begins.copy(), ends), *taken, trace, write)
        path.add(trace, numbers, state.ridge, kind.discounted, rows, turns)
        path.count[numbers] = samples


def _ranges(first: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Concatenate ``first[i], ..., first[i] + counts[i] - 1`` for every i."""
    before = np.cumsum(counts) - counts
    return np.repeat(first - before, counts) + np.arange(counts.sum())

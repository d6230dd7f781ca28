"""The rows of a rolling window and the solution for them.

A window is the last so many rows, or the rows of the last so much time.  In the first the ring has
a slot for each row and one row leaves with each that comes; in the second none or many leave, and
the ring grows (by doubling) to the largest number of rows that the window has held.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms import schema
from olsq.online.forms.counting import FAINTEST
from olsq.online.forms.factor.form import FactorForm
from olsq.online.forms.factor.stack import KeptStack, Stack, alone
from olsq.online.forms.form import SMALL, copied
from olsq.online.forms.limits import DOUBLE
from olsq.online.forms.rows import Rows, Trace
from olsq.online.rows.durations import DATES, Duration
from olsq.online.windows import members
from olsq.online.windows.arrays import DECAY, SAMPLES, SCALE
from olsq.online.windows.ring import NO_FADES, NO_ROWS, Ring
from olsq.online.windows.rolling import roll, roll_path

SMALLEST_RING = 16  # slots of the ring that grows, to begin with


class RollingWindow(Ring):
    """The rows in the window, and the solution for them in float64, as one factor.

    ``ring_fade`` holds the products of the gates that each row has seen, once rows have faded.
    ``span`` is that of a form switch, if a half-life is one of time.  The other arrays are those
    that :mod:`.kernels` describe.
    """

    FIELDS: ClassVar[schema.Fields] = schema.WINDOW | schema.SPAN
    span: NDArray | None = None

    def __init__(
        self,
        form: FactorForm,
        ring_X: NDArray,
        ring_Y: NDArray,
        ring_w: NDArray,
        place: NDArray,
        ridge: NDArray,
        bounds: NDArray | None = None,
        squares: NDArray | None = None,
        counts: NDArray | None = None,
        fading: NDArray | None = None,
        ring_t: NDArray | None = None,
        ring_fade: NDArray | None = None,
        duration: Duration | None = None,
        paired: bool = False,
    ) -> None:
        m, d = ring_Y.shape[1], ridge.size
        self.form, self.ridge, self.paired, self._kept = form, ridge, paired, KeptStack()
        self.ring_X, self.ring_Y, self.ring_w = ring_X, ring_Y, ring_w
        self.ring_t, self.ring_fade, self.duration, self.place = ring_t, ring_fade, duration, place
        self.bounds = np.zeros(d) if bounds is None else bounds
        self.squares = np.zeros((3, m)) if squares is None else squares
        self.counts = np.zeros(2, np.int64) if counts is None else counts
        self.fading = np.ones(2) if fading is None else fading

    @classmethod
    def start(
        cls,
        window: int | Duration,
        ridge: NDArray,
        n_targets: int,
        intercept: bool,
        precision: str = DOUBLE,
        positions: bool = False,
        paired: bool = False,
    ) -> RollingWindow:
        """Make a window before any row; ``window`` counts pairs if rows are ``paired``."""
        d, duration, ring_t = ridge.shape[0], None, None
        if isinstance(window, Duration):
            duration, window = window, SMALLEST_RING
            ring_t = np.zeros(window, np.int64 if duration.kind == DATES else np.float64)
        elif paired:
            window = 2 * (window + 1)  # one pair enters before the oldest leaves
        return cls(
            FactorForm.start(ridge, n_targets, intercept, precision),
            np.zeros((window, d)),
            np.zeros((window, n_targets)),
            np.zeros(window),
            np.array([0, 0, int(positions)]),
            ridge,
            ring_t=ring_t,
            duration=duration,
            paired=paired,
        )

    @property
    def n_samples(self) -> int:
        """Number of samples in the window."""
        return int(self.counts[SAMPLES])

    @property
    def decay(self) -> float:
        """The product of all gates so far."""
        return float(self.fading[DECAY])

    def copy(self) -> RollingWindow:
        return copied(self)

    @property
    def rows_in_place(self) -> int:
        d = self.ridge.size
        if max(self.ring_X.size, d * d) < SMALL:
            return 0
        return d if d * d < SMALL else 1

    def learns_in_steps(self, gate: float) -> bool:
        return self.form.learns_in_steps(gate)

    # -- learning ---------------------------------------------------------------------------------

    @property
    def _in_kernels(self) -> tuple[NDArray, ...]:
        fades = NO_FADES if self.ring_fade is None else self.ring_fade
        ring = self.ring_X, self.ring_Y, self.ring_w, fades, self.place, self.ridge
        return *ring, self.bounds, self.squares, self.counts, self.fading

    def update(
        self, rows: Rows, residual: NDArray, trace: Trace, times: NDArray | None = None
    ) -> NDArray[np.int64] | None:
        """Take rows into the window; ``times`` (n,) if it is one of time.

        Returns the number of samples in the window after each row (n,) if rows fade: the trace
        counts their factors then.
        """
        times = times if self.duration is not None else None
        gates = rows.gates  # of one row without a pass of NumPy, which costs as much as the row
        fades = gates.item() != 1 if gates.size == 1 else (gates != 1).any()
        if fades and self.ring_fade is None:
            self.ring_fade = (self.ring_w > 0).astype(np.float64)
        samples = NO_ROWS if self.ring_fade is None else np.zeros(len(gates), np.int64)
        leaving, turns = self._count_leaving(rows, times), alone(0, gates.size)
        taken = rows, leaving, samples, residual
        try:
            if trace.wanted:
                roll_path(
                    self._stack, turns, *taken, trace, lambda at, _: trace.write(at, self.form)
                )
            else:
                roll(self._stack, turns, *taken)
        except BaseException:  # an interrupt between two steps
            residual[turns[1][0] :] = np.nan
            raise
        return samples if samples.size else None

    @property
    def _stack(self) -> Stack:
        """The window as a stack of one."""
        # Arrays are replaced together: those of slots where the ring grows, F where targets go.
        return self._kept.of((self.form.F, self.ring_X, self.ring_fade), self._as_stack)

    def _as_stack(self) -> Stack:
        form, (X, Y, weights, fades, *own) = self.form, self._in_kernels
        states = tuple(array[None] for array in form.in_kernels)
        places = np.zeros(1, np.int64), np.array([len(weights)]), np.array([fades.size > 0])
        return Stack(
            (states, (X, Y, weights, fades), (*places, *(array[None] for array in own))),
            form.limits.square_root,
            bool(form.intercept),
            lambda _: form.coefficients()[None],
            lambda: form,
        )

    def _make_anew(self) -> None:
        """Solve for the window's rows from nothing."""
        (m, d), stack = (self.ring_Y.shape[1], self.ridge.size), self._stack
        none = np.zeros((0, d)), np.zeros((0, m)), np.zeros(0), np.zeros(0), NO_ROWS, NO_ROWS
        members.rebuild(stack.arrays, alone(0, 0), none, stack.limits)

    # -- saving -----------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray]:
        own = {name: getattr(self, name) for name in self.FIELDS}
        own = {name: array for name, array in own.items() if array is not None}
        return own | {f"form_{name}": array for name, array in self.form.arrays().items()}

    def describe(self) -> dict[str, Any]:
        more = {} if self.duration is None else {"duration": list(self.duration)}
        return self.form.describe() | more | ({"paired": True} if self.paired else {})

    @classmethod
    def restore(cls, description: dict[str, Any], arrays: dict[str, NDArray]) -> RollingWindow:
        duration, arguments = description.get("duration"), dict(description["arguments"])
        duration = None if duration is None else Duration(*duration)
        options: Any = {"duration": duration, "paired": description.get("paired", False)}
        if description["form"] == FactorForm.name:
            form_arrays = {name: arrays["form_" + name] for name in FactorForm.FIELDS}
            form = FactorForm.restore(arguments, form_arrays)
            own = {name: arrays.get(name) for name in schema.WINDOW}
            window = cls(form, **own, **options)  # pyright: ignore[reportArgumentType]
        else:  # a file of another form: the rows say all
            window = cls._from_earlier(description, arrays, options)
        window.span = arrays.get("span")
        return window

    @classmethod
    def _from_earlier(
        cls, description: dict[str, Any], arrays: dict[str, NDArray], options: Any
    ) -> RollingWindow:
        arguments, m = description["arguments"], arrays["ring_Y"].shape[1]
        precision = arguments["precision"][1]
        form = FactorForm.start(arrays["ridge"], m, arguments["intercept"], precision)
        names = "ring_X", "ring_Y", "ring_w", "place", "ridge", "ring_t", "ring_fade"
        window = cls(form, **{name: arrays.get(name) for name in names}, **options)  # pyright: ignore[reportArgumentType]
        window.fading[:] = 1.0, description.get("decay", 1.0)
        window._make_anew()
        return window

    # -- fading -----------------------------------------------------------------------------------

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weights that the window's rows still have, oldest first."""
        weights = self.ring_w[self._order]
        if self.ring_fade is None:
            return weights
        return np.where(weights > 0, np.maximum(weights * self.fading[SCALE], FAINTEST), 0.0)

    @property
    def fades(self) -> NDArray[np.float64]:
        """The products of the gates that the window's rows have seen, oldest first."""
        if self.ring_fade is None:
            return (self.ring_w[self._order] > 0).astype(np.float64)
        return self.ring_fade[self._order] * self.fading[SCALE]

    def log_weight_sum(self) -> float:
        """Return the sum of the logarithms of the sample weights, each times its row's factors."""
        weights, fades = self.weights, self.fades
        seen = (fades > 0) & (weights > 0)
        fades = fades[seen]
        return float(fades @ (np.log(weights[seen]) - np.log(fades)))

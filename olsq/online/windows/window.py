"""The rows of a rolling window and the solution for them.

A window is the last so many rows, or the rows of the last so much time.  In the first the ring has
a slot for each row and one row leaves with each that comes; in the second none or many leave, and
the ring grows (by doubling) to the largest number of rows that the window has held.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from olsq.linalg.numpy.lapack import mirror_upper
from olsq.online.forms import covariance, schema
from olsq.online.forms.covariance import CovarianceForm
from olsq.online.forms.form import SMALL, copied
from olsq.online.forms.form_switch import restore_form
from olsq.online.forms.limits import DOUBLE
from olsq.online.forms.rows import Rows, Trace, clip_to, read_only
from olsq.online.forms.square_root import SquareRootForm
from olsq.online.forms.square_root_kernels import COUNT
from olsq.online.rows.durations import DATES, Duration
from olsq.online.windows import block_kernels as blocks
from olsq.online.windows import dependent, fading, products, silent
from olsq.online.windows import few_row_kernels as few_rows
from olsq.online.windows import row_kernels as kernels
from olsq.online.windows.accuracy import EPS, LARGEST_LOSS, LARGEST_SUM, SUM
from olsq.online.windows.ring import EVERY_ROW, Ring

TOLERATED_ERROR = 1e-10  # bound on P's accumulated relative error at which it is rebuilt
TOLERATED_ROUNDINGS = 4000  # the same for the square-root form, in units of the rounding error
FIRST_ROUNDINGS = 16  # errors of a form made from a factor, in units of rounding times inflation
SMALLEST_RING = 16  # slots of the ring that grows, to begin with
# Number of coefficients from which blocks of four rows that enter and four that leave are used;
# below, single rows are as quick.
BLOCKED_FROM = 32
MOST_SINGLE_ROWS = 1024  # taken one at a time before another attempt at blocks
FEW_TAKEN = 4  # rows after which factors of a window of few rows have paid
FACTORS = tuple(schema.FACTORS)


def is_settled(form: SquareRootForm | CovarianceForm, ridge: NDArray) -> bool:
    """Test whether rows may be added to a form and taken out of it; else it is made anew."""
    if isinstance(form, CovarianceForm):
        return True
    return form.full_rank and not kernels.left_to_ridge(form.R, form.columns, ridge)


class RollingWindow(Ring):
    """The rows in the window, and the solution for them in float64.

    ``form`` is updated and downdated by single rows or by blocks (``block_kernels``, ``products``):
    a covariance form where that is accurate, else a square-root form.  Where coefficients are
    undetermined it is rebuilt from the window's rows.  A window of fewer rows than coefficients
    works with ``factors`` of its rows (``few_row_kernels``); its form is made when it is read.

    Rows that forgetting factors have faded (``fading``) have what is left of their weights in
    ``ring_w``, and in ``ring_fade`` the products of those factors.  ``decay`` is the product of all
    factors so far, and ``span`` that of a form switch, if a half-life is one of time.
    """

    FIELDS: ClassVar[schema.Fields] = schema.WINDOW | schema.SPAN
    ring_fade: NDArray[np.float64] | None = None  # of windows whose rows never faded
    decay = 1.0
    span: NDArray | None = None
    factors: tuple[NDArray, NDArray, NDArray] | None = None
    is_outdated = False  # whether rows have come since the form was made

    def __init__(
        self,
        ring_X: NDArray,
        ring_Y: NDArray,
        ring_w: NDArray,
        place: NDArray,
        monitor: NDArray,
        ridge: NDArray,
        sizes: NDArray,
        form: SquareRootForm | CovarianceForm,
        ring_t: NDArray | None = None,
        duration: Duration | None = None,
        paired: bool = False,
    ) -> None:
        self.paired = paired
        self.ring_X, self.ring_Y, self.ring_w = ring_X, ring_Y, ring_w
        self.ring_t, self.duration = ring_t, duration
        self.place, self.monitor, self.sizes = place, monitor, sizes
        self.ridge, self.latest_form = ridge, form

    @classmethod
    def start(
        cls,
        window: int | Duration,
        ridge: NDArray,
        n_targets: int,
        intercept: bool,
        precision: tuple[str, str] = DOUBLE,
        stored: DTypeLike = np.float64,
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
            np.zeros((window, d), stored),
            np.zeros((window, n_targets), stored),
            np.zeros(window),
            np.array([0, 0, int(positions)]),
            np.zeros(2),
            ridge,
            np.zeros((3, n_targets)),
            SquareRootForm.start(ridge, n_targets, intercept, precision),
            ring_t,
            duration,
            paired,
        )

    @property
    def form(self) -> SquareRootForm | CovarianceForm:
        """The form of the window's rows; ``latest_form`` is the last one made."""
        if self.is_outdated:
            self.rebuild()
        return self.latest_form

    @property
    def has_factors(self) -> bool:
        return self.factors is not None and self.factors[2][0] != few_rows.UNMADE

    @property
    def n_samples(self) -> int:
        """Number of samples in the window."""
        if self.is_outdated and self.has_factors:  # of samples only
            return int(self.place[kernels.FILLED])
        if self.ring_fade is not None:
            return int(np.count_nonzero(self.ring_w[self._order]))
        return int(self.form.tally[COUNT])

    def copy(self) -> RollingWindow:
        return copied(self)

    @property
    def rows_in_place(self) -> int:
        d = self.ridge.size
        if max(self.ring_X.size, d * d) < SMALL:
            return 0
        return d if d * d < SMALL else 1

    def learns_in_steps(self, gate: float) -> bool:
        """Return False: after an interrupt the window is made again from its ring."""
        return False

    def update(
        self, rows: Rows, residual: NDArray, trace: Trace, times: NDArray | None = None
    ) -> NDArray[np.int64] | None:
        """Take rows into the window; ``times`` (n,) if it is one of time.

        Returns the number of samples in the window after each row (n,) if rows fade: the trace
        counts their factors then.
        """
        if self.ring_X.dtype != np.float64:  # what leaves the window must be what entered it
            X, Y = (clip_to(a, self.ring_X.dtype).astype(np.float64) for a in rows[:2])
            rows = rows._replace(X=read_only(X), Y=read_only(Y))
        times = times if self.duration is not None else None
        gates = rows.gates  # of one row without a pass of NumPy, which costs as much as the row
        fades = gates.item() != 1 if gates.size == 1 else (gates != 1).any()
        if fades or self.ring_fade is not None:
            whole, errors = self.copy(), np.empty_like(residual)
            samples = fading.update(whole, rows, errors, trace, times)
            attributes, learned = self.__dict__, whole.__dict__
            residual[:] = errors  # and at once, so that an interrupt finds both or neither
            attributes.update(learned)
            return samples
        slot = self.place[kernels.SLOT]
        try:
            self._take(rows, self._count_leaving(rows.weights, times), residual, trace)
        except BaseException:  # an interrupt between two steps: the ring says which rows are in
            self.is_outdated = True
            if self.place[kernels.SLOT] == slot:
                residual[:] = np.nan
            raise
        return None

    def _grow(self, slots: int) -> None:
        super()._grow(slots)
        self.factors = None

    def _take(
        self, rows: Rows, leaving: NDArray[np.int64], residual: NDArray, trace: Trace
    ) -> None:
        """Take rows into the window, none of which fades."""
        n = rows.X.shape[0]
        exits = np.flatnonzero(leaving) if leaving.size else EVERY_ROW
        window = (
            self.ring_X,
            self.ring_Y,
            self.ring_w,
            self.place,
            self.ridge,
            self.monitor,
            self.sizes,
        )
        incoming = rows.X, rows.Y, rows.weights, leaving
        t, single, retry, wait = 0, blocks.ROWS, 0, products.BLOCK
        few_from, few_wait = 0, 0
        while t < n:
            if t >= few_from and self._works_with_rows(t, n, exits):
                done = self._take_few_rows(window, incoming, t, residual, trace)
                few_wait = 0 if done - t > FEW_TAKEN else min(2 * few_wait + 1, MOST_SINGLE_ROWS)
                few_from = done + few_wait
                if trace.wanted and done > t:
                    trace.write(done - 1, self.form)
                t = done
                continue
            settled = not self.is_outdated and is_settled(self.latest_form, self.ridge)
            if not settled and not self._fills_until(t, n, exits):
                end = silent.take(self, rows, t, leaving, residual, trace)
                if end > t:
                    t = end
                    continue
            form, self.factors = self.form, None
            if isinstance(form, CovarianceForm):
                limits = form.limits.leverage, form.limits.inflation, TOLERATED_ERROR
                state = form.P, form.theta, form.columns, form.tally, form.loss
                stop = self._fills_until(t, n, exits) if self._ring_is_window else 0
                if not stop and self.ridge.size >= BLOCKED_FROM:
                    stop = n
                    if self.ridge.size >= products.PRODUCTS_FROM and not trace.wanted:
                        if t >= retry:
                            end = self._take_blocks(form, rows, t, leaving, residual)
                            wait = products.BLOCK if end > t else min(2 * wait, MOST_SINGLE_ROWS)
                            t, retry = end, end + wait
                            if t == n:
                                break
                        stop = min(n, retry)
                    done = blocks.update_in_blocks(
                        state, window, incoming, (t, stop), limits, residual, trace.arrays
                    )
                    # Where blocks do not serve, more and more single rows before another attempt.
                    single = blocks.ROWS if done > t else min(2 * single, MOST_SINGLE_ROWS)
                    t, stop = done, min(done + single, stop)
                t, answer = kernels.update(
                    state, window, incoming, (t, stop or n), limits, residual, trace.arrays
                )
            elif stop := self._fills_until(t, n, exits):
                t, answer = self._fill(form, rows, t, stop, residual, trace), kernels.DONE
            elif is_settled(form, self.ridge):
                state = form.R, form.z, form.columns, form.tally, form.loss
                t, answer = kernels.update_square_root(
                    state,
                    window,
                    incoming,
                    (t, n),
                    self._tolerated_roundings,
                    residual,
                    trace.arrays,
                )
            elif trace.wanted and not form.full_rank:
                t = dependent.take(self, rows, t, (leaving, exits), residual, trace)
                continue
            else:
                form.update(rows, t, t + 1, residual, trace)
                self._store(rows, t, t + 1, leaving)
                t, answer = t + 1, kernels.REBUILD
            if answer == kernels.REBUILD:
                self.rebuild()
                if trace.wanted:
                    trace.write(t - 1, self.form)

    def _works_with_rows(self, t: int, n: int, exits: NDArray[np.int64]) -> bool:
        """Test whether factors of the window's rows may take the rows from t on."""
        if self.has_factors:
            return True
        # Factors do not pay for one row.  In a stream of such calls they are worth an attempt
        # every time the ring has turned.
        if (n - t == 1 and self.place[kernels.SLOT] != 0) or self.ridge.any():
            return False
        if not 0 < self.place[kernels.FILLED] < self.ridge.size or self._fills_until(t, n, exits):
            return False
        return isinstance(self.form, SquareRootForm) and not self.form.full_rank

    def _take_few_rows(
        self, window: Any, rows: Any, t: int, residual: NDArray, trace: Trace
    ) -> int:
        """Take rows from t on by factors of the window's rows; return the row after them."""
        form: Any = self.latest_form
        if self.factors is None:
            most, s = min(self.ring_w.size, self.ridge.size - 1), self.ridge.size - form.intercept
            age = np.full(1, few_rows.UNMADE)
            self.factors = np.zeros((most, s)), np.zeros((most, most)), age
        self.is_outdated = True  # first: the kernel is not interrupted, what follows it may be
        state = form.R, form.z, form.columns, form.tally, form.loss
        return few_rows.update(
            state, self.factors, window, rows, (t, len(residual)), residual, trace.arrays
        )

    def _take_blocks(
        self, form: CovarianceForm, rows: Rows, t: int, leaving: NDArray, residual: NDArray
    ) -> int:
        """Take rows from t on in blocks, as many as can be; return the row after them."""
        limits = form.limits.leverage, form.limits.inflation, TOLERATED_ERROR
        start = t
        while (turns := products.block_at(self, rows, leaving, t)) is not None:
            end = t + turns.ends.size
            if not products.absorb_block(
                form, self.monitor, self.sizes, turns, limits, residual[t:end]
            ):
                break
            self._store(rows, t, end, leaving)
            t = end
        if t > start:
            mirror_upper(form.P)
        return t

    @property
    def _tolerated_roundings(self) -> float:
        # A rebuild costs as much as a window of rows: no more than one in four windows for it.
        return max(TOLERATED_ROUNDINGS, 8 * self._rows_at_most) * float(np.finfo(np.float64).eps)

    def _fill(
        self, form: SquareRootForm, rows: Rows, t: int, stop: int, residual: NDArray, trace: Trace
    ) -> int:
        """Absorb rows t..stop, none of which leaves, up to the next try at the covariance form."""
        d, count = self.ridge.size, int(self.place[kernels.FILLED])
        # A window of time may grow for long: an attempt for every eighth of it.
        step = max(8, d // 8, 0 if self.duration is None else count // 8)
        attempt = max(d + step, (count // step + 1) * step)
        stop = min(stop, t + attempt - count)
        largest = form.columns[1].copy()
        form.update(rows, t, stop, residual, trace)
        # Of rows that enter only, the last is the largest.
        np.maximum(form.columns[1], largest, out=form.columns[1])
        self._measure(form)
        self._store(rows, t, stop, EVERY_ROW)
        if self.place[kernels.FILLED] == attempt:
            self._adopt(form)
        return stop

    def _measure(self, form: SquareRootForm) -> None:
        """Compute the sums of squared targets of a form to which rows have been added."""
        self.sizes[SUM] = (form.z**2).sum(1) + form.loss
        np.maximum(self.sizes[SUM], self.sizes[LARGEST_SUM], out=self.sizes[LARGEST_SUM])
        np.maximum(form.loss, self.sizes[LARGEST_LOSS], out=self.sizes[LARGEST_LOSS])

    def rebuild(self) -> None:
        """Solve for the window's rows from nothing; covariance form if that is accurate."""
        rows = self.rows()
        n, (m, d) = rows.X.shape[0], (self.ring_Y.shape[1], self.ridge.size)
        latest = self.latest_form
        form = SquareRootForm.start(self.ridge, m, latest.intercept, latest.precision)
        form.update(rows, 0, n, np.empty((n, m)), Trace.none(m, d))
        self._adopt(form)
        self.is_outdated = False
        if self.ring_fade is not None:
            fading.count_faded(self)

    def _adopt(self, form: SquareRootForm) -> None:
        """Take over a square-root form, as a covariance form if that is accurate."""
        # Accurate means: a whole window of rows fits into the tolerated error.
        per_window = 4 * self._rows_at_most * float(np.finfo(np.float64).eps)
        margin = max(16.0, form.limits.inflation * per_window / TOLERATED_ERROR)
        form.columns[1] = form.columns[0]
        self.sizes[:] = 0.0
        self._measure(form)
        inverted = covariance.from_square_root(form, margin)
        self.latest_form, inflation = inverted or form, 1.0
        if inverted is not None:
            inflation = float((np.diagonal(inverted.P) * form.columns[0]).max())
        self.monitor[:] = FIRST_ROUNDINGS * EPS * inflation

    # -- saving -----------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray]:
        own = {name: getattr(self, name) for name in self.FIELDS}
        own = {name: array for name, array in own.items() if array is not None}
        if self.factors is not None and self.has_factors:
            own |= dict(zip(FACTORS, self.factors, strict=True))
        return own | {f"form_{name}": array for name, array in self.form.arrays().items()}

    def describe(self) -> dict[str, Any]:
        more: dict[str, Any] = {}
        if self.duration is not None:
            more["duration"] = list(self.duration)
        if self.ring_fade is not None:
            more["decay"] = self.decay
        return self.form.describe() | more | ({"paired": True} if self.paired else {})

    @classmethod
    def restore(cls, description: dict[str, Any], arrays: dict[str, NDArray]) -> RollingWindow:
        own = {name.removeprefix("form_"): array for name, array in arrays.items()}
        form: Any = restore_form(description, own)
        duration = description.get("duration")
        older = "sizes" not in arrays  # a file of 0.2
        arrays = {"sizes": np.zeros((3, arrays["ring_Y"].shape[1]))} | arrays
        window = cls(
            **{name: arrays[name] for name, field in cls.FIELDS.items() if not field.optional},
            sizes=arrays["sizes"],
            form=form,
            ring_t=arrays.get("ring_t"),
            duration=None if duration is None else Duration(*duration),
            paired=description.get("paired", False),
        )
        window.ring_fade, window.span = arrays.get("ring_fade"), arrays.get("span")
        window.decay = description.get("decay", 1.0)
        if FACTORS[0] in arrays:
            Q, R, age = (arrays[name] for name in FACTORS)
            window.factors = Q, R, age
        if older:
            window._distrust()
        return window

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "form" in state:  # a pickle of 0.2
            self.latest_form = self.__dict__.pop("form")
        if "sizes" not in state:  # a pickle of 0.2
            self._distrust()

    def _distrust(self) -> None:
        """Have the form refined or made anew with the next row."""
        rows = self.rows()
        squares = rows.weights @ rows.Y**2
        self.sizes = np.stack([squares, squares, self.form.loss])
        self.form.columns[1] = self.form.columns[0]
        self.monitor[:] = 1.0

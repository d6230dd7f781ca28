"""A ridge that is not forgotten: the state is that of the rows alone, and the ridge is read in.

``M_t = H_t + Lambda`` with a Lambda that no gate multiplies has no recursion of O(d^2).  So the
factor holds H_t, and whatever is read from it is read from a copy that has absorbed the d rows
``sqrt(ridge_j) e_j`` with targets of 0 too, in d^3 / 3 multiplications.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.online.forms import schema
from olsq.online.forms.counting import absorb_squares, noise_level
from olsq.online.forms.edges import check_spread, check_trace, wants_sandwich
from olsq.online.forms.factor.careful import take_carefully
from olsq.online.forms.factor.counters import is_sound
from olsq.online.forms.factor.edges import check_call, check_state
from olsq.online.forms.factor.form import FactorForm
from olsq.online.forms.factor.kernels import (
    absorb_unit,
    called,
    copy_state,
    inline,
    load_row,
    load_unit,
    subtract_row,
)
from olsq.online.forms.factor.noise import absorb_carefully, find_noise
from olsq.online.forms.factor.path import is_determined, record_row
from olsq.online.forms.form import Form
from olsq.online.forms.rows import Rows, Trace
from olsq.problem import Moments

AT_ONCE = 1 << 28  # multiplications of one call of a kernel, which no Ctrl-C ends


@called
def absorb_ridge(state, ridge, limits):
    """Absorb the observations "coefficient j is 0" with the weights ``ridge`` (d,)."""
    F, D, columns, tally, loss = state
    d, width = F.shape
    w, noise, error = np.empty(width), np.empty(d), np.empty(width - d)
    sound = is_sound(D, columns, limits, tally)
    for j in range(d):
        if ridge[j] == 0:
            continue
        load_unit(w, j)
        if sound:
            absorb_unit(F, D, loss, w, j, ridge[j], error)
        else:
            for k in range(d):
                noise[k] = w[k]
            find_noise(F, D, columns[0], w, 1.0, noise_level(limits, d, tally), noise)
            load_unit(w, j)
            absorb_carefully(F, D, loss, w, 1.0, ridge[j], noise, error)
        columns[0, j] += ridge[j]
        columns[1, j] = columns[0, j]
        sound = sound or is_sound(D, columns, limits, tally)


@called
def read(state, reading, ridge, limits):
    """Fill ``reading``, arrays like those of ``state``, with the state and its ridge (d,)."""
    copy_state(state, reading)
    absorb_ridge(reading, ridge, limits)


@inline
def take_out(F, D, w):
    """Leave of the row w (d + m,) its errors; return its leverage ``x.P x``."""
    leverage = 0.0
    for j in range(D.shape[0]):
        p = w[j]
        leverage += p * p / D[j]
        subtract_row(F, w, j, p, j)
    return leverage


@kernel(strict=True)
def read_state(state, reading, ridge, limits):
    """Check the arguments of :func:`read`, and do it."""
    check_state(state)
    check_state(reading)
    if reading[0].shape != state[0].shape or ridge.shape != state[1].shape:
        raise ValueError("the shapes of states and ridge do not fit together")
    read(state, reading, ridge, limits)


@kernel(strict=True, makes_arrays=True)
def learn(form, fixed, rows, span, limits, intercept, errors, trace):
    """Absorb rows of a span; return the first row left, and how many coefficients were held.

    ``form`` = (state, spread) as in :mod:`.learning`.  ``fixed`` = (reading, ridge (d,)): the
    reading is that of the state before the span, and at the end that after the last row.  The
    function returns where it is singular.  A trace of all states may be None.
    """
    state, spread = form
    check_call(state, rows, span, errors)
    d, m, held, t = state[1].shape[0], state[4].shape[0], 0, span[0]
    X, Y, gates, weights = rows
    check_spread(spread, d, wants_sandwich(trace))
    start = 1 if intercept else 0, np.empty((0, 0)), np.full(2, -1)
    w, theta = np.empty(d + m), np.empty((m, d))
    check_state(fixed[0])
    if fixed[0][0].shape != state[0].shape or fixed[1].shape != (d,):
        raise ValueError("the shapes of reading and ridge do not fit the state")
    check_trace(trace, X.shape[0], d, m)
    wide = 0
    if trace is not None:
        wide = d if trace[1].shape[0] > 0 else 0
    variance, inverse = np.empty(wide), np.empty((wide, wide))
    while t < span[1] and is_determined(fixed[0][1]):
        load_row(w, X, Y, t)
        leverage = take_out(fixed[0][0], fixed[0][1], w)
        _, outcome = take_carefully(state, rows, t, limits, start, True, errors)
        absorb_squares(spread, X, gates, weights, t, t + 1)
        held += outcome
        for q in range(m):
            errors[t, q] = w[d + q]
        read(state, fixed[0], fixed[1], limits)
        if trace is not None:
            # recursive residual: e sqrt(w gamma / (gamma + w x.P x))
            gate, weight = gates[t], weights[t]
            share = weight * gate / (gate + weight * leverage) if weight * gate > 0 else 0.0
            for q in range(m):
                trace[4][t, q] = errors[t, q] * math.sqrt(share)
            if is_determined(fixed[0][1]):
                record_row(fixed[0], spread, t, limits, theta, variance, inverse, trace)
        t += 1
    return t, held


class FixedRidgeForm(Form):
    """The factor of the rows alone, ``data``, and the ridge (d,) that it is read with.

    ``solving`` says whether updates report a-priori residuals.  Counters are the data's, the loss
    is that of the coefficients with the ridge.
    """

    name: ClassVar[str] = "fixed ridge"
    FIELDS: ClassVar[schema.Fields] = schema.FIXED_RIDGE
    ARGUMENTS: ClassVar[tuple[str, ...]] = (*Form.ARGUMENTS, "solving")

    def __init__(self, data: FactorForm, ridge: NDArray[np.float64], solving: bool) -> None:
        self.data, self.ridge, self.solving = data, ridge, solving
        self._reading: FactorForm | None = None  # None where the data have changed since
        shared = data.shared
        self.columns, self.tally, self.held = shared["columns"], shared["tally"], shared["held"]
        self.spread, self.intercept = shared["spread"], shared["intercept"]
        self.precision, self.limits = shared["precision"], data.limits

    @classmethod
    def restore(cls, arguments: dict[str, Any], arrays: dict[str, NDArray]) -> FixedRidgeForm:
        of_data = {name: value for name, value in arguments.items() if name != "solving"}
        return cls(FactorForm.restore(of_data, arrays), arrays["ridge"], arguments["solving"])

    def arrays(self) -> dict[str, NDArray]:
        return self.data.arrays() | {"ridge": self.ridge}

    def keep_targets(self, targets: NDArray[np.int64]) -> None:
        self._reading = None
        self.data.keep_targets(targets)

    # -- learning ---------------------------------------------------------------------------------

    @property
    def reports_residuals(self) -> bool:  # type: ignore[reportIncompatibleVariableOverride]
        return self.solving

    @property
    def in_kernels(self) -> tuple[NDArray, ...]:
        return self.data.in_kernels

    def learns_in_steps(self, gate: float) -> bool:
        return not self.full_rank

    def update(self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace) -> int:
        """Absorb rows start..stop; write their a-priori residuals and the trace.

        Without ``solving`` and a trace residuals are NaN.
        """
        if not (self.solving or trace.wanted):
            self._reading = None
            self.data.update(rows, start, stop, residual, trace)
            residual[start:stop] = np.nan
            return stop
        t, at_once = start, max(1, AT_ONCE // self.ridge.size**3)
        while t < stop:
            reading = self.reading()
            if not reading.full_rank:
                self._take_undetermined(rows, t, residual, trace)
                t += 1
                continue
            span = t, min(stop, t + at_once)
            t = self._learn(rows, span, residual, reading, trace.arrays)
            if trace.wanted and not reading.full_rank:
                trace.write(t - 1, self)
        return stop

    def _learn(
        self,
        rows: Rows,
        span: tuple[int, int],
        residual: NDArray,
        reading: FactorForm,
        trace: tuple[NDArray, ...] | None,
    ) -> int:
        """Learn the rows of a span, and keep the reading up to date."""
        self._reading = None
        t, held = learn(
            (self.data.in_kernels, self.data.spread_in_kernels),
            (reading.in_kernels, self.ridge),
            tuple(rows),
            span,
            self.limits.square_root,
            self.intercept,
            residual,
            trace,
        )
        self._reading = reading
        if held:
            self.held += held
        return t

    def _take_undetermined(self, rows: Rows, t: int, residual: NDArray, trace: Trace) -> None:
        """Learn a row whose residual is that of coefficients of minimum norm."""
        error = rows.Y[t] - self.coefficients() @ rows.X[t]
        with np.errstate(over="ignore", invalid="ignore"):  # beside a ridge of 1e-300
            leverage = self.leverage(rows.X[t : t + 1])[0] if trace.wanted else np.inf
        self._reading, residual[t] = None, error
        self.data.take_known(rows, t, residual)
        if trace.wanted:
            gate, weight = rows.gates[t], rows.weights[t]
            known = weight * gate > 0 and np.isfinite(leverage)
            share = weight * gate / (gate + weight * leverage) if known else 0.0
            trace.write(t, self)
            trace.recursive[t] = error * np.sqrt(share)

    # -- reading ----------------------------------------------------------------------------------

    def reading(self) -> FactorForm:
        """Return the factor of the rows and the ridge."""
        if self._reading is None:
            names = "F", "D", "columns", "tally", "loss"
            own = {name: np.empty_like(getattr(self.data, name)) for name in names}
            reading = replace(self.data, **own)
            limits = self.limits.square_root
            read_state(self.data.in_kernels, reading.in_kernels, self.ridge, limits)
            self._reading = reading
        return self._reading

    @property
    def loss(self) -> NDArray:  # type: ignore[reportIncompatibleVariableOverride]
        return self.reading().loss

    @property
    def full_rank(self) -> bool:
        return self.reading().full_rank

    @property
    def rank(self) -> int:
        return self.reading().rank

    def coefficients(self) -> NDArray[np.float64]:
        return self.reading().coefficients()

    def determined(self) -> NDArray[np.bool_]:
        return self.reading().determined()

    def inverse_diagonal(self) -> NDArray[np.float64]:
        return self.reading().inverse_diagonal()

    def sandwich(self) -> tuple[NDArray[np.float64], Any]:
        return self.reading().sandwich()

    def rounding_of_squares(self) -> float:
        return self.reading().rounding_of_squares()

    def explained(self) -> NDArray[np.float64]:
        return self.reading().explained()

    def whitened(self, X: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        return self.reading().whitened(X)

    def unwhitened(self, W: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.reading().unwhitened(W)

    def is_held(self, X: NDArray[np.float64], leverage: NDArray[np.float64]) -> NDArray[np.bool_]:
        return self.reading().is_held(X, leverage)

    def moments(self, ridge: NDArray, discounted: bool) -> Moments:
        """Return gram and cross of the rows alone."""
        return self.data.moments(np.zeros_like(ridge), discounted)

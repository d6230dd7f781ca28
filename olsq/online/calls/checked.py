"""Check an estimator's parameters once for its state.

A call of a few rows would spend more time on its parameters than on its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.calls.call import Origin
from olsq.online.files.frozen import Unchanged
from olsq.online.forms.factor.form import FactorForm
from olsq.online.forms.form_switch import FormSwitch
from olsq.online.forms.rows import PairedRows, Rows, pairs_stay_orthogonal, read_only
from olsq.online.rows.complex_rows import real_parts

DOUBLE = np.dtype(np.float64)
COMPLEX = np.dtype(np.complex128)
ONE, TWO = read_only(np.ones(1)), read_only(np.ones(2))
PER_ROW = (np.ndarray, list, tuple)  # what factors of rows come as
UNUSUAL = (-1, -1)  # a shape that no array has, so that no row takes the fast path


class Place(NamedTuple):
    """Arrays that a single row is written to for its engine.

    The same for every row, as engines copy what they keep.  A complex row goes to ``regressors``
    and ``target``, and from there to ``rows`` as a pair of real ones.
    """

    regressors: NDArray  # (1, d), of the row (1, k), which has a 1 for an intercept before them
    target: NDArray  # (1, m)
    parts: NDArray[np.float64]  # of the row, (1, k) or (1, 2k): real, imaginary, real, ...
    target_parts: NDArray[np.float64]  # of the target, (1, m) or (m, 2)
    rows: Rows  # of weight 1, which read row and target, or a pair made of them
    pair: NDArray[np.float64]  # (2, 2k)
    targets: NDArray[np.float64]  # (2, m)
    flat: tuple[NDArray[np.float64], NDArray[np.float64]]  # parts and target_parts, (k,) and (m,)

    @classmethod
    def of(cls, origin: Origin, dtype: np.dtype, gates: NDArray) -> Place:
        """Make the place of rows of a state."""
        m, first = origin.columns, origin.first
        row, target = np.ones((1, first + origin.n_features), dtype), np.empty((1, m), dtype)
        pair, targets = np.empty((2, 2 * row.size)), np.empty((2, m))
        parts, target_parts, rows = row, target, Rows.of(row, target, gates, ONE)
        if dtype == COMPLEX:
            parts, target_parts = read_only(real_parts(row)), real_parts(target).reshape(m, 2)
            rows = PairedRows.of(pair, targets, gates, TWO)
        flat = parts.reshape(-1), target_parts.reshape(-1)
        return cls(row[:, first:], target, parts, target_parts, rows, pair, targets, flat)


@dataclass(eq=False)
class Checked:
    """Parameters of an estimator that were checked for its state, and what follows for its rows."""

    origin: Origin  # of the state
    timed: bool  # whether its rows have times so far
    unchanged: Unchanged
    noise: NDArray[np.float64]  # known variances (m,), inf where they are estimated
    factor: float | None  # the forgetting factor of every row; None where each call has to ask
    dtype: np.dtype  # of a single row that may take the fast path
    kind: tuple[Any, ...]  # shape and dtype of its X and of its y
    gates: NDArray[np.float64]  # (1,), or (2,) of a pair
    intercept: bool
    unlearned: NDArray[np.float64]  # NaN, the errors (1, m), or (2, m) of a pair, before a row
    by_kernel: bool  # whether a row needs nothing but its kernel

    @cached_property
    def place(self) -> Place:
        """The place of single rows that the engine learns."""
        return Place.of(self.origin, self.dtype, self.gates)


def check_once(estimator: Any, *, keep: bool = True) -> Checked | None:
    """Check the estimator's parameters for its present state; None before the first sample.

    The result is kept with the estimator for the next call, but where ``keep`` is False: reading an
    estimator must not change it.  Raises as ``partial_fit`` does if a parameter is no longer what
    the state was made with.
    """
    origin = estimator.__dict__.get("_origin")
    if origin is None:
        return None
    checked = estimator.__dict__.get("_checked_parameters")
    if checked is not None and checked.unchanged.holds(estimator, origin):
        return checked
    unchanged = Unchanged.of(estimator, origin)  # first: another thread may set parameters now
    estimator._check_frozen()
    estimator._check_parameters()
    checked = checked_now(estimator, unchanged)
    if keep:
        estimator.__dict__["_checked_parameters"] = checked
    return checked


def checked_now(estimator: Any, unchanged: Unchanged) -> Checked:
    """Return what follows for an estimator's rows from parameters that were just checked."""
    origin = estimator._origin
    timed, engine = estimator._timing is not None, estimator._engine
    switch, shape, gates = engine.engine, UNUSUAL, ONE
    form = switch.form
    # Rows after those with times go the general way, also where they count again from here on.
    in_time = timed or estimator._duration(timed) is not None
    factor = None if in_time else _factor_of_rows(estimator)
    if (
        factor is not None
        and estimator.ROW_BY_ROW
        and not engine.parting
        and origin.dtype == DOUBLE
        and form.reports_residuals
    ):
        gates = np.array([factor, 1.0] if origin.is_complex else [factor])
        if not origin.is_complex or pairs_stay_orthogonal(gates):
            shape = (1, origin.n_features)
    plain = type(form) is FactorForm and type(switch) is FormSwitch  # no variant, no window
    by_kernel = plain and not origin.is_complex
    dtype, gates = COMPLEX if origin.is_complex else DOUBLE, read_only(gates)
    target = (1, origin.n_targets) if origin.n_targets else (1,)
    return Checked(
        origin,
        timed,
        unchanged,
        estimator._known_noise(origin),
        factor,
        dtype,
        (shape, dtype, target, dtype),
        gates,
        bool(origin.first),
        np.full((gates.size, origin.columns), np.nan),
        by_kernel,
    )


def _factor_of_rows(estimator: Any) -> float | None:
    """Return the one forgetting factor that every row has; None where there is none.

    None also where it is out of range, which is an error of a call that has none of its own.
    """
    if isinstance(estimator.forget, PER_ROW) or np.ndim(estimator.forget):
        return None
    try:
        return float(estimator._gates(None, 1)[0])
    except (TypeError, ValueError):
        return None

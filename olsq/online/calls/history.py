"""Rows learned before a call: what statistics of its rows need, and values of constant columns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from olsq.online.calls.call import Call, Origin
from olsq.online.forms.adaptive import AdaptiveForm
from olsq.online.forms.form import Form, copied
from olsq.online.paths.goodness import (
    GroupRows,
    RowsInside,
    SumsOfSquares,
    complex_squares_before,
    constant_rows,
    one_number,
    squares_before,
)
from olsq.online.rows.inputs import with_ones
from olsq.online.windows.window import RollingWindow

# Columns of a regression that have had one value in every row are intercepts.  Sums of squares
# cannot tell a column of ones from one of 1 and -1, so the values are kept, one per column: 0 where
# it varied, or is 0; an empty array before the first row.  Of targets that missed different rows
# the columns stand one target after the other, NaN before a target's first row.  None where no
# column qualifies, or nothing is known: the state began from a prior or moments, grew, or was saved
# by olsq 0.2.
Values = NDArray[np.float64] | None


class History(NamedTuple):
    """Rows, or sums over the rows, that an engine learned before a call."""

    # (1, m, 3), see ``fill_sums_of_squares``; (1, 2m, 3) of complex rows.
    before: Callable[[], NDArray[np.float64]]
    values: Values  # of the columns before the call
    X: NDArray[np.float64] | None  # (p, d), the rows of a window; targets (p, m) and so on
    Y: NDArray[np.float64]
    gates: NDArray[np.float64]
    weights: NDArray[np.float64]
    times: NDArray | None

    @classmethod
    def of(cls, engine: Any, origin: Origin, began: bool, values: Values, m: int) -> Self:
        """Read an engine before the call."""
        none, nothing = np.empty(0), np.zeros((1, 2 * m if origin.is_complex else m, 3))
        if not isinstance(engine, RollingWindow):
            before = nothing.copy
            _, coefficients, *_ = engine.form.in_kernels
            if began or coefficients.any():  # of a prior
                before = functools.partial(_squares_before, copied(engine.form), origin, values)
            return cls(before, values, None, np.empty((0, m)), none, none, None)
        rows = engine.rows()
        times = None if engine.ring_t is None else engine.times.copy()
        return cls(nothing.copy, values, rows.X, rows.Y, rows.gates, rows.weights, times)

    def sums_of_squares(self, engine: Any, call: Call, origin: Origin) -> SumsOfSquares | None:
        """Return what computes the sums of squares at the rows of the call, which were learned.

        None where coefficients are forgotten, not rows.  Parts of complex targets are targets.
        """
        windowed = isinstance(engine, RollingWindow)
        if not windowed and (isinstance(engine.form, AdaptiveForm) or call.unit is not None):
            return None
        pair = 2 if origin.is_complex else 1
        n = (len(self.weights) + len(call.weights)) // pair
        Y = _after(self.Y, call.Y.astype(np.float64)).reshape(n, pair * call.Y.shape[1])
        gates = _after(self.gates, one_number(call.factors))[::pair]
        weights = _after(self.weights, one_number(call.weights))[::pair]
        usable = None
        if call.usable is not None:
            usable = np.concatenate([np.ones(len(self.weights), np.bool_), call.usable])[::pair]
            weights = np.where(usable, weights, 0.0)
        times = duration = None
        if windowed and engine.duration is not None:
            assert self.times is not None
            assert call.times is not None
            times, duration = _after(self.times, call.times.copy())[::pair], engine.duration
        length = engine.most_rows // pair if windowed and duration is None else 0
        positions = windowed and engine.advances_on_missing
        if positions:  # every row lets the others fade
            usable = None

        def inside() -> RowsInside:
            rows = RowsInside.of_groups(GroupRows.of_one(n), usable, gates, weights)
            if times is not None and duration is not None:
                oldest = np.searchsorted(times, duration.expired(times), side="right")
                return rows.no_older(rows.order, oldest)
            return rows.last(length, positions) if length else rows

        constant, intercept = None, origin.intercept or origin.complex_intercept
        skip = len(self.weights) // pair
        if not intercept and not origin.is_complex:
            values = np.zeros(call.X.shape[1])
            if self.values is not None:
                values[:] = self.values if self.values.size else np.nan
            rows_of_call = GroupRows.of_one(n - skip)
            constant = skip + constant_rows(rows_of_call, weights[skip:], call.X, values[None])
        how = intercept, skip, origin.is_complex, windowed
        return SumsOfSquares(inside, Y, self.before, constant, *how)

    def regressors(self, call: Call, origin: Origin) -> NDArray[np.float64]:
        """Return the rows of the window before the call and of the call (p + n, k), in float64."""
        # Statistics are computed when they are asked for: the caller may change his rows meanwhile.
        X = with_ones(np.array(call.X, np.float64), origin.intercept)
        return np.ascontiguousarray(X if self.X is None else _after(self.X, X))


def _after(before: NDArray, call: NDArray) -> NDArray:
    return np.concatenate([before, call]) if len(before) else call


def _squares_before(form: Form, origin: Origin, values: Values) -> NDArray[np.float64]:
    """Return (1, m, 3), or (1, 2m, 3), of the form of an estimator."""
    how = form, origin.ridge, origin.discounted
    if origin.is_complex:
        return complex_squares_before(*how, origin.complex_intercept)[None]
    return squares_before(*how, origin.intercept, values)[None]


def kept_values(values: NDArray[np.float64]) -> Values:
    """Return the values that arrays of many streams hold of one, NaN before its first row."""
    if not values.any():
        return None
    return np.empty(0) if np.isnan(values).all() else values.copy()


def put_values(array: NDArray[np.float64], values: Values) -> None:
    """Write the values of one stream to its part of such an array."""
    if values is None or not values.size:
        array[...] = 0.0 if values is None else np.nan
    else:
        array[...] = values.reshape(-1, array.shape[-1])


def values_after_call(values: Values, call: Call) -> Values:
    """Return the values after the rows of a call; skipped rows and those of weight 0 are none."""
    (n, d), usable = call.X.shape, call.usable
    m = call.Y.shape[1]
    if values is None or call.complex_features or values.size not in (0, d, m * d):
        return None
    learned = (call.weights > 0)[:, None]
    if usable is not None:
        learned = learned & usable.reshape(n, -1)
    apart = values.size > d or (learned != learned[:, :1]).any()
    if not apart:
        return _values_after_learned(values, call.X, np.flatnonzero(learned[:, 0]))
    learned = np.broadcast_to(learned, (n, m))
    if values.size <= d:
        values = np.tile(values if values.size else np.full(d, np.nan), m)
    own = [
        _values_after_learned(target, call.X, np.flatnonzero(learned[:, q]))
        for q, target in enumerate(values.reshape(m, d))
    ]
    values = np.concatenate([np.zeros(d) if target is None else target for target in own])
    return values if values.any() else None


def _values_after_learned(values: Values, X: NDArray, learned: NDArray[np.int64]) -> Values:
    # Two rows are enough to dismiss the columns of ordinary data.
    values = values_after_rows(values, X[learned[:2]])
    rest = learned[2:]
    return values if values is None or not rest.size else values_after_rows(values, X[rest])


def values_of_target(values: Values, target: int, d: int) -> Values:
    """Return the values (d,) of one target's rows."""
    if values is None or values.size <= d:
        return values
    own = values.reshape(-1, d)[target]
    return np.empty(0) if np.isnan(own).any() else own if own.any() else None


def values_after_rows(values: Values, X: NDArray) -> Values:
    """Return the values after rows X (n, d) that were learned."""
    if values is None or not len(X):
        return values
    if values.size and len(X) == 1 and not ((values != X) & (values != 0)).any():
        return values  # single rows of a stream
    after = np.full((1, X.shape[1]), np.nan) if not values.size else values[None].copy()
    constant_rows(GroupRows.of_one(len(X)), np.ones(len(X)), X, after)
    return after[0] if after.any() else None


def values_of_both(first: Values, second: Values) -> Values:
    """Return the values of two streams, one after the other."""
    if first is None or second is None:
        return None
    size = max(first.size, second.size)
    first, second = (np.tile(x, size // x.size) if x.size else x for x in (first, second))
    if not (first.size and second.size):
        return first if first.size else second
    unknown = np.isnan(second)  # a target without a row there
    return values_after_rows(first, np.where(unknown, first, second)[None])

"""A fast path for one ordinary row of a NumPy stream.

Learning a row is a microsecond of arithmetic in the covariance form; the general way spends a
hundred on checks that came out the same for the row before.  Here they are made once, for as long
as the parameters and the state are the same; what the row itself can get wrong is checked in the
kernel, or before the engine gets it: windows, variants, complex rows and the other forms learn by
their engine's ``update``.  A row that is unusual in any way is left to the general way, unchanged.

Which way a row goes depends on the row, the parameters and the state alone, not on what was called
before: a state that was saved and loaded goes on with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, is_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.forgetting.base import Forgetting
from olsq.online.calls.history import values_after_rows
from olsq.online.files.frozen import fingerprint, has_fingerprint, is_immutable
from olsq.online.forms import covariance_kernels as kernels
from olsq.online.forms.covariance import CovarianceForm
from olsq.online.forms.covariance_kernels import IN_FORM
from olsq.online.forms.form_switch import FormSwitch
from olsq.online.forms.pair_kernels import embed
from olsq.online.forms.rows import PairedRows, Rows, pairs_stay_orthogonal, read_only
from olsq.online.forms.targets import TargetGroups
from olsq.online.rows.complex_rows import combine_rows, real_parts
from olsq.online.windows.window import RollingWindow
from olsq.problem import LARGEST

DOUBLE = np.dtype(np.float64)
SETTLED = LARGEST[DOUBLE] ** 2  # squares that cannot overflow
NUMBERS = (float, int, np.float64, np.int64)  # of weights: no bool is among them
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


class ShortWay(NamedTuple):
    """Conditions under which rows of an estimator take the fast path, with its state now."""

    engine: TargetGroups
    parameters: Callable[[Any], tuple[Any, ...]]
    values: tuple[Any, ...]
    changing: tuple[tuple[Any, Any], ...]  # those that may change in place, and what they were
    shape: tuple[int, int]  # of a row that may go this way
    target: tuple[int, ...]  # and of its y
    dtype: np.dtype  # and of both
    gates: NDArray[np.float64]  # (1,), or (2,) of a pair
    intercept: bool
    place: Place
    switch: Any  # the engine's FormSwitch or window
    by_kernel: bool  # whether a covariance form's row needs nothing but its kernel


def of(estimator: Any, *, keep: bool = True) -> ShortWay | None:
    """Return the estimator's fast path for its present state; None before the first sample.

    It is kept with the estimator for the next call, but where ``keep`` is False: reading an
    estimator must not change it.  Raises as ``partial_fit`` does if a parameter is no longer what
    the state was made with.
    """
    way = estimator.__dict__.get("_short_way")
    if (
        way is not None
        and way.engine is estimator.__dict__.get("_engine")
        and all(map(is_, way.parameters(estimator), way.values))
        and (not way.changing or all(fingerprint(now) == old for now, old in way.changing))
    ):
        return way
    if "_engine" not in estimator.__dict__:
        return None
    way = _found(estimator)
    if keep:
        estimator.__dict__["_short_way"] = way
    return way


def _found(estimator: Any) -> ShortWay:
    estimator._check_frozen()
    estimator._check_parameters()
    parameters = attrgetter(*estimator._parameter_names())
    values, engine, origin = parameters(estimator), estimator._engine, estimator._origin
    switch, shape, gates = engine.engine, UNUSUAL, ONE
    form = switch.latest_form if isinstance(switch, RollingWindow) else switch.form
    mutable = [value for value in values if not is_immutable(value)]
    mutable = [value for value in mutable if not isinstance(value, Forgetting)]
    if (
        estimator.ROW_BY_ROW
        and not engine.parting
        and origin.dtype == DOUBLE
        and form.precision[0] == DOUBLE.name
        and (not isinstance(switch, RollingWindow) or switch.ring_X.dtype == DOUBLE)
        and estimator._duration(estimator._timing is not None) is None
        and all(map(has_fingerprint, mutable))
        and not isinstance(getattr(estimator, "forget", None), PER_ROW)  # for one call of many rows
        and form.reports_residuals
    ):
        gates = estimator._gates(None, 1)
        if origin.is_complex:
            gates = np.append(gates, ONE)
        if not origin.is_complex or pairs_stay_orthogonal(gates):
            shape = (1, origin.n_features)
    by_kernel = (
        isinstance(switch, FormSwitch)
        and switch.method == "covariance"
        and not (origin.sandwich or origin.is_complex)
    )
    target = (1, origin.n_targets) if origin.n_targets else (1,)
    dtype = COMPLEX if origin.is_complex else DOUBLE
    intercept = origin.intercept or origin.complex_intercept
    return ShortWay(
        engine,
        parameters,
        values,
        tuple((v, fingerprint(v)) for v in mutable),
        shape,
        target,
        dtype,
        read_only(gates),
        intercept,
        _place(origin.n_features, int(intercept), max(origin.n_targets, 1), dtype, gates),
        switch,
        by_kernel,
    )


def _place(d: int, first: int, m: int, dtype: np.dtype, gates: NDArray) -> Place:
    """Make the place of rows of d regressors, after ``first`` columns of 1, and of m targets."""
    row, target = np.ones((1, first + d), dtype), np.empty((1, m), dtype)
    pair, targets = np.empty((2, 2 * row.size)), np.empty((2, m))
    parts, target_parts, rows = row, target, Rows.of(row, target, gates, ONE)
    if dtype == COMPLEX:
        parts, target_parts = read_only(real_parts(row)), real_parts(target).reshape(m, 2)
        rows = PairedRows.of(pair, targets, gates, TWO)
    flat = parts.reshape(-1), target_parts.reshape(-1)
    return Place(row[:, first:], target, parts, target_parts, rows, pair, targets, flat)


def _fits(way: ShortWay, X: Any) -> bool:
    return (
        type(X) is np.ndarray and X.shape == way.shape and X.dtype is way.dtype and X.flags.carray
    )


def learn(
    estimator: Any, X: Any, y: Any, weight: Any = None, *, predicts: bool = True
) -> tuple[Any, NDArray] | None:
    """Learn a row X (1, d), y (1,) or (1, m); return the prediction before and the residual (1, m).

    The prediction is a number, or an array (m,) where the targets are several; it may be anything
    unless ``predicts``.

    None if the row has to go the general way, with nothing changed.
    """
    if type(y) is not np.ndarray:
        return None
    way = of(estimator)
    if way is None or not _fits(way, X) or y.shape != way.target or y.dtype is not way.dtype:
        return None
    weighs = weight is not None or estimator._log_weights is not None
    if weighs and way.dtype is COMPLEX:
        return None
    # A window's form is not read: it may have to be made first.
    form = way.switch.form if way.by_kernel and not weighs else None
    if type(form) is not CovarianceForm:
        return _learn_by_engine(estimator, way, X, y, weight, predicts)
    prediction: Any
    if y.ndim == 1:
        residual = np.empty((1, 1))
        done, prediction = kernels.learn_row(
            form.P,
            form.theta,
            form.columns,
            form.tally,
            form.loss,
            X,
            y.item(),
            way.gates.item(),
            way.intercept,
            SETTLED,
            form.limits.covariance,
            residual,
        )
    elif y.flags.carray:
        residual, prediction = np.empty(y.shape), np.empty(y.shape[1])
        done = kernels.learn_row_of_targets(
            form.in_kernels,
            X,
            y,
            (way.gates.item(), way.intercept, SETTLED),
            form.limits.covariance,
            residual,
            prediction,
        )
    else:
        return None
    if not done:
        return None
    way.switch.clock[IN_FORM] += 1
    estimator.n_samples_seen_ += 1
    if estimator._constant_values is not None:
        estimator._constant_values = values_after_rows(estimator._constant_values, X)
    estimator._residual = residual
    return prediction, residual


def _learn_by_engine(
    estimator: Any, way: ShortWay, X: NDArray, y: NDArray, weight: Any, predicts: bool
) -> tuple[Any, NDArray] | None:
    """Learn as :func:`learn` does, by what the engine does with any call's rows."""
    is_complex = way.dtype is COMPLEX
    if weight is not None and not (type(weight) in NUMBERS and 0 < weight <= SETTLED):
        return None
    place, rows = way.place, way.place.rows
    place.regressors[:], place.target[:] = X, y
    most = SETTLED if weight is None else SETTLED / max(weight, 1.0)
    row, target = place.flat
    # Sums of squares are not finite, or too large, if one of the numbers is.
    if not (row.dot(row) <= most and target.dot(target) <= most):
        return None
    if not estimator._has_estimate() or (
        is_complex and way.switch.form.name != CovarianceForm.name
    ):
        return None
    if is_complex:
        embed(place.parts, place.pair)
        place.targets[:] = place.target_parts.T
    elif weight is not None:
        rows = rows._replace(weights=read_only(np.array((weight,), np.float64)))
    learned = estimator._learn_row(rows, predicts=predicts and not is_complex)
    if learned is None:
        return None
    if weight is not None or estimator._log_weights is not None:
        estimator._log_weights = estimator._log_weights_after_row(way.gates.item(0), weight)
    prediction: Any = learned[0]
    residual: Any = learned[1]
    if is_complex:
        residual = combine_rows(residual)
        prediction = place.target - residual if predicts else None
    estimator.n_samples_seen_ += 1
    if estimator._constant_values is not None:
        estimator._constant_values = values_after_rows(estimator._constant_values, X)
    estimator._residual = residual if getattr(estimator, "RESIDUALS", True) else None
    if predicts:
        prediction = prediction[0] if y.ndim == 2 else prediction.item()
    return prediction, residual


def predict(estimator: Any, X: Any) -> NDArray | None:
    """Predict a row X (1, d) as (1,) or (1, m); None if it has to take the general path."""
    try:
        way = of(estimator, keep=False)
    except (TypeError, ValueError):  # parameters that no row can be learnt with
        return None
    if way is None or not _fits(way, X) or not way.by_kernel:
        return None
    form = way.switch.form
    if type(form) is not CovarianceForm:
        return None
    out = np.empty((1, form.theta.shape[0]))
    # A row that is not finite is missing, which the parameters say what to do with.
    if not kernels.predict_row(form.theta, X, way.intercept, out):
        return None
    return out if len(way.target) == 2 else out[0]

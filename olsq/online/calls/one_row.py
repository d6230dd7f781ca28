"""A fast path for one ordinary row of a NumPy stream.

Learning a row is a microsecond of arithmetic; the general way spends some
fifty on checking the call and copying the state.  What the row itself can get wrong is checked here
in the kernel, or before the engine gets it: windows, variants, complex rows and the other forms
learn by their engine's ``update``.  A row that is unusual in any way is left to the general way,
unchanged.

Which way a row goes depends on the row, the parameters and the state alone, not on what was called
before: a state that was saved and loaded goes on with the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from olsq.online.calls.checked import COMPLEX, DOUBLE, Checked, check_once
from olsq.online.calls.history import values_after_rows
from olsq.online.forms.factor import one_row as kernels
from olsq.online.forms.factor.form import FactorForm
from olsq.online.forms.pair_kernels import embed
from olsq.online.forms.rows import read_only
from olsq.online.rows.complex_rows import combine_rows
from olsq.problem import LARGEST

SETTLED = LARGEST[DOUBLE] ** 2  # squares that cannot overflow
NUMBERS = (float, int, np.float64, np.int64)  # of weights: no bool is among them


def learn(
    estimator: Any, X: Any, y: Any, weight: Any = None, *, predicts: bool = True
) -> tuple[Any, NDArray] | None:
    """Learn a row X (1, d), y (1,) or (1, m); return the prediction before and the residual (1, m).

    The prediction is a number, or an array (m,) where the targets are several; it may be anything
    unless ``predicts``.

    None if the row has to go the general way, with nothing changed.  After an interrupt the row is
    learned with all that counts it, or not at all.
    """
    if type(X) is not ndarray or type(y) is not ndarray or not X.flags.carray:
        return None
    # As check_once begins, without the call of it, which a single row would notice.
    checked = estimator.__dict__.get("_checked_parameters")
    if checked is None or not checked.unchanged.holds(estimator, estimator._origin):
        checked = check_once(estimator)
    if checked is None or (X.shape, X.dtype, y.shape, y.dtype) != checked.kind:
        return None
    engine: Any = estimator._engine.groups[0].engine
    form, logs, values = None, estimator._log_weights, estimator._constant_values
    if weight is not None or logs is not None:
        usual = weight is None or (type(weight) in NUMBERS and 0 < weight <= SETTLED)
        if not usual or checked.dtype is COMPLEX:
            return None
        logs = estimator._log_weights_after_row(checked.gates.item(0), weight)
    if checked.by_kernel and type(engine.form) is FactorForm:
        form = engine.form
    if values is not None:
        values = values_after_rows(values, X)
    errors, count = checked.unlearned.copy(), estimator.n_samples_seen_ + 1
    try:
        if form is not None:
            learned = _learn_by_kernel(form, checked, X, y, weight, errors)
        else:
            learned = _learn_by_engine(estimator, checked, X, y, weight, errors, predicts)
        if learned is None:
            return None
        _count(estimator, count, values, logs, learned[1])
    except BaseException:
        # An interrupt comes between two steps of Python, not within the kernel that writes errors.
        if not np.isnan(errors).any():
            residual = combine_rows(errors) if checked.dtype is COMPLEX else errors
            _count(estimator, count, values, logs, residual)
        raise
    return learned


def _count(estimator: Any, count: int, values: Any, logs: Any, residual: NDArray) -> None:
    """Count a row that was learned."""
    estimator.n_samples_seen_, estimator._constant_values = count, values
    estimator._log_weights = logs
    estimator._residual = residual if estimator.RESIDUALS else None


def _learn_by_kernel(
    form: FactorForm, checked: Checked, X: NDArray, y: NDArray, weight: Any, errors: NDArray
) -> tuple[Any, NDArray] | None:
    """Learn a row by one kernel; ``errors`` (1, m) receives the residual."""
    if not y.flags.carray:
        return None
    prediction, weight = np.empty(form.loss.shape[0]), 1.0 if weight is None else float(weight)
    done = kernels.learn_one(
        (form.in_kernels, form.spread_in_kernels),
        X,
        y,
        (checked.factor, weight, checked.intercept, SETTLED / max(weight, 1.0)),
        form.limits.square_root,
        errors,
        prediction,
    )
    if not done:
        return None
    return (prediction.item() if y.ndim == 1 else prediction), errors


def _learn_by_engine(
    estimator: Any,
    checked: Checked,
    X: NDArray,
    y: NDArray,
    weight: Any,
    errors: NDArray,
    predicts: bool,
) -> tuple[Any, NDArray] | None:
    """Learn a row by what the engine does with any call's rows, which fills ``errors``."""
    is_complex = checked.dtype is COMPLEX
    place, rows = checked.place, checked.place.rows
    place.regressors[:], place.target[:] = X, y
    most = SETTLED if weight is None else SETTLED / max(weight, 1.0)
    row, target = place.flat
    # Sums of squares are not finite, or too large, if one of the numbers is.
    if not (row.dot(row) <= most and target.dot(target) <= most):
        return None
    if not estimator._has_estimate() or (is_complex and not estimator._engine.form.full_rank):
        return None
    if is_complex:
        embed(place.parts, place.pair)
        place.targets[:] = place.target_parts.T
    elif weight is not None:
        rows = rows._replace(weights=read_only(np.array((weight,), np.float64)))
    learned = estimator._learn_row(rows, errors, predicts=predicts and not is_complex)
    if learned is None:
        return None
    prediction: Any = learned[0]
    residual: Any = learned[1]
    if is_complex:
        residual = combine_rows(residual)
        prediction = place.target - residual if predicts else None
    if predicts:
        prediction = prediction[0] if y.ndim == 2 else prediction.item()
    return prediction, residual


def predict(estimator: Any, X: Any) -> NDArray | None:
    """Predict a row X (1, d) as (1,) or (1, m); None if it has to take the general path."""
    try:
        checked = check_once(estimator, keep=False)
    except (TypeError, ValueError):  # parameters that no row can be learned with
        return None
    if (
        checked is None
        or not checked.by_kernel
        or type(X) is not ndarray
        or (X.shape, X.dtype) != checked.kind[:2]
        or not X.flags.carray
    ):
        return None
    form = estimator._engine.groups[0].engine.form
    if type(form) is not FactorForm:
        return None
    out = np.empty((1, form.loss.shape[0]))
    # A row that is not finite is missing, which the parameters say what to do with.
    if not kernels.predict_one(form.F, form.D, X, checked.intercept, out):
        return None
    return out if len(checked.kind[2]) == 2 else out[0]

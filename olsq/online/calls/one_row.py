"""A fast path for one ordinary row of a NumPy stream.

Learning a row is a microsecond of arithmetic in the covariance form; the general way spends some
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
from numpy.typing import NDArray

from olsq.online.calls.checked import COMPLEX, DOUBLE, Checked, check_once
from olsq.online.calls.history import values_after_rows
from olsq.online.forms import covariance_kernels as kernels
from olsq.online.forms.covariance import CovarianceForm
from olsq.online.forms.covariance_kernels import IN_FORM
from olsq.online.forms.pair_kernels import embed
from olsq.online.forms.rows import read_only
from olsq.online.rows.complex_rows import combine_rows
from olsq.problem import LARGEST

SETTLED = LARGEST[DOUBLE] ** 2  # squares that cannot overflow
NUMBERS = (float, int, np.float64, np.int64)  # of weights: no bool is among them


def _fits(checked: Checked, X: Any) -> bool:
    return (
        type(X) is np.ndarray
        and X.shape == checked.shape
        and X.dtype is checked.dtype
        and X.flags.carray
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
    checked = check_once(estimator)
    if (
        checked is None
        or not _fits(checked, X)
        or y.shape != checked.target
        or y.dtype is not checked.dtype
    ):
        return None
    switch: Any = estimator._engine.groups[0].engine
    weighs = weight is not None or estimator._log_weights is not None
    if weighs and checked.dtype is COMPLEX:
        return None
    # A window's form is not read: it may have to be made first.
    form = switch.form if checked.by_kernel and not weighs else None
    if type(form) is not CovarianceForm:
        return _learn_by_engine(estimator, checked, X, y, weight, predicts)
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
            checked.gates.item(),
            checked.intercept,
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
            (checked.gates.item(), checked.intercept, SETTLED),
            form.limits.covariance,
            residual,
            prediction,
        )
    else:
        return None
    if not done:
        return None
    switch.clock[IN_FORM] += 1
    estimator.n_samples_seen_ += 1
    if estimator._constant_values is not None:
        estimator._constant_values = values_after_rows(estimator._constant_values, X)
    estimator._residual = residual
    return prediction, residual


def _learn_by_engine(
    estimator: Any, checked: Checked, X: NDArray, y: NDArray, weight: Any, predicts: bool
) -> tuple[Any, NDArray] | None:
    """Learn as :func:`learn` does, by what the engine does with any call's rows."""
    is_complex = checked.dtype is COMPLEX
    if weight is not None and not (type(weight) in NUMBERS and 0 < weight <= SETTLED):
        return None
    place, rows = checked.place, checked.place.rows
    place.regressors[:], place.target[:] = X, y
    most = SETTLED if weight is None else SETTLED / max(weight, 1.0)
    row, target = place.flat
    # Sums of squares are not finite, or too large, if one of the numbers is.
    if not (row.dot(row) <= most and target.dot(target) <= most):
        return None
    if not estimator._has_estimate() or (
        is_complex and estimator._engine.form.name != CovarianceForm.name
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
        estimator._log_weights = estimator._log_weights_after_row(checked.gates.item(0), weight)
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
        checked = check_once(estimator, keep=False)
    except (TypeError, ValueError):  # parameters that no row can be learnt with
        return None
    if checked is None or not _fits(checked, X) or not checked.by_kernel:
        return None
    form = estimator._engine.groups[0].engine.form
    if type(form) is not CovarianceForm:
        return None
    out = np.empty((1, form.theta.shape[0]))
    # A row that is not finite is missing, which the parameters say what to do with.
    if not kernels.predict_row(form.theta, X, checked.intercept, out):
        return None
    return out if len(checked.target) == 2 else out[0]

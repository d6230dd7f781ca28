"""A fast path for one ordinary row of a NumPy stream.

Learning a row is a microsecond of arithmetic in the covariance form; the general way spends ten
on checks that came out the same for the row before.  Here they are made once, for as long as the
parameters and the state are the same objects; what the row itself can get wrong is checked in the
kernel.  A row that is unusual in any way is left to the general way, unchanged.

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
from olsq.online.files.frozen import IMMUTABLE
from olsq.online.forms import adaptive_update
from olsq.online.forms import covariance_kernels as kernels
from olsq.online.forms.adaptive import AdaptiveForm
from olsq.online.forms.covariance import CovarianceForm
from olsq.online.forms.form_switch import IN_FORM, FormSwitch
from olsq.online.forms.rows import Trace, read_only
from olsq.online.forms.targets import TargetGroups
from olsq.problem import LARGEST

DOUBLE = np.dtype(np.float64)
SETTLED = LARGEST[DOUBLE] ** 2  # squares that cannot overflow
ONE = read_only(np.ones(1))
UNUSUAL = (-1, -1)  # a shape that no array has, so that no row takes the fast path


class ShortWay(NamedTuple):
    """Conditions under which rows of an estimator take the fast path, with its state now.
    """

    engine: TargetGroups
    parameters: Callable[[Any], tuple[Any, ...]]
    values: tuple[Any, ...]
    shape: tuple[int, int]  # of a row that may go this way
    target: tuple[int, ...]  # and of its y
    gate: float
    intercept: bool
    switch: Any  # the engine's FormSwitch


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
    switch, shape, gate = engine.engine, UNUSUAL, 1.0
    if (
        isinstance(switch, FormSwitch)
        and (switch.method == "covariance" or type(switch.form) is AdaptiveForm)
        and not (engine.parting or origin.sandwich or origin.is_complex)
        and estimator._log_weights is None
        and origin.dtype == DOUBLE
        and estimator._duration(estimator._timing is not None) is None
        # an array may change in place
        and all(type(value) in IMMUTABLE or isinstance(value, Forgetting) for value in values)
    ):
        shape, gate = (1, origin.n_features), float(estimator._gates(None, 1)[0])
    target = (1, origin.n_targets) if origin.n_targets else (1,)
    return ShortWay(engine, parameters, values, shape, target, gate, origin.intercept, switch)


def _fits(way: ShortWay, X: Any) -> bool:
    return (
        type(X) is np.ndarray and X.shape == way.shape and X.dtype is DOUBLE and X.flags.carray
    )  # fmt: skip


def learn(estimator: Any, X: Any, y: Any) -> tuple[Any, NDArray] | None:
    """Learn a row X (1, d), y (1,) or (1, m); return the prediction before and the residual (1, m).

    The prediction is a number, or an array (m,) where the targets are several.

    None if the row has to go the general way, with nothing changed.
    """
    if not (type(y) is np.ndarray and y.dtype is DOUBLE):
        return None
    way = of(estimator)
    if way is None or not _fits(way, X) or y.shape != way.target:
        return None
    form = way.switch.form
    if type(form) is AdaptiveForm:
        return _learn_adaptively(estimator, form, X, y, way.intercept)
    if type(form) is not CovarianceForm:
        return None
    prediction: Any
    if y.ndim == 1:
        residual = np.empty((1, 1))
        done, prediction = kernels.learn_row(
            form.P, form.theta, form.columns, form.tally, form.loss, X, y.item(), way.gate,
            way.intercept, SETTLED, form.limits.covariance, residual,
        )  # fmt: skip
    elif y.flags.carray:
        residual, prediction = np.empty(y.shape), np.empty(y.shape[1])
        done = kernels.learn_row_of_targets(
            form.P, form.theta, form.columns, form.tally, form.loss, X, y, way.gate,
            way.intercept, SETTLED, form.limits.covariance, residual, prediction,
        )  # fmt: skip
    else:
        return None
    if not done:
        return None
    way.switch.clock[IN_FORM] += 1
    estimator.n_samples_seen_ += 1
    estimator._residual = residual
    return prediction, residual


def _learn_adaptively(
    estimator: Any, form: AdaptiveForm, X: NDArray, y: NDArray, intercept: bool
) -> tuple[Any, NDArray] | None:
    """Learn as :func:`learn` does, for a strategy that keeps a state of its own, by its kernel."""
    if not (np.vdot(X, X) <= SETTLED and np.vdot(y, y) <= SETTLED):
        return None
    if intercept:
        X, given = np.ones((1, X.shape[1] + 1)), X
        X[0, 1:] = given[0]
    X, Y = read_only(X), read_only(np.ascontiguousarray(y.reshape(1, -1)))
    residual = np.empty(Y.shape)
    trace = Trace.none(Y.shape[1], X.shape[1]).arrays
    done, held = adaptive_update.update(
        form.R, form.z, form.columns, form.tally, form.loss, form.memory, form.variances,
        form.aside, *form.strategy, X, Y, ONE, ONE, 0, 1, form.limits.square_root, residual, trace,
    )  # fmt: skip
    if done == 0:
        return None
    form.held += held
    estimator.n_samples_seen_ += 1
    estimator._residual = residual
    return (Y[0] - residual[0] if y.ndim == 2 else y.item() - residual.item()), residual


def predict(estimator: Any, X: Any) -> NDArray | None:
    """Predict a row X (1, d) as (1,) or (1, m); None if it has to take the general path."""
    try:
        way = of(estimator, keep=False)
    except (TypeError, ValueError):  # parameters that no row can be learnt with
        return None
    if way is None or not _fits(way, X):
        return None
    form = way.switch.form
    if type(form) is not CovarianceForm:
        return None
    out = np.empty((1, form.theta.shape[0]))
    # A row that is not finite is missing, which the parameters say what to do with.
    if not kernels.predict_row(form.theta, X, way.intercept, out):
        return None
    return out if len(way.target) == 2 else out[0]

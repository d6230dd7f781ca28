"""Convert estimators to compiled states and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from olsq.compiled import calls
from olsq.compiled.state import HELD, LOG_WEIGHTS, LOSS, SEEN, State, check_state
from olsq.forgetting.base import Forgetting
from olsq.online.estimators.recursive import RecursiveLeastSquares
from olsq.online.forms.factor.form import FactorForm
from olsq.online.forms.form_switch import FormSwitch
from olsq.online.forms.targets import TargetGroups
from olsq.online.rows.complex_rows import refuse_complex
from olsq.online.rows.inputs import not_fitted
from olsq.online.rows.options import check_ridge


def from_estimator(est: RecursiveLeastSquares) -> State:
    """Copy the state of an estimator, to continue in compiled code.

    Parameters
    ----------
    est : RecursiveLeastSquares
        Fitted, or with a ``prior``: one target, ``fit_intercept=False``, a discounted ridge,
        float64.  Its forgetting factor is not part of the state: give it to :func:`update`.

    Returns
    -------
    State
        Of one filter, with memory of its own.

    Raises
    ------
    TypeError
        For another kind of object.
    ValueError
        For what a compiled state cannot hold: several targets, an intercept, a fixed ridge, a
        strategy of forgetting, a half-life in time, ``cov="sandwich"``, float32.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> from olsq import compiled
    >>> X, y = np.eye(2), np.array([1.0, 2.0])
    >>> est = olsq.RecursiveLeastSquares(fit_intercept=False, ridge=1.0).fit(X, y)
    >>> compiled.coef(compiled.from_estimator(est))
    array([0.5, 1. ])
    """
    if not isinstance(est, RecursiveLeastSquares):
        raise TypeError(
            f"est must be an olsq.RecursiveLeastSquares, got {type(est).__name__}: the state of "
            "others has no compiled form"
        )
    with est._locked():
        fitted = est if hasattr(est, "_engine") else est._before_first_row()
        if fitted is None:
            raise not_fitted(est)
        fitted._check_frozen()
        _refuse_estimator(fitted)
        origin, switch = fitted._origin, fitted._engine.engine
        assert isinstance(switch, FormSwitch)
        form: Any = switch.form
        d = origin.n_features
        state = calls.make_one(d, origin.ridge)
        state.factor[:], state.pivots[:] = form.F, form.D
        state.columns[:] = form.columns
        state.totals[:LOSS], state.totals[LOSS] = form.tally, form.loss[0]
        logs = fitted._log_weights
        state.totals[LOG_WEIGHTS] = 0.0 if logs is None else logs[0]
        state.counts[HELD], state.counts[SEEN] = form.held[0], fitted.n_samples_seen_
        return state


def to_estimator(state: State, **parameters: Any) -> RecursiveLeastSquares:
    """Make an estimator that continues from a compiled state.

    Parameters
    ----------
    state : State
        Of one filter; of several choose one with :func:`state_at`.  It is copied.
    **parameters
        Of :class:`olsq.RecursiveLeastSquares`, such as ``forget=0.99``, which the state does not
        hold.  ``ridge`` is the state's.

    Returns
    -------
    RecursiveLeastSquares
        Fitted, with ``fit_intercept=False``: standard errors, intervals, files and merging.
        ``residual_`` is empty.

    Raises
    ------
    TypeError, ValueError
        For what is no state of one filter; for parameters that a compiled state cannot be of
        (``fit_intercept=True``, ``ridge_mode="fixed"``, ``cov="sandwich"``,
        a strategy as ``forget``, a half-life in time, a ``prior`` where
        it started from a ridge, another ``ridge``), and as the constructor.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq import compiled
    >>> state = compiled.init(1, ridge=1.0)
    >>> for y in (1.0, 2.0, 4.0):
    ...     _ = compiled.update(state, np.ones(1), y)
    >>> est = compiled.to_estimator(state, forget=0.99)
    >>> est.coef_, est.n_samples_seen_, round(float(est.coef_stderr_[0]), 3)
    (array([1.75]), 3, 0.795)
    """
    d = check_state(state)
    ridge = state.ridge.copy()
    given: dict[str, Any] = {
        "fit_intercept": False,
        "ridge": float(ridge[0]) if (ridge == ridge[0]).all() else ridge,
    }
    est = RecursiveLeastSquares(**(given | parameters))
    est._check_parameters()
    _refuse_parameters(est)
    if np.ndim(est.forget) == 0:
        est._gates(None, 1)  # refuses what the first row would
    if est.prior is not None and ridge.any():
        raise ValueError("prior: this state started from a ridge, not from a prior")
    if est.prior is None and not np.array_equal(check_ridge(est.ridge, d), ridge):
        raise ValueError(
            f"ridge is {est.ridge!r}, but this state started from ridge={given['ridge']!r}: leave "
            "it out"
        )
    switch = FormSwitch(_build_form(state))
    origin = est._make_origin(d, 0, np.dtype(np.float64), ridge)
    logs = state.totals[LOG_WEIGHTS]
    est._settle(
        origin,
        TargetGroups.together(switch, 1, est.missing == "skip_target"),
        n_samples_seen_=int(state.counts[SEEN]),
        _log_weights=None if logs == 0 else np.array([logs]),
    )
    return est


def _refuse_estimator(est: RecursiveLeastSquares) -> None:
    """Raise ValueError if a compiled state cannot represent a fitted estimator."""
    _refuse_parameters(est)
    refuse_complex(est._origin, "a compiled state", "call est.step in the loop instead")
    if est._origin.n_targets > 1:
        raise ValueError(
            f"est has {est._origin.n_targets} targets, and a compiled state holds one: fit one "
            "estimator for each"
        )
    if est._origin.dtype != np.float64:
        raise ValueError(
            "est has learned float32 rows, and a compiled state is of float64: fit it with "
            "X.astype(np.float64)"
        )


def _refuse_parameters(est: RecursiveLeastSquares) -> None:
    """Raise ValueError for parameters that a compiled state cannot represent."""
    timed = not isinstance(est.forget, Forgetting) and est._forgets_in_time
    for wrong, what in (
        (est.fit_intercept, "fit_intercept=True: use fit_intercept=False and a regressor of ones"),
        (isinstance(est.forget, Forgetting), f"the strategy forget={est.forget!r}: give factors"),
        (timed, f"half_life={est.half_life!r}, a length of time: give each row its factor"),
        (est.ridge_mode == "fixed", "ridge_mode='fixed': use 'discounted'"),
        (est.cov == "sandwich", "cov='sandwich': use 'posterior'"),
    ):
        if wrong:
            raise ValueError(f"a compiled state cannot hold {what}")


def _build_form(state: State) -> FactorForm:
    """Build the form of an estimator from a copy of the state."""
    return FactorForm(
        state.factor.copy(),
        state.pivots.copy(),
        state.columns.copy(),
        state.totals[:LOSS].copy(),
        state.totals[LOSS : LOSS + 1].copy(),
        state.counts[HELD : HELD + 1].copy(),
        np.zeros((0, 0)),
        intercept=False,
    )

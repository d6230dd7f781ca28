"""Add regressors to a fitted estimator, as if they had been 0 in every row so far."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.estimators.recursive import RecursiveLeastSquares
from olsq.online.files import frozen
from olsq.online.forms.adaptive import AdaptiveForm
from olsq.online.forms.counting import DECAY
from olsq.online.forms.factor.fixed_ridge import FixedRidgeForm
from olsq.online.forms.factor.form import FactorForm
from olsq.online.forms.form import Form
from olsq.online.forms.form_switch import FormSwitch
from olsq.online.forms.targets import Group, TargetGroups
from olsq.online.rows.complex_rows import refuse_complex
from olsq.online.rows.options import check_ridge


def with_features(estimator: RecursiveLeastSquares, n_features: int) -> RecursiveLeastSquares:
    """Copy a fitted estimator with new features after the old ones.

    It is the one that had seen them as zeros in every row: their information is what forgetting
    has left of the ridge.  The ridge must be one number, and there can be no prior and no names.
    """
    origin, added = estimator._origin, n_features - estimator.n_features_in_
    refuse_complex(origin, "adding features", "fit a new estimator")
    if added < 0 or np.ndim(estimator.ridge) or estimator.prior is not None:
        raise ValueError(
            "a fitted estimator can gain features but not lose them, and only with a scalar ridge "
            "and without a prior: call fit to start anew"
        )
    if isinstance(form := estimator._engine.form, AdaptiveForm):
        name = type(form.forget).__name__
        raise ValueError(f"features cannot be added under forget={name}(...): use a factor")
    ridge = check_ridge(estimator.ridge, added)
    other = copy.copy(estimator)
    groups = [Group(targets, widened(engine, ridge)) for targets, engine in other._engine.groups]
    whole = origin._replace(
        n_features=n_features,
        ridge=np.concatenate([origin.ridge, ridge]),
        names=None,
        made_with=frozen.snapshot(estimator),
    )
    other._settle(
        whole,
        TargetGroups(groups, other._engine.parting),
        other.metadata_,
        _residual=other._residual,
        n_samples_seen_=other.n_samples_seen_,
        _log_weights=other._log_weights,
        _timing=other._timing,
    )
    return other


def widened(switch: Any, ridge: NDArray[np.float64]) -> FormSwitch:
    """Return the state with coefficients of these ridges (n,) appended, 0 in every row so far."""
    form = switch.form
    if isinstance(form, FixedRidgeForm):
        data = _widened(form.data, np.zeros_like(ridge))
        wide: Any = FixedRidgeForm(data, np.concatenate([form.ridge, ridge]), form.solving)
    else:
        wide = _widened(form, ridge)
    return FormSwitch(wide, switch.span)


def _widened(form: FactorForm, ridge: NDArray[np.float64]) -> FactorForm:
    """Append coefficients of these discounted ridges (n,) to a state."""
    (d, width), n = form.F.shape, ridge.size
    # Wind-up protection would have held a regressor of zeros at this share of its ridge.
    left = max(float(form.tally[DECAY]), form.limits.floor) * ridge
    F = np.eye(d + n, width + n)
    F[:d, :d], F[:d, d + n :] = form.F[:, :d], form.F[:, d:]
    return FactorForm(
        F,
        np.concatenate([form.D, left]),
        loss=form.loss,
        columns=np.hstack([form.columns, [left, ridge]]),
        **_unchanged(form, n),
    )


def _unchanged(form: Form, n: int) -> dict[str, Any]:
    """Return what n more coefficients leave as it is, and the sums of squares for more of them."""
    return {
        "tally": form.tally,
        "held": form.held,
        "intercept": form.intercept,
        "precision": form.precision,
        "spread": _block(form.spread, np.zeros(n)) if form.spread.size else form.spread,
    }


def _block(matrix: NDArray, diagonal: NDArray) -> NDArray:
    """Return ``matrix`` and a diagonal as one block-diagonal matrix."""
    d, n = matrix.shape[0], diagonal.size
    out = np.zeros((d + n, d + n), matrix.dtype)
    out[:d, :d] = matrix
    out[range(d, d + n), range(d, d + n)] = diagonal
    return out

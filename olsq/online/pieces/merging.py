"""Merge two estimators into the one that learned both streams."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, overload

import numpy as np

from olsq.arrays.masked import takes_masked
from olsq.online.calls.history import values_of_both
from olsq.online.estimators.base import StreamingRegressor
from olsq.online.files import frozen
from olsq.online.forms import form_switch, moments, targets
from olsq.online.forms.counting import DECAY
from olsq.online.forms.form_switch import FormSwitch
from olsq.online.many import merging as bank_merging
from olsq.online.many.bank import FilterBank
from olsq.online.many.grouped import GroupedLeastSquares
from olsq.online.many.labels import keys_of_both
from olsq.online.many.rolling_groups import GroupedRollingLeastSquares
from olsq.online.rows.labels import same_label
from olsq.online.rows.options import check_forget
from olsq.online.rows.times import Timing, same_clock, time_shown
from olsq.online.variants.engine import VariantSwitch
from olsq.online.windows import merging as window_merging
from olsq.online.windows.window import RollingWindow
from olsq.problem import AnArray, Moments
from olsq.threads import one_blas_thread

Estimator = TypeVar("Estimator", bound=StreamingRegressor)
Many = TypeVar("Many", FilterBank, GroupedLeastSquares, GroupedRollingLeastSquares)

_NUMPY = (np.ndarray, np.generic, int, float, list, tuple)
_MAY_DIFFER = {
    "forget",
    "half_life",
    "missing",
    "residuals",
    "min_samples",
    "window_of",
    "prior",
}


@overload
def merge(first: Estimator, second: Estimator) -> Estimator: ...
@overload
def merge(first: Many, second: Many) -> Many: ...
@overload
def merge(
    first: Moments[AnArray], second: Moments[AnArray], *, forget: Any = ...
) -> Moments[AnArray]: ...
@takes_masked
@one_blas_thread
def merge(first: Any, second: Any, *, forget: Any = None) -> Any:
    """Return the estimator, or the moments, of first's rows followed by second's.

    Parameters
    ----------
    first, second : estimators or banks of one kind, or Moments
        Estimators: fitted, with the same features, targets, dtype and parameters; forgetting may
        differ, since each state knows how much it forgot.  Of streams with times second must
        begin at or after the last time of first.  Neither is changed.  Filters of a
        :class:`FilterBank` are merged one by one, groups by key.
    forget : number or array, optional
        For Moments only, which do not know it: the product of all gates of the second piece
        (default 1).

    Returns
    -------
    estimator or Moments
        Equal to one estimator over both streams, up to rounding; goes on with second's
        parameters.  Cost O(d^3); for Moments O(d^2), as NumPy arrays if all
        are, else as arrays of JAX in its precision.

    Raises
    ------
    TypeError, ValueError
        If the two do not fit together; the message says why.  An estimator that began from
        moments can be first but not second, since how much it forgot is not known.

    Notes
    -----
    ``H = Z_b H_a + H_b`` and the same for the cross moments, with Z_b the product of second's
    forgetting factors; a discounted ridge is counted once.  Square-root states are merged by
    orthogonal rotations, so that no digits are lost to squaring.  Second's rows carry rounding
    errors of its ridge, some ``1e-15 ridge / (x . x)`` of what they say.  That matters only where
    first has forgotten its own ridge: give second a smaller one there.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.standard_normal((100, 2)), rng.standard_normal(100)
    >>> make = lambda: olsq.RecursiveLeastSquares(forget=0.95)
    >>> both = olsq.merge(make().fit(X[:40], y[:40]), make().fit(X[40:], y[40:]))
    >>> bool(np.allclose(both.coef_, make().fit(X, y).coef_))
    True
    """
    if isinstance(first, Moments) and isinstance(second, Moments):
        forget = 1.0 if forget is None else forget
        if isinstance(forget, (*_NUMPY, str, bytes, complex)):
            forget = check_forget(forget)
        if all(isinstance(a, _NUMPY) for a in (*first, *second, forget)):
            return moments.merge(first, second, forget)
        from olsq.sequence.jax import merge_moments

        return merge_moments(first, second, forget=forget)
    if forget is not None:
        raise ValueError("forget applies to Moments only: leave it out when merging estimators")
    if isinstance(first, FilterBank) and isinstance(second, FilterBank):
        return bank_merging.merge(first, second)
    if isinstance(first, GroupedLeastSquares) and isinstance(second, GroupedLeastSquares):
        return bank_merging.merge_groups(first, second)
    rolling = GroupedRollingLeastSquares
    if isinstance(first, rolling) and isinstance(second, rolling):
        return _merge_rolling_groups(first, second)
    if type(first) is not type(second) or not isinstance(first, StreamingRegressor):
        raise TypeError(
            f"merge needs two estimators of one kind, got {type(first).__name__} and "
            f"{type(second).__name__}"
        )
    first._engine_or_raise()
    second._engine_or_raise()
    first, second = copy.copy(first), copy.copy(second)  # each as it is now
    for estimator in (first, second):
        estimator._check_frozen()
    check_same(first, second)
    result = put_together(first, second, _merged_engines)
    if first.prior is not None:  # whose state has no ridge
        result.prior = first.prior
        result._origin = second._origin._replace(
            ridge=first._origin.ridge, made_with=frozen.snapshot(result)
        )
    return result


def put_together(
    first: Any, second: Any, merge_engines: Callable[[Any, Any, Any, float | None], Any]
) -> Any:
    """Return the estimator of first's rows followed by second's, with second's parameters.

    ``merge_engines`` receives two engines, second's estimator and its half-life in time.
    """
    result = object.__new__(type(second))  # its engine comes last: no copy of second's
    result.__dict__.update(second.__dict__)
    for name in ("_lock", "_checked_parameters"):
        result.__dict__.pop(name, None)
    timing = result._timing = timing_of_both(first, second)
    duration = second._half_life_in_time(timing is not None)
    length = None if duration is None else duration.length
    result._engine = targets.merge(
        first._engine, second._engine, lambda a, b: merge_engines(a, b, result, length)
    )
    result._log_weights = merged_logs(first, second, length)
    result._constant_values = values_of_both(first._constant_values, second._constant_values)
    result.n_samples_seen_ = first.n_samples_seen_ + second.n_samples_seen_
    return result


def _merged_engines(a: Any, b: Any, estimator: Any, half_life: float | None) -> Any:
    if isinstance(a, RollingWindow):
        gate = 1.0 if half_life is None else form_switch.gate_between(a, b, half_life)
        timing = estimator._timing
        return window_merging.merge(a, b, None if timing is None else timing.last, gate)
    merge_states = a.merged if isinstance(a, VariantSwitch) else partial(form_switch.merge, a)
    return merge_states(b, estimator._origin.ridge, half_life)


def _merge_rolling_groups(
    first: GroupedRollingLeastSquares, second: GroupedRollingLeastSquares
) -> GroupedRollingLeastSquares:
    """Return the groups of both: windows of keys of both are merged, those of one are kept."""
    second = copy.copy(second)
    (windows, like), (second_windows, second_like) = first._estimators(), second._estimators()
    for kept in (like, *windows.values()):
        kept.set_params(**{name: getattr(second, name) for name in kept.CHANGEABLE})
    check_same(like, second_like)
    bank_merging.check_names(first, second)
    if hasattr(first, "feature_names_in_"):
        second.feature_names_in_ = first.feature_names_in_
    zoned = same_clock(first._zoned, second._zoned, bank_merging.ZONE_IN_ONE)
    keys = keys_of_both(windows, second_windows)
    for label, other in second_windows.items():
        key = keys[same_label(label)]
        try:
            windows[key] = merge(windows[key], other) if key in windows else other
        except ValueError as error:
            raise type(error)(f"group {key!r}: {error}") from None
    second._settle(windows, second_like, zoned)
    return second


def merged_logs(first: StreamingRegressor, second: StreamingRegressor, length: Any) -> Any:
    """Return the forgotten sums of the log weights of first's rows followed by second's."""
    if first._log_weights is None and second._log_weights is None:
        return None
    decay = second._engine.by_target(lambda form: np.full(form.loss.size, form.tally[DECAY]))
    a: Any
    b: Any
    if length is not None:  # what passed between the two
        for targets, a in first._engine.groups:
            for second_targets, b in second._engine.groups:
                assert isinstance(a, FormSwitch)
                assert isinstance(b, FormSwitch)
                both = np.intersect1d(targets, second_targets)
                decay[both] *= form_switch.gate_between(a, b, length)
    return decay * first._log_weight_sums() + second._log_weight_sums()


def timing_of_both(first: StreamingRegressor, second: StreamingRegressor) -> Timing | None:
    """Return the timing of both streams; ValueError if second's rows do not come after first's."""
    a, b = first._timing, second._timing
    if a is None or b is None:
        timed, other = (first, second) if b is None else (second, first)
        if timed._timing is not None and other.n_samples_seen_ > 0:
            raise ValueError("cannot merge: one of the two has learned rows without times")
        return b if a is None else a
    if a.kind != b.kind:
        raise ValueError(f"cannot merge: the times of one are {a.kind}, of the other {b.kind}")
    zoned = same_clock(a.zoned, b.zoned, bank_merging.ZONE_IN_ONE)
    if b.first < a.last:
        raise ValueError(
            f"cannot merge: second begins at {time_shown(b.kind, b.first, zoned)}, before first "
            f"ends, at {time_shown(a.kind, a.last, zoned)}"
        )
    return Timing(a.kind, a.first, b.last, zoned)


def check_same(first: StreamingRegressor, second: StreamingRegressor) -> None:
    a, b = first.get_params(), second.get_params()
    if b.get("prior") is not None:
        raise ValueError(
            "cannot merge: the second estimator began from a prior, which would count twice; make "
            "it without one"
        )
    for estimator in (first, second):
        if (forget := estimator._strategy) is not None:
            raise ValueError(
                f"cannot merge: what forget={type(forget).__name__}(...) does to a row depends on "
                "the rows before it. Learn the streams one after the other, or use a factor"
            )
    bank_merging.check_parameters(a, b, a.keys() - _MAY_DIFFER - type(first).CHANGEABLE)
    if first._origin.is_complex != second._origin.is_complex:
        raise ValueError("cannot merge: one has learned complex rows, the other real ones")
    labels = {"n_features": "number of features", "dtype": "dtype"}
    bank_merging.check_attributes(first._origin, second._origin, labels)
    if first._engine.parting != second._engine.parting:
        raise ValueError("cannot merge: missing='skip_target' in one of the two only")
    if first._engine.engine.advances_on_missing != second._engine.engine.advances_on_missing:
        raise ValueError("cannot merge: window_of differs")
    if first._origin.n_targets != second._origin.n_targets:
        raise ValueError("cannot merge: the targets' shapes differ")
    bank_merging.check_names(first, second)

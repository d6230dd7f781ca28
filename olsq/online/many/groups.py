"""Coefficient paths of the same regression for every group of rows, all groups at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.reals import real_array
from olsq.forgetting.base import Forgetting
from olsq.forgetting.by_row import ByTime
from olsq.online.calls.call import Call, Origin
from olsq.online.conventions import from_options
from olsq.online.estimators.recursive import RecursiveLeastSquares
from olsq.online.inference.robust import errors_in_window
from olsq.online.many.clocks import LAST_LEARNED, Clocks, gates_of_groups
from olsq.online.many.in_line import BankRows
from olsq.online.many.labels import MISSING, encode, with_groups
from olsq.online.many.learning import learn
from olsq.online.many.paths import finished, open_path
from olsq.online.many.rolling_groups import GroupedRollingLeastSquares
from olsq.online.many.state import BankState, Kind
from olsq.online.paths.arrays import fill_rows, rows_like
from olsq.online.paths.collector import PathPart, joined
from olsq.online.paths.goodness import GroupRows
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows.durations import DATES, NUMBERS, is_duration, is_window_of_time
from olsq.online.rows.frames import Labels, check_same_index
from olsq.online.rows.inputs import no_usable_row
from olsq.online.rows.times import (
    as_values,
    check_times_shape,
    for_display,
    name_of,
    of_frames,
    times_and_zone,
)
from olsq.progress import count_groups

NO_LABEL = "by has no label in any row: no group is left to learn"


def grouped_path(
    alone: Callable[..., CoefficientPath], X: Any, y: Any, by: Any, options: dict[str, Any]
) -> CoefficientPath:
    """Compute ``alone(X, y, **options)`` of every group's rows, in the order of the rows.

    Expanding and exponential regressions go through the kernels of a bank, all groups at once, also
    where half-lives are lengths of time or targets miss rows of their own, and windows through
    those of a stack; a fixed ridge and strategies of forgetting one group after another.
    """
    rows = real_array(X, "X")
    if rows.ndim != 2:
        return alone(X, y, **options)  # which refuses it
    per_row = ("sample_weight", "times", "forget")
    check_same_index(X=X, y=y, by=by, **{name: options.get(name) for name in per_row})
    labels = Labels.of(X, y)._replace(intercept=bool(options["fit_intercept"]))
    options, of_path = _in_time(X, y, rows.shape[0], options)
    labels = labels._replace(**of_path)
    labels = with_groups(labels, by)
    if options["window"] is not None:
        return _in_windows(X, y, by, options).labelled(labels)
    codes, _ = encode(by, rows.shape[0], {})
    lost = codes == MISSING
    if lost.any() and options["missing"] == "raise":
        raise ValueError(
            f"by has no label in row {int(np.argmax(lost))}; such rows read NaN with missing='skip'"
        )
    if lost.all():
        raise ValueError(NO_LABEL)
    order = np.argsort(codes, kind="stable")[int(lost.sum()) :]
    counts = np.bincount(codes[~lost])
    ends = np.cumsum(counts)
    by_group = GroupRows(order, ends - counts, ends)
    estimator = _estimator(options)
    timed = None
    if estimator is not None and options["times"] is not None:
        timed = _in_order(options["times"][order], by_group.begins, estimator)
    if estimator is None or (options["times"] is not None and timed is None):
        return _one_by_one(alone, rows, y, by_group, options).labelled(labels)
    call = estimator._check_call(X, y, options["sample_weight"], None, None)
    if call.nothing_usable:
        raise no_usable_row(call.Y)
    origin = estimator._origin_of(call)
    kind = Kind(
        origin.intercept,
        origin.discounted,
        origin.dtype.name,
    )
    noise = estimator._known_noise(origin)
    targets = [np.arange(origin.columns)]
    if call.usable is not None and call.usable.ndim == 2:  # equal patterns go together
        which = np.unique(call.usable, axis=1, return_inverse=True)[1].ravel()
        targets = [np.flatnonzero(which == i) for i in range(which.max() + 1)]
    parts = []
    for some in targets:
        known_noise = noise[some] if options["statistics"] else None
        parts.append(_learned(call.of(some), origin, kind, by_group, timed, known_noise))
    path = joined(parts, targets, origin.intercept, call.one_target)
    return path.labelled(labels)


def _in_time(
    X: Any, y: Any, n: int, options: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options with the times (n,) of the rows where they count, and times for labels.

    Times go up within every group, not from one group to the next.
    """
    times = options["times"]
    if isinstance(options["forget"], ByTime) and options["window"] is None:
        forgetting = {name: options[name] for name in ("forget", "half_life")}
        RecursiveLeastSquares(**forgetting)._check_parameters()
        options = options | {"half_life": options["forget"].half_life, "forget": 1.0}
        if times is None and not is_duration(options["half_life"]):
            raise ValueError("forget=ByTime(number) needs times=, numbers in its unit")
    half_life, window = options["half_life"], options["window"]
    lengths = is_duration(half_life) or is_window_of_time(window)
    lengths = lengths or (half_life is not None and window is None and times is not None)
    forget = options["forget"]
    lengths = lengths or (isinstance(forget, Forgetting) and forget.length is not None)
    stamps = of_frames(X, y) if times is None and lengths else times
    values, zone = (None, None) if stamps is None else times_and_zone(stamps)
    if values is not None:
        check_times_shape(values, n)
    options = options | {"times": values if lengths else None}
    if times is None or values is None:
        return options, {}
    shown, zone = for_display(values, zone)
    return options, {"times": shown, "time_zone": zone, "time_name": name_of(times)}


def _estimator(options: dict[str, Any]) -> RecursiveLeastSquares | None:
    """Return the estimator that checks these options; None if a bank cannot replace it."""
    if options["window_of"] is not None:  # which needs a window
        return None
    estimator: RecursiveLeastSquares = from_options(RecursiveLeastSquares, options)
    estimator._check_parameters()
    needs_form = estimator._strategy is not None or estimator.ridge_mode == "fixed"
    return None if needs_form else estimator


class Timed(NamedTuple):
    """Times of rows in the order of the groups, and the half-life in their unit."""

    values: NDArray
    half_life: float

    def gates(
        self, n: int, usable: NDArray[np.bool_] | None, by_group: GroupRows
    ) -> NDArray[np.float64]:
        """Compute factors (n,) of the rows within groups, as ``durations.half_life_gates`` does."""
        order = by_group.order
        place = np.arange(order.size)
        learned = place if usable is None else place[usable[order]]
        times = self.values[learned]
        group = by_group.groups[learned]
        before = Clocks.start(DATES if times.dtype.kind == "i" else NUMBERS, by_group.begins.size)
        gates = np.ones(n)  # also of rows without a label, which are in no group
        gates[order[learned]] = gates_of_groups(
            times, group, before.values[:, LAST_LEARNED], self.half_life
        )
        return gates


def _in_order(
    times: NDArray, begins: NDArray[np.int64], estimator: RecursiveLeastSquares
) -> Timed | None:
    """Return the times (n,) of rows group after group; None for those that an estimator refuses."""
    duration = estimator._duration(True)
    if duration is None:
        return None
    steps = np.ones(times.size, np.bool_)
    steps[begins] = False  # from one group to the next
    back = steps[1:] & (times[1:] < times[:-1])
    dates = times.dtype.kind == "M"
    present = ~np.isnat(times) if dates else np.isfinite(real_array(times, "times"))
    if back.any() or not present.all() or dates != (duration.kind == DATES):
        return None
    return Timed(as_values(times), duration.length)


def _learned(
    call: Call,
    origin: Origin,
    kind: Kind,
    by_group: GroupRows,
    timed: Timed | None,
    noise: NDArray | None,
) -> PathPart:
    """Learn rows by group, and return the path of their targets."""
    (N, m), (order, begins, ends) = call.Y.shape, by_group
    if timed is not None:
        call = call._replace(gates=timed.gates(N, call.usable, by_group))
    ridge = np.tile(origin.ridge, (begins.size, 1))
    state = BankState.start(kind, ridge, m, origin.sandwich)
    usable = np.empty(0, np.bool_) if call.usable is None else call.usable
    rows = BankRows(
        np.arange(begins.size),
        begins,
        ends,
        order,
        np.ascontiguousarray(call.X),
        np.ascontiguousarray(call.Y),
        call.gates,
        call.weights,
        usable,
    )
    path = open_path(state, kind, rows, noise)
    residual, constant = learn(state, kind, rows, path)
    if order.size < N:
        unlabelled = np.ones(N, np.bool_)
        unlabelled[order] = False
        residual[unlabelled] = np.nan
    how = np.zeros((begins.size, m, 3)).copy, constant, kind
    return finished(path, rows, residual, *how)


def _in_windows(X: Any, y: Any, by: Any, options: dict[str, Any]) -> CoefficientPath:
    """Compute rolling paths, all groups at once."""
    factors = None
    if np.ndim(options["forget"]) > 0:
        factors, options = options["forget"], options | {"forget": 1.0}
    groups = from_options(GroupedRollingLeastSquares, options)
    robust = errors_in_window(options["cov"], options["maxlags"], options["window"])
    how = options["sample_weight"], by, options["times"], factors
    asked = {"statistics": options["statistics"], "robust": robust}
    path = groups._learn(X, y, *how, want_path=True, **asked)
    assert path is not None
    if not groups.keys():
        raise ValueError(NO_LABEL)
    if np.isnan(path.residual).all():
        raise no_usable_row(real_array(y, "y"))
    return path


def _one_by_one(
    alone: Callable[..., CoefficientPath],
    X: NDArray,
    y: Any,
    by_group: GroupRows,
    options: dict[str, Any],
) -> CoefficientPath:
    """Compute a path of each group by itself; per-row options go with the rows."""
    y, (order, begins, ends) = real_array(y, "y"), by_group
    n = X.shape[0]
    if y.shape[:1] != (n,):
        return alone(X, y, **options)  # which refuses it
    per_row = {
        name: real_array(options[name], name)
        for name in ("forget", "sample_weight")
        if options[name] is not None and np.ndim(options[name]) == 1
    }
    for name, array in per_row.items():
        if array.shape != (n,):
            raise ValueError(
                f"{name} must be a number or one number per row ({n}), got an array "
                f"of shape {array.shape}"
            )
    if options["times"] is not None:
        per_row["times"] = options["times"]
    in_line = order.size == n and bool((order == np.arange(n)).all())
    arrays: list[NDArray] = []
    groups = zip(begins, ends, strict=True)
    for begin, end in count_groups(groups, "paths by group", len(begins)):
        rows = slice(begin, end) if in_line else order[begin:end]
        of_rows = {name: array[rows] for name, array in per_row.items()}
        estimator: Any = from_options(RecursiveLeastSquares, options | of_rows)
        of_call = {name: of_rows.get(name) for name in ("sample_weight", "times")}
        how = {"statistics": options["statistics"]}
        part = estimator.partial_fit_path(X[rows], y[rows], **of_call, **how)
        arrays = arrays or rows_like(part, n)
        fill_rows(arrays, rows, part)
    path = CoefficientPath.of_arrays(arrays)
    if np.isnan(path.residual).all():
        raise no_usable_row(y)
    return path

"""Rolling regressions of many groups of rows in compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.calls.learning import Call, Origin
from olsq.online.many import window_kernels
from olsq.online.many.learning import PARALLEL_FROM, BankPath, BankRows, learn
from olsq.online.many.parallel import in_pieces, share
from olsq.online.many.paths import carry, path_of
from olsq.online.many.state import BankState, Kind
from olsq.online.paths.path import CoefficientPath
from olsq.online.windows.window import BLOCKED_FROM, TOLERATED_ERROR

LONGEST = 4096  # rows of a group from which one estimator costs little, and rebuilds are likely


def can_roll_together(call: Call, origin: Origin, options: dict[str, Any]) -> bool:
    """Test whether :func:`roll_together` takes these rows: windows of so many rows, in float64."""
    counted = options["window_of"] == "samples" or call.usable is None
    return (
        counted and isinstance(options["window"], (int, np.integer)) and options["times"] is None
        and options["sample_weight"] is None and options["missing"] != "skip_target"
        and origin.dtype == np.float64 and np.dtype(options["state_dtype"]) == np.float64
        and origin.ridge.size < BLOCKED_FROM
    )  # fmt: skip


def roll_together(
    call: Call, origin: Origin, order: NDArray[np.int64], begins: NDArray[np.int64],
    ends: NDArray[np.int64], options: dict[str, Any],
) -> tuple[CoefficientPath, NDArray[np.bool_]]:  # fmt: skip
    """Return the path of all groups, and which of them (groups,) are left to an estimator each.

    Until a window is full its rows are those of an expanding regression, which a bank learns;
    then ``rolling_kernels`` takes them on.  Left are long groups, and those whose window the
    covariance form does not keep the digits of; their rows in the path mean nothing.
    """
    N, m = call.Y.shape
    k, window, statistics = origin.ridge.size, int(options["window"]), options["statistics"]
    group = np.repeat(np.arange(begins.size), ends - begins)
    learnt = np.ones(order.size, np.bool_) if call.usable is None else call.usable[order]
    counts = np.bincount(group[learnt], minlength=begins.size)
    left = counts > LONGEST
    own_order = order[learnt]
    own_ends = np.cumsum(counts)
    own_begins = own_ends - counts
    kind = Kind(origin.intercept, True, "covariance", ("float64", "float64"))
    members = np.flatnonzero(~left)
    state = BankState.start(kind, np.tile(origin.ridge, (members.size, 1)), m, False, np.float64)
    rows = BankRows(
        np.arange(members.size), own_begins[members],
        np.minimum(own_begins + window, own_ends)[members], own_order,
        np.ascontiguousarray(call.X), np.ascontiguousarray(call.Y), call.gates, call.weights,
        np.empty(0, np.bool_),
    )  # fmt: skip
    path = BankPath.empty(N, m, k, statistics)
    residual = learn(state, kind, rows, path)
    done = np.zeros(members.size, np.bool_)
    leverage, inflation, largest = kind.limits.covariance
    # As RollingWindow enters the covariance form: a whole window fits into the tolerated error.
    margin = max(16.0, inflation * 4 * window * float(np.finfo(np.float64).eps) / TOLERATED_ERROR)
    settings = (
        window, (leverage, inflation / margin, largest), (leverage, inflation, TOLERATED_ERROR),
        origin.ridge, origin.intercept,
    )  # fmt: skip
    arrays = state.forms, state.matrix, state.coefs, state.columns, state.tally, state.loss
    given = arrays, own_begins[members], own_ends[members], own_order, rows.X, rows.Y, settings
    in_pieces(
        lambda begin, end: window_kernels.roll_groups(
            *given, begin, end, residual, tuple(path), done
        ),
        share(counts[members] * k**2, PARALLEL_FROM),
    )
    left[members[~done]] = True
    if call.usable is not None:
        residual[~call.usable] = np.nan
        carry(path, rows._replace(
            members=np.arange(begins.size), begins=begins, ends=ends, order=order,
            usable=call.usable,
        ))  # fmt: skip
    seen = np.cumsum(learnt)
    before = np.concatenate([[0], seen])[begins]
    few = order[seen - before[group] < (options["min_samples"] or 1)]
    outside = np.ones(N, np.bool_)
    outside[order] = False
    estimates = (path.coef, path.sigma2, path.stderr) if statistics else (path.coef,)
    for array in estimates:
        array[few] = array[outside] = np.nan
    residual[outside] = path.recursive[outside] = np.nan
    found = path_of(
        path, residual, intercept=origin.intercept, dtype=origin.dtype, one_target=call.one_target
    )
    return found, left

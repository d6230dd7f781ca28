"""Rolling regressions of many groups of rows in compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.online.calls.call import Call, Origin
from olsq.online.forms import covariance_kernels
from olsq.online.forms.covariance_kernels import COVARIANCE
from olsq.online.forms.rows import read_only
from olsq.online.forms.statistics import fill_statistics
from olsq.online.many.learning import PARALLEL_FROM, BankPath, BankRows, learn
from olsq.online.many.parallel import in_pieces, share
from olsq.online.many.paths import carry, path_of, statistics_of_rows
from olsq.online.many.state import BankState, Kind
from olsq.online.paths.goodness import GroupRows
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows.options import check_noise_variance
from olsq.online.windows import row_kernels
from olsq.online.windows.accuracy import refine
from olsq.online.windows.window import BLOCKED_FROM, TOLERATED_ERROR


@kernel()
def roll_groups(state, begins, ends, order, X, Y, settings, begin, end, residual, path, done):
    """Continue groups begin..end from a full window, each after its first ``window`` rows.

    ``state`` = (forms, matrix, coefs, columns, tally, loss) of a bank, after those rows; group i's
    rows are ``order[begins[i]:ends[i]]``.  ``settings`` = (window, limits of the covariance form,
    of the window's kernel, ridge (k,), intercept).  ``path`` as in ``path_kernels.learn_path``.
    ``done[i]`` is False for a group that the covariance form cannot represent accurately or that
    needs a rebuild: none of its rows is written, and its state must be discarded.
    """
    forms, matrix, coefs, columns, tally, loss = state
    window, within, limits, ridge, intercept = settings
    path_coef, path_sigma2, path_stderr, path_squares, path_degrees, path_recursive = path
    m, k = coefs.shape[1], coefs.shape[2]
    first = 1 if intercept else 0
    N, d = X.shape
    groups = begins.shape[0]
    if (
        d + first != k
        or Y.shape != (N, m)
        or residual.shape != (N, m)
        or ridge.shape[0] != k
        or path_coef.shape != (N, m, k)
        or path_recursive.shape != (N, m)
        or forms.shape[0] != groups
        or ends.shape[0] != groups
        or done.shape[0] != groups
        or matrix.shape[0] != groups
        or not 0 <= begin <= end <= groups
        or window < 1
    ):
        raise ValueError("the shapes of rows, states and results do not fit")
    longest = 0
    for g in range(begin, end):
        if not 0 <= begins[g] <= ends[g] <= order.shape[0]:
            raise ValueError("the rows of a group are outside of the order")
        longest = max(longest, ends[g] - begins[g])
    for row in order:
        if not 0 <= row < N:
            raise ValueError("a row is outside of the shape of X")
    wanted = path_stderr.shape[0] > 0
    held = longest if wanted else 0
    x, y, weights = np.ones((longest, k)), np.empty((longest, m)), np.ones(longest)
    error, leaving = np.empty((longest, m)), np.empty(0, np.int64)
    whole = (
        np.empty((longest, m, k)),
        np.empty((held, k)),
        np.empty((longest, m)),
        np.empty((longest, 6)),
        np.empty((longest, m)),
        np.empty((0, k)),
    )
    sigma2, stderr = np.empty((longest, m)), np.empty((longest, m, k))
    squares, degrees = np.empty((longest, m)), np.empty((longest, 3))
    scratch = np.empty(k), np.empty(k), np.empty(k)
    ring_X, ring_Y, ring_w = np.empty((window, k)), np.empty((window, m)), np.ones(window)
    for g in range(begin, end):
        n = ends[g] - begins[g]
        done[g] = n <= window
        if done[g] or forms[g] != COVARIANCE:
            continue
        if not covariance_kernels.trusted(matrix[g], columns[g], within):
            continue
        for t in range(n):
            row = order[begins[g] + t]
            for j in range(d):
                x[t, first + j] = X[row, j]
            for target in range(m):
                y[t, target] = Y[row, target]
        for t in range(window):
            for j in range(k):
                ring_X[t, j] = x[t, j]
            for target in range(m):
                ring_Y[t, target] = y[t, target]
            ring_w[t] = 1.0
        form = matrix[g], coefs[g], columns[g], tally[g], loss[g]
        held_rows = (
            ring_X,
            ring_Y,
            ring_w,
            np.array([window, 0, 0]),
            ridge,
            np.zeros(2),
            np.zeros((3, m)),
        )
        if not refine(form, held_rows, limits[2], scratch):
            done[g] = False
            continue
        trace = (
            whole[0][:n],
            whole[1][: n if wanted else 0],
            whole[2][:n],
            whole[3][:n],
            whole[4][:n],
            whole[5],
        )
        _, answer = row_kernels.update(
            form,
            held_rows,
            (x[:n], y[:n], weights[:n], leaving),
            (window, n),
            limits,
            error[:n],
            trace,
        )
        if answer != row_kernels.DONE:
            continue
        done[g] = True
        if wanted:
            for t in range(window, n):  # inf, or the known noise variance
                for target in range(m):
                    sigma2[t, target] = path_sigma2[order[begins[g] + t], target]
            fill_statistics(
                trace[2][window:],
                trace[0][window:],
                trace[1][window:],
                trace[5],
                trace[3][window:],
                ridge,
                True,
                sigma2[window:n],
                stderr[window:n],
                (squares[window:n], degrees[window:n]),
            )
        for t in range(window, n):
            row = order[begins[g] + t]
            for target in range(m):
                residual[row, target] = error[t, target]
                path_recursive[row, target] = trace[4][t, target]
                for j in range(k):
                    path_coef[row, target, j] = trace[0][t, target, j]
                if wanted:
                    path_sigma2[row, target] = sigma2[t, target]
                    path_squares[row, target] = squares[t, target]
                    for j in range(k):
                        path_stderr[row, target, j] = stderr[t, target, j]
            if wanted:
                for j in range(3):  # a copy of a row takes seconds to compile
                    path_degrees[row, j] = degrees[t, j]


LONGEST = 4096  # rows of a group from which one estimator costs little, and rebuilds are likely


def can_roll_together(call: Call, origin: Origin, options: dict[str, Any]) -> bool:
    """Test whether :func:`roll_together` can learn these rows.

    Windows must count rows, in float64, without weights, times or ``missing="skip_target"``, and
    there must be fewer than ``BLOCKED_FROM`` coefficients.
    """
    counted = options["window_of"] != "positions" or call.usable is None
    return (
        counted
        and isinstance(options["window"], (int, np.integer))
        and options["times"] is None
        and options["sample_weight"] is None
        and options["missing"] != "skip_target"
        and origin.dtype == np.float64
        and np.dtype(options["state_dtype"]) == np.float64
        and origin.ridge.size < BLOCKED_FROM
    )


def roll_together(
    call: Call,
    origin: Origin,
    by_group: GroupRows,
    options: dict[str, Any],
) -> tuple[CoefficientPath, NDArray[np.bool_]]:
    """Return the path of all groups, and a mask (groups,) of those that need their own estimator.

    A bank learns the rows until the window is full, as an expanding regression; then
    :func:`roll_groups` continues.  Masked are long groups, and those whose window the covariance
    form cannot represent accurately; their rows in the path are undefined.
    """
    N, m = call.Y.shape
    k, window, statistics = origin.ridge.size, int(options["window"]), options["statistics"]
    noise = check_noise_variance(options["noise_variance"], m)
    order, begins, ends = by_group
    group = by_group.groups
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
        np.arange(members.size),
        own_begins[members],
        np.minimum(own_begins + window, own_ends)[members],
        own_order,
        read_only(np.ascontiguousarray(call.X)),
        read_only(np.ascontiguousarray(call.Y)),
        call.gates,
        call.weights,
        np.empty(0, np.bool_),
    )
    path = BankPath.empty(N, m, k, noise if statistics else None)
    residual = learn(state, kind, rows, path)
    done = np.zeros(members.size, np.bool_)
    leverage, inflation, largest = kind.limits.covariance
    # As RollingWindow enters the covariance form: a whole window fits into the tolerated error.
    margin = max(16.0, inflation * 4 * window * float(np.finfo(np.float64).eps) / TOLERATED_ERROR)
    settings = (
        window,
        (leverage, inflation / margin, largest),
        (leverage, inflation, TOLERATED_ERROR),
        origin.ridge,
        origin.intercept,
    )
    arrays = state.forms, state.matrix, state.coefs, state.columns, state.tally, state.loss
    given = arrays, own_begins[members], own_ends[members], own_order, rows.X, rows.Y, settings
    in_pieces(
        lambda begin, end: roll_groups(*given, begin, end, residual, tuple(path), done),
        share(counts[members] * k**2, PARALLEL_FROM),
    )
    left[members[~done]] = True
    every = rows._replace(members=np.arange(begins.size), begins=begins, ends=ends, order=order)
    if call.usable is not None:
        residual[~call.usable] = np.nan
        every = every._replace(usable=call.usable)
        carry(path, every)
    seen = np.cumsum(learnt)
    before = np.concatenate([[0], seen])[begins]
    few = order[seen - before[group] < (options["min_samples"] or 1)]
    outside = np.ones(N, np.bool_)
    outside[order] = False
    for array in path.estimates:
        array[few] = array[outside] = np.nan
    residual[outside] = path.recursive[outside] = np.nan
    new = np.zeros(begins.size, np.bool_)
    nothing = np.zeros((begins.size, m, 3))
    found = path_of(
        path,
        residual,
        intercept=origin.intercept,
        dtype=origin.dtype,
        one_target=call.one_target,
        statistics=statistics_of_rows(
            path, every, nothing.copy, new, kind, noise if statistics else None, window
        ),
    )
    return found, left

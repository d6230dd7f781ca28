"""Rolling regressions of many groups of rows in compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.online.calls.call import Call, Origin
from olsq.online.forms import covariance_kernels
from olsq.online.forms.edges import check_rolling
from olsq.online.forms.factor.path import is_determined
from olsq.online.forms.factor.solving import solve, variances
from olsq.online.many.in_line import BankPath, BankRows
from olsq.online.many.learning import PARALLEL_FROM, PIECE_ENTRIES, Piece, learn_piece
from olsq.online.many.parallel import in_pieces, share
from olsq.online.many.paths import carry, path_of, statistics_of_rows
from olsq.online.many.state import BankState, Kind
from olsq.online.paths.goodness import GroupRows
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows.options import check_noise_variance
from olsq.online.windows.accuracy import refine
from olsq.online.windows.row_kernels import DONE, FILLED, POSITIONS, SLOT, take_rows
from olsq.online.windows.window import BLOCKED_FROM, TOLERATED_ERROR


@kernel(forceinline=True)
def invert(F, D, P, theta, inverse, diagonal):
    """Fill P (k, k) and theta (m, k) with the inverse information and coefficients of a factor."""
    k = D.shape[0]
    solve(F, D, theta)
    variances(F, D, inverse, diagonal)
    for i in range(k):
        for j in range(i, k):
            total = 0.0
            for c in range(j, k):
                total += inverse[i, c] * inverse[j, c] / D[c]
            P[i, j] = P[j, i] = total


@kernel(makes_arrays=True)
def roll(state, turns, rows, settings, ring, residual, trace, done):
    """Continue members from a full window, each after its first ``window`` rows.

    ``state`` is that of a bank after those rows, ``settings`` = (limits of the covariance form, of
    the window's kernel).  ``ring`` = (arrays of one window, three vectors) as
    ``row_kernels.take_rows`` takes them: scratch that the members use in turn.  The other arguments
    are those of :func:`olsq.online.many.kernels.learn`.  ``done[i]`` is False for a member that the
    covariance form cannot represent accurately or that needs a rebuild.  The factors stay what they
    were after the first rows.
    """
    factor, pivots, columns, tally, loss, _, _, _ = state
    members, begins, ends = turns
    within, limits = settings
    (ring_X, ring_Y, ring_w, place, _, monitor, sizes), scratch = ring
    X, Y, _, weights = rows
    (window, m), k = ring_Y.shape, X.shape[1]
    P, theta, inverse, diagonal = np.empty((k, k)), np.empty((m, k)), np.empty((k, k)), np.empty(k)
    if done.shape != members.shape or window < 1:
        raise ValueError("the shape of done does not fit the members, or the window is empty")
    for i in range(members.shape[0]):
        f, begin, end = members[i], begins[i], ends[i]
        done[i] = end - begin <= window
        if done[i] or not is_determined(pivots[f]):
            continue
        invert(factor[f], pivots[f], P, theta, inverse, diagonal)
        if not covariance_kernels.trusted(P, columns[f], within):
            continue
        for t in range(window):
            for j in range(X.shape[1]):
                ring_X[t, j] = X[begin + t, j]
            for target in range(m):
                ring_Y[t, target] = Y[begin + t, target]
            ring_w[t] = 1.0
        place[FILLED], place[SLOT], place[POSITIONS] = window, 0, 0
        monitor[0] = monitor[1] = 0.0
        for j in range(sizes.shape[0]):
            for target in range(m):
                sizes[j, target] = 0.0
        form = P, theta, columns[f], tally[f], loss[f]
        arriving, span = (X, Y, weights, place[:0]), (begin + window, end)  # one leaves for each
        check_rolling(form, ring[0], arriving, span, residual, trace)
        if refine(form, ring[0], limits[2], scratch):
            _, answer = take_rows(form, ring[0], arriving, span, limits, residual, trace, scratch)
            done[i] = answer == DONE


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
    :func:`roll` continues.  Masked are long groups, and those whose window the covariance
    form cannot represent accurately; their rows in the path are undefined.
    """
    N, m = call.Y.shape
    k, window, statistics = origin.ridge.size, int(options["window"]), options["statistics"]
    noise = check_noise_variance(options["noise_variance"], m)
    order, begins, ends = by_group
    group = by_group.groups
    usable = np.empty(0, np.bool_) if call.usable is None else call.usable
    kind = Kind(origin.intercept, True, "covariance", ("float64", "float64"))
    rows = BankRows(
        np.arange(begins.size),
        begins,
        ends,
        order,
        call.X,
        call.Y,
        call.gates,
        call.weights,
        usable,
    )
    in_line = rows.in_line
    counts = np.diff(in_line.bounds)
    left = counts > LONGEST
    path = BankPath.empty(N, m, k, noise if statistics else None)
    residual = np.full((N, m), np.nan)
    leverage, inflation, largest = kind.limits.covariance
    # As RollingWindow enters the covariance form: a whole window fits into the tolerated error.
    margin = max(16.0, inflation * 4 * window * float(np.finfo(np.float64).eps) / TOLERATED_ERROR)
    settings = (leverage, inflation / margin, largest), (leverage, inflation, TOLERATED_ERROR)

    def roll_groups(begin: int, end: int) -> None:
        ring = (
            (
                np.empty((window, k)),
                np.empty((window, m)),
                np.empty(window),
                np.zeros(3, np.int64),
                origin.ridge,
                np.empty(2),
                np.empty((3, m)),
            ),
            (np.empty(k), np.empty(k), np.empty(k)),
        )
        for turns, numbers in in_line.of(begin, end).pieces(max(LONGEST, PIECE_ENTRIES // k)):
            groups, starts, stops = (a[~left[turns[0]]] for a in turns)
            if not groups.size:
                continue
            ridge = np.tile(origin.ridge, (groups.size, 1))
            state = BankState.start(kind, ridge, m, False, np.float64)
            piece = Piece.of(state, kind, rows, numbers, path)
            members, done = np.arange(groups.size), np.empty(groups.size, np.bool_)
            first = members, starts, np.minimum(starts + window, stops)
            learn_piece(state, kind, first, piece)
            assert piece.trace is not None
            roll(
                state.in_kernels,
                (members, starts, stops),
                tuple(piece.rows),
                settings,
                ring,
                piece.residual,
                tuple(piece.trace),
                done,
            )
            left[groups[~done]] = True
            piece.write(state, kind, (members, starts, stops), residual, path)

    if in_line.sequence.size:
        in_pieces(roll_groups, share(counts * k**2, PARALLEL_FROM))
    carry(path, rows)
    seen = np.cumsum(usable[order]) if usable.size else np.arange(1, order.size + 1)
    before = np.concatenate([[0], seen])[begins]
    few = order[seen - before[group] < (options["min_samples"] or 1)]
    outside = np.ones(N, np.bool_)
    outside[order[~left[group]]] = False
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
            path, rows, nothing.copy, new, kind, noise if statistics else None, window
        ),
    )
    return found, left

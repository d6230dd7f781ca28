"""Rolling regressions of many groups of rows in compiled loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.online.calls.call import Call, Origin
from olsq.online.forms.factor.carrying import make_carried
from olsq.online.many.in_line import BankRows
from olsq.online.many.learning import PARALLEL_FROM, PIECE_ENTRIES, Piece, learn_piece
from olsq.online.many.parallel import in_pieces, share
from olsq.online.many.paths import finished
from olsq.online.many.state import BankState, Kind
from olsq.online.paths.collector import PathCollector, RobustErrors, joined
from olsq.online.paths.goodness import GroupRows, RowsInside
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows.inputs import with_ones
from olsq.online.rows.options import check_noise_variance
from olsq.online.windows.arrays import FILLED, POSITIONS, SLOT, Arriving, WindowArrays
from olsq.online.windows.kernels import check_window, roll_path_rows
from olsq.online.windows.learning import build, make_room


@kernel(strict=True, makes_arrays=True)
def roll(turns, rows, window, limits, errors, trace, done):
    """Continue members from a full window, each after its first rows, as many as the window has.

    ``window`` as in :func:`olsq.online.windows.kernels.roll`, whose ring the members use in turn.
    The other arguments are those of
    :func:`olsq.online.many.kernels.learn`.  ``done[i]`` is False for a member whose coefficients
    are not determined in some window.
    """
    members, begins, ends = turns
    X, Y, gates, weights = rows
    window, none = WindowArrays(*window), window[4][:0]
    (slots, m), d, place = window.Y.shape, X.shape[1], window.place
    own = np.eye(d, d + m), np.zeros(d), np.zeros((2, d)), np.zeros(4), np.zeros(m)
    own[3][2] = 1.0
    arriving = Arriving(X, Y, gates, weights, none, none)
    room, carried = make_room(d, m, False), make_carried(d, m, trace[1].shape[0] > 0)
    check_window(own, window, arriving, (0, 0), errors, trace)
    if done.shape != members.shape:
        raise ValueError("the shape of done does not fit the members")
    for i in range(members.shape[0]):
        begin, end = begins[i], ends[i]
        done[i] = end - begin <= slots
        if done[i]:
            continue
        if not 0 <= begin <= end <= X.shape[0]:
            raise ValueError("the rows of a member are outside of the shape of X")
        for t in range(slots):
            for j in range(d):
                window.X[t, j] = X[begin + t, j]
            for q in range(m):
                window.Y[t, q] = Y[begin + t, q]
            window.weights[t] = weights[begin + t]
        place[FILLED], place[SLOT], place[POSITIONS] = slots, 0, 0
        build(own, window, limits, room)
        span = begin + slots, end
        last, written = roll_path_rows(
            own, window, arriving, span, limits, room, errors, trace, carried
        )
        done[i] = last == end and written


LONGEST = 4096  # rows of a group from which one estimator costs little, and rebuilds are likely


def can_roll_together(call: Call, origin: Origin, options: dict[str, Any]) -> bool:
    """Test whether :func:`roll_together` can learn these rows.

    Windows must count rows, in float64, without weights, times or ``missing="skip_target"``.
    """
    counted = options["window_of"] != "positions" or call.usable is None
    return (
        counted
        and isinstance(options["window"], (int, np.integer))
        and options["times"] is None
        and options["sample_weight"] is None
        and options["missing"] != "skip_target"
        and origin.dtype == np.float64
    )


def roll_together(
    call: Call,
    origin: Origin,
    by_group: GroupRows,
    options: dict[str, Any],
    robust: RobustErrors | None,
) -> tuple[CoefficientPath, NDArray[np.bool_]]:
    """Return the path of all groups, and a mask (groups,) of those that need their own estimator.

    A bank learns the rows until the window is full, as an expanding regression; then
    :func:`roll` continues.  Masked are long groups, and those with windows that do not determine
    all coefficients; their rows in the path are undefined.
    """
    N, m = call.Y.shape
    k, window, statistics = origin.ridge.size, int(options["window"]), options["statistics"]
    noise = check_noise_variance(options["noise_variance"], m)
    order, begins, ends = by_group
    group = by_group.groups
    usable = np.empty(0, np.bool_) if call.usable is None else call.usable
    kind = Kind(origin.intercept, True, "float64")
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
    path = PathCollector((N, m, k), origin.dtype, False, noise if statistics else None)
    residual = np.full((N, m), np.nan)

    def roll_groups(begin: int, end: int) -> None:
        window_arrays = (
            np.empty((window, k)),
            np.empty((window, m)),
            np.empty(window),
            np.empty(0),
            np.zeros(3, np.int64),
            origin.ridge.astype(np.float64),
            np.empty(k),
            np.empty((3, m)),
            np.zeros(2, np.int64),
            np.ones(2),
        )
        for turns, numbers in in_line.of(begin, end).pieces(max(LONGEST, PIECE_ENTRIES // k)):
            groups, starts, stops = (a[~left[turns[0]]] for a in turns)
            if not groups.size:
                continue
            ridge = np.tile(origin.ridge, (groups.size, 1))
            state = BankState.start(kind, ridge, m)
            piece = Piece.of(state, kind, rows, numbers, path)
            members, done = np.arange(groups.size), np.empty(groups.size, np.bool_)
            first = members, starts, np.minimum(starts + window, stops)
            learn_piece(state, kind, first, piece)
            assert piece.trace is not None
            roll(
                (members, starts, stops),
                tuple(piece.rows),
                window_arrays,
                kind.limits.square_root,
                piece.residual,
                tuple(piece.trace),
                done,
            )
            left[groups[~done]] = True
            piece.write(state, kind, (members, starts, stops), residual, path)

    if in_line.sequence.size:
        in_pieces(roll_groups, share(counts * k**2, PARALLEL_FROM))
    seen = np.cumsum(usable[order]) if usable.size else np.arange(1, order.size + 1)
    before = np.concatenate([[0], seen])[begins]
    path.count[order] = seen - before[group]
    path.count[order[left[group]]] = -1
    outside = np.ones(N, np.bool_)
    outside[order[~left[group]]] = False
    residual[outside] = path.recursive[outside] = np.nan
    how = np.zeros((begins.size, m, 3)).copy, np.zeros(begins.size, np.bool_), kind
    part = finished(path, rows, residual, *how, window, options["min_samples"] or 1)
    if robust is not None and statistics:
        lengths = (ends - begins)[~left]
        rolled = GroupRows(order[~left[group]], np.cumsum(lengths) - lengths, np.cumsum(lengths))
        inside = RowsInside.of_groups(rolled, call.usable, call.gates, call.weights)
        X = with_ones(np.asarray(call.X), kind.intercept)
        robust.fill(path, inside.last(window, positions=False), call.Y, X, origin.ridge)
    return joined([part], [np.arange(m)], origin.intercept, call.one_target), left

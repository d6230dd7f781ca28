"""Kernels over the windows of a stack, whose rings lie in line; an estimator's is a stack of one.

``stack`` = (states, rings, windows), members first: ``states`` = (F, D, columns, tally, loss),
``windows`` = (first, slots, faded, place, ridge, bounds, squares, counts, fading), and ``rings`` =
(X, Y, weights, fades), in which a member has the slots from ``first`` on; see :mod:`.arrays`.
``turns`` = (members, position, ends): rows ``position[i]`` to ``ends[i]`` come to ``members[i]``,
and each position moves to the first row that was not taken.  ``rows`` are the members of
:class:`.arrays.Arriving`, ``limits`` as in :mod:`olsq.online.forms.factor.members`.
"""

from __future__ import annotations

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.edges import check_trace
from olsq.online.forms.factor.carrying import make_carried
from olsq.online.forms.factor.snapshots import check_snapshots, own_snapshots
from olsq.online.windows.arrays import FILLED, POSITIONS, SLOT, Arriving, WindowArrays
from olsq.online.windows.kernels import roll_path_rows, roll_rows, take_with_care
from olsq.online.windows.learning import build, make_room, take_unsettled


@kernel(strict=True, forceinline=True, makes_arrays=True)
def window_of(rings, windows, f):
    """Return the window of member f."""
    X, Y, weights, fades = rings
    first, slots, faded, place, ridge, bounds, squares, counts, fading = windows
    begin, end = first[f], first[f] + slots[f]
    return WindowArrays(
        X[begin:end],
        Y[begin:end],
        weights[begin:end],
        fades[begin : end if faded[f] else begin],
        place[f],
        ridge[f],
        bounds[f],
        squares[f],
        counts[f],
        fading[f],
    )


@kernel(strict=True)
def check_members(windows, turns, n_rows, n_slots):
    """Check that members, their rows, and their rings lie in their arrays.

    ``windows`` = (first, slots, place).
    """
    first, slots, place = windows
    members, begins, ends = turns
    n = first.shape[0]
    if slots.shape != (n,) or place.shape != (n, 3):
        raise ValueError("the arrays of the windows do not have shapes that fit together")
    if begins.shape != members.shape or ends.shape != members.shape:
        raise ValueError("members and their rows do not have shapes that fit together")
    for i in range(members.shape[0]):
        f = members[i]
        if not (0 <= f < n and 0 <= begins[i] <= ends[i] <= n_rows):
            raise ValueError("a member or its rows are outside of the shape of the arrays")
        if not 0 <= first[f] <= first[f] + slots[f] <= n_slots:
            raise ValueError("a member's ring is outside of the shape of the arrays")
        if not (0 <= place[f, FILLED] <= slots[f] and 0 <= place[f, SLOT] < max(slots[f], 1)):
            raise ValueError("the ring's place is outside of its shape")


@kernel(strict=True, forceinline=True, makes_arrays=True)
def state_of(states, f):
    """Return the state of member f."""
    F, D, columns, tally, loss = states
    return F[f], D[f], columns[f], tally[f], loss[f]


@kernel(strict=True)
def check_windows(stack, turns, rows, errors, trace):
    """Check the arrays of members, the rows that come to each, and how many leave its ring."""
    states, rings, windows = stack
    F, D, columns, tally, loss = states
    first, slots, faded, place, ridge, bounds, squares, counts, fading = windows
    members, position, ends = turns
    X, Y, weights, fades = rings
    (n, d), m, r, n_rows = D.shape, loss.shape[1], weights.shape[0], rows.X.shape[0]
    if (
        F.shape != (n, d, d + m)
        or columns.shape != (n, 2, d)
        or tally.shape != (n, 4)
        or loss.shape[0] != n
        or first.shape != (n,)
        or faded.shape != (n,)
        or ridge.shape != (n, d)
        or bounds.shape != (n, d)
        or squares.shape != (n, 3, m)
        or counts.shape != (n, 2)
        or fading.shape != (n, 2)
        or X.shape != (r, d)
        or Y.shape != (r, m)
        or fades.shape not in ((0,), (r,))
    ):
        raise ValueError("the arrays of the windows do not have shapes that fit together")
    if (
        rows.X.shape[1] != d
        or rows.Y.shape != (n_rows, m)
        or rows.gates.shape != (n_rows,)
        or rows.weights.shape != (n_rows,)
        or rows.leaving.shape not in ((0,), (n_rows,))
        or rows.samples.shape not in ((0,), (n_rows,))
        or errors.shape != (n_rows, m)
    ):
        raise ValueError("the shapes of rows, gates, weights and errors do not fit the state")
    check_trace(trace, n_rows, d, m)
    check_members((first, slots, place), turns, n_rows, r)
    for i in range(members.shape[0]):
        f = members[i]
        count = place[f, FILLED]
        if slots[f] < 1:
            raise ValueError("a ring does not have the shape of one with slots")
        for t in range(position[i], ends[i] if rows.leaving.shape[0] > 0 else position[i]):
            if rows.gates[t] == 0:
                count = 0
            elif not 0 <= rows.leaving[t] <= count:
                raise ValueError("more rows would leave the ring than are in its shape")
            else:
                count -= rows.leaving[t]
            count += 1 if rows.weights[t] > 0 or place[f, POSITIONS] != 0 else 0
            if count > slots[f]:
                raise ValueError("more rows would enter the ring than its shape has slots")


@kernel(strict=True, makes_arrays=True)
def roll_members(stack, turns, rows, limits, intercept, errors):
    """Do :func:`.kernels.roll_rows` for every member.

    ``intercept`` says whether coefficient 0 is one; ``errors`` (n, m) receives the a-priori errors.
    """
    (states, rings, windows), (members, position, ends) = stack, turns
    rows = Arriving(*rows)
    check_windows(stack, turns, rows, errors, None)
    room = make_room(states[1].shape[1], states[4].shape[1], intercept)
    for i in range(members.shape[0]):
        state, window = state_of(states, members[i]), window_of(rings, windows, members[i])
        span = position[i], ends[i]
        room.start[2][0] = -1  # the basis of another member's rows
        position[i] = roll_rows(state, window, rows, span, limits, room, errors)


@kernel(strict=True, makes_arrays=True)
def take_unsettled_rows(stack, turns, rows, limits, intercept, errors):
    """Take one row of every member, which is not settled and whose errors (n, m) are known."""
    (states, rings, windows), (members, position, _) = stack, turns
    rows = Arriving(*rows)
    check_windows(stack, turns, rows, errors, None)
    room = make_room(states[1].shape[1], states[4].shape[1], intercept)
    for i in range(members.shape[0]):
        if position[i] == rows.X.shape[0]:
            raise ValueError("a row is outside of the shape of X")
        state, window = state_of(states, members[i]), window_of(rings, windows, members[i])
        room.start[2][0] = -1
        take_unsettled(state, window, rows, position[i], limits, True, room, errors)
        position[i] += 1


@kernel(strict=True, makes_arrays=True)
def roll_members_path(stack, turns, rows, limits, errors, trace, written):
    """Do :func:`.kernels.roll_path_rows` for every member.

    ``written[i]`` is False where the state after a member's last row taken was not written.
    """
    (states, rings, windows), (members, position, ends) = stack, turns
    rows = Arriving(*rows)
    check_windows(stack, turns, rows, errors, trace)
    if written.shape != members.shape:
        raise ValueError("the shape of written does not fit the members")
    d, m = states[1].shape[1], states[4].shape[1]
    room, carried = make_room(d, m, False), make_carried(d, m, trace[1].shape[0] > 0)
    for i in range(members.shape[0]):
        state, window = state_of(states, members[i]), window_of(rings, windows, members[i])
        span = position[i], ends[i]
        position[i], was_written = roll_path_rows(
            state, window, rows, span, limits, room, errors, trace, carried
        )
        written[i] = was_written or position[i] == span[0]


@kernel(strict=True, makes_arrays=True)
def roll_members_unsettled(stack, turns, rows, limits, intercept, errors, trace, after):
    """Do :func:`.kernels.take_with_care` for every member.

    ``after`` = (snapshots, known): as many snapshots for each member, one's after the other's;
    ``known[i]`` says whether its first row's errors are known, and receives whether those of the
    first row left are lacking.
    """
    (states, rings, windows), (members, position, ends) = stack, turns
    kept, known = after
    rows = Arriving(*rows)
    check_windows(stack, turns, rows, errors, trace)
    if known.shape != members.shape:
        raise ValueError("the shape of known does not fit the members")
    d, m = states[1].shape[1], states[4].shape[1]
    check_snapshots(kept, d, m)
    room = make_room(d, m, intercept)
    for i in range(members.shape[0]):
        state, window = state_of(states, members[i]), window_of(rings, windows, members[i])
        own, span = own_snapshots(kept, i, len(members)), (position[i], ends[i])
        room.start[2][0] = -1
        position[i], known[i] = take_with_care(
            state, window, rows, span, limits, room, errors, trace, (own, known[i])
        )


@kernel(strict=True, makes_arrays=True)
def rebuild(stack, turns, rows, limits):
    """Make the factors of members anew from the rows of their windows."""
    (states, rings, windows), (members, _, _), rows = stack, turns, Arriving(*rows)
    check_windows(stack, turns, rows, rows.Y, None)
    room = make_room(states[1].shape[1], states[4].shape[1], False)
    for i in range(members.shape[0]):
        f = members[i]
        build(state_of(states, f), window_of(rings, windows, f), limits, room)


@kernel(strict=True)
def count_leaving(windows, turns, entering, gates, size, times, expired, leaving):
    """Count the rows that leave with each row t: one where ``size`` rows are in the window.

    In windows of time, where ``size`` is 0, those at ``times`` <= ``expired[t]``; all with a row
    whose gate is 0.  ``windows`` = (first, slots, place, times of the rings); ``entering`` (n,)
    says which rows take a slot.  Returns the most rows (b,) that each member holds, or 1.
    """
    first, slots, place, held = windows
    members, begins, ends = turns
    n, of_time = leaving.shape[0], size == 0
    if entering.shape != (n,) or gates.shape != (n,) or size < 0:
        raise ValueError("the rows of a call do not have shapes that fit together")
    if of_time and (times.shape != (n,) or expired.shape != (n,)):
        raise ValueError("times and rows do not have shapes that fit together")
    n_slots = held.shape[0] if of_time else np.iinfo(np.int64).max
    check_members((first, slots, place), turns, n, n_slots)
    most = np.ones(members.shape[0], np.int64)  # a ring has a slot
    for i in range(members.shape[0]):
        f, following = members[i], begins[i]
        count, inside = place[f, FILLED], place[f, FILLED]
        oldest = 0  # the number of the oldest row, those of the ring before those of the call
        for t in range(begins[i], ends[i]):
            gone = 1 if inside == size and entering[t] and not of_time else 0
            if gates[t] == 0:
                gone, oldest, following = inside, count, t
            while of_time and oldest < count + t - begins[i]:
                if oldest < count:
                    slot = place[f, SLOT] - count + oldest
                    time = held[first[f] + (slot + slots[f] if slot < 0 else slot)]
                else:
                    while following < t and not entering[following]:
                        following += 1
                    if following == t:
                        break
                    time = times[following]
                if time > expired[t]:
                    break
                following += 1 if oldest >= count else 0
                oldest, gone = oldest + 1, gone + 1
            leaving[t] = gone
            inside += (1 if entering[t] else 0) - gone
            most[i] = max(most[i], inside)
    return most


@kernel(strict=True)
def keep_times(windows, turns, entering, times):
    """Write the times of the rows that enter to the slots that they will take."""
    first, slots, place, held = windows
    members, begins, ends = turns
    if entering.shape != times.shape:
        raise ValueError("times and rows do not have shapes that fit together")
    check_members((first, slots, place), turns, times.shape[0], held.shape[0])
    for i in range(members.shape[0]):
        f = members[i]
        slot = place[f, SLOT]
        for t in range(begins[i], ends[i]):
            if entering[t] and slots[f] > 0:
                held[first[f] + slot] = times[t]
                slot = slot + 1 if slot + 1 < slots[f] else 0

"""The recursion of rolling windows: a row enters with its weight and leaves with the negative.

The state is that of :mod:`olsq.online.forms.factor.kernels`.  A row that leaves is absorbed with
the negative of what is left of its weight; what the recursion leaves of that weight is then
``-weight / (1 - leverage)``.  Four rows that enter or leave are absorbed at once, to the bits of
single rows, so that cuts of a stream change no bit.

Rounding errors of rows that have left stay.  For each column j of the regressors, and for each
target, S_j is the sum of weighted squares in the window, and e_j bounds the error of the
information's row and column j, in the same units::

    a row enters    e_j <- gate e_j + eps (max(gate S_j, w x_j^2) + w x_j^2)
    a row leaves    e_j <- e_j + eps (max(S_j, w x_j^2) + a x_j^2),    a = w / (1 - leverage)

The factor is made anew from the rows of the window where an e_j is no longer small beside S_j.
What shrinks is S_j: a huge row that has left, a window that calms down, and a row of a leverage
near one are one case.  Where a pivot is 0 or nearly so, although its column is not 0 throughout,
the factor is made anew after every row that leaves: :func:`take_unsettled`.

Rows fade by gates.  Weights and fading factors in the ring are divided by ``fading[SCALE]``, the
product of the gates since they were last multiplied out, so that a gate costs no pass over the
ring.  A ridge does not fade: what a gate takes of it is put back as rows.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.edges import check_trace
from olsq.online.forms.factor.edges import check_call
from olsq.online.forms.factor.kernels import absorb_four, called, inline
from olsq.online.forms.factor.limits import AFRESH
from olsq.online.forms.factor.registers import fma
from olsq.online.forms.factor.solving import solve
from olsq.online.windows.carried import (
    carry_coefficients,
    carry_variances,
    keep_state,
    make_carried,
    read_afresh,
    record_afresh,
    record_carried,
)
from olsq.online.windows.learning import (
    build,
    load_block,
    make_room,
    rows_at_once,
    settle,
    take_row,
    take_unsettled,
)
from olsq.online.windows.ring_kernels import (
    DEPARTED,
    FILLED,
    POSITIONS,
    SLOT,
    account,
    count_in,
    count_out,
    fade_in,
    fade_ring,
    is_settled,
    is_sound,
    is_stale,
    move_on,
    slot_of,
)


@inline
def take_block(state, window, rows, t, n, limits, room, errors, trace, carried):
    """Take n rows, which four rows hold, and the first of which is settled.

    Returns (how many were taken, whether the factor was made anew).  Fewer than n are taken where
    it was, or a later row is not settled.  With a ``trace`` their states are written to it from
    what is ``carried``, unless a variance has shrunk too much: then no row is taken.
    """
    F, D, columns, tally, loss = state
    four, block_errors, _, scratch, history, _, (_, running), _ = room
    gates, weights, left = four[2], four[3], scratch[3]
    m, each = loss.shape[0], 4 // n
    for q in range(m):
        running[q] = loss[q]
    if trace is not None:
        keep_state(F, D, carried)
    absorb_four(F, D, loss, four, 0, scratch, block_errors, history)
    if trace is not None and carry_variances(state, four, left, history, carried):
        for q in range(m):
            loss[q] = running[q]
        return 0, False
    taken, made = n, False
    for r in range(4):
        s, gate = t + r // each, gates[r]
        if r % each == 0:
            if r > 0 and not is_settled(history[2], r, columns, tally, limits, four, r):
                build(state, window, limits, room)
                taken, made = r // each, True
                break
            for q in range(m):
                errors[s, q] = block_errors[r, q]
            fade_ring(window, gate)
            count_in(tally, window, gate, weights[r])
        else:
            count_out(tally, window, -weights[r], fade_in(window, slot_of(window, 0)))
        account(state, window, four, r, block_errors[r], abs(left[r]))
        for q in range(m):
            e = block_errors[r, q]
            running[q] = fma(left[r] * e, e, gate * running[q])
        if trace is not None:
            carry_coefficients(r, left[r], block_errors, carried)
        if (r + 1) % each == 0:
            move_on(window, rows, s, each - 1)
            if trace is not None:
                record_carried(trace, s, r, D, running, tally, carried)
                root = math.sqrt(left[r + 1 - each])
                for q in range(m):
                    trace[4][s, q] = errors[s, q] * root
            if is_stale(columns, running, window):
                build(state, window, limits, room)
                taken, made = r // each + 1, True
                break
    return taken, made


@called
def roll_rows(state, window, rows, span, limits, room, errors):
    """Do :func:`roll`, whose arguments have been checked."""
    columns, loss, t = state[2], state[4], span[0]
    while t < span[1]:
        settled, _ = settle(state, window, rows, t, limits, room)
        if not settled:
            _, outcome = take_unsettled(state, window, rows, t, limits, False, room, errors)
            if outcome < 0:
                break
            t += 1
            continue
        n = rows_at_once(state, window, rows, t, span[1], limits, room)
        if n > 1:
            load_block(window, rows, t, n, room[0])
            n, _ = take_block(state, window, rows, t, n, limits, room, errors, None, None)
        else:
            take_row(state, window, rows, t, room, errors)
            if is_stale(columns, loss, window):
                build(state, window, limits, room)
        t += n
    if window[8][DEPARTED] > 0 and not is_sound(state, limits):
        build(state, window, limits, room)
    return t


@called
def roll_path_rows(state, window, rows, span, limits, room, errors, trace, carried):
    """Do :func:`roll_path`, whose arguments have been checked."""
    D, columns, loss, t = state[1], state[2], state[4], span[0]
    since, single, fresh = -1, span[0], True
    while t < span[1]:
        settled, made = settle(state, window, rows, t, limits, room)
        if made:
            since = -1
            if t > span[0] and is_sound(state, limits):
                record_afresh(state, t - 1, trace, carried)
            fresh = t == span[0] or is_sound(state, limits)
        if not settled:
            break
        n = rows_at_once(state, window, rows, t, span[1], limits, room) if t >= single else 1
        if n > 1:
            if since < 0 or since >= max(64, AFRESH * D.shape[0]):
                read_afresh(state, carried)
                since = 0
            load_block(window, rows, t, n, room[0])
            taken, made = take_block(
                state, window, rows, t, n, limits, room, errors, trace, carried
            )
            if taken == 0:
                single, since = t + n, -1
                continue
            n, since = taken, since + taken
        else:
            root, made = math.sqrt(take_row(state, window, rows, t, room, errors)), True
            for q in range(loss.shape[0]):
                trace[4][t, q] = errors[t, q] * root
            if is_stale(columns, loss, window):
                build(state, window, limits, room)
        t, fresh = t + n, True
        if made:
            since, fresh = -1, is_sound(state, limits)
            if fresh:
                record_afresh(state, t - 1, trace, carried)
            elif window[8][DEPARTED] == 0:
                break
    if window[8][DEPARTED] > 0 and not is_sound(state, limits):
        build(state, window, limits, room)
        since, fresh = -1, t == span[0] or is_sound(state, limits)
        if fresh and t > span[0]:
            record_afresh(state, t - 1, trace, carried)
    if since > 0:  # the last row's coefficients have the bits that the state itself gives
        theta = carried[0]
        solve(state[0], D, theta)
        for q in range(theta.shape[0]):
            for k in range(theta.shape[1]):
                trace[0][t - 1, q, k] = theta[q, k]
    return t, fresh


@kernel(strict=True)
def check_window(state, window, rows, span, errors, trace):
    """Check the shapes of all that the kernels below receive."""
    X, Y, gates, weights, leaving, samples = rows
    check_call(state, (X, Y, gates, weights), span, errors)
    ring_X, ring_Y, ring_w, ring_fade, place, ridge, bounds, squares, counts, fading = window
    d, m, n, slots = X.shape[1], Y.shape[1], X.shape[0], ring_w.shape[0]
    check_trace(trace, n, d, m)
    if (
        slots < 1
        or ring_X.shape != (slots, d)
        or ring_Y.shape != (slots, m)
        or ring_fade.shape not in ((0,), (slots,))
        or ridge.shape != (d,)
        or bounds.shape != (d,)
        or squares.shape != (3, m)
        or counts.shape != (2,)
        or fading.shape != (2,)
    ):
        raise ValueError("the arrays of the ring do not have shapes that fit the state")
    if place.shape != (3,):
        raise ValueError("the ring's place does not have the shape (3,)")
    if not (0 <= place[FILLED] <= slots and 0 <= place[SLOT] < slots):
        raise ValueError("the ring's place is outside of its shape")
    if samples.shape != (0,) and samples.shape != (n,):
        raise ValueError("samples do not have the shape (n,)")
    if leaving.shape == (0,):
        return
    if leaving.shape != (n,):
        raise ValueError("leaving does not have the shape (n,)")
    count = place[FILLED]
    for t in range(span[0], span[1]):
        if not 0 <= leaving[t] <= count:
            raise ValueError("more rows would leave the ring than are in its shape")
        count += (1 if weights[t] > 0 or place[POSITIONS] != 0 else 0) - leaving[t]
        if count > slots:
            raise ValueError("more rows would enter the ring than its shape has slots")


@kernel(strict=True, makes_arrays=True)
def roll(state, window, rows, span, limits, intercept, errors):
    """Take the rows of a span into a window; return the first row not taken.

    ``state`` = (F, D, columns, tally, loss); ``window`` = (ring_X (w, d), ring_Y (w, m), ring_w
    (w,), ring_fade (w,) or (0,), place, ridge (d,), bounds e (d,), squares (3, m), counts,
    fading (2,)); ``rows`` = (X, Y, gates above 0, weights, leaving (n,) or (0,), samples (n,) or
    (0,), which receive the number in the window after each row); ``limits`` as in
    :func:`olsq.online.forms.factor.learning.learn`.  ``intercept`` says whether coefficient 0 is
    one.  A row is not taken whose error needs coefficients of minimum norm that are not found with
    vectors.
    """
    check_window(state, window, rows, span, errors, None)
    room = make_room(state[1].shape[0], state[4].shape[0], intercept)
    return roll_rows(state, window, rows, span, limits, room, errors)


@kernel(strict=True, makes_arrays=True)
def roll_path(state, window, rows, span, limits, errors, trace):
    """Do :func:`roll`, and write the states after the rows to a trace.

    Returns the first row not taken, which coefficients that are not determined have stopped, and
    whether the state after the last one taken was written.  Coefficients and variances are carried
    by gains and computed afresh, as in :func:`olsq.online.forms.factor.path.learn_path`.
    """
    check_window(state, window, rows, span, errors, trace)
    d, m = state[1].shape[0], state[4].shape[0]
    carried = make_carried(d, m, trace[1].shape[0] > 0)
    room = make_room(d, m, False)
    return roll_path_rows(state, window, rows, span, limits, room, errors, trace, carried)


@kernel(strict=True, makes_arrays=True)
def roll_unsettled(state, window, rows, t, limits, intercept, errors):
    """Take row t, whose errors (n, m) are known; return the root of its share and whether the next
    one is settled.
    """
    check_window(state, window, rows, (t, t + 1), errors, None)
    room, n = make_room(state[1].shape[0], state[4].shape[0], intercept), rows[0].shape[0]
    share, _ = take_unsettled(state, window, rows, t, limits, True, room, errors)
    settled = True
    if t + 1 < n:
        settled, _ = settle(state, window, rows, t + 1, limits, room)
    return math.sqrt(share), settled


@kernel(strict=True, makes_arrays=True)
def rebuild(state, window, limits):
    """Make the factor anew from the rows of the window."""
    d, m = state[1].shape[0], state[4].shape[0]
    rows = (
        np.empty((0, d)),
        np.empty((0, m)),
        np.empty(0),
        np.empty(0),
        window[4][:0],
        window[4][:0],
    )
    check_window(state, window, rows, (0, 0), np.empty((0, m)), None)
    build(state, window, limits, make_room(d, m, False))

"""The recursion of rolling windows: a row enters with its weight and leaves with the negative.

The arrays are those of :mod:`.arrays`, the state that of
:mod:`olsq.online.forms.factor.kernels`.  A row that leaves is absorbed with the negative of what is
left of its weight; what the recursion leaves of that weight is then ``-weight / (1 - leverage)``.
Two rows that replace two others are absorbed as four at once, to the bits of single rows, so that
cuts of a stream change no bit.

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

from olsq.online.forms.factor.careful import record_unknown
from olsq.online.forms.factor.carrying import (
    absorb_and_carry,
    is_old,
    may_be_carried,
    read_afresh,
)
from olsq.online.forms.factor.kernels import absorb_four, called, inline, rank_of
from olsq.online.forms.factor.registers import fma
from olsq.online.forms.factor.snapshots import keep, record_unsolved
from olsq.online.forms.factor.solving import solve
from olsq.online.windows.arrays import DEPARTED
from olsq.online.windows.bounds import (
    count_pair,
    count_targets,
    has_stale_column,
    has_stale_target,
    is_settled,
    is_sound,
)
from olsq.online.windows.carried import record_afresh, record_pair_row
from olsq.online.windows.learning import (
    build,
    is_pair_of_swaps,
    load_swaps,
    settle,
    take_row,
    take_unsettled,
)
from olsq.online.windows.ring_kernels import (
    count_in,
    count_out,
    fade_in,
    fade_ring,
    move_on,
    slot_of,
)


@inline
def take_pair(state, window, rows, t, limits, room, errors, trace, carried):
    """Take rows t and t + 1, which replace one each, and the first of which is settled.

    Returns (how many were taken, whether what is ``carried`` must be computed afresh).  Fewer than
    two are taken where the factor was made anew, or the second is not settled.  With a ``trace``
    their states are written to it from what is carried, unless a variance has shrunk too much: then
    no row is taken.
    """
    F, D, columns, tally, loss = state
    four, left, running = room.four, room.scratch[3], room.of_targets
    _, _, gates, weights = four
    m, lost = loss.shape[0], False
    load_swaps(window, rows, t, four)
    for q in range(m):
        running[q] = loss[q]
    if trace is None:
        pivots = room.history[3]
        absorb_four(F, D, loss, four, 0, room.scratch, room.errors, room.history)
    else:
        pivots, out = carried.history[3], (trace[0], trace[1], t)
        absorbed, lost = absorb_and_carry(
            state, four, 0, room.scratch, room.errors, carried, out, True
        )
        if not absorbed:
            return 0, False
    for r in range(0, 4, 2):
        s = t + r // 2
        if r > 0 and not is_settled(pivots, 1.0, state, limits, four, r):
            build(state, window, limits, room)
            return 1, True
        fade_ring(window, gates[r])
        count_in(tally, window, gates[r], weights[r])
        count_out(tally, window, -weights[r + 1], fade_in(window, slot_of(window, 0)))
        for i in range(r, r + 2):
            count_targets(window, four, i, room.errors[i], abs(left[i]))
            for q in range(m):
                e = room.errors[i, q]
                running[q] = fma(left[i] * e, e, gates[i] * running[q])
        for q in range(m):
            errors[s, q] = room.errors[r, q]
        move_on(window, rows, s, 1)
        if trace is not None:
            rank = rank_of(pivots) if r == 0 else rank_of(D)  # a row may lower it
            record_pair_row(trace, s, rank, running, tally)
            for q in range(m):
                trace[4][s, q] = errors[s, q] * math.sqrt(left[r])
        stale = count_pair(columns, window, four, r, left)
        if stale or has_stale_target(window, running):
            build(state, window, limits, room)
            return 1 + r // 2, True
    return 2, lost


@inline
def take_single(state, window, rows, t, limits, room, errors):
    """Take row t, row 0 of the four and settled; return the root of what is left of its weight."""
    left = take_row(state, window, rows, t, room, errors)
    stale = has_stale_column(state[2], window)
    if stale or has_stale_target(window, state[4]):
        build(state, window, limits, room)
    return math.sqrt(left)


@called
def roll_rows(state, window, rows, span, limits, room, errors):
    """Take the rows of a span into a window; return the first row not taken.

    A row is not taken whose error needs coefficients of minimum norm that are not found with
    vectors.  The arguments are those of :mod:`.members`, of one window.
    """
    t = span[0]
    while t < span[1]:
        settled, _ = settle(state, window, rows, t, limits, room)
        if not settled:
            _, outcome = take_unsettled(state, window, rows, t, limits, False, room, errors)
            if outcome < 0:
                break
            t += 1
        elif t + 1 < span[1] and is_pair_of_swaps(window, rows, t):
            n, _ = take_pair(state, window, rows, t, limits, room, errors, None, None)
            t += n
        else:
            take_single(state, window, rows, t, limits, room, errors)
            t += 1
    if window.counts[DEPARTED] > 0 and not is_sound(state, limits):
        build(state, window, limits, room)
    return t


@called
def roll_path_rows(state, window, rows, span, limits, room, errors, trace, carried):
    """Do :func:`roll_rows`, and write the states after the rows to a trace.

    Returns the first row not taken, which coefficients that are not determined have stopped, and
    whether the state after the last one taken was written.  Coefficients and variances are carried
    by gains and computed afresh, as in :func:`olsq.online.forms.factor.path.learn_path`.
    """
    D, loss, t = state[1], state[4], span[0]
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
        n = 1
        kept = rows.gates[t] * rows.gates[t + 1] if t + 1 < span[1] else 0.0
        carries = single <= t and t + 1 < span[1] and may_be_carried(carried, kept)
        if carries and is_pair_of_swaps(window, rows, t):
            if is_old(carried, since, kept):
                read_afresh(state[0], D, carried)
                since = 0
            n, made = take_pair(state, window, rows, t, limits, room, errors, trace, carried)
            if n == 0:
                single, since = t + 2, -1
                continue
            since += n
        else:
            root, made = take_single(state, window, rows, t, limits, room, errors), True
            for q in range(loss.shape[0]):
                trace[4][t, q] = errors[t, q] * root
        t, fresh = t + n, True
        if made:
            since, fresh = -1, is_sound(state, limits)
            if fresh:
                record_afresh(state, t - 1, trace, carried)
            elif window.counts[DEPARTED] == 0:
                break
    if window.counts[DEPARTED] > 0 and not is_sound(state, limits):
        build(state, window, limits, room)
        since, fresh = -1, t == span[0] or is_sound(state, limits)
        if fresh and t > span[0]:
            record_afresh(state, t - 1, trace, carried)
    if since > 0:  # the last row's coefficients have the bits that the state itself gives
        theta = carried.theta
        solve(state[0], D, theta)
        for q in range(theta.shape[0]):
            for k in range(theta.shape[1]):
                trace[0][t - 1, q, k] = theta[q, k]
    return t, fresh


@called
def take_with_care(state, window, rows, span, limits, room, errors, trace, after):
    """Take rows of a span, the first of which is not settled, until one is, or there is no room.

    Returns the first row not taken, and whether that is because its errors need the coefficients
    before it.  ``after`` is that of :func:`olsq.online.forms.factor.snapshots.learn_with_care`.
    """
    (snapshots, known), t, place, settled = after, span[0], 0, False
    while t < span[1] and not settled and place < snapshots[0].shape[0]:
        has_errors = known and t == span[0]
        share, outcome = take_unsettled(state, window, rows, t, limits, has_errors, room, errors)
        if outcome < 0:
            return t, True
        record_unsolved(state, t, share, errors, trace)
        if t + 1 == span[1] or not record_unknown(state, room.start, t, trace):
            keep(state, None, snapshots, place, t)
            place += 1
        t += 1
        if t < span[1]:
            settled, _ = settle(state, window, rows, t, limits, room)
    return t, False

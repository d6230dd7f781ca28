"""Numba kernels over the filters of a bank, each of which learns its own rows.

State arrays have the filters first (see ``many/state.py``); the last one, ``spread`` (n k, k), has
the rows of all filters' below one another, or is None where nobody asks for it.  ``rows`` =
(X (N, k), Y (N, m), gates, weights) as the forms' kernels take them, one filter's after the
other's: those of ``members[i]``, no filter twice, are ``position[i]:ends[i]``.  ``turns`` =
(members, position, ends).  A filter stops, with ``position[i]`` at that row, before a row that
needs dense algebra: one that the covariance form must not take, or one that needs minimum-norm
coefficients.  The caller does these for all filters at once and calls again.  No kernel makes
arrays or counts references to any, which would take as long as a filter's only row.

``settings`` = (limits of the covariance form, of the square-root form, whether the forms are
switched, intercept, discounted).  ``residual`` (N, m) and ``trace``, of N rows or None, are as
with the forms' kernels.
"""

from __future__ import annotations

import math

from olsq.kernels import kernel
from olsq.online.forms import covariance_kernels, singular_path, square_root_kernels, start_kernels
from olsq.online.forms.covariance_kernels import COVARIANCE, IN_FORM, SQUARE_ROOT, TO_RETRY
from olsq.online.forms.edges import check_trace, wants_sandwich
from olsq.online.forms.start_kernels import TAKEN


@kernel(called=True)
def check(state, turns, rows, residual, trace):
    """Raise ValueError unless all shapes fit together and every index is within its array."""
    forms, matrix, coefs, columns, tally, loss, held, clock, seen, spread = state
    n, m, k = coefs.shape
    if (
        forms.shape != (n,)
        or matrix.shape != (n, k, k)
        or columns.shape != (n, 2, k)
        or tally.shape != (n, 4)
        or loss.shape != (n, m)
        or held.shape != (n,)
        or clock.shape != (n, 3)
        or seen.shape != (n,)
    ):
        raise ValueError("the arrays of a bank do not have shapes that fit together")
    check_spreads(spread, matrix)
    X, Y, gates, weights = rows
    N = X.shape[0]
    if X.shape != (N, k) or Y.shape != (N, m) or gates.shape != (N,) or weights.shape != (N,):
        raise ValueError("the shapes of rows and weights do not fit the bank")
    if residual.shape != (N, m):
        raise ValueError("the shape of the residuals does not fit the rows")
    check_trace(trace, N, k, m)
    members, position, ends = turns
    if position.shape != members.shape or ends.shape != members.shape:
        raise ValueError("the places of rows do not have the shape of members")
    for i in range(members.shape[0]):
        if not (0 <= members[i] < n and 0 <= position[i] <= ends[i] <= N):
            raise ValueError("a member, or where its rows are, is outside of the bank")


@kernel(forceinline=True)
def check_spreads(spread, matrix):
    """Check that the spreads, if they are not None, have as many rows as the matrices."""
    if spread is None:
        return
    n, k, _ = matrix.shape
    if spread.shape != (n * k, k):
        raise ValueError("the spreads of a bank do not have the shape of its filters")


@kernel(forceinline=True)
def form_of(state, f):
    """Return the arrays of filter f as the forms' kernels take them."""
    _, matrix, coefs, columns, tally, loss, _, _, _, _ = state
    return matrix[f], coefs[f], columns[f], tally[f], loss[f]


@kernel(forceinline=True)
def spread_of(spread, f):
    """Return a tuple of the spread of filter f, or None: what is no tuple would be counted."""
    if spread is None:
        return (spread,)
    k = spread.shape[1]
    return (spread[f * k : (f + 1) * k],)


@kernel(forceinline=True)
def count_samples(weights, start, stop):
    """Count the rows of a span that have a weight."""
    count = 0
    for t in range(start, stop):
        count += 1 if weights[t] > 0 else 0
    return count


@kernel()
def learn(state, turns, rows, settings, residual, trace, scratch):
    """Learn the rows of every member in turn, up to one that needs dense algebra.

    The loop over one stream is that of ``FormSwitch.update``.  ``scratch`` as in
    ``covariance_kernels.absorb_rows``.
    """
    forms, _, _, _, _, _, held, clock, seen, spread = state
    members, position, ends = turns
    covariance_limits, square_root_limits, switching, _, _ = settings
    check(state, turns, rows, residual, trace)
    k, robust = rows[0].shape[1], wants_sandwich(trace)
    if scratch[0].shape != (k,) or scratch[1].shape != ((k, k) if robust else (0, 0)):
        raise ValueError("the shapes of the scratch arrays do not fit the bank")
    for i in range(members.shape[0]):
        f, t, stopped = members[i], position[i], False
        form, (squares,) = form_of(state, f), spread_of(spread, f)
        while t < ends[i] and not stopped:
            if forms[f] == COVARIANCE:
                done = covariance_kernels.absorb_rows(
                    form,
                    squares,
                    rows,
                    (t, ends[i]),
                    covariance_limits,
                    residual,
                    trace,
                    scratch,
                )
                clock[f, IN_FORM] += done - t
                stopped = True  # at the end of the rows or before one that is left to the caller
            else:
                stop = min(ends[i], t + clock[f, TO_RETRY]) if switching else ends[i]
                done, count = square_root_kernels.update(
                    form, squares, rows, (t, stop), square_root_limits, residual, trace
                )
                held[f] += count
                stopped = done < stop
                if switching and covariance_kernels.retry(
                    form, clock[f], done - t, covariance_limits
                ):
                    forms[f] = COVARIANCE
            seen[f] += count_samples(rows[3], t, done)
            t = done
        position[i] = t


@kernel()
def learn_starts(state, turns, rows, settings, residual, trace, bases, outcomes):
    """Learn the first rows of members that know nothing yet, while coefficients are undetermined.

    ``bases`` (b, s, s) as in :mod:`olsq.online.forms.start_kernels`; ``outcomes`` (b,) receives
    what was done with a member's last row; unless that is ``TAKEN`` it stops there.
    """
    forms, _, _, _, _, _, held, clock, seen, spread = state
    members, position, ends = turns
    covariance_limits, limits, switching, intercept, _ = settings
    check(state, turns, rows, residual, trace)
    for i in range(members.shape[0]):
        f, t, outcomes[i] = members[i], position[i], TAKEN
        form, (squares,) = form_of(state, f), spread_of(spread, f)
        while t < ends[i] and forms[f] == SQUARE_ROOT and outcomes[i] == TAKEN:
            stop = min(ends[i], t + clock[f, TO_RETRY]) if switching else ends[i]
            done, outcomes[i], count = start_kernels.update(
                (form, squares), bases[i], rows, (t, stop), limits, intercept, residual, trace
            )
            held[f] += count
            seen[f] += count_samples(rows[3], t, done)
            if switching and covariance_kernels.retry(form, clock[f], done - t, covariance_limits):
                forms[f] = COVARIANCE
            t = done
        position[i] = t


@kernel()
def take_alone(state, turns, rows, theta, settings, residual):
    """Absorb one row of every member (b,); ``turns`` = (members, place).

    These are rows whose residual needs coefficients: a reset, or a new direction.  theta (b, m, k)
    are the coefficients before it.
    """
    forms, _, coefs, _, _, _, held, clock, seen, spread = state
    members, place = turns
    X, Y, gates, weights = rows
    covariance_limits, limits, switching, _, _ = settings
    m, k = coefs.shape[1], coefs.shape[2]
    if theta.shape != (members.shape[0], m, k) or place.shape != members.shape:
        raise ValueError("the coefficients do not have the shape of the filters")
    check(state, (members, place, place), rows, residual, None)
    for i in range(members.shape[0]):
        f, t = members[i], place[i]
        if t == X.shape[0]:
            raise ValueError("a row is outside of the shape of X")
        for target in range(m):
            error = Y[t, target]
            for j in range(k):
                error -= theta[i, target, j] * X[t, j]
            residual[t, target] = error
        form, (squares,) = form_of(state, f), spread_of(spread, f)
        _, count = square_root_kernels.absorb_alone(
            form, squares, X[t], Y[t], gates[t], weights[t], limits
        )
        held[f] += count
        seen[f] += 1 if weights[t] > 0 else 0
        if switching and covariance_kernels.retry(form, clock[f], 1, covariance_limits):
            forms[f] = COVARIANCE


@kernel()
def take_undetermined(state, turns, rows, settings, trace, snapshots):
    """Absorb rows of a path while coefficients are undetermined, equally many of every member.

    ``snapshots`` as in :mod:`olsq.online.forms.singular_path`, one member's after the other's.
    """
    forms, _, _, _, _, _, held, clock, seen, spread = state
    members, position, ends = turns
    covariance_limits, limits, switching, _, _ = settings
    check(state, turns, rows, rows[1], trace)
    each = snapshots[0].shape[0] // max(members.shape[0], 1)
    for i in range(members.shape[0]):
        f, t = members[i], position[i]
        stop = min(ends[i], t + each)
        if switching:
            stop = min(stop, t + clock[f, TO_RETRY])
        form, (squares,) = form_of(state, f), spread_of(spread, f)
        done, count = singular_path.absorb_undetermined(
            form, squares, rows, (t, stop), limits, trace, snapshots, i * each
        )
        held[f] += count
        seen[f] += count_samples(rows[3], t, done)
        if switching and covariance_kernels.retry(form, clock[f], done - t, covariance_limits):
            forms[f] = COVARIANCE
        position[i] = done


@kernel()
def learn_logs(logs, turns, gates, weights):
    """Update the forgotten sums (n,) of the logarithms of the weights by the rows of members."""
    members, begins, ends = turns
    for i in range(members.shape[0]):
        total = logs[members[i]]
        for t in range(begins[i], ends[i]):
            total *= gates[t]
            if weights[t] > 0:
                total += math.log(weights[t])
        logs[members[i]] = total


@kernel()
def leave_each(state, filters):
    """Convert ``filters`` of covariance form to square-root form."""
    forms, matrix, coefs, _, tally, _, _, clock, _, _ = state
    n, _, d = coefs.shape
    fit = matrix.shape == (n, d, d) and clock.shape == (n, 3) and forms.shape == (n,)
    if not (fit and tally.shape == (n, 4)):
        raise ValueError("the arrays of the states do not have shapes that fit together")
    for f in filters:
        if not 0 <= f < n:
            raise ValueError("a filter is outside of the bank")
        covariance_kernels.leave(form_of(state, f), clock[f])
        forms[f] = SQUARE_ROOT

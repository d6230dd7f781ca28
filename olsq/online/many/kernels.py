"""Numba kernels over the filters of a bank, each of which learns its own rows.

State arrays have the filters first (see ``many/state.py``); the rows of ``members[i]`` are
``order[position[i]:ends[i]]`` of X (N, d), Y (N, m), in that order.  They are brought to float64
and given their column of ones in a buffer that stays in the core's cache.  A filter stops, with
``position[i]`` at that row, before a row that needs dense algebra: one that the covariance form
must not take, or one that needs minimum-norm coefficients.  The caller does these for all filters
at once and calls again.

A kernel does entries begin..end of ``members``, in which no filter is twice.  :func:`check` looks
at the shapes of a call once, before its first row.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms import covariance_kernels, square_root_kernels
from olsq.online.forms.covariance_kernels import COVARIANCE, IN_FORM, SQUARE_ROOT, TO_RETRY

BLOCK = 64  # rows in a buffer
BLOCK_ENTRIES = 8192  # regressors in it, but for one row at least


@kernel()
def check(state, turns, rows, residual, intercept):
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
        or (spread.shape != (n, k, k) and spread.shape != (n, 0, 0))
    ):
        raise ValueError("the arrays of a bank do not have shapes that fit together")
    order, X, Y, gates, weights, usable = rows
    N, d = X.shape
    if (
        d + (1 if intercept else 0) != k
        or Y.shape != (N, m)
        or gates.shape != (N,)
        or weights.shape != (N,)
        or residual.shape != (N, m)
        or (usable.shape != (N,) and usable.shape != (0,))
    ):
        raise ValueError("the shapes of rows, weights and residuals do not fit the bank")
    members, begins, ends = turns
    if begins.shape != members.shape or ends.shape != members.shape:
        raise ValueError("begins and ends do not have the shape of members")
    for i in range(members.shape[0]):
        if not (0 <= members[i] < n and 0 <= begins[i] <= ends[i] <= order.shape[0]):
            raise ValueError("a member, or where its rows are, is outside of the bank")
    for row in order:
        if not 0 <= row < N:
            raise ValueError("a row is outside of the shape of X")


@kernel(forceinline=True, makes_arrays=True)
def form_of(state, f):
    """Return the arrays of filter f as the forms' kernels take them."""
    _, matrix, coefs, columns, tally, loss, _, _, _, _ = state
    return matrix[f], coefs[f], columns[f], tally[f], loss[f]


def rows_in_buffer(k: int) -> int:
    """Return how many rows of k regressors a buffer holds."""
    return max(1, min(BLOCK, BLOCK_ENTRIES // k))


buffer_size = kernel(forceinline=True)(rows_in_buffer)


@kernel(forceinline=True)
def buffer_for(m, k):
    """Make the arrays that :func:`gather` fills, and errors (size, m)."""
    size = buffer_size(k)
    return (
        np.ones((size, k)),
        np.empty((size, m)),
        np.empty(size),
        np.empty(size),
        np.empty(size, np.int64),
    ), np.empty((size, m))


@kernel(forceinline=True)
def gather(rows, t, stop, most, intercept, buffer):
    """Copy the next usable rows, at most ``most``, into the buffer.

    Returns how many, and where in ``order`` to go on; ``places`` receives where each came from.
    """
    order, X, Y, gates, weights, usable = rows
    x, y, gate, weight, places = buffer
    first = 1 if intercept else 0
    n = 0
    while t < stop and n < most:
        row = order[t]
        if usable.shape[0] == 0 or usable[row]:
            for j in range(X.shape[1]):
                x[n, first + j] = X[row, j]
            for target in range(Y.shape[1]):
                y[n, target] = Y[row, target]
            gate[n], weight[n], places[n] = gates[row], weights[row], t
            n += 1
        t += 1
    return n, t


@kernel(forceinline=True, makes_arrays=True)
def retry(state, f, rows, covariance_limits):
    """Count rows that filter f has learned in square-root form; change its form if that is due."""
    forms, clock = state[0], state[7]
    if covariance_kernels.retry(form_of(state, f), clock[f], rows, covariance_limits):
        forms[f] = COVARIANCE


@kernel(forceinline=True, makes_arrays=True)
def advance_square_root(state, spread, f, place, settings, buffer, error, trace):
    """Learn the next rows in square-root form in filter f, a block at most.

    ``spread`` is the filter's, or None, and ``trace`` may be None.  ``place`` = (stop, t):
    ``buffer`` holds ``stop`` rows and t is where to go on after them.  Returns the number of
    rows taken and where to go on; fewer than stop means that the next row must be taken alone.
    """
    held, (stop, t) = state[6], place
    covariance_limits, square_root_limits, switching, _, _ = settings
    x, y, gate, weight, places = buffer
    rows = x[:stop], y[:stop], gate[:stop], weight[:stop]
    done, count = square_root_kernels.update(
        form_of(state, f), spread, rows, (0, stop), square_root_limits, error[:stop], trace
    )
    held[f] += count
    if switching:
        retry(state, f, done, covariance_limits)
    return done, places[done] if done < stop else t


@kernel(forceinline=True)
def learn_by_filter(state, turns, rows, settings, begin, end, residual, scratch):
    """Run :func:`learn`; ``scratch`` = (k,) of ones, (m,), (k,) and (m,)."""
    forms, matrix, coefs, columns, tally, loss, _, clock, seen, _ = state
    members, position, ends = turns
    order, X, Y, gates, weights, usable = rows
    limits, _, _, intercept, _ = settings
    m, k = coefs.shape[1], coefs.shape[2]
    first = 1 if intercept else 0
    d = k - first
    some_missing = usable.shape[0] > 0
    x, y, u, error = scratch
    for i in range(begin, end):
        f = members[i]
        if forms[f] != COVARIANCE:
            continue
        t, stop, learnt = position[i], ends[i], 0
        # written out: views that another function returns would have to be counted as references
        form = matrix[f], coefs[f], columns[f], tally[f], loss[f]
        while t < stop:
            row = order[t]
            if some_missing and not usable[row]:
                t += 1
                continue
            for j in range(d):
                x[first + j] = X[row, j]
            for target in range(m):
                y[target] = Y[row, target]
            innovation = covariance_kernels.absorb_row(
                form, x, y, gates[row], weights[row], limits, u, error
            )
            if innovation == 0:
                break
            for target in range(m):
                residual[row, target] = error[target]
            seen[f] += 1 if weights[row] > 0 else 0
            learnt += 1
            t += 1
        position[i] = t
        clock[f, IN_FORM] += learnt


@kernel()
def learn(state, turns, rows, settings, begin, end, residual):
    """Learn rows of entries begin..end in covariance form, up to one that it must not take.

    ``turns`` = (members, position, ends); ``rows`` = (order, X, Y, gates, weights, usable): usable
    (N,), or (0,) where all are.  ``settings`` = (limits of the covariance form, of the square-root
    form, whether the forms are switched, intercept, discounted).
    """
    m, k = state[2].shape[1], state[2].shape[2]
    scratch = np.ones(k), np.empty(m), np.empty(k), np.empty(m)
    learn_by_filter(state, turns, rows, settings, begin, end, residual, scratch)


@kernel(makes_arrays=True)
def learn_square_root(state, turns, rows, settings, begin, end, residual):
    """Learn as :func:`learn` does, for filters in square-root form."""
    members, position, ends = turns
    forms, _, coefs, _, _, _, _, clock, seen, _ = state
    order, _, _, _, weights, _ = rows
    _, _, switching, intercept, _ = settings
    m, k = coefs.shape[1], coefs.shape[2]
    buffer, error = buffer_for(m, k)
    size = error.shape[0]
    for i in range(begin, end):
        f = members[i]
        t, stop = position[i], ends[i]
        while t < stop and forms[f] == SQUARE_ROOT:
            most = min(size, clock[f, TO_RETRY]) if switching else size
            n, following = gather(rows, t, stop, most, intercept, buffer)
            done, t = advance_square_root(
                state, None, f, (n, following), settings, buffer, error, None
            )
            for s in range(done):
                row = order[buffer[4][s]]
                seen[f] += 1 if weights[row] > 0 else 0
                for target in range(m):
                    residual[row, target] = error[s, target]
            if done < n:
                break
        position[i] = t


@kernel()
def learn_squares(spread, members, begins, ends, rows, intercept):
    """Rotate the rows of every member into its ``spread`` (n, k, k), as a path does row by row."""
    order, X, _, gates, weights, usable = rows
    k, first = spread.shape[1], 1 if intercept else 0
    x, gate, weight = np.ones((1, k)), np.empty(1), np.empty(1)
    for i in range(members.shape[0]):
        for t in range(begins[i], ends[i]):
            row = order[t]
            if usable.shape[0] > 0 and not usable[row]:
                continue
            for j in range(k - first):
                x[0, first + j] = X[row, j]
            gate[0], weight[0] = gates[row], weights[row]
            square_root_kernels.absorb_squares(spread[members[i]], x, gate, weight, 0, 1)


@kernel()
def learn_logs(logs, members, begins, ends, rows):
    """Update the forgotten sums (n,) of the logarithms of the weights by all rows."""
    order, _, _, gates, weights, usable = rows
    for i in range(members.shape[0]):
        total = logs[members[i]]
        for t in range(begins[i], ends[i]):
            row = order[t]
            if usable.shape[0] == 0 or usable[row]:
                total *= gates[row]
                if weights[row] > 0:
                    total += math.log(weights[row])
        logs[members[i]] = total


@kernel()
def try_all(state, filters, covariance_limits):
    """Count one row less to wait for each of ``filters``; try the other form where none is left."""
    for f in filters:
        retry(state, f, 1, covariance_limits)


@kernel(makes_arrays=True)
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

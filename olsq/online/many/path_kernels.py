"""Numba kernels over the filters of a bank that write every row's estimate, and of their starts.

Arguments are those of :mod:`olsq.online.many.kernels`.
"""

from __future__ import annotations

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms import covariance_kernels, start_kernels
from olsq.online.forms.covariance_kernels import COVARIANCE, IN_FORM, SQUARE_ROOT, TO_RETRY
from olsq.online.forms.start_kernels import LAST, TAKEN, UNTRACED
from olsq.online.forms.statistics import fill_statistics
from olsq.online.many.kernels import (
    BLOCK,
    BLOCK_ENTRIES,
    advance_square_root,
    buffer_for,
    form_of,
    gather,
    retry,
)


@kernel(forceinline=True)
def trace_for(size, m, k, path, robust):
    """Make the arrays of a trace of the rows of a buffer that a path (see :func:`learn_path`) is
    filled from; without rows where nothing is wanted.
    """
    n = size if path[0].shape[0] > 0 else 0
    v = n if path[2].shape[0] > 0 else 0
    return (
        np.empty((n, m, k)),
        np.empty((v, k)),
        np.empty((n, m)),
        np.empty((n, 6)),
        np.empty((n, m)),
        np.empty((v if robust else 0, k)),
    )


@kernel(forceinline=True, makes_arrays=True)
def first_rows(trace, n):
    """Return the first n rows of a trace's arrays."""
    coef, variance, loss, counts, recursive, sandwich = trace
    return coef[:n], variance[:n], loss[:n], counts[:n], recursive[:n], sandwich[:n]


@kernel()
def write_rows(seen, rows, written, buffer, error, trace, residual, path):
    """Write what ``done`` rows of a buffer left, and count them; ``written`` = (done, traced,
    discounted, ridge (k,)).

    All have residuals, the first ``traced`` a path; ``seen`` (1,) counts one filter's samples.
    """
    done, traced, discounted, ridge = written
    order, _, _, _, weights, _ = rows
    places = buffer[4]
    path_coef, path_sigma2, path_stderr, path_squares, path_degrees, path_recursive, _ = path
    m, k = error.shape[1], trace[0].shape[2]
    statistics = path_stderr.shape[0] > 0
    if statistics:
        sigma2, stderr = np.empty((traced, m)), np.empty((traced, m, k))
        squares, degrees = np.empty((traced, m)), np.empty((traced, 3))
        for s in range(traced):  # inf, or the known noise variance
            for target in range(m):
                sigma2[s, target] = path_sigma2[order[places[s]], target]
        coef, variance, loss, counts, _, sandwich = first_rows(trace, traced)
        fill_statistics(
            loss,
            coef,
            variance,
            sandwich,
            counts,
            ridge,
            discounted,
            sigma2,
            stderr,
            (squares, degrees),
        )
        for s in range(traced):
            row = order[places[s]]
            for target in range(m):
                path_sigma2[row, target] = sigma2[s, target]
                path_squares[row, target] = squares[s, target]
                for j in range(k):
                    path_stderr[row, target, j] = stderr[s, target, j]
            for j in range(3):  # a copy of a row takes seconds to compile
                path_degrees[row, j] = degrees[s, j]
    for s in range(done):
        row = order[places[s]]
        seen[0] += 1 if weights[row] > 0 else 0
        for target in range(m):
            residual[row, target] = error[s, target]
    if path_coef.shape[0] == 0:
        return
    for s in range(done):
        row = order[places[s]]
        for target in range(m):
            path_recursive[row, target] = trace[4][s, target]
            for j in range(k if s < traced else 0):
                path_coef[row, target, j] = trace[0][s, target, j]


@kernel(makes_arrays=True)
def learn_starts(state, turns, rows, settings, begin, end, residual, path):
    """Learn the first rows of filters that know nothing yet, while coefficients are undetermined.

    ``turns`` = (members (b,), position, ends, bases (b, s, s), stops (b, 2)), the others as in
    :func:`learn_path`, or as in :func:`learn` with a path without rows.  ``stops`` receives what
    was done with a filter's last row (see :mod:`olsq.online.forms.start_kernels`) and, where its
    estimate is not written, the number of that row; a filter stops there.
    """
    forms, _, coefs, _, _, _, held, clock, seen, spread = state
    members, position, ends, bases, stops = turns
    order = rows[0]
    covariance_limits, limits, switching, intercept, discounted = settings
    ridge = path[6]
    m, k = coefs.shape[1], coefs.shape[2]
    size = max(1, min(BLOCK, BLOCK_ENTRIES // k))
    buffer, error = buffer_for(size, m, k)
    x, y, gate, weight, places = buffer
    block = trace_for(size, m, k, path, spread.shape[1] > 0)
    for i in range(begin, end):
        f = members[i]
        t, stop = position[i], ends[i]
        stops[i, 0], stops[i, 1] = TAKEN, -1
        while t < stop and forms[f] == SQUARE_ROOT:
            most = min(size, clock[f, TO_RETRY]) if switching else size
            n, following = gather(rows, t, stop, most, intercept, buffer)
            trace = first_rows(block, n)
            done, last, count = start_kernels.update(
                (form_of(state, f), spread[f]),
                bases[i],
                (x[:n], y[:n], gate[:n], weight[:n]),
                (0, n),
                limits,
                intercept,
                error[:n],
                trace,
            )
            held[f] += count
            traced = done
            if path[0].shape[0] > 0 and last in (LAST, UNTRACED):
                traced, stops[i, 1] = done - 1, order[places[done - 1]]
            write_rows(
                seen[f : f + 1],
                rows,
                (done, traced, discounted, ridge[f]),
                buffer,
                error,
                trace,
                residual,
                path,
            )
            t = places[done] if done < n else following
            stops[i, 0] = last
            if switching:
                retry(state, f, done, covariance_limits)
            if last != TAKEN:
                break
        position[i] = t


@kernel()
def learn_path(state, turns, rows, settings, begin, end, residual, path):
    """Learn as :func:`learn` does, and write every row's estimate.

    ``path`` = (coef (N, m, k), sigma2 (N, m), stderr (N, m, k), ``FitArrays``, recursive (N, m),
    ridge (n, k)), of which rows that are not usable are left as they are.  Without statistics all
    but coef and recursive have no rows.
    """
    forms, matrix, coefs, _, _, _, _, clock, seen, spread = state
    members, position, ends = turns
    limits, _, switching, intercept, discounted = settings
    ridge = path[6]
    m, k = coefs.shape[1], coefs.shape[2]
    size = max(1, min(BLOCK, BLOCK_ENTRIES // k))
    robust = spread.shape[1] > 0 and path[2].shape[0] > 0
    buffer, error = buffer_for(size, m, k)
    block = trace_for(size, m, k, path, robust)
    for i in range(begin, end):
        f = members[i]
        t, stop = position[i], ends[i]
        while t < stop:
            most = size
            if switching and forms[f] == SQUARE_ROOT:
                most = min(size, clock[f, TO_RETRY])
            n, following = gather(rows, t, stop, most, intercept, buffer)
            if n == 0:  # only rows to skip are left
                t = following
                break
            trace = first_rows(block, n)
            if forms[f] == COVARIANCE:
                V, used = np.empty((k, k) if robust else (0, 0)), np.zeros(1)
                # V = P S P with S = spread^T spread, and used = tr(P S), from half = spread P
                if robust:
                    half = np.zeros((k, k))
                    for a in range(k):
                        for b in range(k):
                            for c in range(a, k):
                                half[a, b] += spread[f, a, c] * matrix[f, c, b]
                            used[0] += half[a, b] * spread[f, a, b]
                    for a in range(k):
                        for b in range(k):
                            V[a, b] = 0.0
                            for c in range(k):
                                V[a, b] += half[c, a] * half[c, b]
                x, y, gate, weight, places = buffer
                done = covariance_kernels.update(
                    form_of(state, f),
                    spread[f],
                    (V, used),
                    (x[:n], y[:n], gate[:n], weight[:n]),
                    (0, n),
                    limits,
                    error[:n],
                    trace,
                )
                clock[f, IN_FORM] += done
                t = places[done] if done < n else following
            else:
                done, t = advance_square_root(
                    state, f, n, following, settings, buffer, error[:n], trace
                )
            write_rows(
                seen[f : f + 1],
                rows,
                (done, done, discounted, ridge[f]),
                buffer,
                error,
                trace,
                residual,
                path,
            )
            if done < n:
                break
        position[i] = t

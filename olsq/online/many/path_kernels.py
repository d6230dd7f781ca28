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
    advance_square_root,
    buffer_for,
    form_of,
    gather,
    retry,
)


@kernel(forceinline=True, makes_arrays=True)
def first_rows(trace, n):
    """Return the first n rows of a trace's arrays, or None."""
    if trace is None:
        return trace  # not a plain None, which would make the other case optional
    coef, variance, loss, counts, recursive, sandwich = trace
    return coef[:n], variance[:n], loss[:n], counts[:n], recursive[:n], sandwich[:n]


@kernel()
def write_rows(seen, rows, done, buffer, error, residual):
    """Write the residuals that ``done`` rows of a buffer left; ``seen`` (1,) counts one filter's
    samples.
    """
    order, _, _, _, weights, _ = rows
    places = buffer[4]
    for s in range(done):
        row = order[places[s]]
        seen[0] += 1 if weights[row] > 0 else 0
        for target in range(error.shape[1]):
            residual[row, target] = error[s, target]


@kernel()
def write_path(rows, written, buffer, trace, path):
    """Write the path of ``done`` rows of a buffer; ``written`` = (done, traced, discounted, f).

    The first ``traced`` have estimates, and are those of filter f.
    """
    if path is None:
        return
    done, traced, discounted, f = written
    order, places = rows[0], buffer[4]
    path_coef, path_sigma2, path_stderr, path_squares, path_degrees, path_recursive, ridge = path
    _, m, k = trace[0].shape
    if path_stderr.shape[0] > 0:
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
            ridge[f],
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
        for target in range(m):
            path_recursive[row, target] = trace[4][s, target]
            for j in range(k if s < traced else 0):
                path_coef[row, target, j] = trace[0][s, target, j]


@kernel(makes_arrays=True)
def learn_starts(state, turns, rows, settings, begin, end, residual, trace):
    """Learn the first rows of filters that know nothing yet, while coefficients are undetermined.

    ``turns`` = (members (b,), position, ends, bases (b, s, s), stops (b, 2)), the others as in
    :func:`learn_path`, or as in :func:`learn`: then ``trace`` is (None, None).  ``stops`` receives
    what was done with a filter's last row (see :mod:`olsq.online.forms.start_kernels`) and, where
    its estimate is not written, the number of that row; a filter stops there.
    """
    forms, _, coefs, _, _, _, held, clock, seen, spread = state
    members, position, ends, bases, stops = turns
    order = rows[0]
    covariance_limits, limits, switching, intercept, discounted = settings
    path, block = trace
    m, k = coefs.shape[1], coefs.shape[2]
    buffer, error = buffer_for(m, k)
    size = error.shape[0]
    x, y, gate, weight, places = buffer
    for i in range(begin, end):
        f = members[i]
        t, stop = position[i], ends[i]
        stops[i, 0], stops[i, 1] = TAKEN, -1
        while t < stop and forms[f] == SQUARE_ROOT:
            most = min(size, clock[f, TO_RETRY]) if switching else size
            n, following = gather(rows, t, stop, most, intercept, buffer)
            rows_of_block = first_rows(block, n)
            done, last, count = start_kernels.update(
                (form_of(state, f), spread[f]),
                bases[i],
                (x[:n], y[:n], gate[:n], weight[:n]),
                (0, n),
                limits,
                intercept,
                error[:n],
                rows_of_block,
            )
            held[f] += count
            traced = done
            if path is not None and last in (LAST, UNTRACED):
                traced, stops[i, 1] = done - 1, order[places[done - 1]]
            write_rows(seen[f : f + 1], rows, done, buffer, error, residual)
            write_path(rows, (done, traced, discounted, f), buffer, rows_of_block, path)
            t = places[done] if done < n else following
            stops[i, 0] = last
            if switching:
                retry(state, f, done, covariance_limits)
            if last != TAKEN:
                break
        position[i] = t


@kernel()
def learn_path(state, turns, rows, settings, begin, end, residual, trace):
    """Learn as :func:`learn` does, and write every row's estimate.

    ``trace`` = (path, block), the latter the arrays of a ``Trace`` of as many rows as a buffer has.
    ``path`` = (coef (N, m, k), sigma2 (N, m), stderr (N, m, k), ``FitArrays``, recursive (N, m),
    ridge (n, k)), of which rows that are not usable are left as they are.  Without statistics all
    but coef and recursive have no rows.
    """
    forms, matrix, coefs, _, _, _, _, clock, seen, spread = state
    members, position, ends = turns
    limits, _, switching, intercept, discounted = settings
    path, block = trace
    m, k = coefs.shape[1], coefs.shape[2]
    robust = spread.shape[1] > 0 and path[2].shape[0] > 0
    buffer, error = buffer_for(m, k)
    size = error.shape[0]
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
            rows_of_block = first_rows(block, n)
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
                    rows_of_block,
                )
                clock[f, IN_FORM] += done
                t = places[done] if done < n else following
            else:
                done, t = advance_square_root(
                    state,
                    spread[f],
                    f,
                    (n, following),
                    settings,
                    buffer,
                    error[:n],
                    rows_of_block,
                )
            write_rows(seen[f : f + 1], rows, done, buffer, error, residual)
            write_path(rows, (done, done, discounted, f), buffer, rows_of_block, path)
            if done < n:
                break
        position[i] = t

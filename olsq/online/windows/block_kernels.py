"""Numba kernels of the rolling window for four rows that enter and four that leave at a time.

The eight vectors share one pass that multiplies with P and one that changes it, as the eight rows
of a block do in ``covariance_blocks``; those that leave have a negative sign.  With
``delta_j = 1 + s_j w_j x_j.P_j x_j`` and ``n_j = sqrt(w_j / delta_j) P_j x_j``

    P_j+1 = P_j - s_j n_j n_j^T,      theta_j+1 = theta_j + s_j eps_j n_j,

where ``P_j x_j = P x_j - sum_{i<j} s_i n_i (n_i.x_j)`` and ``n_i.x_j`` follow from ``X P X^T`` of
the eight.  The order is that of single rows (each enters before one leaves), and so are the bounds
that each row is held to: a block with a row beyond one of them is not taken.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.covariance_blocks import (
    BLOCK,
    multiply_block,
    solve_block,
    subtract_block,
)
from olsq.online.forms.edges import check_rolling
from olsq.online.forms.square_root_kernels import COUNT, COUNT_SQUARED, WEIGHT, record_counts
from olsq.online.windows.accuracy import EPS, SUM, is_accurate
from olsq.online.windows.row_kernels import (
    FILLED,
    LARGEST_REMOVED_LEVERAGE,
    POSITIONS,
    SLOT,
    count_leaving,
    store,
)

ROWS = BLOCK // 2  # rows that enter with a block; as many leave


@kernel(forceinline=True)
def gather(window, rows, t, block):
    """Fill ``block`` = (K (8, d), targets (8, m), w (8,)): what enters and what leaves, in turn.

    False where not exactly one row leaves with each that enters.
    """
    ring_X, ring_Y, ring_w, place, _, _, _ = window
    (X, Y, weights, leaving), (K, targets, w) = rows, block
    slots, filled, slot = ring_w.shape[0], place[FILLED], place[SLOT]
    if filled < ROWS:
        return False
    for r in range(ROWS):
        enters = weights[t + r] > 0 or place[POSITIONS] != 0
        if not enters or count_leaving(leaving, t + r, enters, filled, slots) != 1:
            return False
        i, oldest = 2 * r, (slot - filled + r) % slots
        w[i], w[i + 1] = weights[t + r], ring_w[oldest]
        for k in range(K.shape[1]):
            K[i, k] = X[t + r, k]
            K[i + 1, k] = ring_X[oldest, k]
        for target in range(targets.shape[1]):
            targets[i, target], targets[i + 1, target] = Y[t + r, target], ring_Y[oldest, target]
    return True


@kernel(forceinline=True)
def eliminate(S, w, largest, U, scale, rounding, growth):
    """Compute U (8, 8) = s_i n_i.x_j above its diagonal, and scale (8,) = sqrt(w_j / delta_j).

    ``S = X P X^T`` is destroyed.  Each of four rows amplifies its own rounding errors by
    ``rounding`` (4,), and those before it by ``growth`` (4,).  False where a leverage is beyond the
    bounds.
    """
    for i in range(BLOCK):
        leverage = w[i] * S[i, i]
        leaves = i % 2 == 1
        if not 0 <= leverage <= (LARGEST_REMOVED_LEVERAGE if leaves else largest):
            return False
        delta = 1.0 - leverage if leaves else 1.0 + leverage
        sign = -1.0 if leaves else 1.0
        scale[i] = math.sqrt(w[i] / delta)
        if leaves:
            rounding[i // 2], growth[i // 2] = (rounding[i // 2] + 1.0) / delta, 1.0 / delta
        else:
            rounding[i // 2] = delta
        for k in range(BLOCK):
            U[i, k] = S[i, k] * scale[i]
        for j in range(i + 1, BLOCK):
            factor = sign * U[i, j]
            for k in range(BLOCK):
                S[j, k] -= factor * U[i, k]
        for k in range(BLOCK):
            U[i, k] *= sign
    return True


@kernel(forceinline=True)
def inflations(form, N, block, squares, inflation, trace, t):
    """Compute the largest inflation factors after each of four rows, ``inflation`` = (largest,
    grown), (4,) each.

    ``grown`` are those with the columns' largest squares; ``block`` as :func:`gather` fills it.
    squares (2, d) receives the columns' after the block, rows t.. of ``trace`` (if any) the
    diagonal of P after each row.  False where it is not positive.
    """
    (P, _, columns, _, _), (K, _, w), (largest, grown) = form, block, inflation
    w0, w1, w2, w3, w4, w5, w6, w7 = w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
    l0 = l1 = l2 = l3 = g0 = g1 = g2 = g3 = 0.0
    outside = 0  # counted, for a loop that may return early does not vectorise
    for k in range(P.shape[0]):
        p0 = P[k, k] - N[0, k] * N[0, k] + N[1, k] * N[1, k]
        p1 = p0 - N[2, k] * N[2, k] + N[3, k] * N[3, k]
        p2 = p1 - N[4, k] * N[4, k] + N[5, k] * N[5, k]
        p3 = p2 - N[6, k] * N[6, k] + N[7, k] * N[7, k]
        c, most = columns[0, k], columns[1, k]
        c = max(c + w0 * K[0, k] * K[0, k] - w1 * K[1, k] * K[1, k], 0.0)
        most = max(most, c)
        l0, g0 = max(l0, p0 * c), max(g0, p0 * most)
        c = max(c + w2 * K[2, k] * K[2, k] - w3 * K[3, k] * K[3, k], 0.0)
        most = max(most, c)
        l1, g1 = max(l1, p1 * c), max(g1, p1 * most)
        c = max(c + w4 * K[4, k] * K[4, k] - w5 * K[5, k] * K[5, k], 0.0)
        most = max(most, c)
        l2, g2 = max(l2, p2 * c), max(g2, p2 * most)
        c = max(c + w6 * K[6, k] * K[6, k] - w7 * K[7, k] * K[7, k], 0.0)
        most = max(most, c)
        l3, g3 = max(l3, p3 * c), max(g3, p3 * most)
        squares[0, k], squares[1, k] = c, most
        outside += 0 if (p0 > 0) & (p1 > 0) & (p2 > 0) & (p3 > 0) else 1
        if trace is not None:
            diags = trace[1]
            if diags.shape[0] > 0:
                diags[t, k], diags[t + 1, k], diags[t + 2, k], diags[t + 3, k] = p0, p1, p2, p3
    largest[0], largest[1], largest[2], largest[3] = l0, l1, l2, l3
    grown[0], grown[1], grown[2], grown[3] = g0, g1, g2, g3
    return outside == 0


@kernel(forceinline=True)
def errors_of(loss, factors, targets, residual, trace, eps, after, t):
    """Compute residuals, eps (8, m), and the losses (4, m) ``after`` each row.

    ``factors`` = (E, U, scale): predictions (8, m) and what :func:`eliminate` fills.
    """
    E, U, scale = factors
    for r in range(ROWS):
        for target in range(loss.shape[0]):
            before = loss[target] if r == 0 else after[r - 1, target]
            for i in range(2 * r, 2 * r + 2):
                error = targets[i, target] - E[i, target]
                for k in range(i):
                    error -= U[k, i] * eps[k, target]
                eps[i, target] = error * scale[i]
                if i == 2 * r:
                    residual[t + r, target] = error
                    before += eps[i, target] ** 2
                    if trace is not None:
                        trace[4][t + r, target] = eps[i, target]
                else:
                    before -= eps[i, target] ** 2
            after[r, target] = before


@kernel(forceinline=True)
def are_accurate(monitor, sizes, targets, w, amplified, inflation, limits, after):
    """Update ``monitor`` and ``sizes`` by the four rows; False where one is beyond a bound.

    ``amplified`` = (rounding, growth) of :func:`eliminate`, ``inflation`` = (largest, grown) of
    :func:`inflations`.
    """
    (rounding, growth), (largest, grown) = amplified, inflation
    for r in range(ROWS):
        added = EPS * rounding[r] * largest[r]
        monitor[0], monitor[1] = monitor[0] * growth[r] + added, monitor[1] + added
        for target in range(sizes.shape[1]):
            came = w[2 * r] * targets[2 * r, target] ** 2
            left = w[2 * r + 1] * targets[2 * r + 1, target] ** 2
            sizes[SUM, target] = max(sizes[SUM, target] + came - left, 0.0)
        bound = min(monitor[0], monitor[1] * grown[r])
        if not (largest[r] < limits[1] and is_accurate(bound, limits[2], sizes, after[r])):
            return False
    return True


@kernel(forceinline=True)
def add_pairs(theta, target, eps, N, trace, t):
    """Add eps_0 n_0 - eps_1 n_1 + ... to one target's theta, N (8, d).

    The sum after every second one goes into rows t.. of a trace, if any.
    """
    e0, e1, e2, e3 = eps[0, target], eps[1, target], eps[2, target], eps[3, target]
    e4, e5, e6, e7 = eps[4, target], eps[5, target], eps[6, target], eps[7, target]
    for j in range(N.shape[1]):
        y0 = theta[target, j] + (e0 * N[0, j] - e1 * N[1, j])
        y1 = y0 + (e2 * N[2, j] - e3 * N[3, j])
        y2 = y1 + (e4 * N[4, j] - e5 * N[5, j])
        y3 = y2 + (e6 * N[6, j] - e7 * N[7, j])
        if trace is not None:
            coefs = trace[0]
            coefs[t, target, j], coefs[t + 1, target, j] = y0, y1
            coefs[t + 2, target, j], coefs[t + 3, target, j] = y2, y3
        theta[target, j] = y3


@kernel(forceinline=True)
def update_in_blocks(form, window, rows, span, limits, residual, trace):
    """Update as ``row_kernels.update``, four rows at a time; return the first row not taken.

    Stops before a block that is incomplete, in which rows enter that none leaves for, or of which
    single rows would have the form refined or made anew: nothing of it has been changed then.
    """
    check_rolling(form, window, rows, span, residual, trace)
    P, theta, columns, tally, loss = form
    ring_X, ring_Y, ring_w, place, _, monitor, sizes = window
    (X, Y, _, _), (start, stop) = rows, span
    d, m, slots = P.shape[0], theta.shape[0], ring_X.shape[0]
    K, N, squares = np.empty((BLOCK, d)), np.empty((BLOCK, d)), np.empty((2, d))
    targets, E, eps, after = (
        np.empty((BLOCK, m)),
        np.empty((BLOCK, m)),
        np.empty((BLOCK, m)),
        np.empty((ROWS, m)),
    )
    S, U, w, scale = (
        np.empty((BLOCK, BLOCK)),
        np.empty((BLOCK, BLOCK)),
        np.empty(BLOCK),
        np.empty(BLOCK),
    )
    ones, rounding, growth = np.ones(BLOCK), np.empty(ROWS), np.empty(ROWS)
    inflation = np.empty(ROWS), np.empty(ROWS)
    block = K, targets, w
    bounds, heights = np.empty(2), np.empty((3, m))
    t = start
    while t + ROWS <= stop:
        if not gather(window, rows, t, block):
            return t
        multiply_block(K, 0, P, 0, d, N)
        multiply_block(N, 0, K, 0, BLOCK, S)
        if not eliminate(S, w, limits[0], U, scale, rounding, growth):
            return t
        solve_block(U, scale, ones, N)
        if not inflations(form, N, block, squares, inflation, trace, t):
            return t
        multiply_block(K, 0, theta, 0, m, E)
        errors_of(loss, (E, U, scale), targets, residual, trace, eps, after, t)
        bounds[:], heights[:] = monitor, sizes
        if not are_accurate(
            bounds, heights, targets, w, (rounding, growth), inflation, limits, after
        ):
            return t
        monitor[:], sizes[:], columns[:] = bounds, heights, squares
        for target in range(m):
            add_pairs(theta, target, eps, N, trace, t)
            loss[target] = after[ROWS - 1, target]
        for r in range(ROWS):
            came, left = w[2 * r], w[2 * r + 1]
            tally[COUNT] += (1.0 if came > 0 else 0.0) - (1.0 if left > 0 else 0.0)
            tally[COUNT_SQUARED] = tally[COUNT]
            tally[WEIGHT] = max(tally[WEIGHT] + came - left, 0.0)
            if trace is not None:
                record_counts(trace[3], t + r, tally, d, 0.0)
                for target in range(m):
                    trace[2][t + r, target] = after[r, target]
            store(ring_X, ring_Y, ring_w, (place[SLOT] + r) % slots, X[t + r], Y[t + r], came)
        place[SLOT] = (place[SLOT] + ROWS) % slots
        subtract_block(P, N, 1.0, -1.0)
        t += ROWS
    return t

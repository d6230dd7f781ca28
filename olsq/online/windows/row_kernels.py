"""Numba kernels of the rolling window: one row enters, and those leave that it pushes out."""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.covariance_kernels import multiply
from olsq.online.forms.edges import check_rolling
from olsq.online.forms.square_root_kernels import (
    COUNT,
    COUNT_SQUARED,
    WEIGHT,
    downdate,
    record,
    rotate,
)
from olsq.online.forms.triangular_kernels import back_substitute, forward_solve, inverse_diagonal
from olsq.online.windows.accuracy import EPS, SUM, is_accurate, refine

# Entries of ``place``.
FILLED, SLOT, POSITIONS = 0, 1, 2
# What the kernel asks of its caller when it stops early.
DONE, REBUILD = 0, 1
# Removing a row of leverage above this loses more than half of the digits.
LARGEST_REMOVED_LEVERAGE = 1.0 - 1e-6
# A ridge below this share of a column's squared length is lost where rows that leave are rotated
# out: with x a column and 3 x another, their difference was worth rounding errors over the ridge.
FAINT_RIDGE = 1e-12


@kernel(forceinline=True)
def rank_one(P, h, sign, x, out):
    """Compute ``P + sign h h^T`` into P, bitwise symmetric, and P x of it into out, in one pass."""
    for i in range(P.shape[0]):
        hi = sign * h[i]
        total = 0.0
        for k in range(P.shape[0]):
            entry = P[i, k] + hi * h[k]
            P[i, k] = entry
            total += entry * x[k]
        out[i] = total


@kernel(forceinline=True)
def store(ring_X, ring_Y, ring_w, slot, x, y, weight):
    """Write a row into the window."""
    for k in range(x.shape[0]):
        ring_X[slot, k] = x[k]
    for target in range(y.shape[0]):
        ring_Y[slot, target] = y[target]
    ring_w[slot] = weight


@kernel(forceinline=True)
def count_leaving(leaving, t, enters, filled, window):
    """Count the rows that leave when row t comes."""
    if leaving.shape[0] > 0:
        return leaving[t]
    return 1 if enters and filled == window else 0


@kernel(forceinline=True)
def update(form, window, rows, span, limits, residual, trace):
    """Take the rows of a span into the window in covariance form; return (t, DONE) or (t, REBUILD).

    ``form`` = (P, theta, columns, tally, loss); ``rows`` = (X, Y, weights, leaving).
    ``window`` = (ring_X, ring_Y, ring_w, place, ridge, monitor, sizes), the last two as in
    ``accuracy``; ``place`` = [rows in the window, slot of the next row, whether rows of weight 0
    take a place].
    ``leaving`` (n,) is how many rows leave with each that comes, oldest first; empty where the
    ring is the window, and one leaves when it is full.
    ``limits`` = (leverage, inflation, tolerated error).
    On REBUILD row t - 1 is in the ring but P, theta and loss are not valid.
    Rows enter before the oldest leaves, so that P never passes through a smaller window.
    """
    check_rolling(form, window, rows, span, residual, trace)
    d = form[0].shape[0]
    scratch = np.empty(d), np.empty(d), np.empty(d)
    return take_rows(form, window, rows, span, limits, residual, trace, scratch)


@kernel(forceinline=True)
def take_rows(form, window, rows, span, limits, residual, trace, scratch):
    """Run :func:`update` on checked arrays; ``scratch`` are three vectors (d,)."""
    P, theta, columns, tally, loss = form
    ring_X, ring_Y, ring_w, place, _, monitor, sizes = window
    (X, Y, weights, leaving), (start, stop) = rows, span
    d, m, slots = P.shape[0], theta.shape[0], ring_X.shape[0]
    u, h, _ = scratch
    fresh = True
    for t in range(start, stop):
        x, weight = X[t], weights[t]
        if fresh:
            multiply(P, x, u)
            fresh = False
        leverage = 0.0
        for k in range(d):
            leverage += u[k] * x[k]
        innovation = 1.0 + weight * leverage
        slot, filled = place[SLOT], place[FILLED]
        enters = weight > 0 or place[POSITIONS] != 0
        out = count_leaving(leaving, t, enters, filled, slots)
        good = 0 <= weight * leverage <= limits[0]
        for target in range(m):
            error = Y[t, target]
            for k in range(d):
                error -= theta[target, k] * x[k]
            residual[t, target] = error
            if trace is not None:
                scale = math.sqrt(weight / innovation) if innovation >= 1.0 else 0.0
                trace[4][t, target] = error * scale
            step = error * weight / innovation
            for k in range(d):
                theta[target, k] += step * u[k]
            loss[target] += step * error
            sizes[SUM, target] += weight * Y[t, target] * Y[t, target]
        if not enters and out == 0:  # not a sample: it only gets its residual
            if trace is not None:
                record_with_variances(trace, t, P, theta, loss, tally)
            fresh = True
            continue
        root = math.sqrt(weight / innovation) if good else 0.0
        for k in range(d):
            h[k] = root * u[k]
            columns[0, k] += weight * x[k] * x[k]
        tally[COUNT] += 1.0 if weight > 0 else 0.0
        tally[WEIGHT] += weight
        # Errors of this step and of those before it, both amplified by each row that leaves.
        rounding, growth, sign = innovation, 1.0, -1.0
        if out > filled - out + (1 if enters else 0):  # what stays is solved anew in fewer steps
            good = False
        for r in range(out if good else 0):
            oldest = (slot - filled + r) % slots
            old, old_weight = ring_X[oldest], ring_w[oldest]
            rank_one(P, h, sign, old, u)
            removed = 0.0
            for k in range(d):
                removed += u[k] * old[k]
                columns[0, k] = max(columns[0, k] - old_weight * old[k] * old[k], 0.0)
            removed *= old_weight
            good = good and removed <= LARGEST_REMOVED_LEVERAGE
            remaining = 1.0 - removed if good else 1.0
            amplified = 1.0 / remaining
            rounding, growth = (rounding + 1.0) * amplified, growth * amplified
            for target in range(m):
                error = ring_Y[oldest, target]
                for k in range(d):
                    error -= theta[target, k] * old[k]
                step = error * old_weight * amplified
                for k in range(d):
                    theta[target, k] -= step * u[k]
                loss[target] -= step * error
                square = old_weight * ring_Y[oldest, target] ** 2
                sizes[SUM, target] = max(sizes[SUM, target] - square, 0.0)
            root = math.sqrt(old_weight * amplified)
            for k in range(d):
                h[k] = root * u[k]
            sign = 1.0
            tally[COUNT] -= 1.0 if old_weight > 0 else 0.0
            tally[WEIGHT] = max(tally[WEIGHT] - old_weight, 0.0)
        if enters:
            store(ring_X, ring_Y, ring_w, slot, x, Y[t], weight)
            place[SLOT] = (slot + 1) % slots
        place[FILLED] = filled - out + (1 if enters else 0)
        tally[COUNT_SQUARED] = tally[COUNT]
        rank_one(P, h, sign, X[min(t + 1, stop - 1)], u)
        inflation, grown, outside = 0.0, 0.0, 0
        for k in range(d):
            variance, square = P[k, k], columns[0, k]
            largest = max(columns[1, k], square)
            columns[1, k] = largest
            inflation, grown = max(inflation, variance * square), max(grown, variance * largest)
            outside += 0 if variance > 0 else 1
        rounding *= EPS * inflation
        monitor[0] = monitor[0] * growth + rounding
        monitor[1] += rounding
        if not (good and outside == 0 and inflation < limits[1]):
            return t + 1, REBUILD
        if not is_accurate(min(monitor[0], monitor[1] * grown), limits[2], sizes, loss):
            if not refine(form, window, limits[2], scratch):
                return t + 1, REBUILD
            fresh = True  # u has been in use
        if trace is not None:
            record_with_variances(trace, t, P, theta, loss, tally)
    return stop, DONE


@kernel(forceinline=True)
def record_with_variances(trace, t, P, theta, loss, tally):
    """Write the state after row t into the trace, with variances where they are wanted."""
    record(trace, t, theta, loss, tally, P.shape[0], 0.0)
    for k in range(P.shape[0] if trace[1].shape[0] > 0 else 0):
        trace[1][t, k] = P[k, k]


@kernel(forceinline=True)
def left_to_ridge(R, columns, ridge):
    """Test whether a faint ridge is all that determines a coefficient beside those before it."""
    share = 0.0
    for k in range(R.shape[0]):
        if ridge[k] < FAINT_RIDGE * columns[0, k]:
            share = max(share, ridge[k] / columns[0, k])
        # Where column k is a sum of those before it, R_kk^2 is a few times the ridge of that sum.
        if share > 0 and R[k, k] * R[k, k] <= 8 * share * columns[0, k]:
            return True
    return False


@kernel(forceinline=True)
def update_square_root(form, window, rows, span, tolerance, residual, trace):
    """Update as :func:`update` in square-root form, for a window that determines all coefficients.

    ``form`` = (R, z, columns, tally, loss).  The error bound, ``monitor[1]``, grows by one rounding
    a row, times what the downdate amplifies; unlike in the covariance form the condition number
    does not enter.  The roundings are in proportion to the columns as they were.
    """
    check_rolling(form, window, rows, span, residual, trace)
    R, z, columns, tally, loss = form
    ring_X, ring_Y, ring_w, place, ridge, monitor, sizes = window
    X, Y, weights, leaving = rows
    d, m, slots = R.shape[0], z.shape[0], ring_X.shape[0]
    p, x, y, noise = np.empty(d), np.empty(d), np.empty(m), np.zeros(d)
    theta = np.empty((m, d))
    inverse = np.empty((d, d))
    for t in range(span[0], span[1]):
        weight, slot, filled = weights[t], place[SLOT], place[FILLED]
        enters = weight > 0 or place[POSITIONS] != 0
        out = count_leaving(leaving, t, enters, filled, slots)
        for k in range(d):
            x[k], noise[k] = X[t, k], 0.0
        forward_solve(R, x, p, columns, 0.0, noise)
        leverage = 0.0
        for k in range(d):
            leverage += p[k] * p[k]
        for target in range(m):
            error = Y[t, target]
            for k in range(d):
                error -= z[target, k] * p[k]
            residual[t, target] = error
            if trace is not None:
                trace[4][t, target] = error * math.sqrt(weight / (1.0 + weight * leverage))
        if not enters and out == 0:
            if trace is not None:
                back_substitute(R, z, theta)
                if trace[1].shape[0] > 0:
                    inverse_diagonal(R, inverse, trace[1][t])
                record(trace, t, theta, loss, tally, d, 0.0)
            continue
        root = math.sqrt(weight)
        for k in range(d):
            x[k] = root * X[t, k]
            columns[0, k] += x[k] * x[k]
        for target in range(m):
            y[target] = root * Y[t, target]
            sizes[SUM, target] += y[target] * y[target]
        for k in range(d):
            noise[k] = 0.0
        rotate(R, z, x, y, 1.0, noise)
        for target in range(m):
            loss[target] += y[target] * y[target]
        tally[COUNT] += 1.0 if weight > 0 else 0.0
        tally[WEIGHT] += weight
        good = out <= filled - out + (1 if enters else 0)
        amplification = 1.0
        for r in range(out if good else 0):
            oldest = (slot - filled + r) % slots
            old_weight = ring_w[oldest]
            root = math.sqrt(old_weight)
            for k in range(d):
                x[k] = root * ring_X[oldest, k]
                columns[0, k] = max(columns[0, k] - x[k] * x[k], 0.0)
            forward_solve(R, x, p, columns, 0.0, noise)
            removed = 0.0
            for k in range(d):
                removed += p[k] * p[k]
            good = good and removed <= LARGEST_REMOVED_LEVERAGE
            remaining = 1.0 - removed if good else 1.0
            amplification += 1.0 / remaining
            downdate(form, p, ring_Y[oldest], root, remaining, (x, y))
            for target in range(m):
                square = old_weight * ring_Y[oldest, target] ** 2
                sizes[SUM, target] = max(sizes[SUM, target] - square, 0.0)
            tally[COUNT] -= 1.0 if old_weight > 0 else 0.0
            tally[WEIGHT] = max(tally[WEIGHT] - old_weight, 0.0)
        tally[COUNT_SQUARED] = tally[COUNT]
        if enters:
            store(ring_X, ring_Y, ring_w, slot, X[t], Y[t], weight)
            place[SLOT] = (slot + 1) % slots
        place[FILLED] = filled - out + (1 if enters else 0)
        monitor[1] += EPS * amplification
        shrunk = 1.0
        for k in range(d):
            good = good and R[k, k] != 0
            columns[1, k] = max(columns[1, k], columns[0, k])
            shrunk = max(shrunk, columns[1, k] / columns[0, k])
        bound = monitor[1] * shrunk
        if not (good and is_accurate(bound, tolerance, sizes, loss)) or left_to_ridge(
            R, columns, ridge
        ):
            return t + 1, REBUILD
        if trace is not None:
            back_substitute(R, z, theta)
            if trace[1].shape[0] > 0:
                inverse_diagonal(R, inverse, trace[1][t])
            record(trace, t, theta, loss, tally, d, 0.0)
    return span[1], DONE

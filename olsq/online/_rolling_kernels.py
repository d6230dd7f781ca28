"""Numba kernel of the rolling window: one row in, one row out, in the covariance form."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from olsq.online._square_root_kernels import COUNT, COUNT_SQUARED, FAST, RANK

# What the kernel asks of its caller when it stops early.
DONE, REBUILD = 0, 1
# Removing a row of leverage above this loses more than half of the digits.
LARGEST_REMOVED_LEVERAGE = 1.0 - 1e-6
FORGOTTEN_LOSS = 1e-6


@njit(cache=True, fastmath=FAST, nogil=True)
def multiply(P, x, out):
    """out = P x."""
    for i in range(P.shape[0]):
        total = 0.0
        for k in range(P.shape[0]):
            total += P[i, k] * x[k]
        out[i] = total


@njit(cache=True, fastmath=FAST, nogil=True)
def rank_one(P, h, sign, x, out):
    """P += sign h h^T and out = P x of the new P, in one pass; P stays bitwise symmetric."""
    for i in range(P.shape[0]):
        hi = sign * h[i]
        total = 0.0
        for k in range(P.shape[0]):
            entry = P[i, k] + hi * h[k]
            P[i, k] = entry
            total += entry * x[k]
        out[i] = total


@njit(cache=True, fastmath=FAST, nogil=True)
def update(
    P, theta, columns, tally, loss, monitor, ring_X, ring_Y, ring_w, place, X, Y, weights, start, stop,
    limits, residual, trace,
):  # fmt: skip
    """Take rows start..stop into the window; return (t, DONE) or (t, REBUILD).

    ``place`` = [rows in the window, slot of the next row].  ``monitor`` = [error bound, largest
    loss since the last rebuild]; ``limits`` = (leverage, inflation, tolerated error bound).
    On REBUILD row t - 1 is in the ring but P, theta and loss are not valid.
    Rows enter before the oldest leaves, so that P never passes through a smaller window.
    """
    d, m, window = P.shape[0], theta.shape[0], ring_X.shape[0]
    coefs, diags, losses, counts, recursive = trace
    u, h = np.empty(d), np.empty(d)
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
        slot = place[1]
        full = place[0] == window
        good = 0 <= weight * leverage <= limits[0]
        for target in range(m):
            error = float(Y[t, target])
            for k in range(d):
                error -= theta[target, k] * x[k]
            residual[t, target] = error
            if coefs.shape[0] > 0:
                recursive[t, target] = error * math.sqrt(weight / innovation) if good else 0.0
            step = error * weight / innovation
            for k in range(d):
                theta[target, k] += step * u[k]
            loss[target] += weight * error * error / innovation
            monitor[1] = max(monitor[1], loss[target])
        root = math.sqrt(weight / innovation) if good else 0.0
        for k in range(d):
            h[k] = root * u[k]
            columns[0, k] += weight * x[k] * x[k]
        tally[COUNT] += 1.0 if weight > 0 else 0.0
        amplification = innovation
        if full:
            old, old_weight = ring_X[slot], ring_w[slot]
            rank_one(P, h, -1.0, old, u)
            removed = 0.0
            for k in range(d):
                removed += u[k] * old[k]
                columns[0, k] -= old_weight * old[k] * old[k]
            removed *= old_weight
            good = good and removed <= LARGEST_REMOVED_LEVERAGE
            remaining = 1.0 - removed if good else 1.0
            amplification += 1.0 / remaining
            for target in range(m):
                error = ring_Y[slot, target]
                for k in range(d):
                    error -= theta[target, k] * old[k]
                step = error * old_weight / remaining
                for k in range(d):
                    theta[target, k] -= step * u[k]
                loss[target] -= old_weight * error * error / remaining
                good = good and loss[target] >= FORGOTTEN_LOSS * monitor[1]
            root = math.sqrt(old_weight / remaining)
            for k in range(d):
                h[k] = root * u[k]
            tally[COUNT] -= 1.0 if old_weight > 0 else 0.0
        ring_X[slot], ring_Y[slot], ring_w[slot] = x, Y[t], weight
        place[0] = min(place[0] + 1, window)
        place[1] = (slot + 1) % window
        tally[COUNT_SQUARED] = tally[COUNT]
        rank_one(P, h, 1.0 if full else -1.0, X[min(t + 1, stop - 1)], u)
        inflation = 0.0
        for k in range(d):
            good = good and P[k, k] > 0
            inflation = max(inflation, P[k, k] * columns[0, k])
        monitor[0] += 2.3e-16 * amplification * inflation
        if not (good and inflation < limits[1] and monitor[0] < limits[2]):
            return t + 1, REBUILD
        if coefs.shape[0] > 0:
            coefs[t] = theta
            for k in range(d):
                diags[t, k] = P[k, k]
            losses[t] = loss
            counts[t, :RANK] = tally
            counts[t, RANK] = d
    return stop, DONE

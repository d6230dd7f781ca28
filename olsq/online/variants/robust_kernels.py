"""Numba kernels of robust least squares: rows that are weighted as they pass."""

from __future__ import annotations

import math

import numpy as np

from olsq.kernel import kernel
from olsq.online.forms.edges import check_gates, check_rows, check_state
from olsq.online.forms.square_root_kernels import absorb, noise_level
from olsq.online.forms.triangular_kernels import forward_solve

HUBER, STUDENT = 0, 1
FEWEST = 8  # residuals below which there is no scale


@kernel(forceinline=True)
def scales_of(recent, count, quartile, out):
    """The scale of each target, the median of its residuals over ``quartile``, into out (m,).

    False, and nothing written, where there are too few.
    """
    if count < FEWEST:
        return False
    for target in range(recent.shape[1]):
        out[target] = np.median(np.abs(recent[:count, target])) / quartile
    return True


@kernel(forceinline=True)
def weight_of(residual, scales, loss, parameter):
    """The weight of a row whose standardised residuals are (m,); in [0, 1 + m / dof]."""
    m = residual.shape[0]
    square = 0.0
    for target in range(m):
        if residual[target] != 0:  # not 0 / 0: a perfect fit is no outlier
            square += (residual[target] / scales[target]) ** 2
    if loss == STUDENT:
        return (parameter + m) / (parameter + square)
    size = math.sqrt(square / m)
    return 1.0 if size <= parameter else parameter / size


@kernel(forceinline=True)
def update(
    R, z, columns, tally, loss, X, Y, gates, weights, start, stop, limits, residual, passed,
    recent, recent_at, rule,
):  # fmt: skip
    """Absorb rows start..stop, each times its weight, which goes to ``passed`` (n,).

    As ``square_root_kernels.update``: returns (first row not absorbed, coefficients held), and
    stops before a reset and before a row in a direction that is new.  ``recent`` (w, m) and
    ``recent_at`` (count, next place, ..) are the ring of standardised residuals, ``rule`` the loss,
    its parameter, and the quartile of the noise.
    """
    kind, parameter, quartile = rule
    d, m = R.shape[0], z.shape[0]
    n, window = X.shape[0], recent.shape[0]
    check_state(R, z, columns, tally, loss)
    check_rows(X, Y, weights, start, stop, residual, d, m)
    check_gates(gates, n)
    check_gates(passed, n)
    if recent.shape[1] != m or recent_at.shape != (3,) or not 0 <= recent_at[0] <= window:
        raise ValueError("the ring of residuals does not fit the state")
    if not 0 <= recent_at[1] < window:
        raise ValueError("the ring of residuals does not fit the state")
    p, x, y, noise = np.empty(d), np.empty(d), np.empty(m), np.empty(d)
    theta, scales, standard = np.empty((m, d)), np.empty(m), np.empty(m)
    held = 0
    for t in range(start, stop):
        for j in range(d):
            x[j] = X[t, j]
            noise[j] = abs(x[j])
        if gates[t] == 0:
            return t, held
        if forward_solve(R, x, p, columns, noise_level(limits, d, tally), noise) >= 0:
            return t, held
        leverage = 0.0
        for k in range(d):
            leverage += p[k] * p[k]
        leverage /= gates[t]
        for target in range(m):
            total = Y[t, target]
            for k in range(d):
                total -= z[target, k] * p[k]
            residual[t, target] = total
            standard[target] = total / math.sqrt(1.0 + leverage)
        if scales_of(recent, recent_at[0], quartile, scales):
            passed[t] = weight_of(standard, scales, kind, parameter)
        held += absorb(
            R, z, columns, tally, loss, X[t], Y[t], gates[t], weights[t] * passed[t], limits,
            noise, x, y, theta,
        )  # fmt: skip
        if weights[t] > 0 and leverage <= 1.0:
            place = recent_at[1]
            for target in range(m):
                recent[place, target] = standard[target]
            recent_at[0] = min(recent_at[0] + 1, window)
            recent_at[1] = (place + 1) % window
    return stop, held

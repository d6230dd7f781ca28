"""Numba kernels of a bank around the dense algebra that NumPy does for many filters at once.

What cannot be done a row at a time in a loop without LAPACK: rows that need coefficients of minimum
norm, and what is read of all states.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms import square_root_kernels
from olsq.online.forms.square_root_kernels import is_held, noise_level
from olsq.online.forms.statistics import fill_statistics
from olsq.online.forms.triangular_kernels import back_substitute, forward_solve


@kernel()
def take_alone(state, filters, chosen, rows, theta, settings, residual, recursive):
    """Absorb one row in each of ``filters`` (b,), row chosen[i] of X.

    These are rows whose treatment needs coefficients: a reset, a new direction, or a row of a path
    while some coefficient is undetermined.

    theta (b, m, k) are their coefficients before; as ``SquareRootForm._take_alone``.
    ``recursive`` (N, m), or (0, m) where it is not wanted.
    """
    _, matrix, coefs, columns, tally, loss, held, _, seen, spread = state
    _, X, Y, gates, weights, _ = rows
    _, limits, _, intercept, _ = settings
    m, k = coefs.shape[1], coefs.shape[2]
    first = 1 if intercept else 0
    x, rest, p, noise = np.ones((1, k)), np.empty(k), np.empty(k), np.empty(k)
    y, scratch, gates_, weights_ = np.empty(m), np.empty((m, k)), np.empty(1), np.empty(1)
    targets = np.empty(m)
    if theta.shape != (filters.shape[0], m, k) or chosen.shape != filters.shape:
        raise ValueError("the coefficients do not have the shape of the filters")
    for i in range(filters.shape[0]):
        f, row = filters[i], chosen[i]
        R, z, squares = matrix[f], coefs[f], columns[f]
        gate, weight = gates[row], weights[row]
        for j in range(X.shape[1]):
            x[0, first + j] = X[row, j]
        for target in range(m):
            targets[target] = Y[row, target]
            error = targets[target]
            for j in range(k):
                error -= theta[i, target, j] * x[0, j]
            residual[row, target] = error
        scale = 0.0
        for attempt in range(2 if gate == 0 else 1):
            if attempt == 1:
                R[:] = 0.0
                z[:] = 0.0
                squares[:] = 0.0
                loss[f] = 0.0
                tally[f] = 0.0
                spread[f] = 0.0
                gate = 1.0
            for j in range(k):
                rest[j] = x[0, j]
                noise[j] = abs(x[0, j])
            new = forward_solve(R, rest, p, squares, noise_level(limits, k, tally[f]), noise)
            if gate > 0 and new < 0 and attempt == 0:
                leverage = 0.0
                for j in range(k):
                    leverage += p[j] * p[j]
                scale = math.sqrt(weight * gate / (gate + weight * leverage))
        held[f] += square_root_kernels.absorb(
            R,
            z,
            squares,
            tally[f],
            loss[f],
            x[0],
            targets,
            gate,
            weight,
            limits,
            noise,
            rest,
            y,
            scratch,
        )
        gates_[0], weights_[0] = gate, weight
        square_root_kernels.absorb_squares(spread[f], x, gates_, weights_, 0, 1)
        if recursive.shape[0] > 0:
            for target in range(m):
                recursive[row, target] = residual[row, target] * scale
        seen[f] += 1 if weight > 0 else 0


@kernel()
def solve_determined(R, z, theta):
    """Solve ``R theta = z`` for R (b, k, k) without zero pivots, z and theta (b, m, k)."""
    for i in range(R.shape[0]):
        back_substitute(R[i], z[i], theta[i])


@kernel()
def hide_held(variance, columns, tally, limits):
    """Set variance (b, k) to inf where wind-up protection holds the coefficient."""
    b, k = variance.shape
    for i in range(b):
        for j in range(k):
            if math.isfinite(variance[i, j]) and is_held(
                variance[i, j], columns[i, 0, j], columns[i, 1, j], limits, k, tally[i]
            ):
                variance[i, j] = math.inf


@kernel()
def statistics_each(loss, coef, variance, sandwich, counts, ridge, discounted, sigma2, stderr, fit):
    """Fill ``statistics`` of b filters with a ridge (b, k) each; sandwich (b, k) or (0, k)."""
    robust = sandwich.shape[0] > 0
    for i in range(coef.shape[0]):
        j = i + 1
        fill_statistics(
            loss[i:j],
            coef[i:j],
            variance[i:j],
            sandwich[i:j] if robust else sandwich,
            counts[i:j],
            ridge[i],
            discounted,
            sigma2[i:j],
            stderr[i:j],
            (fit[0][i:j], fit[1][i:j]),
        )

"""Numba kernels of a bank around the dense algebra that NumPy does for many filters at once.

What cannot be done a row at a time in a loop without LAPACK: rows that need coefficients of minimum
norm, and what is read of all states.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.square_root_kernels import absorb_alone
from olsq.online.forms.statistics import fill_statistics
from olsq.online.forms.triangular_kernels import back_substitute
from olsq.online.many.kernels import form_of


@kernel()
def take_alone(state, filters, chosen, rows, theta, settings, residual, recursive):
    """Absorb one row in each of ``filters`` (b,), row chosen[i] of X.

    These are rows whose treatment needs coefficients: a reset, a new direction, or a row of a path
    while some coefficient is undetermined.

    theta (b, m, k) are their coefficients before; as ``SquareRootForm._take_alone``.
    ``recursive`` (N, m), or (0, m) where it is not wanted.
    """
    _, _, coefs, _, _, _, held, _, seen, spread = state
    _, X, Y, gates, weights, _ = rows
    _, limits, _, intercept, _ = settings
    m, k = coefs.shape[1], coefs.shape[2]
    first = 1 if intercept else 0
    x, y = np.ones(k), np.empty(m)
    if theta.shape != (filters.shape[0], m, k) or chosen.shape != filters.shape:
        raise ValueError("the coefficients do not have the shape of the filters")
    for i in range(filters.shape[0]):
        f, row = filters[i], chosen[i]
        for j in range(X.shape[1]):
            x[first + j] = X[row, j]
        for target in range(m):
            y[target] = error = Y[row, target]
            for j in range(k):
                error -= theta[i, target, j] * x[j]
            residual[row, target] = error
        share, count = absorb_alone(
            form_of(state, f), spread[f], x, y, gates[row], weights[row], limits
        )
        held[f] += count
        if recursive.shape[0] > 0:
            for target in range(m):
                recursive[row, target] = residual[row, target] * math.sqrt(share)
        seen[f] += 1 if weights[row] > 0 else 0


@kernel()
def solve_determined(R, z, theta):
    """Solve ``R theta = z`` for R (b, k, k) without zero pivots, z and theta (b, m, k)."""
    for i in range(R.shape[0]):
        back_substitute(R[i], z[i], theta[i])


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

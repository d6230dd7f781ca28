"""Numba kernels of drifting coefficients: the filter given their start, and the way back.

``theta_t = theta_{t-1} + eta_t`` with ``eta_t ~ N(0, s2 steps_t Q)``, Q diagonal, and
``y_t = x_t . theta_t + e_t`` with ``e_t ~ N(0, s2 noise_t)``.  Nothing is known of the start
``theta_0``.  Given it, everything is affine in it: the filter starts with P = 0 and carries
``a_t`` and ``A_t`` of ``theta_t | theta_0 = a_t + A_t theta_0``, so that the diffuse likelihood is
a least-squares problem in k unknowns (de Jong 1991, "The diffuse Kalman filter"), and nothing has
to decide when coefficients are determined.

The filter of :class:`olsq.forgetting.RandomWalk` keeps a triangular factor of P's inverse, in
which a diffuse start is zero; it has neither ``P x`` nor the part of the start, which the way back
needs for every row, and costs O(k^3) per row.  This one costs O(k^2), and is what the likelihood is
maximised with.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel

Array = NDArray[np.float64]
FAINTEST = 1e-140  # parts of the start below it are set to 0: denormal numbers cost 100 cycles each


class Rows(NamedTuple):
    """Rows in order: X (n, k), y (n,); noise (n,) in units of s2, inf where a value is missing (X
    and y are 0 there); steps (n,) of the walk before each row.
    """

    X: Array
    y: Array
    noise: Array
    steps: Array


class State(NamedTuple):
    """The filter given the start: a (k,), A (k, k) and P (k, k), the latter in units of s2."""

    a: Array
    A: Array
    P: Array


class Innovations(NamedTuple):
    """The one-step-ahead errors ``error - start . theta_0`` of each row.

    error (n,), start (n, k); variance (n,) in units of s2, inf in a missing row; gain (n, k).
    """

    error: Array
    start: Array
    variance: Array
    gain: Array


class History(NamedTuple):
    """States before each of m rows: a (m, k), A (m, k, k), P (m, k, k); m = 0: not kept."""

    a: Array
    A: Array
    P: Array


class Adjoint(NamedTuple):
    """Sums over the rows after t for the smoother of theta_t.

    r (k,), its variance given the start N (k, k), and the part of the start R (k, k), times C with
    ``C C^T`` the start's covariance.
    """

    r: Array
    N: Array
    R: Array


@kernel()
def filter_rows(rows, drift, state, span, innovations, history):
    """Run the filter over rows span[0]..span[1], which updates ``state``; O(k^2) per row."""
    a, A, P = state
    k = a.shape[0]
    M, e = np.empty(k), np.empty(k)
    for t in range(span[0], span[1]):
        x = rows.X[t]
        for i in range(k):
            P[i, i] += rows.steps[t] * drift[i]
        if history.a.shape[0] > 0:
            at = t - span[0]
            for i in range(k):
                history.a[at, i] = a[i]
                for j in range(k):
                    history.A[at, i, j] = A[i, j]
                    history.P[at, i, j] = P[i, j]
        gain, start = innovations.gain[t], innovations.start[t]
        if not rows.noise[t] < np.inf:
            innovations.error[t], innovations.variance[t] = 0.0, np.inf
            for i in range(k):
                gain[i] = start[i] = 0.0
            continue
        # M = P x, F = noise + x.P x, v = y - x.a, e = A^T x
        v, F = rows.y[t], rows.noise[t]
        for j in range(k):
            e[j] = 0.0
        for i in range(k):
            row, part = P[i], A[i]
            total = 0.0
            for j in range(k):
                total += row[j] * x[j]
                e[j] += x[i] * part[j]
            M[i] = total
            v -= x[i] * a[i]
            F += x[i] * total
        innovations.error[t], innovations.variance[t] = v, F
        # a <- a + M v / F,  A <- A - M e^T / F,  P <- P - M M^T / F
        root = 1.0 / np.sqrt(F)
        for i in range(k):
            start[i] = e[i]
            gain[i] = M[i] / F
            M[i] *= root  # P stays symmetric to the last bit
        for i in range(k):
            a[i] += gain[i] * v
            row, part = P[i], A[i]
            for j in range(k):
                row[j] -= M[i] * M[j]
                left = part[j] - gain[i] * e[j]
                part[j] = left if abs(left) > FAINTEST else 0.0


@kernel(forceinline=True)
def step_back(x, error, variance, gain, start, adjoint, left):
    """Update the adjoint from after a row to before it; ``left`` (k,) is scratch.

    With ``L = I - K x^T``: ``r <- x v / F + L^T r``, ``N <- x x^T / F + L^T N L``,
    ``R <- x e^T / F + L^T R``.
    """
    r, N, R = adjoint
    k = r.shape[0]
    inverse = 1.0 / variance  # 0 in a missing row
    part, size = error * inverse, inverse
    for i in range(k):
        part -= gain[i] * r[i]
    for i in range(k):
        r[i] += x[i] * part
    for i in range(k):  # left = N K, size = 1 / F + K.N K
        row, total = N[i], 0.0
        for j in range(k):
            total += row[j] * gain[j]
        left[i] = total
        size += gain[i] * total
    for i in range(k):
        row = N[i]
        for j in range(k):
            # grouped so that N stays symmetric to the last bit
            row[j] += x[i] * x[j] * size - (x[i] * left[j] + left[i] * x[j])
    for j in range(k):
        left[j] = start[j] * inverse
    for i in range(k):  # left = e / F - R^T K
        row = R[i]
        for j in range(k):
            left[j] -= gain[i] * row[j]
    for i in range(k):
        row = R[i]
        for j in range(k):
            row[j] += x[i] * left[j]


@kernel()
def score_rows(rows, innovations, s2, adjoint, score):
    """Add the derivative of the log likelihood by each variance of Q to ``score`` (k,).

    ``innovations`` are those at the estimated start, with ``start`` times C (see Adjoint).  The
    derivative is ``1/2 sum_t steps_t (r^2 / s2 - N_jj + (R R^T)_jj)``, the variance of r being
    ``N - R R^T`` where the start is estimated (Koopman & Shephard 1992).
    """
    r, N, R = adjoint
    k = r.shape[0]
    left = np.empty(k)
    for t in range(rows.X.shape[0] - 1, -1, -1):
        step_back(
            rows.X[t],
            innovations.error[t],
            innovations.variance[t],
            innovations.gain[t],
            innovations.start[t],
            adjoint,
            left,
        )
        for i in range(k):
            total = r[i] * r[i] / s2 - N[i, i]
            for j in range(k):
                total += R[i, j] * R[i, j]
            score[i] += 0.5 * rows.steps[t] * total


@kernel()
def smooth_rows(rows, innovations, history, span, adjoint, begin, smoothed):
    """Write the coefficients given all rows, and their variances, of rows span[0]..span[1].

    ``begin`` = (theta_0 (k,), C (k, k)), ``smoothed`` = (coefficients (n, k), variances (n, k) in
    units of s2).  O(k^3) per row: ``theta + P r`` and the diagonal of
    ``P - P N P + B B^T`` with ``B = A C - P R``.
    """
    r, N, R = adjoint
    k = r.shape[0]
    left, NP = np.empty(k), np.empty((k, k))
    for t in range(span[1] - 1, span[0] - 1, -1):
        step_back(
            rows.X[t],
            innovations.error[t],
            innovations.variance[t],
            innovations.gain[t],
            innovations.start[t],
            adjoint,
            left,
        )
        A, P, a = history.A[t - span[0]], history.P[t - span[0]], history.a[t - span[0]]
        for i in range(k):
            for j in range(k):
                NP[i, j] = 0.0
            for m in range(k):
                row = P[m]
                for j in range(k):
                    NP[i, j] += N[i, m] * row[j]
        for i in range(k):
            theta, variance = a[i], P[i, i]
            for m in range(k):
                theta += A[i, m] * begin[0][m] + P[i, m] * r[m]
                variance -= P[i, m] * NP[m, i]
                left[m] = 0.0
            for m in range(k):
                for j in range(k):
                    left[j] += A[i, m] * begin[1][m, j] - P[i, m] * R[m, j]
            for j in range(k):
                variance += left[j] * left[j]
            smoothed[0][t, i], smoothed[1][t, i] = theta, variance

"""Numba kernels of the covariance form: ``P`` the inverse information matrix, stored full.

P stays bitwise symmetric because entry (i, j) and entry (j, i) go through the same operations on
the same numbers: the update subtracts ``h h^T`` and multiplies by one scalar.  (The textbook
``(P - g (x^T P)) / gamma`` does not: its antisymmetric rounding error grows like gamma^-t.)

The kernels stop *before* a row that the form cannot take without losing digits; the caller then
moves to the square-root form.  Two bounds say when, neither depends on the units of the data:

* leverage: the row would shrink P in its direction by ``1 + beta x.P x / gamma``; the digits of
  that factor are cancelled;
* variance inflation: ``P_jj H_jj``, at most d times the condition of the scaled problem.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.edges import (
    check_call,
    check_spread,
    check_trace,
    wants_sandwich,
)
from olsq.online.forms.square_root_kernels import (
    EPS,
    absorb_squares,
    count_row,
    record,
)

COVARIANCE = 1  # how files before the factor name the form of a filter
UNEXCITED = 1e-9  # a column whose information has shrunk this far is winding up
SMALLEST_GATE = 1e-4  # stronger forgetting than this is left to the square-root form


@kernel(forceinline=True)
def trusted(P, columns, limits):
    """Test whether every variance inflation factor and every magnitude is within bounds."""
    inflation, largest_variance = limits[1], limits[2]
    outside = 0  # counted, for a loop that may return early does not vectorise
    for j in range(P.shape[0]):
        variance, now = P[j, j], columns[0, j]
        within = (variance > 0) & (variance < largest_variance) & (variance * now < inflation)
        outside += 0 if within & (now >= UNEXCITED * columns[1, j]) else 1
    return outside == 0


@kernel()
def take_root(P, theta, R, z):
    """Compute R with ``R^T R = P^-1``, triangular, and ``z = R theta``.

    R may be the array of P, and z that of theta.

    By the spectral decomposition of the scaled P, whose condition is bounded while the form is
    trusted; rounding in P cannot make it fail.
    """
    d = P.shape[0]
    scale, scaled = np.empty(d), np.empty((d, d))
    for i in range(d):
        scale[i] = math.sqrt(P[i, i])
    for i in range(d):
        for k in range(d):
            scaled[i, k] = P[i, k] / (scale[i] * scale[k])
    # P = D V L V^T D (D the scale): the rows L^(-1/2) V^T D^(-1) have the product P^(-1)
    values, vectors = np.linalg.eigh(scaled)
    rows = np.empty((d, d))
    for i in range(d):
        root = math.sqrt(max(values[i], values[d - 1] * EPS))
        for k in range(d):
            rows[i, k] = vectors[k, i] / root / scale[k]
    _, triangle = np.linalg.qr(rows)
    # A column that no row has excited is correlated with none: rounding must not say that it is.
    alone = np.empty(d, np.bool_)
    for i in range(d):
        others = 0
        for k in range(d):
            others += P[i, k] != 0
        alone[i] = others == 1
    for i in range(d):
        sign = -1.0 if triangle[i, i] < 0 else 1.0
        for k in range(d):
            kept = k >= i and not (alone[i] or alone[k])
            R[i, k] = sign * triangle[i, k] if kept else 0.0
        if alone[i]:
            R[i, i] = 1.0 / scale[i]
    for target in range(theta.shape[0]):
        for i in range(d):
            total = 0.0
            for k in range(i, d):
                total += R[i, k] * theta[target, k]
            z[target, i] = total


@kernel()
def take_roots(P, theta, R, z):
    """Run :func:`take_root` for states P (n, d, d), theta (n, m, d)."""
    n, d = P.shape[:2]
    if P.shape != (n, d, d) or theta.shape[0] != n or theta.shape[2] != d:
        raise ValueError("the shapes of P and theta do not fit together")
    if R.shape != P.shape or z.shape != theta.shape:
        raise ValueError("R and z do not have the shapes of P and theta")
    for i in range(n):
        take_root(P[i], theta[i], R[i], z[i])


@kernel(forceinline=True)
def multiply(P, x, out):
    """Compute P x into out."""
    for i in range(P.shape[0]):
        total = 0.0
        for k in range(P.shape[0]):
            total += P[i, k] * x[k]
        out[i] = total


@kernel(called=True)
def take_sandwich(spread, P, V):
    """Compute ``V = P S P`` with ``spread^T spread = S``, spread triangular; return ``tr(P S)``."""
    d = P.shape[0]
    half, used = np.zeros((d, d)), 0.0  # spread @ P
    for i in range(d):
        for j in range(d):
            for k in range(i, d):
                half[i, j] += spread[i, k] * P[k, j]
            used += half[i, j] * spread[i, j]
    for i in range(d):
        for j in range(d):
            V[i, j] = 0.0
            for k in range(d):
                V[i, j] += half[k, i] * half[k, j]
    return used


@kernel(called=True)
def carry_sandwich(V, used, h, x, gate, weight, innovation):
    """Update ``V = P S P`` by one row and return the new ``tr(P S)``, which was ``used``.

    h and the innovation s are as :func:`absorb_row` leaves them.  With the gain ``k = w P x / s``
    the new V is ``(I - k x^T) V (I - x k^T) + k k^T``: the variance of the coefficients in units of
    that of the noise.
    """
    d = V.shape[0]
    v = np.empty(d)
    gain = weight / innovation
    root_gain = math.sqrt(gain)
    inside, shift = 0.0, 0.0  # x^T V x and k^T x
    multiply(V, x, v)
    for i in range(d):
        inside += v[i] * x[i]
        shift += root_gain * h[i] * x[i]
    for i in range(d):
        ki = root_gain * h[i]
        for k in range(d):
            kk = root_gain * h[k]
            # V' = V - k v^T - v k^T + (x^T V x + 1) k k^T
            V[i, k] += (inside + 1.0) * ki * kk - (ki * v[k] + v[i] * kk)
    return gate * (used - gain * inside) + weight * shift


@kernel(forceinline=True)
def update(form, spread, rows, span, limits, residual, trace):
    """Absorb the rows of a span one at a time; return the first row not absorbed.

    ``form`` = (P, theta, columns, tally, loss); ``spread``, ``rows``, ``span``, ``residual`` and
    ``trace`` as in the square-root kernels; ``limits`` = (largest leverage, largest inflation
    factor, largest P_jj).
    """
    check_call(form, rows, span, residual)
    m, d = form[1].shape
    check_trace(trace, rows[0].shape[0], d, m)
    check_spread(spread, d, wants_sandwich(trace))
    robust = wants_sandwich(trace)
    scratch = np.empty(d), np.empty((d, d) if robust else (0, 0))
    return absorb_rows(form, spread, rows, span, limits, residual, trace, scratch)


@kernel(forceinline=True)
def absorb_rows(form, spread, rows, span, limits, residual, trace, scratch):
    """Run :func:`update` on checked arrays; ``scratch`` = ((d,), (d, d), or (0, 0) where the trace
    wants no sandwich).
    """
    P, theta, _, tally, loss = form
    X, Y, gates, weights = rows
    d, m = P.shape[0], theta.shape[0]
    (h, V), used = scratch, 0.0
    if spread is not None and V.shape[0] > 0:
        used = take_sandwich(spread, P, V)
    for t in range(span[0], span[1]):
        gate, weight = gates[t], weights[t]
        innovation = absorb_row(form, X[t], Y[t], gate, weight, limits, h, residual[t])
        if innovation == 0:
            return t
        if spread is not None:
            if V.shape[0] > 0:
                used = carry_sandwich(V, used, h, X[t], gate, weight, innovation)
            absorb_squares(spread, X, gates, weights, t, t + 1)
        if trace is not None:
            _, diags, _, _, recursive, sandwich = trace
            for k in range(V.shape[0]):
                sandwich[t, k] = V[k, k]
            record(trace, t, theta, loss, tally, d, used)
            for k in range(d if diags.shape[0] > 0 else 0):
                diags[t, k] = P[k, k]
            root = math.sqrt(weight * gate / innovation)
            for target in range(m):
                recursive[t, target] = residual[t, target] * root
    return span[1]


@kernel(forceinline=True)
def absorb_row(form, x, y, gate, weight, limits, h, error):
    """Absorb one row x (d,), y (m,); return its innovation ``s = gamma + w x.P x``, or 0 with
    nothing changed if the form must not take it.

    ``limits`` as in :func:`update`.  ``error`` (m,) receives the a-priori errors and h (d,)
    ``sqrt(w / s) P x``.  No loop has a branch: that is what counts while P stays in the cache.
    """
    P, theta, columns, tally, loss = form
    d, m = P.shape[0], theta.shape[0]
    leverage, outside = 0.0, 0
    for i in range(d):
        # Products of rows with x: adding up columns waits for memory it has just written, which
        # takes a half longer at d = 4.
        row, total = P[i], 0.0
        for k in range(d):
            total += row[k] * x[k]
        h[i] = total
        leverage += total * x[i]
        variance, now = row[i], columns[0, i]
        within = (variance > 0) & (variance < limits[2]) & (variance * now < limits[1])
        outside += 0 if within & (now >= UNEXCITED * columns[1, i]) else 1
    innovation = gate + weight * leverage
    if gate < SMALLEST_GATE or not (0 <= weight * leverage <= limits[0] * gate) or outside > 0:
        return 0.0
    # theta' = theta + (w / s) e P x
    gain = weight / innovation
    for target in range(m):
        residual = y[target]
        for k in range(d):
            residual -= theta[target, k] * x[k]
        error[target] = residual
        step = residual * gain
        for k in range(d):
            theta[target, k] += step * h[k]
        loss[target] = gate * loss[target] + weight * residual**2 * (gate / innovation)
    root_gain = math.sqrt(gain)
    for k in range(d):
        h[k] *= root_gain
        square = weight * x[k] * x[k]
        now = gate * columns[0, k] + square
        columns[0, k] = now
        columns[1, k] = now if square > 0 else columns[1, k]
    # P' = (P - h h^T) / gamma
    inverse_gate = 1.0 / gate
    for i in range(d):
        hi, row = h[i], P[i]
        for k in range(d):
            row[k] = (row[k] - hi * h[k]) * inverse_gate
    count_row(tally, gate, weight)
    return innovation


# From Python the arrays come one by one: a tuple of them takes 0.3 of 4.4 microseconds.

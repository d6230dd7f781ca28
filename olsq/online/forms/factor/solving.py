"""Solve with the unit triangular factor: coefficients, variances, gains of rows."""

from __future__ import annotations

import numpy as np

from olsq.online.forms.factor.kernels import called, inline, inner_product, subtract_row
from olsq.online.forms.factor.registers import (
    add_product,
    add_scaled,
    divide,
    fill4,
    fma,
    load4,
    plus,
    store,
    times,
    total,
    where_above,
    zero4,
)


@inline
def solve(F, D, theta):
    """Solve ``U theta = T`` for theta (m, d), with 0 where nothing is known."""
    m, d = theta.shape
    width = d + m
    for q in range(m):
        for i in range(d - 1, -1, -1):
            known, k = zero4(), i + 1
            while k + 4 <= d:
                known = add_product(known, load4(F, i * width + k), load4(theta, q * d + k))
                k += 4
            v = F[i, d + q] - total(known)
            for j in range(k, d):
                v = fma(-F[i, j], theta[q, j], v)
            theta[q, i] = v if D[i] > 0 else 0.0


@inline
def variances(F, D, inverse, out):
    """Fill ``inverse`` (d, d) with U^-1 and ``out`` (d,) with the diagonal of M^-1.

    Every pivot must be positive.
    """
    d, width = D.shape[0], inverse.shape[1]
    for i in range(d - 1, -1, -1):
        for c in range(width):
            inverse[i, c] = 0.0
        inverse[i, i] = 1.0
        for j in range(i + 1, d):
            u, k = F[i, j], j // 4 * 4
            while k + 4 <= d:
                row = load4(inverse, i * width + k)
                store(inverse, i * width + k, add_scaled(row, -u, load4(inverse, j * width + k)))
                k += 4
            for c in range(max(k, j), d):
                inverse[i, c] = fma(-u, inverse[j, c], inverse[i, c])
        v = 0.0
        for c in range(i, d):
            v += inverse[i, c] * inverse[i, c] / D[c]
        out[i] = v


@called
def sandwich_diagonal(spread, inverse, out):
    """Compute the diagonal of ``P S P`` into ``out`` (d,); return ``tr(P S)``.

    ``spread^T spread = S`` and ``inverse inverse^T = P``, both upper triangular.  None makes 0.
    """
    if spread is None:
        return 0.0
    d, used = inverse.shape[0], 0.0
    half = np.zeros((d, d))  # spread inverse
    for i in range(d):
        row = half[i]
        for k in range(i, d):
            subtract_row(inverse, row, k, -spread[i, k], k)
        used += inner_product(half, i, row, i, d)
    for j in range(d):
        row, out[j] = inverse[j], 0.0
        for i in range(d):
            part = inner_product(half, i, row, max(i, j), d)
            out[j] += part * part
    return used


@inline
def gains(F, history, masks, K):
    """Fill K (d, 4) with ``(gate M)^-1 x`` of the four rows, M before each, from U after all.

    In the basis of U before row r the gain is p / (gate D).  Row s turns a basis into the next by
    ``C_s = 1 + (g p^T above the diagonal)``, so that ``C_s y = y + g`` times the sums of p y
    behind: lanes r <= s, once each.  Then one back substitution in four lanes.  ``history`` is
    what :func:`.kernels.absorb_four` kept; ``masks`` (3, 4) has ones in lanes r <= s.
    """
    P, G, old, _ = history
    d, zero, one = P.shape[0], zero4(), fill4(1.0)
    only0, only1, only2 = load4(masks, 0), load4(masks, 4), load4(masks, 8)
    a0, a1, a2, a3 = zero4(), zero4(), zero4(), zero4()
    for k in range(d - 1, -1, -1):
        pivot = load4(old, 4 * k)  # 0 where the whole column is, and with it p
        y = divide(load4(P, 4 * k), where_above(pivot, zero, pivot, one))
        x = times(y, only0)
        y = add_scaled(y, G[k, 0], a0)
        a0 = add_scaled(a0, P[k, 0], x)
        x = times(y, only1)
        y = add_scaled(y, G[k, 1], a1)
        a1 = add_scaled(a1, P[k, 1], x)
        x = times(y, only2)
        y = add_scaled(y, G[k, 2], a2)
        a2 = add_scaled(a2, P[k, 2], x)
        x = y
        y = add_scaled(y, G[k, 3], a3)
        a3 = add_scaled(a3, P[k, 3], x)
        store(K, 4 * k, y)
    i = d - 1
    while i >= 1:  # two rows at a time
        s0, s1, t0, t1 = load4(K, 4 * i), zero4(), load4(K, 4 * i - 4), zero4()
        j = i + 1
        while j + 2 <= d:
            k0, k1 = load4(K, 4 * j), load4(K, 4 * j + 4)
            s0 = add_scaled(s0, -F[i, j], k0)
            s1 = add_scaled(s1, -F[i, j + 1], k1)
            t0 = add_scaled(t0, -F[i - 1, j], k0)
            t1 = add_scaled(t1, -F[i - 1, j + 1], k1)
            j += 2
        if j < d:
            k0 = load4(K, 4 * j)
            s0 = add_scaled(s0, -F[i, j], k0)
            t0 = add_scaled(t0, -F[i - 1, j], k0)
        s0 = plus(s0, s1)
        store(K, 4 * i, s0)
        store(K, 4 * i - 4, add_scaled(plus(t0, t1), -F[i - 1, i], s0))
        i -= 2
    if i == 0:
        s0 = load4(K, 0)
        for j in range(1, d):
            s0 = add_scaled(s0, -F[0, j], load4(K, 4 * j))
        store(K, 0, s0)

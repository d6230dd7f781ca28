"""Kernels of the gradient of a stream: block by block from the last, by matrix products.

:mod:`.derivatives` derives the products, and says where each gradient comes from.  With the
solutions x and e of :mod:`.pairs`, the gradient of a block of C tokens costs six products with
C by C scores and seven with moments.
"""

from __future__ import annotations

import numpy as np

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import multiply_nn, multiply_nt, multiply_tn
from olsq.sequence.numpy.chunks import fill_gate_products
from olsq.sequence.numpy.tokens import has_cotangent


@kernel()
def gradient_of_gates(products, weights, gates, d_products, d_gates, d_weights):
    """Compute the gradients of gates and weights (C,) from those of D (C, C), per weight, and zeta.

    ``products`` = D and zeta, ``d_products`` their gradients.

    Gate j is in D_ti for i < j <= t, as ``D_tj D_{j-1,i}``, and in zeta_t for j <= t, as
    ``D_tj zeta_{j-1}``: a sum of products of the other gates, right at a gate of 0.
    """
    (table, zeta), (d_table, d_zeta), count = products, d_products, gates.shape[0]
    arrived, arrived_start = np.zeros(count), 0.0  # sums over t >= j of D_tj times the gradients
    for i in range(count):
        d_weights[i] = 0.0
    for j in range(count - 1, -1, -1):
        gate = gates[j + 1] if j + 1 < count else 0.0
        arrived_start = gate * arrived_start + d_zeta[j]
        total = arrived_start * (zeta[j - 1] if j > 0 else 1.0)
        for i in range(j + 1):
            d_weights[i] += table[j, i] * d_table[j, i]
            arrived[i] = gate * arrived[i] + d_table[j, i] * weights[i]
        for i in range(j):
            total += arrived[i] * table[j - 1, i]
        d_gates[j] = total


@kernel()
def inner_rows(a, b, t):
    """Compute the inner product of rows t of two matrices."""
    total = 0.0
    for j in range(a.shape[1]):
        total += a[t, j] * b[t, j]
    return total


@kernel()
def gradient_of_block(blas, stream, first, count, moments, pairs, slopes):
    """Compute the gradients of one block: those of the moments go from after it to before it.

    ``moments`` are those before the block.
    """
    (keys, values, _, weights, gates, _), (upstream, x, e) = stream, pairs
    d_keys, d_values, _, d_gates, d_weights, _, d_gram, d_cross = slopes
    (d, m), (gram, cross) = (keys.shape[1], values.shape[1]), moments
    last = first + count
    k, v, g = keys[first:last], values[first:last], upstream[first:last]
    x, e = x[first:last], e[first:last]
    dk, dv = d_keys[first:last], d_values[first:last]
    table, zeta = np.empty((count, count)), np.empty(count)
    fill_gate_products(gates[first:last], table, zeta)
    end = zeta[count - 1]

    # Through the moments after the block:  dk = D (dH + dH^T) k + D dG^T v,  dv = D dG k
    both = np.empty((d, d))
    for i in range(d):
        for j in range(d):
            both[i, j] = d_gram[i, j] + d_gram[j, i]
    by_cross = np.empty((count, d))
    multiply_nn(blas, k, both, dk)
    multiply_nn(blas, v, d_cross, by_cross)
    multiply_nt(blas, k, d_cross, dv)
    d_last = np.empty(count)
    for i in range(count):
        d_last[i] = inner_rows(k, dk, i) / 2 + inner_rows(k, by_cross, i)
        tail = table[count - 1, i] * weights[first + i]
        for j in range(d):
            dk[i, j] = tail * (dk[i, j] + by_cross[i, j])
        for j in range(m):
            dv[i, j] *= tail

    # dK += ((U - E) D)^T x - (X D)^T e,  dV += (X D)^T g,  dD = X (U - E)
    change, products = np.empty((count, count)), np.empty((count, count))
    multiply_nt(blas, g, v, change)
    multiply_nt(blas, e, k, change, -1.0, 1.0)
    multiply_nt(blas, x, k, products)
    d_table = np.zeros((count, count))
    for t in range(count):
        for i in range(t + 1):
            d_table[t, i] = products[t, i] * change[t, i]
            decay = table[t, i] * weights[first + i]
            change[t, i] *= decay
            products[t, i] *= decay
        for i in range(t + 1, count):
            change[t, i] = products[t, i] = 0.0
    multiply_tn(blas, change, x, dk, 1.0, 1.0)
    multiply_tn(blas, products, e, dk, -1.0, 1.0)
    multiply_tn(blas, products, g, dv, 1.0, 1.0)

    # dzeta_t = g_t . G x_t - e_t . H x_t, and what the moments after the block pass back
    far_gram, far_cross = by_cross, np.empty((count, m))
    multiply_nn(blas, x, gram, far_gram)
    multiply_nt(blas, x, cross, far_cross)
    d_zeta = np.empty(count)
    for t in range(count):
        d_zeta[t] = inner_rows(g, far_cross, t) - inner_rows(e, far_gram, t)
        d_table[count - 1, t] += d_last[t]
    for i in range(d):
        d_zeta[count - 1] += inner_rows(d_gram, gram, i)
    for i in range(m):
        d_zeta[count - 1] += inner_rows(d_cross, cross, i)
    gradient_of_gates(
        (table, zeta),
        weights[first:last],
        gates[first:last],
        (d_table, d_zeta),
        d_gates[first:last],
        d_weights[first:last],
    )

    # dH = zeta_C dH' - sum_t zeta_t e_t x_t^T,  dG = zeta_C dG' + sum_t zeta_t g_t x_t^T
    scaled = by_cross
    for t in range(count):
        for j in range(d):
            scaled[t, j] = zeta[t] * x[t, j]
    multiply_tn(blas, e, scaled, d_gram, -1.0, end)
    multiply_tn(blas, g, scaled, d_cross, 1.0, end)


@kernel()
def gradient_of_stream(blas, stream, size, before, pairs, slopes):
    """Compute every gradient of a stream from its solutions, 0 where no gradient arrives."""
    (upstream, x, e), (grams, crosses) = pairs, before
    (length, d), d_queries, d_ridge = x.shape, slopes[2], slopes[5]
    for t in range(length):
        arrives = has_cotangent(upstream, t, 1)
        for j in range(d):
            if not arrives:
                x[t, j] = e[t, j] = 0.0
            # dq_t = e_t,  dLambda_t = -e_t * x_t
            d_queries[t, j], d_ridge[t, j] = e[t, j], -e[t, j] * x[t, j]
    for block in range(grams.shape[0] - 1, -1, -1):
        first, moments = block * size, (grams[block], crosses[block])
        count = min(size, length - first)
        gradient_of_block(blas, stream, first, count, moments, pairs, slopes)


@kernel(makes_arrays=True)
def gradient_of_streams(blas, arrays, size, before, pairs, slopes):
    """Compute the gradients of a batch of streams, whose samples are finite.

    ``before`` = moments before every block of ``size`` tokens; ``slopes`` = of keys, values,
    queries, gates, weights, ridges (T, d), gram and cross, all 0.
    """
    keys, values, queries, weights, gates, ridge = arrays
    (upstream, x, e), (grams, crosses) = pairs, before
    dk, dv, dq, d_gates, d_weights, d_ridge, d_gram, d_cross = slopes
    for b in range(keys.shape[0]):
        stream = keys[b], values[b], queries[b], weights[b], gates[b], ridge[0]
        moments, parts = (grams[b], crosses[b]), (upstream[b], x[b], e[b])
        d_samples = dk[b], dv[b], dq[b], d_gates[b], d_weights[b], d_ridge[b]
        d_stream = *d_samples, d_gram[b], d_cross[b]
        gradient_of_stream(blas, stream, size, moments, parts, d_stream)

"""Kernels of the gradient of a stream: block by block from the last, by matrix products.

:mod:`.derivatives` derives the products, and says where each gradient comes from.  With the
solutions x and e of :mod:`.pairs`, the gradient of a block of C tokens costs six products with
C by C scores and seven with moments.
"""

from __future__ import annotations

import numpy as np

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import multiply_nn, multiply_nt, multiply_tn
from olsq.sequence.numpy.pairs import solve_stream_pairs


@kernel()
def fill_gate_products(gates, table, zeta):
    """Fill D[t, i] = product of gates i+1..t (C, C), and zeta_t = product of gates up to t (C,)."""
    count, product = gates.shape[0], 1.0
    for t in range(count):
        product *= gates[t]
        zeta[t] = product
        for i in range(count):
            table[t, i] = table[t - 1, i] * gates[t] if i < t else 0.0
        table[t, t] = 1.0


@kernel()
def gradient_of_gates(gates, table, zeta, weights, d_table, d_zeta, d_gates, d_weights):
    """Compute the gradients of gates and weights (C,) from those of D (C, C), per weight, and zeta.

    Gate j is in D_ti for i < j <= t, as ``D_tj D_{j-1,i}``, and in zeta_t for j <= t, as
    ``D_tj zeta_{j-1}``: a sum of products of the other gates, right at a gate of 0.
    """
    count = gates.shape[0]
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
def gradient_of_block(blas, arrays, first, count, gram, cross, x, e, d_gram, d_cross, slopes):
    """Compute the gradients of one block; ``d_gram`` and ``d_cross`` go from after it to before it.

    ``arrays`` = keys, values, weights, gates and upstream gradients of the stream; ``gram`` and
    ``cross`` are the moments before the block.
    """
    keys, values, weights, gates, upstream = arrays
    d_keys, d_values, d_gates, d_weights = slopes
    d, m = keys.shape[1], values.shape[1]
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
    change, seen = np.empty((count, count)), np.empty((count, count))
    multiply_nt(blas, g, v, change)
    multiply_nt(blas, e, k, change, -1.0, 1.0)
    multiply_nt(blas, x, k, seen)
    d_table = np.zeros((count, count))
    for t in range(count):
        for i in range(t + 1):
            d_table[t, i] = seen[t, i] * change[t, i]
            decay = table[t, i] * weights[first + i]
            change[t, i] *= decay
            seen[t, i] *= decay
        for i in range(t + 1, count):
            change[t, i] = seen[t, i] = 0.0
    multiply_tn(blas, change, x, dk, 1.0, 1.0)
    multiply_tn(blas, seen, e, dk, -1.0, 1.0)
    multiply_tn(blas, seen, g, dv, 1.0, 1.0)

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
        gates[first:last],
        table,
        zeta,
        weights[first:last],
        d_table,
        d_zeta,
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
def gradient_of_stream(
    blas, chunk, upstream, gates, ridge, spread, most, gram, cross, slopes, d_gram, d_cross
):
    """Compute every gradient of one stream; ``slopes`` = of keys, values, queries, gates, weights
    and ridges (T, d).
    """
    keys, values, _, weights = chunk
    d_keys, d_values, d_queries, d_gates, d_weights, d_ridge = slopes
    (length, d), m = keys.shape, values.shape[1]
    blocks = (length + most - 1) // most
    grams, crosses = np.empty((max(blocks, 1), d, d)), np.empty((max(blocks, 1), m, d))
    for i in range(d):
        for j in range(d):
            grams[0, i, j] = gram[i, j]
            d_gram[i, j] = 0.0
        for j in range(m):
            crosses[0, j, i] = cross[j, i]
            d_cross[j, i] = 0.0
    x = np.empty((length, d))
    solve_stream_pairs(
        blas, chunk, upstream, gates, ridge, spread, most, grams, crosses, x, d_queries
    )
    # dq_t = e_t,  dLambda_t = -e_t * x_t
    for t in range(length):
        for j in range(d):
            d_ridge[t, j] = -d_queries[t, j] * x[t, j]
    arrays = keys, values, weights, gates, upstream
    parts = d_keys, d_values, d_gates, d_weights
    for block in range(blocks - 1, -1, -1):
        first = block * most
        gradient_of_block(
            blas,
            arrays,
            first,
            min(most, length - first),
            grams[block],
            crosses[block],
            x,
            d_queries,
            d_gram,
            d_cross,
            parts,
        )


@kernel()
def gradient_of_streams(first, last, blas, arrays, options, gram, cross, slopes, d_gram, d_cross):
    """Compute the gradients of streams first..last of a batch; no stream touches another's arrays.

    ``arrays`` = keys, values, queries, weights, gates, ridges and upstream gradients, finite;
    ``options`` = (spread of the gates within a chunk, tokens of a block).
    """
    keys, values, queries, weights, gates, ridge, upstream = arrays
    d_keys, d_values, d_queries, d_gates, d_weights, d_ridge = slopes
    spread, most = options
    for b in range(first, last):
        own = d_keys[b], d_values[b], d_queries[b], d_gates[b], d_weights[b], d_ridge[b]
        gradient_of_stream(
            blas,
            (keys[b], values[b], queries[b], weights[b]),
            upstream[b],
            gates[b],
            ridge[b if ridge.shape[0] > 1 else 0],
            spread,
            most,
            gram[b],
            cross[b],
            own,
            d_gram[b],
            d_cross[b],
        )

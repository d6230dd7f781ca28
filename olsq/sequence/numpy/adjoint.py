"""Implicit derivatives of a whole sequence: the reverse-mode gradient in NumPy.

With ``M_t x_t = q_t``, ``M_t = H_t + Lambda_t``, ``o_t = G_t x_t`` and an upstream gradient g_t,
``e_t = M_t^{-1} G_t^T g_t`` costs one more solve with the factors of the first, and::

    dq_t = e_t      dLambda_t = -e_t * x_t      dH_t = -e_t x_t^T      dG_t = g_t x_t^T

H_t and G_t are sums over the chunk, ``H_t = sum_i D_ti k_i k_i^T + zeta_t H``. With the scores
``E = tril(e K^T)``, ``X = x K^T``, ``U = g V^T`` (C by C), the gradient of a sample is three
products of scores, and the gradient of D_ti is ``u_ti x_ti - e_ti x_ti``. D is a table of products
of gates: the gradient of a gate is a sum of products of the other gates, right at a gate of 0.

A solver's form finds x and e of every token; the gradient goes block by block from the last.  Of a
block of C tokens it costs six products with C by C scores and seven with moments.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from olsq.arrays.checks import check_real
from olsq.kernels import kernel
from olsq.problem import Gradients
from olsq.sequence.numpy.blas import addresses, multiply_nn, multiply_nt, multiply_tn
from olsq.sequence.numpy.inputs import check, has_unique_solution, spread
from olsq.sequence.numpy.solve import CHUNK, Marks, clean, run_in_threads
from olsq.sequence.numpy.solver import fill_gate_products
from olsq.sequence.numpy.tokens import has_cotangent
from olsq.solvers import ChunkExact, Solver
from olsq.threads import one_blas_thread


@one_blas_thread
def solve_vjp(
    keys: Any,
    values: Any,
    queries: Any,
    cotangent: Any,
    *,
    solver: Solver | None,
    **problem: Any,
) -> Gradients:
    """Run :func:`olsq.online_lstsq_vjp`, which documents it."""
    streams, batch, _ = check(keys, values, queries, **problem)
    wide = {n: getattr(streams, n).astype(np.float64) for n in ("keys", "values", "queries")}
    streams = streams._replace(**wide)
    description = (ChunkExact() if solver is None else solver).sized(CHUNK)
    description.check_ridge_mode(problem["ridge_mode"], forgets=not (streams.gates == 1).all())
    (count, length, d), m = streams.keys.shape, streams.values.shape[2]
    check_real("cotangent", cotangent)
    upstream = spread("cotangent", cotangent, (*batch, length, m), np.float64, "the outputs")
    upstream = upstream.reshape(count, length, m)
    if streams.ridge is None:
        upstream[~has_unique_solution(streams.gates, streams.weight, d)] = 0
    *samples, weight, gates, _, gram, cross = streams
    arrays = *samples, gates, weight, np.empty((count, length, d)), gram, cross
    slopes = Gradients(*(np.zeros(x.shape) for x in arrays))
    form = description.numpy()
    size = form.block_length(d)
    blocks = -(-length // size)

    def piece(first: int, last: int) -> None:
        """Differentiate some streams, with lost samples, states and outputs left out."""
        part = slice(first, last)
        some, gradients = streams.part(part), Gradients(*(x[part] for x in slopes))
        absent = ~(np.isfinite(some.keys).all(-1) & np.isfinite(some.values).all(-1))
        marks = Marks.of(last - first, length)
        clean(some, np.finfo(np.float64).max, marks)
        arriving = np.where((marks.lost | marks.query_lost)[..., None], 0, upstream[part])
        pairs = arriving, np.zeros(some.keys.shape), np.zeros(some.keys.shape)
        before = np.empty((last - first, blocks, d, d)), np.empty((last - first, blocks, m, d))
        form.solve_pairs(some, pairs, before)
        gradient_of_streams(addresses(), some.arrays(), size, before, pairs, tuple(gradients))
        gradients.keys[absent], gradients.values[absent], gradients.weight[absent] = 0, 0, 0

    if d > 0:
        run_in_threads(count, 64.0 * count * length * d * (d + m), piece, form.pieces)
    if streams.ridge is None:  # the ridge was the gram before the first token
        of_ridge = np.diagonal(slopes.gram, axis1=1, axis2=2).copy()
        slopes = slopes._replace(ridge=of_ridge)
    return Gradients(*(x.reshape(*batch, *x.shape[1:]) for x in slopes))


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

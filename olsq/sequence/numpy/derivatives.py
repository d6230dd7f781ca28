"""Implicit derivatives of a whole sequence: the reverse-mode gradient in NumPy.

With ``M_t x_t = q_t``, ``M_t = H_t + Lambda_t``, ``o_t = G_t x_t`` and an upstream gradient g_t,
``e_t = M_t^{-1} G_t^T g_t`` costs one more solve with the factors of the first, and::

    dq_t = e_t      dLambda_t = -e_t * x_t      dH_t = -e_t x_t^T      dG_t = g_t x_t^T

H_t and G_t are sums over the chunk, ``H_t = sum_i D_ti k_i k_i^T + zeta_t H``. With the scores
``E = tril(e K^T)``, ``X = x K^T``, ``U = g V^T`` (C by C), the gradient of a sample is three
products of scores, and the gradient of D_ti is ``u_ti x_ti - e_ti x_ti``. D is a table of products
of gates: the gradient of a gate is a sum of products of the other gates, right at a gate of 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_real
from olsq.problem import Gradients
from olsq.sequence.numpy import adjoint as kernels
from olsq.sequence.numpy.blas import addresses
from olsq.sequence.numpy.chunks import (
    Chunk,
    Streams,
    close_chunk,
    gate_products,
    open_chunk,
    read_back,
    transpose,
)
from olsq.sequence.numpy.inputs import has_unique_solution, spread
from olsq.sequence.numpy.solve import (
    CHUNK,
    CheckedProblem,
    check,
    clean,
    has_kernels,
    largest_spread,
    run_in_threads,
)
from olsq.sequence.numpy.solver import NumpySolver
from olsq.solvers import ChunkExact, Solver
from olsq.threads import one_blas_thread


def block_length(d: int) -> int:
    """Return the kernels' largest chunk length.

    Shorter than :func:`.solve.chunk_length`, since the corrections of two solutions cost less in
    short chunks.  Measured, microseconds a token with chunks of 32 and 64: 12.2 and 16.4 at d 64,
    45.4 and 47.8 at d 128.
    """
    return 16 if d <= 8 else 32 if d <= 128 else 64


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
    given = check(keys, values, queries, **problem)
    given = given._replace(
        keys=given.keys.astype(np.float64),
        values=given.values.astype(np.float64),
        queries=given.queries.astype(np.float64),
    )
    chosen = (ChunkExact() if solver is None else solver).sized(CHUNK)
    chosen.check_ridge_mode(problem["ridge_mode"], forgets=not (given.gates == 1).all())
    count, length, d = given.keys.shape
    m = given.values.shape[-1]
    check_real("cotangent", cotangent)
    shape = (*given.batch, length, m)
    upstream = spread("cotangent", cotangent, shape, np.float64, "the outputs")
    upstream = upstream.reshape(count, length, m)
    if given.discounted:
        upstream[~has_unique_solution(given.gates, given.weights, d)] = 0
    slopes = Gradients(
        keys=np.zeros_like(given.keys),
        values=np.zeros_like(given.values),
        queries=np.zeros_like(given.queries),
        forget=np.zeros((count, length)),
        weight=np.zeros((count, length)),
        ridge=np.zeros((count, length, d)),
        gram=np.zeros_like(given.gram),
        cross=np.zeros_like(given.cross),
    )

    def piece(first: int, last: int) -> None:
        part = slice(first, last)
        backward(chosen, given, part, upstream[part], Gradients(*(x[part] for x in slopes)))

    if d > 0:
        pieces = 8 if has_kernels(chosen) else 1
        run_in_threads(count, 64.0 * count * length * d * (d + m), piece, pieces)
    if given.discounted:  # the ridge was the gram before the first token
        of_ridge = np.diagonal(slopes.gram, axis1=1, axis2=2).copy()
        slopes = slopes._replace(ridge=of_ridge)
    return Gradients(*(x.reshape(*given.batch, *x.shape[1:]) for x in slopes))


def backward(
    solver: Solver, given: CheckedProblem, part: slice, upstream: NDArray, slopes: Gradients
) -> None:
    """Fill ``slopes`` for some streams, with lost samples, states and outputs left out."""
    streams, output_lost = clean(given, part)
    silent = output_lost | ~np.isfinite(given.queries[part]).all(-1)
    upstream = np.where(silent[..., None], 0, upstream)
    gram, cross = given.gram[part].copy(), given.cross[part].copy()
    known = np.isfinite(gram).all((1, 2)) & np.isfinite(cross).all((1, 2))
    gram[~known], cross[~known] = 0, 0
    if has_kernels(solver):
        arrays = (
            streams.keys,
            streams.values,
            streams.queries,
            streams.weight,
            streams.gates,
            given.ridges[part],
            upstream,
        )
        assert solver.chunk is not None  # it is sized
        options = largest_spread(given), min(solver.chunk, block_length(gram.shape[1]))
        kernels.gradient_of_streams(
            0,
            len(gram),
            addresses(),
            arrays,
            options,
            gram,
            cross,
            tuple(slopes[:6]),
            slopes.gram,
            slopes.cross,
        )
    else:
        backward_by_chunks(solver.numpy(), streams, upstream, gram, cross, slopes)
    absent = ~(np.isfinite(given.keys[part]).all(-1) & np.isfinite(given.values[part]).all(-1))
    slopes.keys[absent], slopes.values[absent], slopes.weight[absent] = 0, 0, 0


def backward_by_chunks(
    form: NumpySolver,
    streams: Streams,
    upstream: NDArray,
    gram: NDArray,
    cross: NDArray,
    slopes: Gradients,
) -> None:
    """Fill ``slopes`` by any solver: chunks forwards for their moments, then backwards."""
    length, size, before = upstream.shape[1], form.options.chunk, []
    for first in range(0, length, size):
        before.append((slice(first, min(first + size, length)), gram.copy(), cross.copy()))
        close_chunk(open_chunk(streams, before[-1][0], gram, cross), gram, cross)
    d_gram, d_cross = np.zeros_like(gram), np.zeros_like(cross)
    for own, gram, cross in reversed(before):
        chunk = open_chunk(streams, own, gram, cross)
        parts = (x[:, own] for x in slopes[:6])
        into = Gradients._make([*parts, d_gram, d_cross])
        with np.errstate(all="ignore"):
            chunk_backward(form, chunk, upstream[:, own], into)
    slopes.gram[:], slopes.cross[:] = d_gram, d_cross


def chunk_backward(form: NumpySolver, chunk: Chunk, g: NDArray, into: Gradients) -> None:
    """Compute the gradients of one chunk into ``into``.

    ``into.gram`` and ``into.cross`` hold the cotangents of the moments after the chunk on entry,
    and those of the moments before it on return.
    """
    prepared = form.prepare(chunk)
    x = form.solve(chunk, prepared, chunk.queries)[0]
    e = form.solve_transposed(chunk, prepared, read_back(chunk, g))[0]
    has_cotangent = (g != 0).any(-1, keepdims=True)
    x, e = np.where(has_cotangent, x, 0), np.where(has_cotangent, e, 0)
    # dq_t = e_t,  dLambda_t = -e_t * x_t
    into.queries[:], into.ridge[:] = e, -e * x

    keys, values = chunk.keys, chunk.values
    table, zeta = gate_products(chunk.gates)
    after_gram, after_cross = into.gram.copy(), into.cross.copy()
    # The cotangents from after the chunk act like one more token there, of rank d, which enters
    # through its products with the samples.
    both = after_gram + transpose(after_gram)
    gk, gv = keys @ both, values @ after_cross  # (B, C, d): 2 sym(dH) k and dG^T v
    last = table[:, -1] * chunk.weight  # D of the last token

    ek, xk, gv_scores = e @ transpose(keys), x @ transpose(keys), g @ transpose(values)
    weighted = table * chunk.weight[:, None, :]
    # dK = ((U - E) D)^T x - (X D)^T e, and through the moments after the chunk
    into.keys[:] = (
        transpose(weighted * (gv_scores - ek)) @ x
        - transpose(weighted * xk) @ e
        + last[..., None] * (gk + gv)
    )
    into.values[:] = transpose(weighted * xk) @ g + last[..., None] * (
        keys @ transpose(after_cross)
    )

    of_table = np.tril(xk * (gv_scores - ek))  # dD_ti / weight_i
    of_last = 0.5 * np.einsum("bti,bti->bt", keys, gk) + np.einsum("bti,bti->bt", keys, gv)
    of_table[:, -1] += of_last
    into.weight[:] = np.einsum("bti,bti->bi", table, of_table)

    far_gram, far_cross = x @ chunk.gram, x @ transpose(chunk.cross)
    of_zeta = np.einsum("bti,bti->bt", g, far_cross) - np.einsum("bti,bti->bt", e, far_gram)
    of_zeta[:, -1] += (after_gram * chunk.gram).sum((1, 2))
    of_zeta[:, -1] += (after_cross * chunk.cross).sum((1, 2))

    # gate j is in D_ti for i < j <= t, as D_tj D_{j-1,i}; in zeta_t for j <= t, as D_tj zeta_{j-1}
    arrive = transpose(table) @ np.concatenate(
        [of_table * chunk.weight[:, None, :], of_zeta[..., None]], -1
    )  # sum over t of D_tj times the gradient at (t, i); (B, C, C + 1)
    past = np.zeros_like(arrive)
    past[:, 1:, :-1] = table[:, :-1]
    past[:, 0, -1], past[:, 1:, -1] = 1.0, zeta[:, :-1]
    into.forget[:] = np.einsum("bji,bji->bj", arrive, past)

    # dH = zeta_C dH' - sum_t zeta_t e_t x_t^T,  dG = zeta_C dG' + sum_t zeta_t g_t x_t^T
    into.gram[:] = zeta[:, -1, None, None] * after_gram - transpose(zeta[..., None] * e) @ x
    into.cross[:] = zeta[:, -1, None, None] * after_cross + transpose(zeta[..., None] * g) @ x

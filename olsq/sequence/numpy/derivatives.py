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

from olsq.arrays.checks import check_real
from olsq.problem import Gradients
from olsq.sequence.numpy.adjoint import gradient_of_streams
from olsq.sequence.numpy.blas import addresses
from olsq.sequence.numpy.chunks import Marks, clean
from olsq.sequence.numpy.inputs import has_unique_solution, spread
from olsq.sequence.numpy.solve import CHUNK, check, run_in_threads
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
    batch, _, streams, gram, cross = check(keys, values, queries, **problem)
    streams = streams._replace(
        keys=streams.keys.astype(np.float64),
        values=streams.values.astype(np.float64),
        queries=streams.queries.astype(np.float64),
    )
    description = (ChunkExact() if solver is None else solver).sized(CHUNK)
    description.check_ridge_mode(problem["ridge_mode"], forgets=not (streams.gates == 1).all())
    (count, length, d), m = streams.keys.shape, cross.shape[1]
    check_real("cotangent", cotangent)
    upstream = spread("cotangent", cotangent, (*batch, length, m), np.float64, "the outputs")
    upstream = upstream.reshape(count, length, m)
    if streams.ridge is None:
        upstream[~has_unique_solution(streams.gates, streams.weight, d)] = 0
    slopes = Gradients(
        keys=np.zeros_like(streams.keys),
        values=np.zeros_like(streams.values),
        queries=np.zeros_like(streams.queries),
        forget=np.zeros((count, length)),
        weight=np.zeros((count, length)),
        ridge=np.zeros((count, length, d)),
        gram=np.zeros_like(gram),
        cross=np.zeros_like(cross),
    )
    form = description.numpy()
    size = form.block_length(d)
    blocks = -(-length // size)

    def piece(first: int, last: int) -> None:
        """Differentiate some streams, with lost samples, states and outputs left out."""
        part = slice(first, last)
        moments, gradients = (gram[part], cross[part]), Gradients(*(x[part] for x in slopes))
        some = streams.part(part)
        absent = ~(np.isfinite(some.keys).all(-1) & np.isfinite(some.values).all(-1))
        marks = Marks.of(last - first, length)
        clean(some, moments, np.finfo(np.float64).max, marks)
        arriving = np.where((marks.lost | marks.query_lost)[..., None], 0, upstream[part])
        pairs = arriving, np.zeros_like(some.keys), np.zeros_like(some.keys)
        before = np.empty((last - first, blocks, d, d)), np.empty((last - first, blocks, m, d))
        form.solve_pairs(some, moments, pairs, before)
        gradient_of_streams(addresses(), some.arrays(), size, before, pairs, tuple(gradients))
        gradients.keys[absent], gradients.values[absent], gradients.weight[absent] = 0, 0, 0

    if d > 0:
        run_in_threads(count, 64.0 * count * length * d * (d + m), piece, form.pieces)
    if streams.ridge is None:  # the ridge was the gram before the first token
        of_ridge = np.diagonal(slopes.gram, axis1=1, axis2=2).copy()
        slopes = slopes._replace(ridge=of_ridge)
    return Gradients(*(x.reshape(*batch, *x.shape[1:]) for x in slopes))

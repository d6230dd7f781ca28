"""One chunk of every stream: gates, moments before it, and products with the moments of every
token.

With C tokens a chunk arrays are (B, C, ...); every product is one batched matrix product over B.
Gates and moments are float64 whatever the dtype of the chunk, and rounded to it once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import addresses, multiply_tn
from olsq.sequence.numpy.products import multiply_systems
from olsq.solvers.thresholds import FLOOR


class Chunk(NamedTuple):
    """Consecutive tokens of every stream, with the moments before them, in one dtype."""

    keys: NDArray  # (B, C, d)
    values: NDArray  # (B, C, m)
    queries: NDArray  # (B, C, d)
    decay: NDArray  # (B, C, C): weight_i * product of gates i+1..t, 0 for i > t
    zeta: NDArray  # (B, C): product of the chunk's gates up to t
    logs: NDArray | None  # (B, C): sums of log gates up to t, float64; None: all gates 1
    gates: NDArray  # (B, C), float64
    weight: NDArray  # (B, C), float64
    ridge: NDArray | None  # (B, 1 or C, d); None: inside gram
    gram: NDArray  # (B, d, d), before the chunk
    cross: NDArray  # (B, m, d), before the chunk


class Streams(NamedTuple):
    """Checked streams of finite numbers, B of them, T long."""

    keys: NDArray  # (B, T, d)
    values: NDArray  # (B, T, m)
    queries: NDArray  # (B, T, d)
    weight: NDArray  # (B, T), float64
    gates: NDArray  # (B, T), float64
    ridge: NDArray | None  # (B, 1 or T, d), float64; None: inside gram


def gate_products(gates: NDArray) -> tuple[NDArray, NDArray]:
    """Compute D[t, i] = product of gates i+1..t (B, C, C), zeta_t = product of gates up to t (B,
    C).
    """
    table = np.zeros((*gates.shape, gates.shape[1]))
    multiply_gates(gates, table)
    return table, np.cumprod(gates, axis=1)


@kernel()
def multiply_gates(gates, table):
    """Fill D (B, C, C), initially 0, with the products of gates i+1..t."""
    streams, count = gates.shape
    for b in range(streams):
        for t in range(count):
            for i in range(t):
                table[b, t, i] = table[b, t - 1, i] * gates[b, t]
            table[b, t, t] = 1.0


@kernel()
def absorb_chunks(blas, keys, values, gates, weight, gram, cross):
    """Update ``H <- zeta_C H + sum_i tail_i k_i k_i^T``, ``G`` likewise, in float64, for every
    stream.
    """
    streams, count, d = keys.shape
    m = values.shape[2]
    K, wide, V = np.empty((count, d)), np.empty((count, d)), np.empty((count, m))
    for b in range(streams):
        zeta = 1.0  # of the gates after i
        for i in range(count - 1, -1, -1):
            # zeta_Ci beta_i, by walking backwards: the product of the gates after i
            tail = zeta * weight[b, i]
            for j in range(d):
                wide[i, j] = keys[b, i, j]
                K[i, j] = tail * wide[i, j]
            for j in range(m):
                V[i, j] = values[b, i, j]
            zeta *= gates[b, i]
        multiply_tn(blas, wide, K, gram[b], 1.0, zeta)
        multiply_tn(blas, V, K, cross[b], 1.0, zeta)


def iterate_chunks(
    streams: Streams, chunk: int, gram: NDArray, cross: NDArray
) -> Iterator[tuple[int, Chunk]]:
    """Yield chunks in time order, each with its first token.

    Updates ``gram`` and ``cross`` in place.
    """
    length = streams.keys.shape[1]
    for first in range(0, length, chunk):
        part = slice(first, first + chunk)
        own = open_chunk(streams, part, gram, cross)
        yield first, own
        close_chunk(own, gram, cross)


def open_chunk(streams: Streams, part: slice, gram: NDArray, cross: NDArray) -> Chunk:
    """Build the chunk of the tokens ``part`` of every stream, with the moments before them."""
    dtype = streams.keys.dtype
    gates, weight = streams.gates[:, part], streams.weight[:, part]
    logs = None
    if (gates == 1).all():
        c = gates.shape[1]
        table, zeta = np.tril(np.ones((1, c, c))), np.ones_like(gates)
    else:
        table, zeta = gate_products(gates)
        # the log of a gate of 0 is -inf, raised to FLOOR
        with np.errstate(divide="ignore"):
            logs = np.cumsum(np.maximum(np.log(gates), FLOOR), axis=1)
    ridge = streams.ridge
    if ridge is not None:
        ridge = (ridge if ridge.shape[1] == 1 else ridge[:, part]).astype(dtype, order="C")
    return Chunk(
        np.ascontiguousarray(streams.keys[:, part]),
        np.ascontiguousarray(streams.values[:, part]),
        np.ascontiguousarray(streams.queries[:, part]),
        (table * weight[:, None, :]).astype(dtype, order="C"),
        zeta.astype(dtype, order="C"),
        logs,
        gates,
        weight,
        ridge,
        gram.astype(dtype, order="C"),
        cross.astype(dtype, order="C"),
    )


def close_chunk(chunk: Chunk, gram: NDArray, cross: NDArray) -> None:
    """Update the float64 moments before a chunk to those after it, in place."""
    if gram.shape[1] > 0:
        absorb_chunks(addresses(), chunk.keys, chunk.values, chunk.gates, chunk.weight, gram, cross)


def transpose(x: NDArray) -> NDArray:
    """Return the transpose of every matrix, without a copy."""
    return np.swapaxes(x, -1, -2)


def system_product(chunk: Chunk, x: NDArray) -> NDArray:
    """Compute (H_t + Lambda_t) x_t for every token: the matrix that all solvers invert."""
    (b, c, d), dtype = x.shape, x.dtype
    y, scores = np.empty_like(x), np.empty((c, c), dtype)
    ridge = np.empty((b, 0, d), dtype) if chunk.ridge is None else chunk.ridge
    multiply_systems(
        addresses(),
        x,
        chunk.keys,
        chunk.decay,
        chunk.zeta,
        chunk.gram,
        ridge,
        chunk.logs is not None,
        scores,
        y,
    )
    return y


def read_out(chunk: Chunk, x: NDArray) -> NDArray:
    """Compute o_t = G_t x_t for every token: gated linear attention with queries x."""
    # o_t = sum_i D_ti v_i (k_i . x_t) + zeta_t G x_t
    scores = x @ transpose(chunk.keys)
    scores *= chunk.decay
    return scores @ chunk.values + chunk.zeta[..., None] * (x @ transpose(chunk.cross))


def read_back(chunk: Chunk, upstream: NDArray) -> NDArray:
    """Compute G_t^T g_t for every token, the transpose of :func:`read_out`."""
    # G_t^T g_t = sum_i D_ti k_i (v_i . g_t) + zeta_t G^T g_t
    scores = upstream @ transpose(chunk.values)
    scores *= chunk.decay
    return scores @ chunk.keys + chunk.zeta[..., None] * (upstream @ chunk.cross)


def system_diagonal(chunk: Chunk) -> NDArray:
    """Compute diag(H_t + Lambda_t), (B, C, d)."""
    y = chunk.decay @ chunk.keys**2
    y = y + chunk.zeta[..., None] * np.diagonal(chunk.gram, axis1=1, axis2=2)[:, None]
    return y if chunk.ridge is None else y + chunk.ridge


def system_trace(chunk: Chunk) -> NDArray:
    """Compute trace(H_t), (B, C, 1): an upper bound of its norm for one small product."""
    own = chunk.decay @ (chunk.keys**2).sum(-1, keepdims=True)
    return own + chunk.zeta[..., None] * np.trace(chunk.gram, axis1=1, axis2=2)[:, None, None]

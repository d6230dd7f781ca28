"""One chunk of every stream: gates, moments before it, and products with the moments of every
token.

With C tokens a chunk arrays are (B, C, ...); every product is one batched matrix product over B.
Gates and moments are float64 whatever the dtype of the chunk, and rounded to it once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import addresses, scale
from olsq.sequence.numpy.chunk import absorb_chunk, zero_rows
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
    """Checked streams, B of them, T long."""

    keys: NDArray  # (B, T, d)
    values: NDArray  # (B, T, m)
    queries: NDArray  # (B, T, d)
    weight: NDArray  # (B, T), float64
    gates: NDArray  # (B, T), float64
    ridge: NDArray | None  # (B, 1 or T, d), float64; None: inside gram

    def part(self, part: slice) -> Streams:
        """Return some of the streams."""
        ridge = None if self.ridge is None else self.ridge[part]
        return Streams._make([*(x[part] for x in self[:5]), ridge])

    def arrays(self) -> tuple[NDArray, ...]:
        """Return the arrays as kernels take them, with a ridge of 0 where it is inside gram."""
        ridge = np.zeros((1, 1, self.keys.shape[2])) if self.ridge is None else self.ridge
        return *self[:5], ridge


class Marks(NamedTuple):
    """Tokens and streams without an answer, and the sizes of every token's moments."""

    lost: NDArray  # (B, T) bool: a lost sample or state reaches the token
    query_lost: NDArray  # (B, T) bool: its query or ridge is not finite
    end_lost: NDArray  # (B,) bool: the moments after the last token are lost
    trace: NDArray  # (B, T): of H_t
    cross_size: NDArray  # (B, T): bound of the norm of G_t, a sum of norms

    @classmethod
    def of(cls, *shape: int) -> Marks:
        """Return the marks of streams (B, T) before :func:`clean` fills them."""
        lost, query_lost, end_lost = (np.zeros(s, np.bool_) for s in (shape, shape, shape[:1]))
        return cls(lost, query_lost, end_lost, np.zeros(shape), np.zeros(shape))

    def part(self, part: slice) -> Marks:
        """Return those of some of the streams."""
        return Marks._make([x[part] for x in self])


def clean(streams: Streams, moments: tuple[NDArray, NDArray], most: float, marks: Marks) -> bool:
    """Remove non-finite numbers from streams and moments, in place, and measure the moments.

    A sample that is not finite, or whose key has a square above ``most``, is left out. It is lost
    unless its weight is 0: everything after it is unknown until a gate of 0.  Fills ``marks``, and
    returns whether anything was removed or lost.
    """
    return clean_streams(streams.arrays(), moments, most, tuple(marks))


@kernel()
def is_finite(A):
    """Test whether all entries of a matrix are finite."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            if not math.isfinite(A[i, j]):
                return False
    return True


@kernel()
def sum_squares(x):
    """Compute the sum of squares of a vector in float64."""
    total = 0.0
    for j in range(x.shape[0]):
        total += float(x[j]) ** 2
    return total


@kernel()
def clean_streams(arrays, moments, most, marks):
    """Run :func:`clean` for a batch of streams."""
    (keys, values, queries, weights, gates, ridge), (gram, cross) = arrays, moments
    lost, query_lost, end_lost, trace, cross_size = marks
    anything = False
    for b in range(keys.shape[0]):
        ridges, is_lost = ridge[b if ridge.shape[0] > 1 else 0], False
        if not (is_finite(gram[b]) and is_finite(cross[b])):
            is_lost = anything = True
            scale(gram[b], 0.0)
            scale(cross[b], 0.0)
        h = g = 0.0
        for i in range(gram.shape[2]):
            h += gram[b, i, i]
        for j in range(cross.shape[1]):
            g += sum_squares(cross[b, j])
        g = math.sqrt(g)
        for t in range(keys.shape[1]):
            if gates[b, t] == 0:
                is_lost = False
            k, v = sum_squares(keys[b, t]), sum_squares(values[b, t])
            sound = k <= most
            for j in range(values.shape[2]):
                sound = sound and math.isfinite(values[b, t, j])
            unknown = math.isnan(gates[b, t]) or not math.isfinite(weights[b, t])
            is_lost = is_lost or unknown or not (sound or weights[b, t] == 0)
            lost[b, t] = is_lost
            if math.isnan(gates[b, t]):
                gates[b, t] = 1.0
            if not (sound and math.isfinite(weights[b, t])):
                weights[b, t] = 0.0
            if not sound:
                k = v = 0.0
                zero_rows(keys[b], t, t + 1)
                zero_rows(values[b], t, t + 1)
            sound_query = True
            for j in range(queries.shape[2]):
                sound_query = sound_query and math.isfinite(queries[b, t, j])
            if not sound_query:
                zero_rows(queries[b], t, t + 1)
            row = t if ridges.shape[0] > 1 else 0
            for j in range(ridges.shape[1]):
                sound_query = sound_query and math.isfinite(ridges[row, j])
            query_lost[b, t] = not sound_query
            anything = anything or is_lost or not (sound and sound_query)
            # tr H_t = gate tr H + w |k|^2;  |G_t| <= gate |G| + w |v| |k|
            h = gates[b, t] * h + weights[b, t] * k
            g = gates[b, t] * g + weights[b, t] * math.sqrt(k * v)
            trace[b, t], cross_size[b, t] = h, g
        end_lost[b] = is_lost
    return anything


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
def fill_all_gate_products(gates, table, zeta):
    """Run :func:`fill_gate_products` for every stream."""
    for b in range(gates.shape[0]):
        fill_gate_products(gates[b], table[b], zeta[b])


@kernel()
def absorb_chunks(blas, samples, gram, cross):
    """Advance the moments of every stream over a chunk."""
    keys, values, weights, gates = samples
    for b in range(keys.shape[0]):
        scale(gram[b], gates[b, 0])
        scale(cross[b], gates[b, 0])
        one = keys[b], values[b], weights[b], gates[b]
        absorb_chunk(blas, one, 0, keys.shape[1], gram[b], cross[b])


def iterate_chunks(
    streams: Streams, chunk: int, gram: NDArray, cross: NDArray
) -> Iterator[tuple[slice, Chunk]]:
    """Yield chunks in time order, each with its tokens.

    Updates ``gram`` and ``cross`` in place.
    """
    length = streams.keys.shape[1]
    for first in range(0, length, chunk):
        part = slice(first, min(first + chunk, length))
        opened = open_chunk(streams, part, gram, cross)
        yield part, opened
        if gram.shape[1] > 0:
            samples = opened.keys, opened.values, opened.weight, opened.gates
            absorb_chunks(addresses(), samples, gram, cross)


def open_chunk(streams: Streams, part: slice, gram: NDArray, cross: NDArray) -> Chunk:
    """Build the chunk of the tokens ``part`` of every stream, with the moments before them."""
    dtype = streams.keys.dtype
    gates, weight = (np.ascontiguousarray(x[:, part]) for x in (streams.gates, streams.weight))
    logs = None
    if (gates == 1).all():
        c = gates.shape[1]
        table, zeta = np.tril(np.ones((1, c, c))), np.ones_like(gates)
    else:
        table, zeta = np.empty((*gates.shape, gates.shape[1])), np.empty(gates.shape)
        fill_all_gate_products(gates, table, zeta)
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


def transpose(x: NDArray) -> NDArray:
    """Return the transpose of every matrix, without a copy."""
    return np.swapaxes(x, -1, -2)


def system_product(chunk: Chunk, x: NDArray) -> NDArray:
    """Compute (H_t + Lambda_t) x_t for every token: the matrix that all solvers invert."""
    (b, c, d), dtype = x.shape, x.dtype
    y, scores = np.empty_like(x), np.empty((c, c), dtype)
    ridge = np.empty((b, 0, d), dtype) if chunk.ridge is None else chunk.ridge
    moments = chunk.decay, chunk.zeta, chunk.gram, ridge, chunk.logs is not None
    multiply_systems(addresses(), x, chunk.keys, moments, scores, y)
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
    near = chunk.decay @ (chunk.keys**2).sum(-1, keepdims=True)
    return near + chunk.zeta[..., None] * np.trace(chunk.gram, axis1=1, axis2=2)[:, None, None]

"""Interface of a solver's NumPy form: what it gets, what it multiplies by, what it implements.

A chunk is some tokens of every stream; with C of them arrays are (B, C, ...), and every product is
one batched matrix product over B.  Gates and moments are float64 whatever the dtype of the chunk,
and rounded to it once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import addresses, multiply_nn, multiply_nt, scale
from olsq.sequence.numpy.chunk import absorb_chunk
from olsq.sequence.numpy.inputs import Streams
from olsq.solvers.chunk_exact import FLOOR


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


class NumpySolver:
    """A solver in NumPy: one factorisation, shared by solves for every token of a chunk of streams.

    The same methods as :class:`olsq.sequence.jax.solver.JaxSolver`, on one chunk at a time.
    """

    options: Any
    """The description, an :class:`olsq.solvers.Solver`."""

    wide: bool = False
    """True if it squares keys in float64, whatever the dtype of the streams."""

    pieces: int = 1
    """Pieces of a batch per thread: one is best where Python runs between kernels."""

    def prepare(self, chunk: Chunk) -> Any:
        """Compute what several solves can share, such as a factorisation."""
        raise NotImplementedError

    def solve(self, chunk: Chunk, prepared: Any, b: NDArray) -> tuple[NDArray, NDArray]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token (B, C, d).

        Also returns the steps of each.
        """
        raise NotImplementedError

    def solve_transposed(self, chunk: Chunk, prepared: Any, b: NDArray) -> tuple[NDArray, NDArray]:
        """Solve the same systems, which are symmetric, for the implicit gradient."""
        return self.solve(chunk, prepared, b)

    def solve_streams(self, streams: Streams, outputs: tuple[NDArray, NDArray, NDArray]) -> None:
        """Solve every token of finite streams, chunk by chunk; advance their moments.

        Fills ``outputs`` = values, steps, and norms (B, T, 2) of residuals and solutions.
        """
        value, steps, norms = outputs
        for part, chunk in iterate_chunks(streams, self.options.chunk):
            with np.errstate(all="ignore"):
                x, steps[:, part] = self.solve(chunk, self.prepare(chunk), chunk.queries)
                value[:, part] = read_out(chunk, x)
                residual_norms(chunk.queries, system_product(chunk, x), x, norms[:, part])

    def block_length(self, d: int) -> int:
        """Return the tokens of a block of the gradient: those of a chunk."""
        return self.options.chunk

    def solve_pairs(
        self,
        streams: Streams,
        pairs: tuple[NDArray, NDArray, NDArray],
        before: tuple[NDArray, NDArray],
    ) -> None:
        """Solve both systems of every token of finite float64 streams; advance their moments.

        With ``pairs`` = upstream gradients g, x and e, all (B, T, ...), fills ``M_t x_t = q_t`` and
        ``M_t e_t = G_t^T g_t``; fills ``before`` = (grams, crosses), (B, blocks, ...), with the
        moments before every block.
        """
        (upstream, x, e), (grams, crosses) = pairs, before
        for part, chunk in iterate_chunks(streams, self.options.chunk):
            block = part.start // self.options.chunk
            grams[:, block], crosses[:, block] = chunk.gram, chunk.cross
            with np.errstate(all="ignore"):
                prepared = self.prepare(chunk)
                x[:, part] = self.solve(chunk, prepared, chunk.queries)[0]
                right = read_back(chunk, upstream[:, part])
                e[:, part] = self.solve_transposed(chunk, prepared, right)[0]


def iterate_chunks(streams: Streams, chunk: int) -> Iterator[tuple[slice, Chunk]]:
    """Yield chunks in time order, each with its tokens; advance the moments of ``streams``."""
    _, length, d = streams.keys.shape
    for first in range(0, length, chunk):
        part = slice(first, min(first + chunk, length))
        opened = open_chunk(streams, part)
        yield part, opened
        if d > 0:
            samples = opened.keys, opened.values, opened.weight, opened.gates
            absorb_chunks(addresses(), samples, *streams.moments())


def open_chunk(streams: Streams, part: slice) -> Chunk:
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
        streams.gram.astype(dtype, order="C"),
        streams.cross.astype(dtype, order="C"),
    )


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


@kernel()
def multiply_systems(blas, x, keys, moments, scores, y):
    """Compute y = ((x K^T) * D) K + zeta (x H) + ridge x for every stream (B, C, d); scores (C, C).

    ``moments`` = D (B or 1, C, C), zeta (B, C), H (B, d, d), ridge (B, 1 or C, d), or (B, 0, d)
    where there is none, and whether any gate is not 1.
    """
    decay, zeta, gram, ridge, gated = moments
    streams, count, d = x.shape
    for b in range(streams):
        D = decay[b if decay.shape[0] > 1 else 0]
        multiply_nt(blas, x[b], keys[b], scores)
        for t in range(count):
            for s in range(count):
                scores[t, s] *= D[t, s]
        multiply_nn(blas, x[b], gram[b], y[b])
        for t in range(count):
            if gated:
                for j in range(d):
                    y[b, t, j] = zeta[b, t] * y[b, t, j] if zeta[b, t] > 0 else 0.0
            if ridge.shape[1] > 0:
                row = t if ridge.shape[1] > 1 else 0
                for j in range(d):
                    y[b, t, j] += ridge[b, row, j] * x[b, t, j]
        multiply_nn(blas, scores, keys[b], y[b], 1.0, 1.0)


def fade_read(chunk: Chunk, past: NDArray) -> NDArray:
    """Multiply what is read of the moments before a chunk, (B, C or 1, d), by the gates since.

    After a reset nothing of it counts: 0 times what overflowed would be NaN.
    """
    zeta = chunk.zeta[..., None]
    return np.where(zeta == 0, np.zeros_like(past), zeta * past)


def read_out(chunk: Chunk, x: NDArray) -> NDArray:
    """Compute o_t = G_t x_t for every token: gated linear attention with queries x."""
    # o_t = sum_i D_ti v_i (k_i . x_t) + zeta_t G x_t
    scores = x @ transpose(chunk.keys)
    scores *= chunk.decay
    return scores @ chunk.values + fade_read(chunk, x @ transpose(chunk.cross))


def read_back(chunk: Chunk, upstream: NDArray) -> NDArray:
    """Compute G_t^T g_t for every token, the transpose of :func:`read_out`."""
    # G_t^T g_t = sum_i D_ti k_i (v_i . g_t) + zeta_t G^T g_t
    scores = upstream @ transpose(chunk.values)
    scores *= chunk.decay
    return scores @ chunk.keys + fade_read(chunk, upstream @ chunk.cross)


def system_diagonal(chunk: Chunk) -> NDArray:
    """Compute diag(H_t + Lambda_t), (B, C, d)."""
    y = chunk.decay @ chunk.keys**2
    y = y + fade_read(chunk, np.diagonal(chunk.gram, axis1=1, axis2=2)[:, None])
    return y if chunk.ridge is None else y + chunk.ridge


def system_trace(chunk: Chunk) -> NDArray:
    """Compute trace(H_t), (B, C, 1): an upper bound of its norm for one small product."""
    near = chunk.decay @ (chunk.keys**2).sum(-1, keepdims=True)
    return near + fade_read(chunk, np.trace(chunk.gram, axis1=1, axis2=2)[:, None, None])


@kernel()
def residual_norms(b, product, x, norms):
    """Compute ``|b - M x|`` and ``|x|`` of every token in float64: norms (B, C, 2)."""
    streams, count, d = x.shape
    for s in range(streams):
        for t in range(count):
            left = length = 0.0
            for j in range(d):
                r = float(b[s, t, j] - product[s, t, j])
                left += r * r
                length += float(x[s, t, j]) ** 2
            norms[s, t, 0], norms[s, t, 1] = math.sqrt(left), math.sqrt(length)

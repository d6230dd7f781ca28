"""Chunk-exact least squares: the default solver, in kernels that solve a stream in one pass.

Chunks are as long as their gates allow.  Moments are carried and factorised in float64 whatever the
dtype of the stream, since they are what rounding accumulates in.  A chunk is tried in the stream's
dtype, then in float64, then token by token: each is taken where the one before would cancel too
many digits.

The tuples are those of :mod:`.chunk`.  ``options`` = (largest log spread of the gates of a chunk,
most tokens of one, tolerance, corrections or -1); ``moments`` = (gram, cross) in float64;
``outputs`` = value (T, m), steps (T,) and norms (T, 2) = ``|q - M x|`` and ``|x|``; ``work`` are
four matrices (d, d).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import addresses, copy, inflation, multiply_nt, scale, whiten
from olsq.sequence.numpy.chunk import absorb_chunk, solve_chunk, solve_chunk_pairs
from olsq.sequence.numpy.inputs import Streams
from olsq.sequence.numpy.solver import NumpySolver
from olsq.sequence.numpy.tokens import count_keys_in_range, has_cotangent, solve_tokens
from olsq.solvers.chunk_exact import FLOOR, ChunkExact

LOG_SPREAD = 1.4  # |log| of the gates' product within a chunk, fixed ridge: f stays within 2
LOG_SPREAD_DISCOUNTED = 3.0  # no corrections needed: only the keys' weights must stay comparable
RIDGE_SPREAD = 0.5  # |log| by which ridges of one chunk may differ
SHORT = 8  # tokens solved one by one before a chunk is tried again
FEWEST = 3  # fewest tokens solved as a chunk; fewer (harsh gates) are solved one by one
INFLATION = 1e3  # largest A_jj (A^-1)_jj with which a chunk is solved in float32
SMALLEST = 1e-25  # diagonal of a system below which float32 underflows in its products
# (tolerance of corrections, largest pivot of I + Y Y^T, largest backward error)
LIMITS_SINGLE = (1e-6, 30.0, 1e-5)
LIMITS_DOUBLE_OF_SINGLE = (1e-7, 1e9, 1e-7)
LIMITS_DOUBLE = (1e-14, 30.0, 1e-13)


def chunk_length(d: int) -> int:
    """Return the largest chunk length: a longer one shares a factor of size d among more tokens."""
    return 16 if d <= 8 else 32 if d <= 32 else 64


@dataclass(frozen=True)
class NumpyChunkExact(NumpySolver):
    """NumPy form of :class:`olsq.ChunkExact`.

    Kernels choose chunks and precision as they go.  Where gates are harsh they factorise every
    token's own system, so that ``max_steps`` has nothing to limit.  Given ``corrections`` are taken
    in chunks of ``chunk`` tokens whatever the gates are, as in JAX.
    """

    options: ChunkExact

    wide = True
    pieces = 8

    def solve_streams(self, streams: Streams, outputs: tuple[NDArray, NDArray, NDArray]) -> None:
        """Solve every token of finite streams."""
        corrections, most = self.options.corrections, chunk_length(streams.keys.shape[2])
        options = self._kernel_options(streams, self._at_most(most))
        if corrections is not None and streams.ridge is not None:  # else nothing is to correct
            options = np.inf, self.options.chunk, 0.0, corrections
        solve_streams(addresses(), streams.arrays(), options, streams.moments(), outputs)

    def block_length(self, d: int) -> int:
        """Return the tokens of a block of the gradient, and the most of its chunks.

        Shorter than :func:`chunk_length`, since the corrections of two solutions cost less in short
        chunks.  Measured, microseconds per token with chunks of 32 and 64: 12.2 and 16.4 at d 64,
        45.4 and 47.8 at d 128.
        """
        return self._at_most(16 if d <= 8 else 32 if d <= 128 else 64)

    def solve_pairs(
        self,
        streams: Streams,
        pairs: tuple[NDArray, NDArray, NDArray],
        before: tuple[NDArray, NDArray],
    ) -> None:
        """Solve both systems of every token to ``tol``, whatever ``corrections`` are given."""
        options = self._kernel_options(streams, self.block_length(streams.keys.shape[2]))
        solve_pairs(addresses(), streams.arrays(), options, streams.moments(), pairs, before)

    def _at_most(self, tokens: int) -> int:
        """Return ``tokens``, or the description's chunk length if that is shorter."""
        assert self.options.chunk is not None  # it is sized
        return min(self.options.chunk, tokens)

    def _kernel_options(self, streams: Streams, most: int) -> tuple[float, int, float, int]:
        """Return the kernels' options: spread, most tokens, tolerance, and no corrections."""
        spread = LOG_SPREAD_DISCOUNTED if streams.ridge is None else LOG_SPREAD
        tol = 0.0 if self.options.tol is None else float(self.options.tol)
        return spread, most, tol, -1


@kernel()
def compare_ridges(ridge, a, b):
    """Compare the ridges of two tokens: 0 if equal, 1 if of about the same size, 2 if far apart."""
    result = 0
    for j in range(ridge.shape[1]):
        x, y = ridge[a, j], ridge[b, j]
        if x != y:
            result = 1
            if not (x > 0 and y > 0 and abs(math.log(x / y)) <= RIDGE_SPREAD):
                return 2
    return result


@kernel()
def find_chunk_end(gates, ridge, spread, first, longest):
    """Find the end of the longest chunk from ``first`` that one reference serves, and whether one
    ridge does.

    Gates and ridges decide it, never samples: a later sample must not change an earlier output.
    An infinite ``spread`` takes any of them.
    """
    total, uniform, t = 0.0, True, first + 1
    while t < min(first + longest, gates.shape[0]):
        total -= math.log(gates[t]) if gates[t] > 0 else -np.inf
        if total > spread:
            break
        if ridge.shape[0] > 1:
            relation = compare_ridges(ridge, first, t)
            if relation == 2 and spread < np.inf:
                break
            uniform = uniform and relation == 0
        t += 1
    return t, uniform


@kernel()
def fits_float32(system):
    """Test whether the range of float32 holds the products of a system."""
    for j in range(system.shape[0]):  # noqa: SIM110 (kernels have no generators)
        if not SMALLEST < system[j, j] < 1 / SMALLEST:
            return False
    return True


@kernel()
def compute_chunk_scales(gates, ridge, first, count, uniform):
    """Compute the ``scales`` of a chunk, see :mod:`.chunk`."""
    d = ridge.shape[1]
    ratio, ridges, reference = np.empty(count), np.empty((count, d)), np.empty(d)
    total = 0.0
    for i in range(count):
        total += max(math.log(gates[first + i]), FLOOR) if i > 0 else 0.0
        ratio[i] = total
        for j in range(d):
            ridges[i, j] = ridge[first + i if ridge.shape[0] > 1 else 0, j]
    for i in range(count):
        ratio[i] = math.exp(total / 2 - ratio[i])
    for j in range(d):
        reference[j] = ridges[0, j]
        if not uniform and reference[j] > 0:
            logs = 0.0
            for i in range(count):
                logs += math.log(ridges[i, j])
            reference[j] = math.exp(logs / count)
    return ratio, ridges, reference, uniform


@kernel()
def choose_limits(limits, options, singular):
    """Return the limits of a chunk: a tolerance raises them, given corrections lift them."""
    _, _, tol, corrections = options
    if corrections >= 0:
        return 0.0, np.inf, np.inf, corrections
    backward = np.inf if singular else max(limits[2], tol)
    return max(limits[0], tol), limits[1], backward, corrections


@kernel()
def solve_in_cheapest_precision(blas, stream, span, scales, moments, work, options, outputs):
    """Solve a chunk in the cheapest precision that keeps its digits.

    Returns how many tokens were solved.
    """
    singular, (system, W, _, _), cross = span[3], work, moments[1]
    kind, (m, d), span = stream[0].dtype, cross.shape, span[:3]
    Z = np.empty((m, d))
    multiply_nt(blas, cross, W, Z, scales[0][0])
    done = np.int64(0)  # np.int64: a literal would give `done` a second type in Numba
    wide = LIMITS_DOUBLE
    if stream[0].itemsize == 4:
        wide = LIMITS_DOUBLE_OF_SINGLE
        if fits_float32(system) and inflation(system, W) < INFLATION:
            single = np.empty((d, d), kind), np.empty((d, d), kind), np.empty((m, d), kind)
            factors = copy(system, single[0]), copy(W, single[1]), copy(Z, single[2])
            limits = choose_limits(LIMITS_SINGLE, options, False)
            done = solve_chunk(blas, stream, span, factors, scales, limits, done, outputs)
    if done < span[2]:
        limits = choose_limits(wide, options, singular)
        done = solve_chunk(blas, stream, span, (system, W, Z), scales, limits, done, outputs)
    return done


@kernel()
def solve_next_chunk(blas, stream, options, first, moments, work, outputs, pairs):
    """Solve the next chunk from ``first`` on; return the first token not solved.

    Fills ``outputs``, or with ``pairs`` the two solutions of :mod:`.pairs`.
    """
    keys, values, _, weights, gates, ridge = stream
    (gram, cross), (system, W, _, _) = moments, work
    samples, (spread, most, _, _) = (keys, values, weights, gates), options
    # Blocks of the gradient, and given corrections, have chunks on a grid.
    aligned = pairs is not None or spread == np.inf
    longest = most - first % most if aligned else most
    end, uniform = find_chunk_end(gates, ridge, spread, first, longest)
    count, done = end - first, np.int64(0)
    if pairs is not None and not has_cotangent(pairs[0], first, count):
        absorb_chunk(blas, samples, first, count, gram, cross)
        return end
    scales = compute_chunk_scales(gates, ridge, first, count, uniform)
    if count >= FEWEST or (aligned and count == longest) or end == gates.shape[0]:
        copy(gram, system)
        scale(system, scales[0][0])
        for i in range(gram.shape[0]):
            system[i, i] += scales[2][i]
        rank = whiten(blas, *work)
        singular, solvable = rank < gram.shape[0], count
        if singular:
            solvable = np.int64(0)
            if rank >= 0:
                solvable = count_keys_in_range(W, system, keys, weights, first, count)
        if solvable > 0:
            span = first, count, solvable, singular
            # Numba leaves out what is None: nothing may stand in an else
            if outputs is not None:
                done = solve_in_cheapest_precision(
                    blas, stream, span, scales, moments, work, options, outputs
                )
            if pairs is not None:
                limits = choose_limits(LIMITS_DOUBLE, options, singular)
                done = solve_chunk_pairs(blas, stream, span[:3], scales, cross, work, limits, pairs)
        if done > 0:
            absorb_chunk(blas, samples, first, done, gram, cross)
    left = min(count - done, SHORT)
    if left > 0:
        if done > 0:
            scale(gram, gates[first + done])
            scale(cross, gates[first + done])
        solve_tokens(blas, stream, first + done, left, moments, work, outputs, pairs)
    return first + done + left


@kernel()
def solve_stream(blas, stream, options, moments, outputs):
    """Solve every token of one stream; update ``moments`` = (gram, cross), float64, in place."""
    gates, (gram, cross) = stream[4], moments
    d = gram.shape[0]
    work = np.empty((d, d)), np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    t = np.int64(0)  # np.int64: a literal would make Numba compile everything below twice
    while t < gates.shape[0]:
        if gates[t] < 1:
            scale(gram, gates[t])
            scale(cross, gates[t])
        t = solve_next_chunk(blas, stream, options, t, moments, work, outputs, None)
    for i in range(d):
        for j in range(i):
            gram[i, j] = gram[j, i]


@kernel(makes_arrays=True)
def solve_streams(blas, arrays, options, moments, outputs):
    """Solve a batch of streams."""
    keys, values, queries, weights, gates, ridge = arrays
    (gram, cross), (value, steps, norms) = moments, outputs
    for b in range(keys.shape[0]):
        stream_ridge = ridge[b if ridge.shape[0] > 1 else 0]
        stream = keys[b], values[b], queries[b], weights[b], gates[b], stream_ridge
        solve_stream(blas, stream, options, (gram[b], cross[b]), (value[b], steps[b], norms[b]))


@kernel(makes_arrays=True)
def solve_pairs(blas, arrays, options, moments, pairs, before):
    """Fill the two solutions of every token of a batch of streams, and the moments ``before`` every
    block of as many tokens as a chunk may have; no chunk crosses into the next block.
    """
    keys, values, queries, weights, gates, ridge = arrays
    (upstream, x, e), (grams, crosses), most = pairs, before, options[1]
    d = keys.shape[2]
    work = np.empty((d, d)), np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    for b in range(keys.shape[0]):
        gram, cross, stream_ridge = moments[0][b], moments[1][b], ridge[b if len(ridge) > 1 else 0]
        stream = keys[b], values[b], queries[b], weights[b], gates[b], stream_ridge
        parts, t = (upstream[b], x[b], e[b]), np.int64(0)
        while t < keys.shape[1]:
            if t % most == 0:
                copy(gram, grams[b, t // most])
                copy(cross, crosses[b, t // most])
            if gates[b, t] < 1:
                scale(gram, gates[b, t])
                scale(cross, gates[b, t])
            t = solve_next_chunk(blas, stream, options, t, (gram, cross), work, None, parts)

"""Least squares over whole sequences of NumPy arrays on the CPU, without JAX.

The solver's form solves pieces of the batch on several threads; errors are bounded from outside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numba import config
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.problem import Moments, Sizes, Solution, Stats, certificate, error_bounds
from olsq.sequence.numpy.blas import scale
from olsq.sequence.numpy.chunk import zero_rows
from olsq.sequence.numpy.inputs import Streams, check, has_unique_solution
from olsq.solvers import ChunkExact, Solver
from olsq.threads import cores, one_blas_thread

CHUNK = 64  # tokens per chunk of solvers without a default: Python runs between two chunks
SMALL_PIECE = 1e6  # multiply-adds below which starting a piece costs more than it gains


def run_in_threads(
    streams: int, work: float, piece: Callable[[int, int], None], pieces: int = 8
) -> None:
    """Call ``piece(first, last)`` over all streams, on several threads where it is faster.

    ``pieces`` per thread balance the load of kernels, and limit their memory; one is best where
    Python runs between them.
    """
    most: Any = config.NUMBA_NUM_THREADS  # pyright: ignore[reportAttributeAccessIssue]
    workers = min(streams, most, cores())
    count = min(streams, pieces * workers, int(work / SMALL_PIECE))
    if count < 2:
        piece(0, streams)
        return
    edges = np.linspace(0, streams, count + 1).astype(int).tolist()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(piece, edges[:-1], edges[1:]))


def least_eigenvalue(gram: NDArray) -> NDArray:
    """Compute the least eigenvalue of symmetric matrices (..., d, d); 0 where one is not finite."""
    sound = np.asarray(np.isfinite(gram).all((-2, -1)))
    safe = np.where(sound[..., None, None], gram, 0)
    return np.where(sound, np.linalg.eigvalsh(safe).min(-1, initial=np.inf), 0)


def certify(
    streams: Streams,
    value: NDArray,
    norms: NDArray,
    marks: Marks,
    floor: NDArray,
    out: np.dtype,
) -> tuple[NDArray, ...]:
    """Compute residuals and error bounds (B, T), as in ``problem.Stats``.

    ``norms`` (B, T, 2) holds ``|q - M x|`` and ``|x|``, ``floor`` lower bounds of the eigenvalues.
    """
    dtype = value.dtype
    eps = float(np.finfo(dtype).eps)
    out_eps = float(np.spacing(out.type(1)))  # of bfloat16 too, which np.finfo does not know
    with np.errstate(all="ignore"):  # overflowing and unknown bounds become infinite below
        query, output = row_norms(streams.queries), row_norms(value)
        query = np.where(np.isfinite(query), query, 0)
        left, solution = norms[..., 0], norms[..., 1]
        ridge = streams.arrays()[-1].max(-1, initial=0)
        sizes = Sizes(query, solution, left, marks.trace, ridge, marks.cross_size, output)
        bounds = error_bounds(sizes, floor, value.shape[1], eps, out_eps)
        is_bounded = np.isfinite(value).all(-1) & (floor > 0)
        return tuple(x.astype(dtype) for x in certificate(left, query, bounds, is_bounded))


@one_blas_thread
def solve_whole(
    keys: Any, values: Any, queries: Any, *, solver: Solver | None = None, **problem: Any
) -> Solution[NDArray[Any]]:
    """Run :func:`olsq.online_lstsq` for NumPy arrays, on Numba kernels and BLAS.

    Gates, weights, ridges and moments are float64 throughout, whatever the dtype of the stream.
    Streams run on as many threads as Numba would use, and do not see one another's bits.
    """
    streams, batch, out = check(keys, values, queries, **problem)
    description = (ChunkExact() if solver is None else solver).sized(CHUNK)
    gates = streams.gates
    forgets = not (gates == 1).all()
    description.check_ridge_mode(problem.get("ridge_mode", "fixed"), forgets)
    if forgets:
        with np.errstate(divide="ignore"):
            description.review(np.log(gates), gates)
    (count, length, d), m, dtype = streams.keys.shape, streams.values.shape[2], streams.keys.dtype
    value, norms = np.zeros((count, length, m), dtype), np.zeros((count, length, 2))
    marks = Marks.of(count, length)
    steps = np.zeros((count, length), np.int32)
    if streams.ridge is None:
        least = least_eigenvalue(streams.gram).reshape(count, 1)
        floor = np.maximum(least, 0) * np.cumprod(gates, axis=1)
    else:
        floor = streams.ridge.min(-1, initial=np.inf)
    form = description.numpy()
    most = float(np.finfo(np.float64 if form.wide else dtype).max)

    def piece(first: int, last: int) -> None:
        part = slice(first, last)
        some, marked = streams.part(part), marks.part(part)
        anything = clean(some, most, marked)
        form.solve_streams(some, (value[part], steps[part], norms[part]))
        if anything:
            value[part][marked.lost | marked.query_lost] = np.nan
            some.gram[marked.end_lost], some.cross[marked.end_lost] = np.nan, np.nan

    if d > 0:  # BLAS takes no matrix without columns
        run_in_threads(count, 16.0 * count * length * d * (d + m), piece, form.pieces)
    if streams.ridge is None:
        value[~has_unique_solution(gates, streams.weight, d)] = np.nan
    stats = steps, *certify(streams, value, norms, marks, floor, out)
    with np.errstate(over="ignore"):  # float64 moments of huge float32 samples
        moments = (s.reshape(*batch, *s.shape[1:]).astype(dtype) for s in streams.moments())
        final, stats = Moments(*moments), Stats(*(s.reshape(*batch, length) for s in stats))
        return Solution(value.reshape(*batch, length, m).astype(out), final, stats)


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


def clean(streams: Streams, most: float, marks: Marks) -> bool:
    """Remove non-finite numbers from streams and moments, in place, and measure the moments.

    A sample that is not finite, or whose key has a square above ``most``, is left out. It is lost
    unless its weight is 0: everything after it is unknown until a gate of 0.  Fills ``marks``, and
    returns whether anything was removed or lost.
    """
    return clean_streams(streams.arrays(), streams.moments(), most, tuple(marks))


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
def row_norms(x):
    """Compute ``|x|`` of every row (B, T, d) in float64: (B, T)."""
    streams, count, d = x.shape
    norms = np.empty((streams, count))
    for s in range(streams):
        for t in range(count):
            total = 0.0
            for j in range(d):
                total += float(x[s, t, j]) ** 2
            norms[s, t] = math.sqrt(total)
    return norms

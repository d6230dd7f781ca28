"""Least squares over whole sequences of NumPy arrays on the CPU, without JAX.

The default solver goes through kernels that choose chunks and precision as they go
(:mod:`.stream`); every other one through :func:`solve_by_chunks`, in chunks of its own length.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numba import config
from numpy.typing import NDArray

from olsq.arrays.checks import check_real, check_streams
from olsq.problem import Moments, Sizes, Solution, Stats, error_bounds
from olsq.sequence.numpy import stream as kernels
from olsq.sequence.numpy.blas import addresses
from olsq.sequence.numpy.chunks import Streams, iterate_chunks, read_out, system_product
from olsq.sequence.numpy.inputs import (
    check_gates,
    check_ridge,
    check_state,
    check_weight,
    has_unique_solution,
    output_dtype,
    spread,
    working_dtype,
)
from olsq.sequence.numpy.products import residual_norms, row_norms
from olsq.sequence.numpy.solver import NumpySolver
from olsq.sequence.numpy.tokens import moment_sizes
from olsq.solvers import ChunkExact, Solver
from olsq.threads import cores, one_blas_thread

CHUNK = 64  # tokens per chunk of solvers without a default: Python runs between two chunks
LITTLE_WORK = 2e6  # multiply-adds below which starting threads costs more than it gains


def chunk_length(d: int) -> int:
    """Return the kernels' largest chunk length: a longer chunk shares a factor of size d among more
    tokens.
    """
    return 16 if d <= 8 else 32 if d <= 32 else 64


def run_in_threads(
    streams: int, work: float, piece: Callable[[int, int], None], pieces: int = 8
) -> None:
    """Call ``piece(first, last)`` over all streams, on several threads where it is faster.

    ``pieces`` per thread balance the load of kernels; one is best where Python runs between them.
    """
    most: Any = config.NUMBA_NUM_THREADS  # pyright: ignore[reportAttributeAccessIssue]
    workers = min(streams, most, cores())
    if workers < 2 or work < LITTLE_WORK:
        piece(0, streams)
        return
    edges = np.linspace(0, streams, min(streams, pieces * workers) + 1).astype(int).tolist()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(piece, edges[:-1], edges[1:]))


def least_eigenvalue(gram: NDArray) -> NDArray:
    """Compute the least eigenvalue of symmetric matrices (..., d, d); 0 where one is not finite."""
    sound = np.asarray(np.isfinite(gram).all((-2, -1)))
    safe = np.where(sound[..., None, None], gram, 0)
    return np.where(sound, np.linalg.eigvalsh(safe).min(-1, initial=np.inf), 0)


def certify(
    queries: NDArray,
    value: NDArray,
    norms: NDArray,
    trace: NDArray,
    cross_size: NDArray,
    ridges: NDArray,
    floor: NDArray,
    out: np.dtype,
) -> tuple[NDArray, NDArray, NDArray]:
    """Compute residuals and error bounds (B, T).

    ``norms`` holds (|q - M x|, |x|), see ``problem.Stats``.
    """
    dtype = value.dtype
    eps = float(np.finfo(dtype).eps)
    out_eps = float(np.spacing(out.type(1)))  # of bfloat16 too, which np.finfo does not know
    with np.errstate(all="ignore"):  # overflowing and unknown bounds become infinite below
        size = row_norms(queries)
        size = np.where(np.isfinite(size), size, 0)
        output = row_norms(value)
        left, solution, largest = norms[..., 0], norms[..., 1], ridges.max(-1, initial=0)
        sizes = Sizes(size, solution, left, trace, largest, cross_size, output)
        bounds = error_bounds(sizes, floor, value.shape[1], eps, out_eps if out_eps > eps else 0.0)
        known = np.isfinite(value).all(-1) & (floor > 0)
        bound, of_value = (np.where(known & ~np.isnan(x), x, np.inf) for x in bounds)
        residual = np.where(size > 0, left / np.where(size > 0, size, 1), 0)
        return residual.astype(dtype), bound.astype(dtype), of_value.astype(dtype)


class CheckedProblem(NamedTuple):
    """A checked problem: one flat batch axis B, samples in the working dtype, the rest float64."""

    batch: tuple[int, ...]
    out: np.dtype  # of the outputs
    keys: NDArray  # (B, T, d)
    values: NDArray  # (B, T, m)
    queries: NDArray  # (B, T, d)
    weights: NDArray  # (B, T)
    gates: NDArray  # (B, T)
    ridges: NDArray  # (B, 1 or T, d); zeros in the discounted problem, whose gram holds it
    gram: NDArray  # (B, d, d)
    cross: NDArray  # (B, m, d)
    discounted: bool


def check(
    keys: Any,
    values: Any,
    queries: Any,
    *,
    forget: Any = None,
    log_forget: Any = None,
    weight: Any = None,
    ridge: Any = None,
    ridge_mode: str = "fixed",
    state: Any = None,
) -> CheckedProblem:
    """Check every argument of :func:`olsq.online_lstsq`; return fresh arrays."""
    for name, x in (("keys", keys), ("values", values), ("queries", queries)):
        check_real(name, x)
    for name, x in zip(Moments._fields, state or (), strict=False):
        check_real(f"state.{name}", x)
    keys, values, queries = (np.asarray(a) for a in (keys, values, queries))
    batch, length, d, m = check_streams(keys, values, queries)
    given = [] if state is None else [np.asarray(s) for s in state]
    out, dtype = output_dtype(keys, values, queries), working_dtype(keys, values, queries, *given)
    gates = check_gates(forget, log_forget, (*batch, length))
    weights = check_weight(weight, (*batch, length))
    ridges = check_ridge(ridge, ridge_mode, state is not None, batch, length, d)
    gram, cross = check_state(state, batch, d, m)
    discounted = ridge_mode == "discounted"
    if discounted:
        gram += ridges * np.eye(d)  # 0 with a state, which holds its ridge
        ridges = np.zeros((*batch, 1, d))
    arrays = (
        spread("keys", keys, (*batch, length, d), dtype, "batch, T, d"),
        spread("values", values, (*batch, length, m), dtype, "batch, T, m"),
        spread("queries", queries, (*batch, length, d), dtype, "batch, T, d"),
        weights,
        gates,
        ridges,
        gram,
        cross,
    )
    count = int(np.prod(batch, dtype=np.int64))
    flat: Any = [x.reshape(count, *x.shape[len(batch) :]) for x in arrays]
    return CheckedProblem._make([batch, out, *flat, discounted])


def has_kernels(solver: Solver) -> bool:
    """Test whether the kernels of whole streams serve a solver: the default one, in any chunks."""
    return solver == ChunkExact(chunk=solver.chunk, shards=solver.shards)


@one_blas_thread
def solve_whole(
    keys: Any, values: Any, queries: Any, *, solver: Solver | None = None, **problem: Any
) -> Solution[NDArray[Any]]:
    """Run :func:`olsq.online_lstsq` for NumPy arrays, on Numba kernels and BLAS.

    Gates, weights, ridges and moments are float64 throughout, whatever the dtype of the stream.
    Streams run on as many threads as Numba would use, and do not see one another's bits.
    """
    given = check(keys, values, queries, **problem)
    chosen = (ChunkExact() if solver is None else solver).sized(CHUNK)
    forgets = not (given.gates == 1).all()
    chosen.check_ridge_mode(problem.get("ridge_mode", "fixed"), forgets)
    if forgets:
        with np.errstate(divide="ignore"):
            chosen.review(np.log(given.gates), given.gates)
    count, length, d = given.keys.shape
    dtype, m = given.keys.dtype, given.values.shape[-1]
    value, norms = np.zeros((count, length, m), dtype), np.zeros((count, length, 2))
    trace, cross_size = np.zeros((count, length)), np.zeros((count, length))
    steps = np.zeros((count, length), np.int32)
    least = least_eigenvalue(given.gram).reshape(count, 1) if given.discounted else None
    arrays = given.keys, given.values, given.queries, given.weights, given.gates, given.ridges
    assert chosen.chunk is not None  # it is sized
    options = largest_spread(given), min(chosen.chunk, chunk_length(d))
    form = None if has_kernels(chosen) else chosen.numpy()

    def piece(first: int, last: int) -> None:
        moment_sizes(first, last, arrays, given.gram, given.cross, trace, cross_size)
        if form is not None:
            part = slice(first, last)
            solve_by_chunks(form, given, part, value[part], steps[part], norms[part])
            return
        kernels.solve_streams(
            first, last, addresses(), arrays, options, given.gram, given.cross, value, steps, norms
        )

    if d > 0:  # BLAS takes no matrix without columns
        run_in_threads(count, 16.0 * count * length * d * (d + m), piece, 8 if form is None else 1)
    if given.discounted:
        value[~has_unique_solution(given.gates, given.weights, d)] = np.nan
    # the ridge of a token is a lower bound of its system's eigenvalues
    floor = given.ridges.min(-1, initial=np.inf)
    if least is not None:
        floor = np.maximum(least, 0) * np.cumprod(given.gates, axis=1)
    certificate = certify(
        given.queries, value, norms, trace, cross_size, given.ridges, floor, given.out
    )
    batch = given.batch
    with np.errstate(over="ignore"):  # float64 moments of huge float32 samples
        moments = (given.gram, given.cross)
        final = Moments(*(s.reshape(*batch, *s.shape[1:]).astype(dtype) for s in moments))
        stats = Stats(*(s.reshape(*batch, length) for s in (steps, *certificate)))
        return Solution(value.reshape(*batch, length, m).astype(given.out), final, stats)


def largest_spread(given: CheckedProblem) -> float:
    """Return the largest log spread of the gates of a chunk, for the kernels."""
    return kernels.LOG_SPREAD_DISCOUNTED if given.discounted else kernels.LOG_SPREAD


def clean(given: CheckedProblem, part: slice) -> tuple[Streams, NDArray]:
    """Remove non-finite numbers from streams.

    Also masks the tokens (B, T) that a lost sample or state reaches.

    A sample that is not finite, or too large to square, is left out. It is lost unless its weight
    is 0: everything after it is unknown until a gate of 0.
    """
    keys, values, queries = given.keys[part], given.values[part], given.queries[part]
    weights, gates = given.weights[part], given.gates[part]
    with np.errstate(over="ignore", invalid="ignore"):
        sound = np.isfinite(np.einsum("bti,bti->bt", keys, keys)) & np.isfinite(values).all(-1)
    sample_lost = (~sound & (weights != 0)) | ~np.isfinite(weights) | np.isnan(gates)
    order = np.arange(1, keys.shape[1] + 1)
    latest_lost = np.maximum.accumulate(np.where(sample_lost, order, 0), axis=1)
    latest_reset = np.maximum.accumulate(np.where(gates == 0, order, 0), axis=1)
    state: Any = np.isfinite(given.gram[part]).all((1, 2))
    state = state & np.isfinite(given.cross[part]).all((1, 2))
    output_lost = (latest_lost > 0) & (latest_lost >= latest_reset)
    output_lost |= ~state[:, None] & (latest_reset == 0)
    streams = Streams(
        np.where(sound[..., None], keys, 0),
        np.where(sound[..., None], values, 0),
        np.where(np.isfinite(queries).all(-1, keepdims=True), queries, 0),
        np.where(sound & np.isfinite(weights), weights, 0),
        np.where(np.isnan(gates), 1, gates),
        None if given.discounted else given.ridges[part],
    )
    return streams, output_lost


def solve_by_chunks(
    form: NumpySolver,
    given: CheckedProblem,
    part: slice,
    value: NDArray,
    steps: NDArray,
    norms: NDArray,
) -> None:
    """Solve some streams chunk by chunk: outputs, steps and ``norms``.

    Moments are updated in place.
    """
    streams, output_lost = clean(given, part)
    gram, cross = given.gram[part], given.cross[part]
    for moments in (gram, cross):
        sound = np.asarray(np.isfinite(moments).all((1, 2)))
        moments[~sound] = 0
    query_finite = np.isfinite(given.queries[part]).all(-1)
    if streams.ridge is not None:
        query_finite = query_finite & np.isfinite(streams.ridge).all(-1)
    for first, chunk in iterate_chunks(streams, form.options.chunk, gram, cross):
        own = slice(first, first + chunk.keys.shape[1])
        with np.errstate(all="ignore"):
            x, steps[:, own] = form.solve(chunk, form.prepare(chunk), chunk.queries)
            value[:, own] = read_out(chunk, x)
            residual_norms(chunk.queries, system_product(chunk, x), x, norms[:, own])
    value[output_lost | ~query_finite] = np.nan
    state_lost = output_lost[:, -1] if output_lost.shape[1] else np.zeros(len(gram), bool)
    gram[state_lost], cross[state_lost] = np.nan, np.nan

"""Least squares over whole sequences of NumPy arrays on the CPU, without JAX.

The solver's form solves pieces of the batch on several threads; errors are bounded from outside it.
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
from olsq.sequence.numpy.chunks import Marks, Streams, clean
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
from olsq.sequence.numpy.products import row_norms
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
        is_bounded = np.isfinite(value).all(-1) & (floor > 0)
        bound, of_value = (np.where(is_bounded & ~np.isnan(x), x, np.inf) for x in bounds)
        residual = np.where(size > 0, left / np.where(size > 0, size, 1), 0)
        return residual.astype(dtype), bound.astype(dtype), of_value.astype(dtype)


class CheckedProblem(NamedTuple):
    """A checked problem: one flat batch axis B, samples in the working dtype, the rest float64."""

    batch: tuple[int, ...]
    out: np.dtype  # of the outputs
    streams: Streams  # without a ridge in the discounted problem, whose gram holds it
    gram: NDArray  # (B, d, d)
    cross: NDArray  # (B, m, d)


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
    moments = [] if state is None else [np.asarray(s) for s in state]
    out, dtype = output_dtype(keys, values, queries), working_dtype(keys, values, queries, *moments)
    gates = check_gates(forget, log_forget, (*batch, length))
    weights = check_weight(weight, (*batch, length))
    ridges = check_ridge(ridge, ridge_mode, state is not None, batch, length, d)
    gram, cross = check_state(state, batch, d, m)
    discounted = ridge_mode == "discounted"
    if discounted:
        gram += ridges * np.eye(d)  # 0 with a state, which holds its ridge
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
    *flat, gram, cross = (x.reshape(count, *x.shape[len(batch) :]) for x in arrays)
    streams = Streams._make(flat)
    streams = streams._replace(ridge=None) if discounted else streams
    return CheckedProblem(batch, out, streams, gram, cross)


@one_blas_thread
def solve_whole(
    keys: Any, values: Any, queries: Any, *, solver: Solver | None = None, **problem: Any
) -> Solution[NDArray[Any]]:
    """Run :func:`olsq.online_lstsq` for NumPy arrays, on Numba kernels and BLAS.

    Gates, weights, ridges and moments are float64 throughout, whatever the dtype of the stream.
    Streams run on as many threads as Numba would use, and do not see one another's bits.
    """
    batch, out, streams, gram, cross = check(keys, values, queries, **problem)
    description = (ChunkExact() if solver is None else solver).sized(CHUNK)
    gates, discounted = streams.gates, streams.ridge is None
    forgets = not (gates == 1).all()
    description.check_ridge_mode(problem.get("ridge_mode", "fixed"), forgets)
    if forgets:
        with np.errstate(divide="ignore"):
            description.review(np.log(gates), gates)
    (count, length, d), m, dtype = streams.keys.shape, cross.shape[1], streams.keys.dtype
    value, norms = np.zeros((count, length, m), dtype), np.zeros((count, length, 2))
    marks = Marks.of(count, length)
    steps = np.zeros((count, length), np.int32)
    # the ridge of a token is a lower bound of its system's eigenvalues
    ridges = streams.arrays()[-1]
    floor = ridges.min(-1, initial=np.inf)
    if discounted:
        least = least_eigenvalue(gram).reshape(count, 1)
        floor = np.maximum(least, 0) * np.cumprod(gates, axis=1)
    form = description.numpy()
    most = float(np.finfo(np.float64 if form.wide else dtype).max)

    def piece(first: int, last: int) -> None:
        part = slice(first, last)
        some, moments, sizes = streams.part(part), (gram[part], cross[part]), marks.part(part)
        anything = clean(some, moments, most, sizes)
        form.solve_streams(some, moments, (value[part], steps[part], norms[part]))
        if anything:
            value[part][sizes.lost | sizes.query_lost] = np.nan
            gram[part][sizes.end_lost], cross[part][sizes.end_lost] = np.nan, np.nan

    if d > 0:  # BLAS takes no matrix without columns
        run_in_threads(count, 16.0 * count * length * d * (d + m), piece, form.pieces)
    if discounted:
        value[~has_unique_solution(gates, streams.weight, d)] = np.nan
    sizes = norms, marks.trace, marks.cross_size
    certificate = certify(streams.queries, value, *sizes, ridges, floor, out)
    with np.errstate(over="ignore"):  # float64 moments of huge float32 samples
        final = Moments(*(s.reshape(*batch, *s.shape[1:]).astype(dtype) for s in (gram, cross)))
        stats = Stats(*(s.reshape(*batch, length) for s in (steps, *certificate)))
        return Solution(value.reshape(*batch, length, m).astype(out), final, stats)

"""Local least squares in NumPy: a block of queries at a time, against the keys that it can see.

The scores of a block are computed once and their exponentials kept, so that a step of conjugate
gradient is two matrix products; the whole work is in BLAS.  No matrix per query is formed except a
few features, where it is the cheapest preconditioner.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_real
from olsq.local.checks import (
    FORMED,
    KEY_AXES,
    QUERY_AXES,
    check_arrays,
    check_numbers,
    check_options,
    check_segment_ids,
    largest_squares,
    largest_value,
    most_steps,
    trial_steps,
)
from olsq.local.numpy.systems import System, solve_system
from olsq.local.solution import LocalSizes, LocalSolution, exponent_error, local_error_bounds
from olsq.problem import Stats, certificate
from olsq.sequence.numpy.inputs import output_dtype, working_dtype
from olsq.sequence.numpy.inputs import spread as spread_to
from olsq.threads import one_blas_thread

ROWS = 128  # queries of a block


class Stream(NamedTuple):
    """One stream without non-finite numbers."""

    keys: NDArray  # (N, d)
    values: NDArray  # (N, m)
    queries: NDArray  # (T, d), times the scale
    points: NDArray  # (T, d), the queries themselves
    ridge: NDArray  # (T,)
    log_weight: NDArray | None  # (N,)
    log_forget: NDArray | None  # (T,)
    first: NDArray  # (T,), the first key that each query sees
    last: NDArray  # (T,), one past the last


class Rows(NamedTuple):
    """The results for every query of one stream, (T, ...)."""

    value: NDArray
    has_keys: NDArray
    steps: NDArray
    spread: NDArray  # E|k - kbar|^2
    value_spread: NDArray
    right: NDArray
    solution: NDArray  # |x|
    along: NDArray  # sqrt(x.Sx)
    left: NDArray


@one_blas_thread
def local_lstsq(
    keys: Any,
    values: Any,
    queries: Any,
    *,
    ridge: Any,
    scale: Any = None,
    window: int | None = None,
    forget: Any = None,
    log_forget: Any = None,
    log_weight: Any = None,
    segment_ids: Any = None,
    causal: bool = True,
    tol: float | None = None,
    max_steps: int | None = None,
) -> LocalSolution[NDArray[Any]]:
    """Solve :func:`olsq.local_lstsq` for NumPy arrays; weights are float64 where any array is."""
    check_options(window, tol, max_steps, segment_ids, causal)
    for name, x in (("keys", keys), ("values", values), ("queries", queries)):
        check_real(name, x)
    keys, values, queries = (np.asarray(a) for a in (keys, values, queries))
    sizes = check_arrays(keys, values, queries, causal)
    check_numbers(ridge, scale, forget, log_forget, log_weight, causal=causal)
    batch, count, length, d, m = sizes
    out, dtype = output_dtype(keys, values, queries), working_dtype(keys, values, queries)
    flat = int(np.prod(batch, dtype=np.int64))

    def per_query(name: str, x: Any) -> NDArray:
        return spread_to(name, x, (*batch, length), dtype, QUERY_AXES).reshape(flat, length)

    k = spread_to("keys", keys, (*batch, count, d), dtype, "batch, T, d").reshape(flat, count, d)
    v = spread_to("values", values, (*batch, count, m), dtype, "batch, T, m").reshape(
        flat, count, m
    )
    q = spread_to("queries", queries, (*batch, length, d), dtype, "batch, T, d")
    q = q.reshape(flat, length, d)
    ridges = per_query("ridge", ridge)
    scales = per_query("scale", d**-0.5 if scale is None else scale)
    weights = logs = None
    if log_weight is not None:
        weights = spread_to("log_weight", log_weight, (*batch, count), dtype, KEY_AXES)
        weights = weights.reshape(flat, count)
    if log_forget is not None:
        logs = per_query("log_forget", log_forget)
    elif forget is not None:
        with np.errstate(divide="ignore"):
            logs = np.log(per_query("forget", forget))
    start = np.zeros((flat, length), bool)
    if segment_ids is not None:
        check_segment_ids(segment_ids, (*batch, length))
        ids = np.broadcast_to(np.asarray(segment_ids), (*batch, length)).reshape(flat, length)
        start[:, 1:] = ids[:, 1:] != ids[:, :-1]

    value = np.full((flat, length, m), np.nan, dtype)
    steps = np.zeros((flat, length), np.int32)
    stats = np.zeros((3, flat, length), dtype)
    most = most_steps(max_steps, d)
    eps, out_eps = float(np.finfo(dtype).eps), float(np.spacing(out.type(1)))
    with np.errstate(all="ignore"):  # what overflows is lost or has an infinite bound
        for b in range(flat if length else 0):
            stream, lost, largest = clean(
                k[b],
                v[b],
                q[b],
                ridges[b],
                scales[b],
                None if weights is None else weights[b],
                None if logs is None else logs[b],
                start[b],
                window,
                causal,
            )
            rows = solve_stream(stream, tol, most)
            is_known = rows.has_keys & ~lost
            value[b, is_known], steps[b] = rows.value[is_known], rows.steps
            key, of_value, exponent = largest
            query, scaled = (np.linalg.norm(x, axis=-1) for x in (stream.points, stream.queries))
            parts = LocalSizes(
                query,
                scaled,
                key,
                exponent,
                rows.spread,
                rows.value_spread,
                of_value,
                rows.right,
                rows.solution,
                rows.along,
                rows.left,
                np.linalg.norm(rows.value, axis=-1),
            )
            bounds = local_error_bounds(parts, stream.ridge, d, max(count, d), eps, out_eps)
            is_known &= (stream.ridge > 0) & (exponent_error(parts, d, eps) < 1)
            stats[:, b] = certificate(rows.left, rows.right, bounds, is_known)
    shaped = (x.reshape(*batch, length) for x in (steps, *stats))
    return LocalSolution(value.reshape(*batch, length, m).astype(out), Stats(*shaped))


def clean(
    k: NDArray,
    v: NDArray,
    q: NDArray,
    ridge: NDArray,
    scale: NDArray,
    weight: NDArray | None,
    logs: NDArray | None,
    start: NDArray,
    window: int | None,
    causal: bool,
) -> tuple[Stream, NDArray, tuple[NDArray, NDArray, NDArray]]:
    """Clean one stream; return it, the mask (T,) of lost outputs, and the largest sizes seen.

    A key is lost if it or its value is not finite or too large to square (a key: to cube), or if
    its log weight is NaN or inf; a log weight of -inf leaves it out.  A log gate of NaN or inf
    loses its key as well, one of -inf is a reset.  A query is lost if it is not finite or too large
    to square, or its ridge or scale is not finite.
    """
    count, length = len(k), len(q)
    most_of_key, most = largest_squares(k.dtype)
    usable = np.einsum("td,td->t", k, k) <= most_of_key
    usable &= np.abs(v).max(-1, initial=0.0) <= largest_value(v.dtype)
    absent = np.zeros(count, bool)
    if weight is not None:
        absent = weight == -np.inf
        usable &= np.isfinite(weight) | absent
    lost = ~usable & ~absent
    if logs is not None:
        start = start | (logs == -np.inf)
        logs = np.where(start, 0, logs)
        lost |= ~np.isfinite(logs)
        logs = np.where(np.isfinite(logs), logs, 0)
    left_out = lost | absent
    if left_out.any():
        k, v = (np.where(left_out[:, None], 0, x) for x in (k, v))
        weight = np.zeros(count, k.dtype) if weight is None else weight
        weight = np.where(left_out, -np.inf, weight)
    scaled = q * scale[:, None]
    query_known = (np.einsum("td,td->t", scaled, scaled) <= most) & (
        np.einsum("td,td->t", q, q) <= most
    )
    query_known &= np.isfinite(ridge) & np.isfinite(scale)
    q, scaled = (np.where(query_known[:, None], x, 0) for x in (q, scaled))
    ridge = np.where(query_known, ridge, 1)
    sizes = [np.linalg.norm(k, axis=-1), np.linalg.norm(v, axis=-1), np.zeros(count, k.dtype)]
    if weight is not None:
        sizes[2] = np.where(np.isfinite(weight), np.abs(weight), 0)
    if causal:
        place = np.arange(length)
        first = np.maximum.accumulate(np.where(start, place, 0)) if length else place
        if window is not None:
            first = np.maximum(first, place - (window - 1))
        last = place + 1
        latest = np.maximum.accumulate(np.where(lost, place, -1)) if length else place
        output_lost = latest >= first
        largest = [np.maximum.accumulate(x) if length else x for x in sizes]
    else:
        first, last = np.zeros(length, np.int64), np.full(length, count)
        output_lost = np.full(length, lost.any())
        largest = [np.full(length, x.max(initial=0), x.dtype) for x in sizes]
    stream = Stream(k, v, scaled, q, ridge, weight, logs, first, last)
    return stream, output_lost | ~query_known, (largest[0], largest[1], largest[2])


def solve_stream(stream: Stream, tol: float | None, max_steps: int) -> Rows:
    """Solve for the rows of one stream, a block of queries at a time."""
    blocks = [
        solve_block(stream, slice(i, min(i + ROWS, len(stream.queries))), tol, max_steps)
        for i in range(0, len(stream.queries), ROWS)
    ]
    return Rows(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


def solve_block(stream: Stream, block: slice, tol: float | None, max_steps: int) -> Rows:
    """Solve for the rows of the queries ``block``, (C, ...)."""
    low, high = int(stream.first[block].min()), int(stream.last[block].max())
    keys, values = stream.keys[low:high], stream.values[low:high]
    weights = block_weights(stream, block, low, high)
    points, ridge = stream.points[block], stream.ridge[block, None]
    total = weights.sum(1, keepdims=True)
    has_keys = total > 0
    weights /= np.where(has_keys, total, 1)
    mean, value_mean = weights @ keys, weights @ values
    squares = (np.einsum("id,id->i", x, x) for x in (keys, values))
    spread, value_spread = (
        np.maximum(weights @ x - np.einsum("id,id->i", y, y), 0)
        for x, y in zip(squares, (mean, value_mean), strict=True)
    )
    b = np.where(has_keys, points - mean, 0)
    d = keys.shape[1]
    trial = 0 if d <= FORMED else trial_steps(d)
    system = System(weights, keys, mean, ridge)
    x, steps = solve_system(system, b, spread[:, None], tol, max_steps, trial)
    # the weights' own sum is rounding only: without it equal keys or values give 0
    along = system.centred_weights(x)
    rounding = along.sum(1, keepdims=True)
    value = value_mean + along @ values - rounding * value_mean
    left = b - (along @ keys - rounding * mean) - ridge * x
    right, solution, residual_norm = (np.linalg.norm(y, axis=1) for y in (b, x, left))
    curvature = np.einsum("td,td->t", x, b - left - ridge * x)
    curvature = np.sqrt(np.maximum(curvature, 0))
    return Rows(
        value,
        has_keys[:, 0],
        steps,
        spread,
        value_spread,
        right,
        solution,
        curvature,
        residual_norm,
    )


def block_weights(stream: Stream, block: slice, low: int, high: int) -> NDArray:
    """Compute weights (C, n) of queries ``block`` on keys low to high, the largest of a query 1."""
    scores = stream.queries[block] @ stream.keys[low:high].T
    if stream.log_weight is not None:
        scores += stream.log_weight[low:high]
    place = np.arange(low, high)
    first, last = stream.first[block, None], stream.last[block, None]
    if stream.log_forget is not None:
        start = block.start  # a causal block's queries are the keys start to high
        older = stream.log_forget[low + 1 : start + 1]
        logs = stream.log_forget[start:high]
        # gates are added up from each key to its query, never subtracted
        before = np.cumsum(older[::-1])[::-1]
        within = np.cumsum(np.where(np.arange(len(logs)) > 0, logs, 0))
        scores[:, : start - low] += before + within[:, None]
        later = np.tril(np.broadcast_to(logs[:, None], (len(logs), len(logs))), -1)
        scores[:, start - low :] += np.cumsum(later, 0)
    if (first > low).any() or (last < high).any():
        scores[(place < first) | (place >= last)] = -np.inf
    # softmax shift: the largest exponent of each query becomes 0, so that exp cannot overflow
    most = scores.max(1, keepdims=True, initial=-np.inf)
    scores -= np.where(np.isfinite(most), most, 0)
    return np.exp(scores, out=scores)

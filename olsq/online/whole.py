"""A whole sequence of least-squares problems at once, for NumPy arrays on the CPU, without JAX."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import config

from olsq.online import _whole_kernels as kernels
from olsq.online._gemm import addresses
from olsq.online._whole_inputs import (
    answerable,
    check_gates,
    check_ridge,
    check_state,
    check_weight,
    output_dtype,
    spread,
    working_dtype,
)
from olsq.problem import Moments, Solution, Stats, check_streams

LITTLE_WORK = 2e6  # multiply-adds below which starting threads costs more than it gains


def chunk_length(d: int) -> int:
    """Tokens per chunk: longer ones share a factor of size d among more tokens."""
    return 16 if d <= 8 else 32 if d <= 32 else 64


def run(streams: int, work: float, piece: Callable[[int, int], None]) -> None:
    """Call ``piece(first, last)`` over all streams, on several threads where it pays."""
    free = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    most: Any = config.NUMBA_NUM_THREADS  # pyright: ignore[reportAttributeAccessIssue]
    workers = min(streams, most, free or 1)
    if workers < 2 or work < LITTLE_WORK:
        piece(0, streams)
        return
    edges = np.linspace(0, streams, min(streams, 8 * workers) + 1).astype(int).tolist()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(piece, edges[:-1], edges[1:]))


def solve_whole(
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
) -> Solution:
    """:func:`olsq.online_lstsq` for NumPy arrays, on Numba kernels and BLAS.

    Gates, weights, ridges and moments are float64 throughout, whatever the dtype of the stream.
    Streams run on as many threads as Numba would use, and do not see one another's bits.
    """
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

    count = int(np.prod(batch, dtype=np.int64))
    arrays = tuple(
        x.reshape(count, *x.shape[len(batch) :])
        for x in (
            spread("keys", keys, (*batch, length, d), dtype, "batch, T, d"),
            spread("values", values, (*batch, length, m), dtype, "batch, T, m"),
            spread("queries", queries, (*batch, length, d), dtype, "batch, T, d"),
            weights,
            gates,
            ridges,
        )
    )
    value, residual = np.zeros((count, length, m), dtype), np.zeros((count, length))
    steps = np.zeros((count, length), np.int32)
    moments = gram.reshape(count, d, d), cross.reshape(count, m, d)
    log_spread = kernels.LOG_SPREAD_DISCOUNTED if discounted else kernels.LOG_SPREAD
    options = log_spread, chunk_length(d)

    def piece(first: int, last: int) -> None:
        kernels.solve_streams(
            first, last, addresses(), arrays, options, *moments, value, steps, residual
        )

    if d > 0:  # BLAS takes no matrix without columns
        run(count, 16.0 * count * length * d * (d + m), piece)
    if discounted:
        value[~answerable(gates, weights, d).reshape(count, length)] = np.nan
    with np.errstate(over="ignore"):  # float64 moments of huge float32 samples
        final = Moments(*(s.reshape(*batch, *s.shape[1:]).astype(dtype) for s in moments))
        stats = Stats(steps.reshape(*batch, length), residual.reshape(*batch, length).astype(dtype))
        return Solution(value.reshape(*batch, length, m).astype(out), final, stats)

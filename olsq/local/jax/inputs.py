"""Check the arguments of a local solve in JAX, and flatten their batch axes to one."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from olsq.arrays.checks import check_real
from olsq.local.checks import (
    KEY_AXES,
    QUERY_AXES,
    Sizes,
    check_arrays,
    check_numbers,
    check_segment_ids,
)
from olsq.sequence.jax.inputs import all_ones, flatten, output_dtype, working_dtype
from olsq.sequence.jax.pieces import cumulate


class Streams(NamedTuple):
    """A checked problem; None where there is nothing to do."""

    keys: Array  # (B, N, d)
    values: Array  # (B, N, m)
    queries: Array  # (B, T, d)
    ridge: Array  # (B, T)
    scale: Array  # (B, T)
    log_weight: Array | None  # (B, N)
    log_forget: Array | None  # (B, T), logs of the gates; a gate of 0 counts as a start
    order: Array | None  # (B, T), the number of each query's segment, never decreasing
    direction: Array | None = None  # (B, T, d), x where it is given and not solved for
    # Queries that follow keys of an earlier call: then N is not T, and gates are not supported.
    key_order: Array | None = None  # (B, N), the same of the keys; None: those of the queries
    offset: Array | None = None  # (), the key that the first query is at; None: the layout's


def check(
    keys: Any,
    values: Any,
    queries: Any,
    *,
    ridge: Any,
    scale: Any,
    forget: Any,
    log_forget: Any,
    log_weight: Any,
    segment_ids: Any,
    causal: bool,
) -> tuple[Streams, Sizes, jnp.dtype]:
    """Check every array; return the streams, their sizes and the dtype of the outputs."""
    for name, x in (("keys", keys), ("values", values), ("queries", queries)):
        check_real(name, x)
    keys, values, queries = (jnp.asarray(a) for a in (keys, values, queries))
    sizes = check_arrays(keys, values, queries, causal)
    check_numbers(ridge, scale, forget, log_forget, log_weight, causal=causal)
    dtype = working_dtype(keys, values, queries)
    batch, by_query = sizes.batch, (*sizes.batch, sizes.queries)

    def per_query(name: str, x: Any) -> Array:
        return flatten(name, x, batch, (sizes.queries,), dtype, QUERY_AXES)

    scale = sizes.d**-0.5 if scale is None else scale
    ridge, scale = per_query("ridge", ridge), per_query("scale", scale)
    if log_weight is not None:
        log_weight = flatten("log_weight", log_weight, batch, (sizes.keys,), dtype, KEY_AXES)
    logs = start = None
    if log_forget is not None:
        logs = per_query("log_forget", log_forget)
        start = logs == -jnp.inf
    elif forget is not None:
        gates = per_query("forget", forget)
        if not all_ones(forget):
            start = gates == 0
            logs = jnp.log(jnp.where(start, 1, gates))
    if segment_ids is not None:
        check_segment_ids(segment_ids, by_query)
        ids = jnp.broadcast_to(jnp.asarray(segment_ids), by_query).reshape(ridge.shape)
        first = jnp.concatenate([jnp.zeros_like(ids[:, :1], bool), ids[:, 1:] != ids[:, :-1]], 1)
        start = first if start is None else start | first
    if logs is not None and start is not None:
        logs = jnp.where(start, 0, logs)
    named = {"keys": keys, "values": values, "queries": queries}
    k, v, q = (flatten(n, x, batch, x.shape[-2:], dtype, "batch, T, d") for n, x in named.items())
    order = None if start is None else cumulate(jnp.add, start.astype(jnp.int32), 1, jnp.cumsum)
    streams = Streams(k, v, q, ridge, scale, log_weight, logs, order)
    return streams, sizes, output_dtype(keys, values, queries)

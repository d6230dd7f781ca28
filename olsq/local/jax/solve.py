"""Local least squares in JAX: a regression for every query, block by block."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from olsq.local.checks import FORMED, check_options, most_steps, trial_steps
from olsq.local.jax.inputs import Streams, check
from olsq.local.jax.layout import Layout, plan_layout, plan_layout_after
from olsq.local.jax.losses import clean
from olsq.local.jax.steps import Row, solve_blocks
from olsq.local.jax.systems import Rule
from olsq.local.solution import LocalSizes, LocalSolution, exponent_error, local_error_bounds
from olsq.problem import Stats, certificate
from olsq.sequence.jax.control import compile_once, scan
from olsq.sequence.jax.inputs import flatten
from olsq.sequence.jax.meshes import on_automatic_axes
from olsq.sequence.jax.pieces import count_as_number
from olsq.sequence.jax.platform import Target, by_platform, in_full_precision
from olsq.sequence.jax.programs import one_program

NO_SOLVE = Rule(None, 0, "none", 0)  # where the direction is given


@on_automatic_axes
@one_program
def local_lstsq(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    *,
    ridge: ArrayLike,
    scale: ArrayLike | None = None,
    window: int | None = None,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    log_weight: ArrayLike | None = None,
    segment_ids: ArrayLike | None = None,
    causal: bool = True,
    tol: float | None = None,
    max_steps: int | None = None,
    preconditioner: str | None = None,
) -> LocalSolution[Array]:
    """Solve :func:`olsq.local_lstsq` in JAX, also for NumPy arrays.

    ``preconditioner``, for measurements, is a name in
    :data:`olsq.local.jax.systems.PRECONDITIONERS`; None is what the measurements came to.
    """
    check_options(window, tol, max_steps, segment_ids, causal)
    streams, sizes, dtype = check(
        keys,
        values,
        queries,
        ridge=ridge,
        scale=scale,
        forget=forget,
        log_forget=log_forget,
        log_weight=log_weight,
        segment_ids=segment_ids,
        causal=causal,
    )
    batch, _, length, d, m = sizes
    rule = make_rule(d, tol, max_steps, preconditioner)
    if 0 in (length, *batch):
        value, empty = jnp.zeros((*batch, length, m), dtype), jnp.zeros((*batch, length))
        return LocalSolution(value, Stats(jnp.zeros(empty.shape, jnp.int32), empty, empty, empty))
    layout = plan_layout(length, sizes.keys, window, causal)
    value, steps, norms = solve_flat(streams, layout, rule)
    stats = certify(streams, value, steps, norms, dtype)
    value = value.reshape(*batch, length, m).astype(dtype)
    return LocalSolution(value, Stats(*(s.reshape(*batch, length) for s in stats)))


def read_along(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    direction: ArrayLike,
    *,
    scale: ArrayLike | None = None,
    window: int | None = None,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    log_weight: ArrayLike | None = None,
    segment_ids: ArrayLike | None = None,
    causal: bool = True,
) -> Array:
    """Return outputs ``vbar + C x`` (..., T, m) for given directions x (..., T, d), without a
    solve.

    Everything else is as for :func:`olsq.local_lstsq`, whose x solves
    ``(S + ridge I) x = q - kbar``.  Parallax has ``x = -r`` with a learned r.
    """
    check_options(window, None, None, segment_ids, causal)
    streams, sizes, dtype = check(
        keys,
        values,
        queries,
        ridge=1.0,
        scale=scale,
        forget=forget,
        log_forget=log_forget,
        log_weight=log_weight,
        segment_ids=segment_ids,
        causal=causal,
    )
    batch, _, length, d, m = sizes
    working = streams.keys.dtype
    meaning = "batch, queries, features"
    x = flatten("direction", direction, batch, (length, d), working, meaning)
    if 0 in (length, *batch):
        return jnp.zeros((*batch, length, m), dtype)
    streams = streams._replace(direction=x)
    layout = plan_layout(length, sizes.keys, window, causal)
    value = solve_flat(streams, layout, NO_SOLVE)[0]
    return value.reshape(*batch, length, m).astype(dtype)


def solve_after(streams: Streams, *, window: int | None, offset: int = 0) -> Array:
    """Compute outputs (B, T, m) of queries that begin at a later key: those before are in a cache.

    Causal.  The first query is at key ``streams.offset`` where that is given, else at ``offset``;
    ``log_weight`` -inf leaves out places of a cache that hold no key.  Without an offset and with
    as many keys as queries, no tile above the diagonal is computed.  ``streams.direction`` as for
    :func:`read_along`, else solved for as by :func:`local_lstsq`.
    """
    (count, length, d), keys = streams.queries.shape, streams.keys.shape[1]
    if 0 in (count, length):
        return jnp.zeros((count, length, streams.values.shape[-1]), streams.values.dtype)
    if streams.offset is None and offset == 0 and length == keys:
        layout = plan_layout(length, keys, window, True)
    else:
        layout = plan_layout_after(length, keys, window, offset)
    rule = make_rule(d) if streams.direction is None else NO_SOLVE
    return solve_flat(streams, layout, rule)[0]


def make_rule(
    d: int, tol: float | None = None, max_steps: int | None = None, name: str | None = None
) -> Rule:
    """Choose when to stop solving for d features, and the preconditioner."""
    name = "own" if name is None and d <= FORMED else name
    tol = None if tol is None else float(tol)
    return Rule(tol, most_steps(max_steps, d), name, trial_steps(d))


@partial(compile_once, static_argnames=("layout", "rule"))
@in_full_precision
def solve_flat(streams: Streams, layout: Layout, rule: Rule) -> tuple[Array, Array, LocalSizes]:
    """Compute outputs (B, T, m), steps (B, T) and the sizes (B, T) that the certificate uses."""
    cleaned, output_lost, largest = clean(streams, layout)
    solve = partial(solve_blocks, offset=streams.offset, layout=layout, rule=rule)
    count = streams.keys.shape[0]

    # A CPU does one stream at a time, whose scores stay in cache.
    def choose(target: Target) -> bool:
        return target.cpu and jax.device_count() == 1 and isinstance(count, int) and count > 1

    def run(alone: bool) -> Any:
        if alone:
            return scan(lambda _, x: (None, solve(x)), None, cleaned)[1]
        if isinstance(count, int) and count == 1:
            return jax.tree.map(lambda x: x[None], solve(jax.tree.map(lambda x: x[0], cleaned)))
        return jax.vmap(solve)(cleaned)

    padded_row = by_platform(choose, run)
    length = streams.queries.shape[1]
    row: Row = jax.tree.map(lambda x: x[:, :length], padded_row)
    value = jnp.where((output_lost | ~row.has_keys)[..., None], jnp.nan, row.value)
    norm = partial(jnp.linalg.norm, axis=-1)
    q, scale = cleaned.queries[:, :length], cleaned.scale[:, :length]
    sizes = LocalSizes(
        norm(q),
        jnp.abs(scale) * norm(q),
        largest.key,
        largest.exponent,
        row.spread,
        row.value_spread,
        largest.value,
        row.right,
        row.solution,
        row.along,
        row.left,
        norm(value),
    )
    return value, row.steps, jax.lax.stop_gradient(sizes)


@partial(jax.jit, static_argnames="dtype")
def certify(
    streams: Streams, value: Array, steps: Array, sizes: LocalSizes, dtype: Any
) -> Stats[Array]:
    """Compute residuals and error bounds (B, T) of outputs that will be rounded to ``dtype``."""
    ridge, value, sizes = jax.lax.stop_gradient((streams.ridge, value, sizes))
    eps, out_eps = float(jnp.finfo(ridge.dtype).eps), float(jnp.finfo(dtype).eps)
    d, count = streams.keys.shape[2], count_as_number(streams.keys.shape[1], ridge.dtype)
    count = max(count, d) if isinstance(count, int) else jnp.maximum(count, d)
    bounds = local_error_bounds(sizes, ridge, d, count, eps, out_eps)
    is_bounded = jnp.isfinite(value).all(-1) & (ridge > 0) & (exponent_error(sizes, d, eps) < 1)
    return Stats(steps, *certificate(sizes.left, sizes.right, bounds, is_bounded, jnp))

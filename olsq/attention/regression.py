"""Helpers of the rules that solve a regression: layout, remaining ridges, norms of H."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from olsq.arrays.checks import check_forget, check_real
from olsq.arrays.questions import known_as
from olsq.attention.arguments import (
    Layout,
    Tokens,
    check_gates,
    check_heads,
    check_segments,
    check_weight,
    clean_logs,
    layout_of,
    per_token,
    repeat_heads,
    with_resets,
)
from olsq.attention.recurrences.linear import accumulate_gated, gated_linear
from olsq.attention.recurrences.log_gates import split_gates, split_logs
from olsq.attention.recurrences.running_maxima import (
    finite_or_zero,
    running_maxima,
    scale_gates,
    scale_log_gates,
)
from olsq.problem import Moments
from olsq.sequence.jax.inputs import inverse_norm, promoted
from olsq.sequence.jax.pieces import scan_time

SMALLEST_SHARE = 1e-30  # of a ridge: the smallest that float32 resolves


def check_regression_inputs(
    q: Any,
    k: Any,
    v: Any,
    forget: Any,
    log_forget: Any,
    weight: Any,
    segment_ids: Any,
    state: Any,
    *,
    signed: bool | None = None,
) -> tuple[tuple[Array, Array, Array], dict[str, Any], Layout]:
    """Check keys, values, queries and gates.

    Returns them as (B, H, T, dim) with options and layout.
    """
    checked, b, t, h = check_heads(q=q, k=k, v=v)
    check_moments(state, checked["k"], checked["v"])
    layout = layout_of(tuple(checked.values()), state, b, t, h)
    start = check_segments(segment_ids, layout)
    gates = check_gates(forget, log_forget, layout, signed=signed)
    weight = check_weight("weight", weight, layout)

    def heads(x: Array | None, given: Any = None) -> Array | None:
        if x is None or given is None:
            return None if x is None else x.reshape(b, h, t)
        per_head = partial(np.broadcast_to, shape=(b, t, h))
        return known_as(x.reshape(b, h, t), given, lambda x: np.moveaxis(per_head(x), 2, 1))

    options: dict[str, Any] = {"weight": heads(weight)}
    if log_forget is None:
        given = forget if start is None else None
        options["forget"] = heads(with_resets(gates, start, layout.working), given)
    else:  # kept as logs, which may resolve more than factors do
        logs = per_token("log_forget", log_forget, layout)
        if start is None:
            options["log_forget"] = heads(logs, log_forget)
        else:
            options["log_forget"] = heads(jnp.where(start, -jnp.inf, logs))
    streams = tuple(jnp.moveaxis(checked[name], 2, 1) for name in "kvq")
    return streams, options, layout  # pyright: ignore[reportReturnType]


def check_moments(state: Any, k: Array, v: Array) -> None:
    """Raise unless the state is Moments of every head, for keys (B, T, H, K) and values (B, T, H,
    V).
    """
    if state is None:
        return
    if not isinstance(state, Moments):
        raise TypeError(f"state must be olsq.Moments, as returned, got {type(state).__name__}")
    b, _, h, keys = k.shape
    shapes = {"gram": (b, h, keys, keys), "cross": (b, h, v.shape[-1], keys)}
    for (field, shape), x in zip(shapes.items(), state, strict=True):
        check_real(f"state.{field}", x)
        if jnp.shape(x) != shape:
            raise ValueError(f"state.{field} must have shape {shape}, got {jnp.shape(x)}")


def remaining_ridge(
    forget: Any, log_forget: Any, segment_ids: Any, layout: Layout
) -> tuple[Array, Array, Array]:
    """Compute the share of a segment's ridge that remains at each token, (B, H, T).

    Returns the share, at least ``SMALLEST_SHARE``; a mask of the tokens of the first segment; and a
    mask of those where nothing remains since a gate of 0.
    """
    gates = check_gates(forget, log_forget, layout)
    start = check_segments(segment_ids, layout)
    assert start is not None
    gates = jnp.ones(start.shape, layout.working) if gates is None else gates
    reset = gates == 0

    def join(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return jnp.where(b[1], b[0], a[0] * b[0]), a[1] | b[1]

    def add(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
        return jnp.where(b[1], b[0], a[0] + b[0]), a[1] | b[1]

    gone, _ = scan_time(join, (jnp.where(reset, 0, 1), start), (1, False))
    logs = clean_logs(log_forget, None, layout)
    if logs is None:
        left, begun = scan_time(join, (jnp.where(reset, 1, gates), start), (1.0, False))
    else:
        left, begun = scan_time(add, (jnp.where(reset, 0, logs), start), (0.0, False))
        left = jnp.exp(left)
    left, first = jnp.maximum(left, SMALLEST_SHARE), ~begun
    shape = (layout.batch, layout.heads, layout.length)
    return left.reshape(shape), first.reshape(shape), (gone == 0).reshape(shape)


def spare_ridge(gram: Array) -> Array:
    """Return a ridge (B, H) that can be subtracted from the grams: half a bound of their
    eigenvalues.

    Moving it from a gram to the ridge changes no system, but gives a solver that needs a ridge one.
    It is 0 for a singular gram.
    """
    gram = jax.lax.stop_gradient(gram)
    spare = 0.5 * inverse_norm(gram)
    fine = jnp.isfinite(gram).all((-2, -1))
    return jnp.where(spare > 0, spare, jnp.where(fine, 0, 1))


def frobenius_norms(tokens: Tokens, gram: Array) -> Array:
    """Compute the norms (N, T) of H_t:
    ``|H_t|^2 = gamma^2 |H_{t-1}|^2 + 2 beta k^T H_t k - beta^2 |k|^4``.

    The last two terms are ``a (b - a)`` with ``a = beta |k|^2`` and ``b = 2 k^T H_t k / |k|^2``, at
    least ``2 a``: nothing cancels.  Squares of norms would overflow, so that they are computed in
    units of the largest term so far.
    """
    k, weight = tokens.k, tokens.weight
    gates, shift = split_gates(tokens)
    square = (k**2).sum(-1)
    size = jnp.sqrt(jnp.where(square > 0, square, 1))
    direction = k / size[..., None]
    # H_t k / |k|
    read, _ = gated_linear(direction, k, k, gates, weight, gram, shift=shift)
    a = square if weight is None else weight * square
    b = 2 * (read * direction).sum(-1) - a
    largest = jax.lax.stop_gradient(jnp.abs(gram).max((1, 2)))
    unit = jnp.where(largest > 0, largest, 1)
    start, held = 2 * jnp.log(largest), ((gram / unit[:, None, None]) ** 2).sum((1, 2))
    logs = jnp.log(a) + jnp.log(jnp.maximum(b, 0))
    factors = jnp.ones_like(a) if tokens.forget is None else tokens.forget
    log_factors = jnp.log(factors) if tokens.log_forget is None else tokens.log_forget
    maxima = running_maxima(2 * log_factors, logs, start)
    half = jnp.exp(-finite_or_zero(maxima) / 2)
    if tokens.log_forget is None:
        gates, shift = scale_gates(factors**2, maxima, start), None
    else:
        gates, shift = split_logs(scale_log_gates(2 * log_factors, maxima, start))
    terms = ((half * a) * (half * b))[..., None]
    squares, _ = accumulate_gated(terms, gates, None, held[:, None], shift)
    squares = squares[..., 0]
    root = jnp.where(squares == 0, 0, jnp.sqrt(jnp.where(squares == 0, 1, squares)))
    return root / half


def fold_and_clean(state: Array) -> Array:
    """Fold the heads of a part of a state, and set it to zero where it is not finite."""
    flat = state.reshape(-1, *state.shape[2:])
    fine = jnp.isfinite(flat).all((1, 2), keepdims=True)
    return jnp.where(fine, flat, 0)


def as_factor(forget: Any, log_forget: Any, signed: bool | None = None) -> Any:
    """Return whichever of the two is given, as a factor; ``signed`` as for :func:`check_gates`."""
    check_forget(forget, log_forget, signed=signed)
    if log_forget is not None:
        return jnp.exp(log_forget)
    return 1.0 if forget is None else forget


def check_token(q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    """Raise unless one token's query, key and value are real; repeat heads that values share.

    :mod:`olsq.sequence` names them differently.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        check_real(name, x)
    if min(map(jnp.ndim, (q, k, v))) < 2:
        return q, k, v
    heads = jnp.shape(v)[-2]
    return repeat_heads(q, heads, axis=-2), repeat_heads(k, heads, axis=-2), v


def moments_or_zero(state: Moments | None, k: Any, v: Any) -> Moments[Array]:
    """Return the state, or zero moments for keys (..., K) and values (..., V) of one token if it is
    None.
    """
    if state is not None:
        return state
    (*batch, keys), values = jnp.shape(k), jnp.shape(v)[-1]
    dtype = promoted(k, v, jnp.float32)
    return Moments(jnp.zeros((*batch, keys, keys), dtype), jnp.zeros((*batch, values, keys), dtype))

"""Check the arguments that rules share: shapes, gates, segments and non-finite samples.

Rules take ``(batch, time, heads, dim)``.  Inside, heads are folded into the batch: N = B * H
streams of T tokens, in float32, or in float64 where an input is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from olsq.arrays import checks
from olsq.arrays.checks import check_forget, check_real, refuse
from olsq.sequence.jax.gates import largest_square
from olsq.sequence.jax.inputs import all_ones, output_dtype, working_dtype
from olsq.sequence.jax.pieces import count_of_pieces, delay


class Layout(NamedTuple):
    """Shape and dtype of the caller's arrays, needed to restore them on the results."""

    batch: int
    length: int
    heads: int
    dtype: Any  # of the outputs
    working: Any  # of everything inside, and of the state


class Heads(NamedTuple):
    """Streams (N, T, dim) in the caller's layout, to be folded and cleaned chunk by chunk.

    Folding and cleaning all tokens beforehand makes a copy of each array, and reading it again
    takes a CPU as long as all the products of a chunk.
    """

    array: Array  # (B, T, H, dim), N = B H; fewer heads where value heads share keys
    kept: Array  # (N, T) bool: what is elsewhere counts as 0


class Tokens(NamedTuple):
    """Checked and cleaned samples: non-finite ones are zero, absent, and marked in the masks."""

    q: Array  # (N, T, K)
    k: Array  # (N, T, K)
    v: Array  # (N, T, V)
    forget: Any  # (N, T) or (N, T, K); 0 at the first token of a segment; None: all 1
    weight: Any  # (N, T); None: all 1
    start: Any  # (N, T) bool, first tokens of segments; None: no segments
    sample_lost: Array  # (N, T) bool, neither finite nor left out
    query_finite: Array  # (N, T) bool, queries that are finite
    # q, k, v for a recurrence that folds heads chunk by chunk; None where that is not faster. Code
    # that replaces q, k or v must set it to None.
    by_head: tuple[Heads, ...] | None = None
    log_forget: Any = None  # logs of forget, -inf where it is 0; None where none were passed


def check_heads(**arrays: Any) -> tuple[dict[str, Array], int, int, int]:
    """Convert arrays (B, T, H, dim) by name, check that B, T and H agree, and return them with (B,
    T, H).

    Queries and keys may have fewer heads, of which those of v are a multiple: they are repeated.
    """
    for name, a in arrays.items():
        check_real(name, a)
    checked = {name: jnp.asarray(a) for name, a in arrays.items()}
    described = ", ".join(f"{name} {a.shape}" for name, a in checked.items())
    for name, a in checked.items():
        if a.ndim != 4:
            raise ValueError(
                f"{name} must have shape (batch, time, heads, dim), got {a.shape}; one head is "
                f"{name}[:, :, None]"
            )
    if "v" in checked:
        heads = checked["v"].shape[2]
        checked |= {
            name: repeat_heads(checked[name], heads) for name in ("q", "k") if name in checked
        }
    if len({a.shape[:3] for a in checked.values()}) > 1:
        raise ValueError(
            "batch, time and heads must agree, except that v may have a multiple of the heads of q "
            f"and k, got {described}; repeat other heads that are shared"
        )
    b, t, h, _ = next(iter(checked.values())).shape
    return checked, b, t, h


def repeat_heads(x: Any, heads: int, *, axis: int = 2) -> Any:
    """Repeat each head of a query or key for the value heads that share it; head h serves r of
    them from r h on.

    Returns x as it is where it has ``heads`` heads, or a number that does not divide them.
    """
    shared = jnp.shape(x)[axis]
    if shared in (0, heads) or heads % shared:
        return x
    return jnp.repeat(jnp.asarray(x), heads // shared, axis=axis)


def fold_heads(x: Array) -> Array:
    """Reshape (B, T, H, ...) to (B * H, T, ...)."""
    x = jnp.moveaxis(x, 2, 1)
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def per_token(name: str, x: Any, layout: Layout, width: int | None = None) -> Array:
    """Broadcast ``x`` to (B, T, H), or (B, T, H, width), and fold its heads."""
    shape: tuple[int, ...] = (layout.batch, layout.length, layout.heads)
    meaning = "batch, time, heads"
    if width is not None:
        shape, meaning = (*shape, width), meaning + ", dim"
    check_real(name, x)
    x = jnp.asarray(x, layout.working)
    try:
        return fold_heads(jnp.broadcast_to(x, shape))
    except ValueError:
        raise ValueError(
            f"{name} has shape {x.shape}, which does not broadcast to {shape} ({meaning})"
        ) from None


def check_gates(
    forget: Any,
    log_forget: Any,
    layout: Layout,
    width: int | None = None,
    *,
    name: str = "forget",
    signed: bool | None = None,
) -> Array | None:
    """Check forgetting factors: return (N, T), or (N, T, width) with one per dimension.

    ``None`` stands for 1 everywhere.

    ``width`` is the number of dimensions a vector gate would have, None where a rule has none;
    ``signed`` says whether they may be negative, None where they never may.
    """
    check_forget(forget, log_forget, name=name, signed=signed)
    name, gates = (name, forget) if log_forget is None else (f"log_{name}", log_forget)
    if gates is None:
        return None
    full = per_token(name, gates, layout, width if jnp.ndim(gates) == 4 else None)
    if log_forget is None and all_ones(gates):
        return None
    return full if log_forget is None else jnp.exp(full)


def clean_logs(
    log_forget: Any, start: Array | None, layout: Layout, width: int | None = None
) -> Array | None:
    """Return the logs of gates that :func:`check_gates` has checked, (N, T) or (N, T, width).

    NaN is replaced by 0, and -inf is put at the first token of a segment. None where no logs were
    passed.
    """
    if log_forget is None:
        return None
    logs = per_token("log_forget", log_forget, layout, width if jnp.ndim(log_forget) == 4 else None)
    logs = jnp.where(jnp.isnan(logs), 0, logs)
    if start is None:
        return logs
    return jnp.where(start if logs.ndim == 2 else start[..., None], -jnp.inf, logs)


def check_weight(name: str, weight: Any, layout: Layout, width: int | None = None) -> Array | None:
    """Check write strengths >= 0: return (N, T), or (N, T, width) with one per channel.

    ``None`` stands for 1 everywhere.

    ``width`` is the number of channels that may have one each, None where a rule has none.
    """
    checks.check_weight(weight, name=name, of="token")
    if weight is None:
        return None
    full = per_token(name, weight, layout, width if jnp.ndim(weight) == 4 else None)
    return None if all_ones(weight) else full


def check_positive(name: str, x: Any) -> None:
    """Raise unless ``x``, such as a ridge, is > 0."""
    refuse(name, x, lambda r: r <= 0, "be > 0")


def check_segments(segment_ids: Any, layout: Layout) -> Array | None:
    """Mark the first tokens of segments (N, T): where the id differs from the token before.

    The first token of a call goes on with the segment of the state, unless ids (B, T + 1) begin
    with that of the token before it.
    """
    if segment_ids is None:
        return None
    ids = jnp.asarray(segment_ids)
    shape, longer = (layout.batch, layout.length), (layout.batch, layout.length + 1)
    if ids.shape not in (shape, longer) or not jnp.issubdtype(ids.dtype, jnp.integer):
        raise ValueError(
            f"segment_ids must be integers of shape {shape} (batch, time), or {longer}, with the "
            f"id of the token before the call in front, got {ids.dtype} {ids.shape}"
        )
    checks.check_order(segment_ids)
    before, ids = ids[:, :1], ids[:, ids.shape[1] - layout.length :]
    start = ids != delay(ids, before)
    return jnp.repeat(start, layout.heads, axis=0)


def check_streams(q: Any, k: Any, v: Any, state: Any) -> tuple[Array, Array, Array, Layout]:
    """Check queries, keys and values.

    Returns them as (N, T, dim) in the working dtype, and the layout.
    """
    checked, b, t, h = check_heads(q=q, k=k, v=v)
    q, k, v = checked["q"], checked["k"], checked["v"]
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q must have the width of k, got q {q.shape} and k {k.shape}")
    layout = layout_of((q, k, v), state, b, t, h)
    q, k, v = (fold_heads(x.astype(layout.working)) for x in (q, k, v))
    return q, k, v, layout


def check_inputs(
    q: Any,
    k: Any,
    v: Any,
    *,
    forget: Any = None,
    log_forget: Any = None,
    weight: Any = None,
    segment_ids: Any = None,
    state: Any = None,
    vector: bool = False,
    signed: bool | None = None,
) -> tuple[Tokens, Layout]:
    """Check and clean the arguments that most rules share.

    ``vector``: gates may be per key dimension; ``signed``: as for :func:`check_gates`.
    """
    unfolded = q, k, v
    q, k, v, layout = check_streams(q, k, v, state)
    unfolded = tuple(jnp.asarray(x) for x in unfolded)
    width = k.shape[-1] if vector else None
    gates = check_gates(forget, log_forget, layout, width, signed=signed)
    weight = check_weight("weight", weight, layout)
    start = check_segments(segment_ids, layout)
    squares = (
        fold_heads(repeat_heads((x * x).sum(-1), layout.heads))
        for x in (x.astype(layout.working) for x in unfolded)
    )
    query_square, key_square, value_square = squares
    query_finite = query_square <= largest_square(layout.working)
    sample_finite = is_writable(key_square, value_square, weight)
    sample_lost = ~sample_finite
    k, v = (jnp.where(sample_finite[..., None], x, 0) for x in (k, v))
    if weight is not None:
        sample_lost = (sample_lost & (weight != 0)) | ~jnp.isfinite(weight)
        weight = jnp.where(jnp.isfinite(weight), weight, 0)
    if gates is not None:
        unknown = jnp.isnan(gates)
        sample_lost = sample_lost | (unknown if unknown.ndim == 2 else unknown.any(-1))
        gates = jnp.where(unknown, 1, gates)
    gates = with_resets(gates, start, layout.working)
    by_head = None
    if one_device() and count_of_pieces() == 1:
        kept = query_finite, sample_finite, sample_finite
        by_head = tuple(Heads(*pair) for pair in zip(unfolded, kept, strict=True))
    q = jnp.where(query_finite[..., None], q, 0)
    logs = clean_logs(log_forget, start, layout, width)
    return Tokens(q, k, v, gates, weight, start, sample_lost, query_finite, by_head, logs), layout


def is_writable(key_square: Array, value_square: Array, strength: Any = None) -> Array:
    """Test whether samples are finite, with squared norms whose products do not overflow.

    ``strength`` are the write strengths, None for 1.  Products of a key and a value also have to
    add up over thousands of tokens: a key may be up to 4e15 in float32, a value 4e18.
    """
    scale = 1 if strength is None else jnp.maximum(strength, 1) ** 2
    most = largest_square(key_square.dtype)
    return (key_square * scale <= most / 2**20) & (value_square * scale <= most)


def one_device() -> bool:
    """Test whether there is one device, where :class:`Heads` are faster (measured on a CPU)."""
    return jax.device_count() == 1


def with_resets(gates: Array | None, start: Array | None, dtype: Any) -> Array | None:
    """Set gates to 0 at the first token of a segment, so that nothing before it is remembered."""
    if start is None:
        return gates
    if gates is None:
        return jnp.where(start, 0, 1).astype(dtype)
    return jnp.where(start if gates.ndim == 2 else start[..., None], 0, gates)


def layout_of(arrays: Any, state: Any, b: int, t: int, h: int) -> Layout:
    """Build the layout: output dtype from the arrays, working dtype from them and the state."""
    for field, x in zip(getattr(state, "_fields", ()), state or (), strict=False):
        check_real(f"state.{field}", x)
    floats = [x for x in jax.tree.leaves(state) if jnp.issubdtype(jnp.result_type(x), jnp.floating)]
    return Layout(b, t, h, output_dtype(*arrays), working_dtype(*arrays, *floats))


def per_head(name: str, x: Any, layout: Layout, *dims: int) -> Array:
    """Broadcast ``x`` to (H, *dims), and repeat it for every batch entry: (N, *dims)."""
    check_real(name, x)
    x, shape = jnp.asarray(x, layout.working), (layout.heads, *dims)
    try:
        x = jnp.broadcast_to(x, shape)
    except ValueError:
        raise ValueError(
            f"{name} has shape {x.shape}, which does not broadcast to {shape} (heads, then dims)"
        ) from None
    return jnp.tile(x, (layout.batch, *[1] * len(dims)))

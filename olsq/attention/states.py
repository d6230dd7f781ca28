"""State of most rules, and what all do around it: lost tokens and layouts."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from olsq.arrays.brief import brief_repr
from olsq.attention.arguments import Layout, Tokens, is_writable
from olsq.sequence.jax.control import cond, max_over_vmap
from olsq.sequence.jax.gates import lost_tokens


class Memory(NamedTuple):
    """State of a rule that is one matrix per head.

    Attributes
    ----------
    matrix : array (B, H, V, K)
        ``S``; a query reads ``S q``.
    """

    matrix: Array

    __repr__ = brief_repr


class Normalised(NamedTuple):
    """State of linear attention with a normaliser.

    Attributes
    ----------
    matrix : array (B, H, V, K)
    normaliser : array (B, H, K)
        Sum of the keys' features.
    """

    matrix: Array
    normaliser: Array

    __repr__ = brief_repr


def empty_memory(layout: Layout, values: int, keys: int) -> Memory:
    """Return the memory of an empty past."""
    return Memory(jnp.zeros((layout.batch, layout.heads, values, keys), layout.working))


def fold_state(state: Any, zero: Any, layout: Layout) -> Any:
    """Check the state against ``zero``, or use ``zero`` if it is None, and fold its heads.

    ``zero`` is the state of an empty past: a named tuple of arrays (B, H, ...).
    """
    state = zero if state is None else state
    if type(state) is not type(zero):
        raise TypeError(
            f"state must be a {type(zero).__name__}, as the rule returned it, got "
            f"{type(state).__name__}"
        )
    for field, value, empty in zip(zero._fields, state, zero, strict=True):
        if jnp.shape(value) != empty.shape:
            raise ValueError(f"state.{field} must have shape {empty.shape}, got {jnp.shape(value)}")
    n = layout.batch * layout.heads
    pairs = zip(state, zero, strict=True)
    return type(zero)(*(jnp.asarray(s, z.dtype).reshape(n, *z.shape[2:]) for s, z in pairs))


def check_state(state: Any, zero: Any, layout: Layout) -> tuple[Any, Array]:
    """Run :func:`fold_state`, set states with NaN to zero, and return a mask of them, (N,)."""
    folded = fold_state(state, zero, layout)
    state_lost = jnp.zeros((layout.batch * layout.heads,), bool)
    for x in folded:
        if jnp.issubdtype(x.dtype, jnp.floating):
            state_lost = state_lost | jnp.isnan(x).any(tuple(range(1, x.ndim)))

    def clean(x: Array) -> Array:
        return jnp.where(state_lost.reshape(-1, *[1] * (x.ndim - 1)), jnp.zeros_like(x), x)

    return type(zero)(*map(clean, folded)), state_lost


def open_memory(state: Any, tokens: Tokens, layout: Layout) -> tuple[Array, Array]:
    """Check the memory of a rule, empty if None.

    Returns its matrices (N, V, K), and a mask (N,) of those that were not finite, now zero.
    """
    zero = empty_memory(layout, tokens.v.shape[-1], tokens.k.shape[-1])
    opened, state_lost = check_state(state, zero, layout)
    return opened.matrix, state_lost


def drop_unwritten(tokens: Tokens, strength: Array | None) -> tuple[Tokens, Array | None]:
    """Make tokens of strength 0 absent, finite or not; mark those as lost whose strength is not
    finite, or too large for their key and value.

    For a write strength (N, T), or (N, T, V) with one per value channel, that :func:`check_inputs`
    was not given as ``weight``. Also returns the strength, cleaned.
    """
    if strength is None:
        return tokens, None
    usable = jnp.isfinite(strength)
    written, unknown, largest = strength != 0, ~usable, strength
    if strength.ndim == 3:
        written, unknown, largest = written.any(-1), unknown.any(-1), strength.max(-1)
    tokens = tokens._replace(sample_lost=(tokens.sample_lost & written) | unknown)
    tokens, fits = drop_unwritable(tokens, largest)
    usable = usable & fits.reshape(*fits.shape, *[1] * (strength.ndim - 2))
    return tokens, jnp.where(usable, strength, 0)


def drop_unwritable(tokens: Tokens, strength: Array | None = None) -> tuple[Tokens, Array]:
    """Make tokens absent whose key, value and strength (N, T) are too large for their products.

    They are marked as lost, unless their strength is 0.  Also returns which (N, T) fit.
    """
    fits = is_writable((tokens.k**2).sum(-1), (tokens.v**2).sum(-1), strength)
    k, v = (jnp.where(fits[..., None], x, 0) for x in (tokens.k, tokens.v))
    lost = ~fits if strength is None else ~fits & (strength != 0)
    return mark_lost(tokens._replace(k=k, v=v, by_head=None), lost), fits


def drop_unreadable(read: Array, tokens: Tokens) -> tuple[Array, Tokens]:
    """Set what queries read, (N, T, ...), to 0 where it overflows, and mark these queries.

    For what a rule computes from it: derivatives at infinity would be NaN times 0.
    """
    fits = jnp.isfinite(read).all(-1)
    tokens = tokens._replace(query_finite=tokens.query_finite & fits)
    return jnp.where(fits[..., None], read, 0), tokens


def mark_lost(tokens: Tokens, lost: Array) -> Tokens:
    """Count the tokens (N, T) of a mask as lost samples too."""
    return tokens._replace(sample_lost=tokens.sample_lost | lost)


def reset_mask(tokens: Tokens) -> Array | None:
    """Mark the tokens (N, T) before which everything is forgotten, a loss too.

    Returns None where there are none.
    """
    if tokens.forget is None:
        return None
    reset = tokens.forget == 0
    return reset if reset.ndim == 2 else reset.all(-1)


def propagate_losses(tokens: Tokens, state_lost: Array) -> tuple[Array, Array]:
    """Mark the outputs (N, T) and states (N,) that depend on a lost token or state."""
    if not tokens.sample_lost.shape[1]:
        return tokens.sample_lost, state_lost
    lost = lost_tokens(tokens.sample_lost, reset_mask(tokens), state_lost)
    return lost, lost[:, -1]


def unfolded_streams(
    tokens: Tokens, output_lost: Array, layout: Layout
) -> tuple[Any, dict[str, Any]]:
    """Return queries, keys and values for a recurrence that folds heads as it goes, and its
    options.
    """
    if tokens.by_head is None:
        return tokens[:3], {}
    return tokens.by_head, {"valid": tokens.query_finite & ~output_lost, "dtype": layout.dtype}


def drop_overflown(
    value: Array, tokens: Tokens, overflown: Array, state_lost: Array, layout: Layout
) -> tuple[Array, Tokens]:
    """Count the tokens (N, T) whose step overflows as lost.

    Outputs computed from :class:`Heads`, (B, T, H, V), become NaN here from these tokens on;
    :func:`restore_layout` does that for others.
    """
    tokens = mark_lost(tokens, overflown)
    if value.ndim == 3:
        return value, tokens

    def clear(value: Array) -> Array:
        lost = propagate_losses(tokens, state_lost)[0]
        by_head = lost.reshape(layout.batch, layout.heads, lost.shape[-1])
        return jnp.where(jnp.swapaxes(by_head, 1, 2)[..., None], jnp.nan, value)

    return cond(max_over_vmap(overflown.any()), clear, lambda value: value, value), tokens


def restore_layout(
    value: Array,
    state: Any,
    tokens: Tokens,
    state_lost: Array,
    layout: Layout,
    output_lost: Any = None,
) -> tuple[Array, Any]:
    """Restore outputs (B, T, H, V) and the state (B, H, ...), NaN where a lost token reaches them.

    ``output_lost`` (N, T) and (N,), of outputs and state, is for rules that propagate losses
    differently. Outputs computed from :class:`Heads` are unfolded already, and NaN where they have
    to be.
    """
    b, t, h = layout.batch, layout.length, layout.heads
    if output_lost is None:
        output_lost = propagate_losses(tokens, state_lost)
    end = output_lost[1] if t else state_lost
    if value.ndim == 3:
        value = jnp.where((tokens.query_finite & ~output_lost[0])[..., None], value, jnp.nan)
        value = jnp.moveaxis(value.reshape(b, h, t, value.shape[-1]), 1, 2)

    def out(x: Array) -> Array:
        if jnp.issubdtype(x.dtype, jnp.floating):
            x = jnp.where(end.reshape(-1, *[1] * (x.ndim - 1)), jnp.nan, x)
        return x.reshape(b, h, *x.shape[1:])

    return value.astype(layout.dtype), type(state)(*map(out, state))

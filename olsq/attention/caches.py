"""Room in the caches of rules that keep every token: how much there is, and whether it suffices."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from olsq.checks import concrete


def room_in(state: Any, capacity: int | None, t: int) -> int:
    """Tokens that a cache has, or is to get, room for; ``capacity`` counts without a state."""
    if state is not None:
        return jnp.shape(state.present)[2]
    if capacity is None:
        return t
    if capacity < t:
        raise ValueError(f"capacity must be at least the length {t}, got {capacity}")
    return capacity


def taken_in(length: Array, t: int, room: int) -> Array:
    """Where t more tokens go: after all that any stream has; ValueError if they do not fit.

    Under ``jax.jit`` that cannot be seen, and what does not fit reads NaN.
    """
    taken = length.max(initial=0)
    seen = concrete(taken)
    if seen is not None and int(seen) + t > room:
        raise ValueError(
            f"state is full: it has room for {room} tokens, holds {int(seen)} and is to take {t} "
            "more; give state.grown(capacity)"
        )
    return taken

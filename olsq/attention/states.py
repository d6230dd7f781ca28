"""State of most rules: a matrix from keys to values, the fast weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from olsq.arrays.brief import brief_repr
from olsq.attention.arguments import Layout, Tokens, check_state


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


def open_memory(state: Any, tokens: Tokens, layout: Layout) -> tuple[Array, Array]:
    """Check the memory of a rule, empty if None.

    Returns its matrices (N, V, K), and a mask (N,) of those that were not finite, now zero.
    """
    zero = empty_memory(layout, tokens.v.shape[-1], tokens.k.shape[-1])
    opened, state_lost = check_state(state, zero, layout)
    return opened.matrix, state_lost

"""States of a batch by rows: take some of them, or choose between two row by row."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

State = TypeVar("State")


def take_rows(state: State, rows: ArrayLike) -> State:
    """Take the state of some rows of a batch, in any order and any number of times.

    Parameters
    ----------
    state : tuple of MixerState, MixerState or another pytree
        Arrays with the batch first.
    rows : int array (n,)
        Each in [0, batch).

    Returns
    -------
    The same structure, with n rows.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, olsq.nn
    >>> model = olsq.nn.LanguageModel(8, dim=8, blocks=1, heads=2, key=jax.random.key(0))
    >>> _, state = jax.eval_shape(model.prefill, jnp.array([[1, 2], [3, 4]]))
    >>> four = jax.eval_shape(lambda s: olsq.nn.take_rows(s, [0, 0, 1, 1]), state)
    >>> state[0].rule.moments.gram.shape, four[0].rule.moments.gram.shape
    ((2, 2, 4, 4), (4, 2, 4, 4))
    """
    index = jnp.asarray(rows)
    if index.ndim != 1 or not jnp.issubdtype(index.dtype, jnp.integer):
        raise ValueError(f"rows must be integers (n,), got {index.dtype} {index.shape}")
    return jax.tree.map(lambda x: x[index] if jnp.ndim(x) else x, state)


def choose_rows(rows: Array, new: State, old: State) -> State:
    """Choose ``new`` in the rows (B,) that are True, ``old`` in the others.

    Numbers without a batch axis are those of ``new``.

    Both have one structure and the same shapes.
    """

    def one(new: Any, old: Any) -> Any:
        if not jnp.ndim(new):
            return new
        return jnp.where(rows.reshape(-1, *[1] * (jnp.ndim(new) - 1)), new, old)

    return jax.tree.map(one, new, old)

"""Read prompts of one length or of several; take and choose states of a batch by rows."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from olsq.arrays.checks import concrete
from olsq.arrays.unshared import unshared
from olsq.nn.parts import check_tokens


def read_prompts(tokens: Any, lengths: Any, vocab_size: int, least: int) -> tuple[Array, Any]:
    """Convert prompts to (B, T), padded on the right, and their lengths (B,); None: all T.

    Lists of different lengths are padded; arrays come with ``lengths``, each in [least, T].
    """
    rows = _ragged(tokens)
    if rows is not None:
        if lengths is not None:
            raise ValueError(
                "lengths must be left out where prompts are lists of different lengths, which have "
                "their own"
            )
        lengths = np.array([len(row) for row in rows])
        tokens = np.zeros((len(rows), lengths.max()), np.result_type(*(r for r in rows if len(r))))
        for padded, row in zip(tokens, rows, strict=True):
            padded[: len(row)] = row
    ids = check_tokens(tokens, vocab_size)
    if not ids.shape[1]:
        raise ValueError("tokens must hold at least one token, got an empty prompt")
    return ids, None if lengths is None else _check_lengths(lengths, ids.shape, least)


def _ragged(tokens: Any) -> list[Any] | None:
    """Return the rows if ``tokens`` is a list of sequences of different lengths, else None."""
    if not isinstance(tokens, (list, tuple)):
        return None
    if any(concrete(token) is None for token in jax.tree.leaves(tokens)):
        return None
    if any(isinstance(row, (str, bytes)) or np.ndim(row) != 1 for row in tokens):
        return None  # their type is checked later, or they have more than two axes
    if len({len(row) for row in tokens}) < 2:
        return None
    return [np.asarray(row) for row in tokens]


def _check_lengths(lengths: Any, shape: tuple[int, ...], least: int) -> Any:
    """Check lengths (B,); return them as given, or as int32, or None if all rows are full."""
    counts = jnp.asarray(lengths)
    if counts.shape != shape[:1] or not jnp.issubdtype(counts.dtype, jnp.integer):
        raise ValueError(
            f"lengths must be integers of shape {shape[:1]}, one per prompt, got {counts.dtype} "
            f"{counts.shape}"
        )
    values = concrete(lengths)
    if values is None:
        return counts.astype(jnp.int32)
    if ((values < least) | (values > shape[1])).any():
        at = int(((values < least) | (values > shape[1])).argmax())
        empty = "" if least == 0 else " (0 needs a state)"
        raise ValueError(
            f"lengths must lie in [{least}, {shape[1]}], got {values[at]} at row {at}{empty}"
        )
    return None if (values == shape[1]).all() else values.astype(np.int32)


def padded_on_the_left(tokens: Array, lengths: Any) -> tuple[Array, Array]:
    """Move prompts (B, T) to the end of their rows.

    Returns them and segment ids, 0 for padding, 1 for prompts.

    A segment begins with an empty past, so padding before it leaves nothing in the state of any
    mixer.
    """
    t = tokens.shape[1]
    at = jnp.arange(t, dtype=jnp.int32) - (t - jnp.asarray(lengths, jnp.int32)[:, None])
    return jnp.take_along_axis(tokens, jnp.maximum(at, 0), 1), (at >= 0).astype(jnp.int32)


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
    index = jnp.asarray(unshared(rows))
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

"""Softmax attention with rotary positions, over everything or over a window."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.nn.base import MixerState
from olsq.nn.heads import HeadMixer
from olsq.nn.parts import check_sizes, rotate


class Softmax(HeadMixer):
    """Multi-head attention with rotary positions: ``o = sum_i softmax_i(q^T k_i / sqrt(K)) v_i``.

    Causal.  Queries and keys are plain projections: no convolution, feature map or normalisation,
    and no norm of what is read, unless asked for.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    rope_base : float or None
        Of the rotary positions; None leaves positions out.

    Notes
    -----
    O(M (K + V)) a token and head, whose cache has room for M tokens, M (K + V) numbers.  M is
    ``capacity`` where the layer is called without a past, the length of that call if None; a cache
    that is full raises ValueError.  A state's ``convolution`` begins with the next positions (B,).

    References
    ----------
    Vaswani et al., "Attention Is All You Need" (2017), eq. 1.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Softmax(8, heads=2, key=jax.random.key(0))
    >>> prompt = jax.numpy.ones((1, 6, 8))
    >>> _, state = jax.eval_shape(lambda x: layer(x, state=None, capacity=10), prompt)
    >>> state.rule.keys.shape
    (1, 2, 10, 4)
    """

    rope_base: float | None = eqx.field(static=True)
    rule = staticmethod(attention.softmax)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        rope_base: float | None = 10000.0,
        key: Array,
        **options: Any,
    ) -> None:
        plain = {"feature_map": "identity", "normalise": False, "convolution": False}
        super().__init__(dim, heads=heads, key=key, **{**plain, "output_norm": False, **options})
        self.rope_base = rope_base

    def mix(
        self, x: Array, state: MixerState | None, segment_ids: Array | None, capacity: int | None
    ) -> tuple[Array, MixerState]:
        b, t, _ = x.shape
        zero = (jnp.zeros(b, jnp.int32), None)
        (first, recent), memory = (zero, None) if state is None else state
        q, k, v, arguments, recent = self.read(x, recent, segment_ids)
        if self.rope_base is not None:
            at = first[:, None] + jnp.arange(t)
            q, k = rotate(q, at, self.rope_base), rotate(k, at, self.rope_base)
        if self.grows and memory is None and capacity is not None:
            arguments["capacity"] = capacity
        o, memory = self.attend(q, k, v, arguments, state=memory, segment_ids=segment_ids)
        return self.write(o, x), MixerState((first + t, recent), memory)

    @property
    def grows(self) -> bool:
        """Whether the cache grows with the stream, and so needs a capacity."""
        return True


class SlidingWindow(Softmax):
    """Softmax attention over the last ``window`` tokens, a token's own included.

    Parameters
    ----------
    dim, heads, rope_base, ... :
        As for :class:`Softmax`.
    window : int

    Notes
    -----
    O(window (K + V)) a token and head; the state is a constant (window - 1) (K + V) numbers a head.

    References
    ----------
    Beltagy et al., "Longformer" (2020), section 3.1.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.SlidingWindow(8, heads=2, window=4, key=jax.random.key(0))
    >>> _, state = jax.eval_shape(lambda x: layer(x, state=None), jax.numpy.ones((1, 6, 8)))
    >>> state.rule.keys.shape
    (1, 2, 3, 4)
    """

    window: int = eqx.field(static=True)
    rule = staticmethod(attention.sliding_window)

    def __init__(
        self, dim: int, *, heads: int, window: int = 64, key: Array, **options: Any
    ) -> None:
        check_sizes(window=window)
        super().__init__(dim, heads=heads, key=key, **options)
        self.window = window

    def arguments(self, x: Array) -> dict[str, Any]:
        return {"window": self.window}

    @property
    def grows(self) -> bool:
        return False

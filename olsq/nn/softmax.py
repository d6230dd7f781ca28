"""Softmax attention with rotary positions, over everything or over a window."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.nn._mixer import HeadMixer, MixerState
from olsq.nn._parts import check_sizes, rotate


class Softmax(HeadMixer):
    """Multi-head attention with rotary positions; no convolution, no normalisation of keys.

    ``rope_base`` None leaves positions out.
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
    """Softmax attention over the last ``window`` tokens, a token's own included."""

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

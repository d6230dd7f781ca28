"""Softmax attention with rotary positions: over all tokens, over a window, or with forget gates."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.arrays.checks import check_number, check_sizes, concrete
from olsq.nn.base import MixerState
from olsq.nn.gated import start_bias
from olsq.nn.heads import Gate, HeadMixer
from olsq.nn.parts import positions, rotate


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
    With ``convolution=True`` one layer can tell a token from others by the token before it.  For
    recall that is much of the work: two blocks of width 32 got noisy recall wholly right with it in
    800 training steps, and two thirds of it wrong without; of width 64 they learned it without too,
    last of the rules.

    O(M (K + V)) per token and head, whose cache has room for M tokens, M (K + V) numbers.  M is
    ``capacity``, or the length of the first call if None; after that a cache that is full grows to
    twice its size.  Under ``jax.jit`` it cannot: its length is not known there, and a token for
    which there is no room reads NaN.  Give a capacity before, or ``layer.reserve(state, tokens,
    capacity)``.

    A state's ``convolution`` begins with the next positions (B,), counted from the beginning of the
    running segment.

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
    turned: ClassVar[tuple[str, ...]] = ()  # arguments (B, T, H, K) that turn as keys do

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
        if rope_base is not None:
            check_number("rope_base", rope_base, above=0)
        self.rope_base = rope_base

    def mix(
        self, x: Array, state: MixerState | None, segment_ids: Array | None, capacity: int | None
    ) -> tuple[Array, MixerState]:
        b, t, _ = x.shape
        zero = (jnp.zeros(b, jnp.int32), None)
        (first, recent), memory = (zero, None) if state is None else state
        q, k, v, arguments, recent = self.read(x, recent, segment_ids)
        at = positions(first, t, segment_ids)
        if self.rope_base is not None:
            q, k = rotate(q, at, self.rope_base), rotate(k, at, self.rope_base)
            for name in self.turned:
                arguments[name] = rotate(arguments[name], at, self.rope_base)
        if self.grows and memory is None and capacity is not None:
            arguments["capacity"] = capacity
        if state is not None:
            memory = self.reserve(state, t, capacity).rule
        o, memory = self.attend(q, k, v, arguments, state=memory, segment_ids=segment_ids)
        following = at[:, -1] + 1 if t else first
        return self.write(o, x), MixerState((following, recent), memory)

    @property
    def grows(self) -> bool:
        return True

    def room(self, state: MixerState) -> tuple[int, int]:
        room, taken = state.rule.present.shape[2], concrete(state.rule.length)
        return room, room if taken is None else int(taken.max(initial=0))

    def reserve(self, state: MixerState, tokens: int, capacity: int | None) -> MixerState:
        """Make room in the cache: to ``capacity``, or for ``tokens`` more, then doubling it.

        Raises
        ------
        ValueError
            If the capacity is too small; under ``jax.jit``, where the number of tokens that it
            holds cannot be seen, if the cache could not take ``tokens`` even if it were empty.
        """
        if not self.grows:
            return state
        room, taken = state.rule.present.shape[2], concrete(state.rule.length)
        needed = tokens + (0 if taken is None else int(taken.max(initial=0)))
        if capacity is None and needed <= room:
            return state
        if taken is None and capacity is None:
            raise ValueError(
                f"the cache has room for {room} tokens and is to take {needed} more; under jax.jit "
                "it does not grow by itself: give capacity=, all tokens it is to hold, those "
                "before included"
            )
        if capacity is not None and capacity < needed:
            raise ValueError(
                f"capacity must be at least {needed}, the tokens before included, got {capacity}"
            )
        new_room = max(needed, 2 * room) if capacity is None else max(room, capacity)
        return state._replace(rule=state.rule.grown(new_room))


class SlidingWindow(Softmax):
    """Softmax attention over the last ``window`` tokens, a token's own included.

    Parameters
    ----------
    dim, heads, rope_base, ... :
        As for :class:`Softmax`.
    window : int

    Notes
    -----
    O(window (K + V)) per token and head; the state is a constant (window - 1) (K + V) numbers per
    head.

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


class Forgetting(Softmax):
    """Forgetting attention (FoX): softmax whose scores fade with the gates in between.

    ``o_t = sum_i softmax_i(q_t . k_i / sqrt(K) + log(gamma_{i+1} ... gamma_t)) v_i``, with
    ``gamma = sigmoid(W e + b)`` per head.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for :class:`Softmax`, whose states and capacity it has.
    rope_base : float or None
        Of rotary positions; none unless given: the gates show which tokens are recent.
    forget_bias : float or array (H,), optional
        Where gamma's b starts; if not given at the b of a gamma of 0.99.  The paper's is 0.

    Notes
    -----
    Costs what :class:`Softmax` does.  The paper's larger block ("Pro") also has a convolution, a
    norm of queries and keys, an output norm and gate: ``convolution=True, normalise=True,
    output_norm=True, output_gate=True`` is near to it.

    References
    ----------
    Lin et al., "Forgetting Transformer: Softmax Attention with a Forget Gate" (2025), section 3.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Forgetting(8, heads=2, key=jax.random.key(0))
    >>> prompt = jax.numpy.ones((1, 6, 8))
    >>> _, state = jax.eval_shape(lambda x: layer(x, state=None, capacity=10), prompt)
    >>> state.rule.log_decay.shape
    (1, 2, 10)
    """

    forget: Gate
    rule = staticmethod(attention.forgetting)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        rope_base: float | None = None,
        forget_bias: Any = None,
        key: Array,
        **options: Any,
    ) -> None:
        super().__init__(dim, heads=heads, rope_base=rope_base, key=key, **options)
        bias = start_bias() if forget_bias is None else forget_bias
        self.forget = Gate(dim, heads, key=jax.random.fold_in(key, 1), bias=bias)

    def arguments(self, x: Array) -> dict[str, Any]:
        return {"log_forget": jax.nn.log_sigmoid(self.forget(x))}

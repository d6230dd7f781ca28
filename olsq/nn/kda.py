"""Kimi Delta Attention as a layer."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.nn.heads import Gate, HeadMixer
from olsq.nn.parts import LowRank, at_least_float32, check_sizes, split_keys

SLOWEST, FASTEST = 0.001, 0.1  # steps that channels start with, as Mamba's


class KDA(HeadMixer):
    """Kimi Delta Attention: forget per key dimension, then one gradient step a token.

    ``S = S diag(a) (I - beta k k^T) + beta v k^T``, ``o = S q``, with
    ``a = exp(-A softplus(W e + b))`` through a low rank, one A per head, and
    ``beta = sigmoid(W e + b)`` per head.  What a head reads is normalised and gated by
    ``sigmoid(W e + b)``, through the same rank.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    rank : int, optional
        Of both low ranks; the value size if not given, as in the paper.
    output_gate : bool
        Gate what is read.
    negative_eigenvalues : bool
        Twice the beta, up to 2, which makes reflections of steps.

    Attributes
    ----------
    speed : array (H,)
        log A, at first that of uniform numbers from 1 to 16.

    Notes
    -----
    O(V K + C (V + K) + C^2 / 3) a token and head by chunks of C = 64, with scores that cost about
    three times those of :class:`GatedDelta`; O(V K) one by one; the state is V K numbers a head.
    Differentiable to any order in both modes.  The paper convolves values too, which
    ``convolve_values`` does, and applies silu to them, which nothing here does.  Steps
    ``softplus(b)`` start between .001 and .1, where its code starts them all at log 2.

    References
    ----------
    Kimi Team, "Kimi Linear" (2025), section 3 and 4.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.KDA(8, heads=2, key=jax.random.key(0))
    >>> layer(jax.numpy.ones((1, 6, 8)), state=None)[1].rule.matrix.shape
    (1, 2, 4, 4)
    """

    strength: Gate
    decay: LowRank
    speed: Array  # (H,)
    reading: LowRank | None
    negative_eigenvalues: bool = eqx.field(static=True)

    rule = staticmethod(attention.kda)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        rank: int | None = None,
        output_gate: bool = True,
        negative_eigenvalues: bool = False,
        key: Array,
        **options: Any,
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        rank = self.value_size if rank is None else rank
        check_sizes(rank=rank)
        keys = split_keys(
            jax.random.fold_in(key, 1), ("strength", "decay", "start", "speed", "reading")
        )
        self.strength = Gate(dim, heads, key=keys["strength"])
        channels = heads * self.mapped_size
        low, high = math.log(SLOWEST), math.log(FASTEST)
        start = jnp.exp(jax.random.uniform(keys["start"], (channels,), minval=low, maxval=high))
        start = jnp.log(jnp.expm1(start))  # softplus of it is the step
        self.decay = LowRank(dim, channels, rank, key=keys["decay"], bias=start)
        self.speed = jnp.log(jax.random.uniform(keys["speed"], (heads,), minval=1.0, maxval=16.0))
        wide = heads * self.value_size
        self.reading = None
        if output_gate:
            self.reading = LowRank(dim, wide, rank, key=keys["reading"], bias=0.0)
        self.negative_eigenvalues = negative_eigenvalues

    def arguments(self, x: Array) -> dict[str, Any]:
        wide = at_least_float32(x)
        steps = jax.nn.softplus(self.split_heads(self.decay(wide)))
        beta = jax.nn.sigmoid(self.strength(x)) * (2 if self.negative_eigenvalues else 1)
        return {"log_forget": -jnp.exp(self.speed)[:, None] * steps, "weight": beta}

    def gate_outputs(self, o: Array, x: Array) -> Array:
        if self.reading is None:
            return o
        return o * jax.nn.sigmoid(self.split_heads(self.reading(x))).astype(o.dtype)

"""Mixers with elementwise gates: Mamba's selective state space and Hawk's RG-LRU."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.arrays.checks import check_sizes
from olsq.nn.base import Mixer, MixerState
from olsq.nn.gated import step_biases
from olsq.nn.heads import WIDTH, HeadMixer
from olsq.nn.kinds import kind
from olsq.nn.parts import Linear, LowRank, ShortConvolution, at_least_float32, split_keys

RANK = 16


class Mamba(HeadMixer):
    """Mamba's selective state space, S6, with the queries, keys and values that all mixers have.

    ``S = S * exp(-dt exp(A)) + (dt v) k^T``, ``o = S q + D v``: every entry of a head's memory
    forgets at its own speed ``exp(A)``, for the time ``dt = softplus(W e + b)``, through rank 16,
    that the token gives its value channel.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.

    Attributes
    ----------
    rate : array (H, V, K)
        A, at first log 1 to log K.
    skip : array (H, V)
        D, at first 1.

    Notes
    -----
    O(V K) per token and head, one after the other; the state is V K numbers per head.  Values of dt
    start between 0.001 and 0.1.  Differentiable to any order in both modes.

    References
    ----------
    Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023),
    algorithm 2, eq. 2 and 4.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Mamba(8, heads=2, key=jax.random.key(0))
    >>> y, state = jax.eval_shape(lambda x: layer(x, state=None), jax.numpy.ones((1, 6, 8)))
    >>> layer.rate.shape, state.rule.matrix.shape
    ((2, 4, 4), (1, 2, 4, 4))
    """

    step: LowRank
    rate: Array  # (H, V, K)
    skip: Array  # (H, V)
    rule = staticmethod(attention.mamba)

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        h, v, k = self.heads, self.value_size, self.mapped_size
        first, second = jax.random.split(jax.random.fold_in(key, 1))
        self.step = LowRank(dim, h * v, RANK, key=second, bias=step_biases(h * v, key=first))
        self.rate = jnp.broadcast_to(jnp.log(jnp.arange(1.0, k + 1)), (h, v, k))
        self.skip = jnp.ones((h, v))

    def arguments(self, x: Array) -> dict[str, Any]:
        step = jax.nn.softplus(self.step(at_least_float32(x)))
        return {"step": self.split_heads(step), "rate": self.rate, "skip": self.skip}


class Hawk(Mixer):
    """Hawk's recurrent block: a convolution and an RG-LRU in one branch, a GeLU gate in the other.

    Parameters
    ----------
    dim, heads : int
        Gates are block-diagonal, one block per head.
    width : int, optional
        Of the recurrence; ``1.25 dim`` rounded to a multiple of the heads if None, which has about
        the parameters of the other mixers (MesaNet, appendix F.4).
    output_gain : float
    key : jax.random.key

    References
    ----------
    De et al., "Griffin" (2024), fig. 2, eq. 1 to 4.
    """

    takes_key_size: ClassVar[bool] = False
    branch: Linear
    gate: Linear
    convolution: ShortConvolution
    input_gate: Array = eqx.field(metadata=kind("matrix"))  # (H, V, V)
    input_bias: Array  # (H, V)
    recurrence_gate: Array = eqx.field(metadata=kind("matrix"))
    recurrence_bias: Array
    rate: Array  # (H, V)
    output_proj: Linear
    dim: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        width: int | None = None,
        output_gain: float = 1.0,
        key: Array,
    ) -> None:
        check_sizes(dim=dim, heads=heads)
        width = heads * max(1, round(1.25 * dim / heads)) if width is None else width
        check_sizes(width=width)
        if width % heads:
            raise ValueError(f"width must be a multiple of heads {heads}, got {width}")
        self.dim, self.heads, self.width = dim, heads, width
        each = width // heads
        names = ("branch", "gate", "convolution", "input", "recurrence", "rate", "output")
        keys = split_keys(key, names)
        self.branch = Linear(dim, width, key=keys["branch"])
        self.gate = Linear(dim, width, key=keys["gate"])
        self.convolution = ShortConvolution(WIDTH, width, key=keys["convolution"])
        shape, spread = (heads, each, each), each**-0.5
        self.input_gate = spread * jax.random.normal(keys["input"], shape)
        self.recurrence_gate = spread * jax.random.normal(keys["recurrence"], shape)
        self.input_bias = jnp.zeros((heads, each))
        self.recurrence_bias = jnp.zeros((heads, each))
        # a^2 uniform in [0.9^2, 0.999^2] at a gate of 1, as in the paper's code.
        squares = jax.random.uniform(keys["rate"], (heads, each), minval=0.9**2, maxval=0.999**2)
        self.rate = jnp.log(jnp.expm1(-jnp.log(squares) / 16))
        self.output_proj = Linear(width, dim, key=keys["output"], gain=output_gain)

    def mix(
        self, x: Array, state: MixerState | None, segment_ids: Array | None, capacity: int | None
    ) -> tuple[Array, MixerState]:
        recent, hidden = (None, None) if state is None else state
        u, recent = self.convolution(self.branch(x), recent, segment_ids)
        u = u.reshape(*u.shape[:2], self.heads, self.width // self.heads)
        wide = at_least_float32(u)
        admit, forget = (
            jax.nn.sigmoid(jnp.einsum("bthi,hij->bthj", wide, weight) + bias)
            for weight, bias in (
                (self.input_gate, self.input_bias),
                (self.recurrence_gate, self.recurrence_bias),
            )
        )
        h, hidden = attention.rg_lru(
            u,
            input_gate=admit,
            recurrence_gate=forget,
            rate=self.rate,
            state=hidden,
            segment_ids=segment_ids,
        )
        h = jax.lax.collapse(h, 2).astype(x.dtype)
        return self.output_proj(h * jax.nn.gelu(self.gate(x))), MixerState(recent, hidden)

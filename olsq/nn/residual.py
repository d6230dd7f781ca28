"""Residual block: a mixer and a gated MLP, each behind a norm."""

from __future__ import annotations

import equinox as eqx
import jax
from jax import Array
from numpy.typing import ArrayLike

from olsq.nn.base import Mixer, MixerState
from olsq.nn.parts import NORM_EPS, Linear, RMSNorm, check_sizes, dropout, split_keys


class SwiGLU(eqx.Module):
    """``(silu(x A) * x B) C``, a gated MLP without biases: streams (..., dim) to streams.

    Parameters
    ----------
    dim : int
    width : int, optional
        Of both branches; ``ratio dim``, rounded, if None.
    ratio : float
    output_gain : float
        Of C, as for :class:`HeadMixer`.
    key : jax.random.key

    Examples
    --------
    >>> import jax, olsq.nn
    >>> mlp = olsq.nn.SwiGLU(8, key=jax.random.key(0))
    >>> mlp(jax.numpy.ones((1, 6, 8))).shape, mlp.up.weight.shape
    ((1, 6, 8), (8, 24))
    """

    gate: Linear
    up: Linear
    down: Linear

    def __init__(
        self,
        dim: int,
        *,
        width: int | None = None,
        ratio: float = 3.0,
        output_gain: float = 1.0,
        key: Array,
    ) -> None:
        width = round(ratio * dim) if width is None else width
        check_sizes(dim=dim, width=width)
        keys = split_keys(key, ("gate", "up", "down"))
        self.gate = Linear(dim, width, key=keys["gate"])
        self.up = Linear(dim, width, key=keys["up"])
        self.down = Linear(width, dim, key=keys["down"], gain=output_gain)

    def __call__(self, x: Array) -> Array:
        return self.down(jax.nn.silu(self.gate(x)) * self.up(x))


class Block(eqx.Module):
    """Residual block: ``x + mixer(norm(x))``, then ``x + mlp(norm(x))`` unless ``mlp`` is None.

    Parameters
    ----------
    dim : int
    mixer : Mixer
    mlp : SwiGLU or None
    norm_eps : float
        Of both norms.
    dropout : float
        Rate at which what is added to the stream is dropped, in calls with a key.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> key = jax.random.key(0)
    >>> block = olsq.nn.Block(8, olsq.nn.GLA(8, heads=2, key=key), None)
    >>> y, state = jax.eval_shape(lambda x: block(x, None, None, None), jax.numpy.ones((1, 6, 8)))
    >>> y.shape, state.rule.matrix.shape
    ((1, 6, 8), (1, 2, 4, 4))
    """

    mixer_norm: RMSNorm
    mixer: Mixer
    mlp_norm: RMSNorm | None
    mlp: SwiGLU | None
    dropout: float = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        mixer: Mixer,
        mlp: SwiGLU | None,
        norm_eps: float = NORM_EPS,
        dropout: float = 0.0,
    ) -> None:
        self.mixer_norm, self.mixer = RMSNorm(dim, eps=norm_eps), mixer
        self.mlp_norm = None if mlp is None else RMSNorm(dim, eps=norm_eps)
        self.mlp, self.dropout = mlp, dropout

    def __call__(
        self,
        x: Array,
        state: MixerState | None,
        segment_ids: ArrayLike | None,
        capacity: int | None,
        key: Array | None = None,
    ) -> tuple[Array, MixerState]:
        """Run the block: the stream (B, T, dim) after it, and always the state of its mixer.

        Arguments are those of :meth:`Mixer.__call__`, all given; None where there are none. Nothing
        is dropped without a key.
        """
        first, second = (None, None) if key is None else jax.random.split(key)
        y, after = self.mixer(
            self.mixer_norm(x), state=state, segment_ids=segment_ids, capacity=capacity
        )
        x = x + dropout(y, self.dropout, first)
        if self.mlp is not None and self.mlp_norm is not None:
            x = x + dropout(self.mlp(self.mlp_norm(x)), self.dropout, second)
        return x, after

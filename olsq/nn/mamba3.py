"""Mamba-3 as a layer."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.arrays.checks import is_integer
from olsq.nn.gated import step_biases
from olsq.nn.heads import Gate, HeadMixer
from olsq.nn.kinds import kind
from olsq.nn.parts import NORM_EPS, RMSNorm, split_keys

SLOWEST_DECAY = 1e-4  # A is -this at most


class Mamba3(HeadMixer):
    """Mamba-3, one input and output a head: ``S = gamma (S + (1 - x) d v' k'^T) R^T + x d v k^T``.

    Per head, steps ``d = softplus(W e + b)``, decay ``gamma = exp(-d softplus(W e))``, and the
    share ``x = sigmoid(W e)`` of a step that its end has; v', k' are of the token before.  R turns
    pairs of key dimensions by ``pi d tanh(W e)``.  Queries and keys get an RMS norm and a bias, and
    values a skip: ``o = S q + D v``.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`; ``feature_map="identity"``, ``normalise=False``,
        ``convolution=False`` and ``output_gate=True`` here, as the authors have it; ``norm_eps``
        is of the norms of queries and keys too.
    angles : int, optional
        Pairs that turn, the same angles for all heads except d; half of them, ``key_size // 4``,
        and one at least, if None.  0 for none.

    Attributes
    ----------
    query_bias, key_bias : array (H, K)
        At first 1.
    skip : array (H,)
        D, at first 1.

    Notes
    -----
    Costs as much as :class:`GLA`; the state is V K + V + K numbers per head.  Values of d start
    between 0.001 and 0.1.  Differentiable to any order in both modes.  The authors' norm of the
    read-out is optional, and their models have no MLP; ranks above 1 ("MIMO") are left out.

    References
    ----------
    Lahoti et al., "Mamba-3: Improved Sequence Modeling using State Space Principles" (2026); gates,
    angles and starts as in public implementations. These differ in the decay; softplus is
    flash-linear-attention's.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Mamba3(8, heads=2, key=jax.random.key(0))
    >>> state = layer(jax.numpy.ones((1, 6, 8)), state=None)[1].rule
    >>> state.matrix.shape, state.key.shape
    ((1, 2, 4, 4), (1, 2, 4))
    """

    step: Gate
    decay: Gate
    trapezoid: Gate
    angle: Gate | None
    query_norm: RMSNorm
    key_norm: RMSNorm
    query_bias: Array = eqx.field(metadata=kind("bias"))  # (H, K)
    key_bias: Array = eqx.field(metadata=kind("bias"))
    skip: Array  # (H,)

    rule = staticmethod(attention.mamba3)
    own_keys = True

    def __init__(
        self, dim: int, *, heads: int, angles: int | None = None, key: Array, **options: Any
    ) -> None:
        theirs: dict[str, Any] = {"feature_map": "identity", "normalise": False}
        theirs |= {"convolution": False, "output_gate": True}
        super().__init__(dim, heads=heads, key=key, **{**theirs, **options})
        width, eps = self.mapped_size, options.get("norm_eps", NORM_EPS)
        angles = min(max(width // 4, 1), width // 2) if angles is None else angles
        if not is_integer(angles, 0) or angles > width // 2:
            raise ValueError(
                f"angles must lie in [0, {width // 2}], one for each pair of key dimensions, got "
                f"{angles}"
            )
        names = ("step", "decay", "trapezoid", "angle", "start")
        keys = split_keys(jax.random.fold_in(key, 1), names)
        bias = step_biases(heads, key=keys["start"])
        self.step = Gate(dim, heads, key=keys["step"], bias=bias)
        self.decay = Gate(dim, heads, key=keys["decay"], bias=None)
        self.trapezoid = Gate(dim, heads, key=keys["trapezoid"], bias=None)
        self.angle = Gate(dim, angles, key=keys["angle"], bias=None) if angles else None
        self.query_norm, self.key_norm = (RMSNorm(width, eps=eps) for _ in range(2))
        self.query_bias, self.key_bias = (jnp.ones((heads, width)) for _ in range(2))
        self.skip = jnp.ones(heads)

    def arguments(self, x: Array) -> dict[str, Any]:
        step = jax.nn.softplus(self.step(x))
        decay = jnp.maximum(jax.nn.softplus(self.decay(x)), SLOWEST_DECAY)
        arguments = {"log_forget": -step * decay, "weight": step}
        arguments["trapezoid"] = jax.nn.sigmoid(self.trapezoid(x))
        if self.angle is not None:
            speed = math.pi * jnp.tanh(self.angle(x))
            arguments["angle"] = step[..., None] * speed[:, :, None]
        return arguments

    def attend(
        self, q: Array, k: Array, v: Array, arguments: dict[str, Any], **context: Any
    ) -> tuple[Array, Any]:
        o, state = super().attend(q, k, v, arguments, **context)
        return o + self.skip[:, None].astype(v.dtype) * v, state

    def read(self, x: Array, recent: Any, segment_ids: Array | None) -> tuple[Any, ...]:
        q, k, v, arguments, recent = super().read(x, recent, segment_ids)
        q = self.query_norm(q) + self.query_bias.astype(q.dtype)
        k = self.key_norm(k) + self.key_bias.astype(k.dtype)
        return q, k, v, arguments, recent

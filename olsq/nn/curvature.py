"""Preconditioned delta rules whose curvature has gates, strengths and a centre of its own."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.nn.delta import KDA, GatedDelta
from olsq.nn.heads import Gate
from olsq.nn.kinds import kind
from olsq.nn.parts import bounded_exp, split_keys

CENTER = -0.2  # the paper's start
KEEP = 3.0  # bias of the curvature's gates: they start near 0.95


class Curvature(eqx.Module):
    """Arguments of the diagonal curvature ``a = c a + d k*k`` of a preconditioned rule, per head.

    ``c = sigmoid(W e + b)^A``, with one learned A per head, ``d = sigmoid(W e + b)``; a learned
    ``center`` is the log of the curvature at which steps keep their size.

    Attributes
    ----------
    forget, strength : Gate
        Before the sigmoids of c and d.
    speed : array (H,)
        log A, at first 0.
    center : array (H,)
    """

    forget: Gate
    strength: Gate
    speed: Array  # (H,)
    center: Array = eqx.field(metadata=kind("bias"))  # (H,)

    def __init__(self, dim: int, heads: int, *, strength_bias: bool, key: Array) -> None:
        keys = split_keys(key, ("forget", "strength"))
        self.forget = Gate(dim, heads, key=keys["forget"], bias=KEEP)
        self.strength = Gate(dim, heads, key=keys["strength"], bias=0.0 if strength_bias else None)
        self.speed, self.center = jnp.zeros(heads), jnp.full(heads, CENTER)

    def __call__(self, x: Array) -> dict[str, Array]:
        # sigmoid(.)^A, with A = exp(speed)
        logs = bounded_exp(self.speed) * jax.nn.log_sigmoid(self.forget(x))
        return {
            "curvature_forget": jnp.exp(logs),
            "curvature_weight": jax.nn.sigmoid(self.strength(x)),
            "center": self.center,
        }


class PreconditionedGatedDelta(GatedDelta):
    """Preconditioned Gated DeltaNet, with a curvature that has gates and strengths of its own.

    ``S = gamma S (I - beta k (M k)^T) + beta v (M k)^T``, ``o = S q``, with the ``gamma`` and
    ``beta`` of :class:`GatedDelta`; M lies in [1 / 1.5, 1.5] and falls with the
    ``a = c a + d k*k`` of :class:`olsq.nn.curvature.Curvature`, about a learned centre per head.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    forget_bound, forget_floor, forget_bias, forget_speed : optional
        Of gamma: see :class:`GatedDelta`.  Not ``signed``, and always ``weighted``.
    strength_bias : bool
        False leaves out the b of beta, and of the curvature's d.
    negative_eigenvalues : bool
        Twice the beta, up to 2.

    Notes
    -----
    Costs what :class:`GatedDelta` does; the state is V K + K numbers per head.
    :class:`PreconditionedDelta` is the smaller layer: d is beta there, and the centre fixed.

    References
    ----------
    Tumma et al., "Preconditioned DeltaNet" (2026), arXiv 2604.21100.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.PreconditionedGatedDelta(8, heads=2, key=jax.random.key(0))
    >>> y, state = jax.eval_shape(lambda x: layer(x, state=None), jax.numpy.ones((1, 6, 8)))
    >>> state.rule.matrix.shape, state.rule.curvature.shape
    ((1, 2, 4, 4), (1, 2, 4))
    """

    curvature: Curvature
    rule = staticmethod(attention.preconditioned_delta)
    signs = False

    def __init__(
        self, dim: int, *, heads: int, strength_bias: bool = True, key: Array, **options: Any
    ) -> None:
        options |= {"weighted": True, "strength_bias": strength_bias, "key": key}
        super().__init__(dim, heads=heads, **options)
        curvature_key = jax.random.fold_in(key, 2)
        self.curvature = Curvature(dim, heads, strength_bias=strength_bias, key=curvature_key)

    def arguments(self, x: Array) -> dict[str, Any]:
        return {**super().arguments(x), **self.curvature(x)}


class PreconditionedKDA(KDA):
    """Preconditioned KDA: :class:`PreconditionedGatedDelta` that forgets per key dimension.

    ``S = S diag(a) (I - beta k (M k)^T) + beta v (M k)^T``, ``o = S q``, with the gates, strength
    and output gate of :class:`KDA` and the M of :class:`PreconditionedGatedDelta`.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    rank, output_gate, negative_eigenvalues : optional
        As for :class:`KDA`.  There are no ``separate_gates``.
    strength_bias : bool
        False leaves out the b of beta, and of the curvature's d.

    Notes
    -----
    Costs what :class:`KDA` does; the state is V K + K numbers per head.

    References
    ----------
    Tumma et al., "Preconditioned DeltaNet" (2026), arXiv 2604.21100.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.PreconditionedKDA(8, heads=2, key=jax.random.key(0))
    >>> y, state = jax.eval_shape(lambda x: layer(x, state=None), jax.numpy.ones((1, 6, 8)))
    >>> state.rule.matrix.shape, state.rule.curvature.shape
    ((1, 2, 4, 4), (1, 2, 4))
    """

    curvature: Curvature
    rule = staticmethod(attention.preconditioned_delta)

    def __init__(
        self, dim: int, *, heads: int, strength_bias: bool = True, key: Array, **options: Any
    ) -> None:
        super().__init__(
            dim, heads=heads, separate_gates=False, strength_bias=strength_bias, key=key, **options
        )
        curvature_key = jax.random.fold_in(key, 2)
        self.curvature = Curvature(dim, heads, strength_bias=strength_bias, key=curvature_key)

    def arguments(self, x: Array) -> dict[str, Any]:
        return {**super().arguments(x), **self.curvature(x)}

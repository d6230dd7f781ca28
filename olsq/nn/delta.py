"""Delta-rule mixers, which correct their memory towards each token."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
from jax import Array

from olsq import attention
from olsq.arrays.checks import check_sizes
from olsq.nn.gated import ChannelDecay, Gated
from olsq.nn.heads import Gate, HeadMixer
from olsq.nn.parts import LowRank, as_bool, split_keys


class SteppedMixer(HeadMixer):
    """Mixer with a step size per head, ``beta = sigmoid(W e + b)``."""

    strength: Gate

    def __init__(
        self, dim: int, *, heads: int, strength_bias: bool = True, key: Array, **options: Any
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        key, started = jax.random.fold_in(key, 1), 0.0 if strength_bias else None
        self.strength = Gate(dim, heads, key=key, bias=started)

    def arguments(self, x: Array) -> dict[str, Any]:
        return {"weight": jax.nn.sigmoid(self.strength(x))}


class ReflectingMixer(HeadMixer):
    """Mixer whose step size may be doubled, which makes reflections of steps."""

    negative_eigenvalues: bool = eqx.field(static=True, converter=as_bool)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        negative_eigenvalues: bool = False,
        key: Array,
        **options: Any,
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        if negative_eigenvalues and getattr(self, "strength", None) is None:
            raise ValueError("negative_eigenvalues=True needs write gates: pass weighted=True")
        self.negative_eigenvalues = negative_eigenvalues

    def arguments(self, x: Array) -> dict[str, Any]:
        arguments = super().arguments(x)
        return (
            {**arguments, "weight": 2 * arguments["weight"]}
            if self.negative_eigenvalues
            else arguments
        )


class Delta(ReflectingMixer, SteppedMixer):
    """DeltaNet: one gradient step per token, on how wrong the memory is about its key.

    ``S = S (I - beta k k^T) + beta v k^T``, ``o = S q``, with ``beta = sigmoid(W e + b)`` per head.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    strength_bias : bool
        False leaves out beta's b.
    negative_eigenvalues : bool
        Twice the beta, up to 2, which makes reflections of steps.

    Notes
    -----
    O(V K + C (V + K) + C^2 / 3) per token and head by chunks of C <= 64, O(V K) one by one; the
    state is V K numbers per head.  Differentiable to any order in both modes.

    References
    ----------
    Schlag et al., "Linear Transformers Are Secretly Fast Weight Programmers" (2021), eq. 24.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Delta(8, heads=2, key=jax.random.key(0))
    >>> y, state = layer(jax.numpy.ones((1, 6, 8)), state=None)
    >>> y.shape, state.rule.matrix.shape
    ((1, 6, 8), (1, 2, 4, 4))
    """

    rule = staticmethod(attention.delta)


class GatedDelta(ReflectingMixer, Gated):
    """Gated DeltaNet: forget, then one gradient step per token.

    ``S = gamma S (I - beta k k^T) + beta v k^T``, ``o = S q``, with ``gamma = sigmoid(W e + b)``
    and ``beta = sigmoid(W e + b)`` per head, each with weights of its own.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    forget_bound : float, optional
        b_g in (0, 1]: makes gamma ``(1 - (1 - b_g) beta^2) sigmoid(W e + b)``, so that a stream
        that keeps repeating one key cannot fill a memory without limit.
    forget_floor : float
        f in [0, 1): makes gamma ``f + (1 - f) sigmoid(W e + b)``, before the bound.
    forget_bias : float or array (H,), optional
        Where gamma's b starts; if not given at the b of a gamma of 0.99, from which recall is
        learned sooner than from the MesaNet paper's 0, a gamma of one half.
    forget_speed : bool
        Gamma is ``sigmoid(W e + b)^A``, one learned A per head, ``exp(speed)``: the gate of Mamba-2
        and of this rule's paper, ``exp(-A softplus(W e + b))``, with the other sign inside.  It
        also starts as theirs, with ``softplus(b)`` from 0.001 to 0.1 and A from 1 to 16, unless a
        ``forget_bias`` is given; A is then 1.
    signed : bool
        Gamma is ``tanh(W e + b)``, in (-1, 1), for state tracking; b starts at 0 unless given, and
        there is no floor.
    weighted : bool
        False leaves the write gate out: beta is 1.
    strength_bias : bool
        False leaves out beta's b.
    negative_eigenvalues : bool
        Twice the beta, up to 2, which makes reflections of steps.

    Notes
    -----
    O(V K + C (V + K) + C^2 / 3) per token and head by chunks of C <= 64, O(V K) one by one; the
    state is V K numbers per head.  Differentiable to any order in both modes.

    References
    ----------
    Yang et al., "Gated Delta Networks" (2025), eq. 10.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.GatedDelta(8, heads=2, key=jax.random.key(0))
    >>> y, state = layer(jax.numpy.ones((1, 6, 8)), state=None)
    >>> y.shape, state.rule.matrix.shape
    ((1, 6, 8), (1, 2, 4, 4))
    """

    rule = staticmethod(attention.gated_delta)
    signs = True


class Longhorn(SteppedMixer):
    """Longhorn: an implicit step per token, in its diagonal form; no beta makes it unstable.

    ``S = S diag(1 - d k*k) + d v k^T``, ``o = S q``, with ``d = beta / (1 + beta k.k)`` and
    ``beta = sigmoid(W e + b)`` per head, where the paper has one per value channel.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.

    Notes
    -----
    O(V K) per token and head; V K numbers of state.  Differentiable to any order in both modes.

    References
    ----------
    Liu et al., "Longhorn" (2024), theorem 3.1 and algorithm 1.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Longhorn(8, heads=2, key=jax.random.key(0))
    >>> y, state = layer(jax.numpy.ones((1, 6, 8)), state=None)
    >>> y.shape, state.rule.matrix.shape
    ((1, 6, 8), (1, 2, 4, 4))
    """

    rule = staticmethod(attention.longhorn)


class PreconditionedDelta(Gated):
    """Preconditioned Gated DeltaNet: directions often used get smaller steps.

    ``S = gamma S (I - beta k (M k)^T) + beta v (M k)^T``, ``o = S q``; M lies in [1 / 1.5, 1.5] and
    falls with ``a = c a + beta k*k``, ``c = sigmoid(W e + b)`` per head, b from 3.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    vector_gates : bool
        Preconditioned KDA: forget per key dimension instead, by the gates of :class:`KDA`.
    forget_bound, forget_floor, forget_bias : optional
        Of gamma: see :class:`GatedDelta`.  Not ``signed``, and always ``weighted``.

    Notes
    -----
    Costs what :class:`GatedDelta` does, or :class:`KDA`; the state is V K + K numbers per head.

    References
    ----------
    Tumma et al., "Preconditioned DeltaNet" (2026).

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.PreconditionedDelta(8, heads=2, key=jax.random.key(0))
    >>> y, state = jax.eval_shape(lambda x: layer(x, state=None), jax.numpy.ones((1, 6, 8)))
    >>> state.rule.matrix.shape, state.rule.curvature.shape
    ((1, 2, 4, 4), (1, 2, 4))
    """

    curvature_forget: Gate
    vector: ChannelDecay | None
    rule = staticmethod(attention.preconditioned_delta)

    def __init__(
        self, dim: int, *, heads: int, vector_gates: bool = False, key: Array, **options: Any
    ) -> None:
        super().__init__(dim, heads=heads, weighted=True, key=key, **options)
        self.curvature_forget = Gate(dim, heads, key=jax.random.fold_in(key, 2), bias=3.0)
        self.vector = None
        if vector_gates:
            width, key = self.mapped_size, jax.random.fold_in(key, 3)
            self.vector = ChannelDecay(dim, heads, width, self.value_size, key=key)

    def arguments(self, x: Array) -> dict[str, Any]:
        arguments = super().arguments(x)
        keep = jax.nn.sigmoid(self.curvature_forget(x))
        if self.vector is not None:
            arguments["log_forget"] = self.vector(x)
        return {**arguments, "curvature_forget": keep, "curvature_weight": arguments["weight"]}


class KDA(HeadMixer):
    """Kimi Delta Attention: forget per key dimension, then one gradient step per token.

    ``S = S diag(a) (I - beta k k^T) + beta v k^T``, ``o = S q``, with
    ``a = exp(-A softplus(W e + b))`` through a low rank, one A per head, and
    ``beta = sigmoid(W e + b)`` per head.  The output of a head is normalised and gated by
    ``sigmoid(W e + b)``, through the same rank.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    rank : int, optional
        Of both low ranks; the value size if not given, as in the paper.
    output_gate : bool
        Gate what is read.
    separate_gates : bool
        Gated DeltaNet-2: instead of beta, a gate ``sigmoid(W e + b)`` per key dimension for what is
        erased and one per value channel for what is written.
    strength_bias : bool
        False leaves out the b of beta, or of both gates in its place.
    negative_eigenvalues : bool
        Twice the beta, or the erase gate, up to 2, which makes reflections of steps.

    Attributes
    ----------
    decay : module
        Of a: ``decay.speed`` (H,) is log A, at first that of uniform numbers from 1 to 16;
        ``decay.project`` the low rank, whose steps ``softplus(b)`` start between 0.001 and 0.1.

    Notes
    -----
    O(V K + C (V + K) + C^2 / 3) per token and head by chunks of C <= 64, in which scores per key
    dimension cost more than :class:`GatedDelta`'s; O(V K) one by one; the state is V K numbers a
    head.  Differentiable to any order in both modes.  The paper convolves values too, which
    ``convolve_values`` does, and applies silu to them (``value_map="silu"``).

    References
    ----------
    Kimi Team, "Kimi Linear" (2025), section 3.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.KDA(8, heads=2, key=jax.random.key(0))
    >>> layer(jax.numpy.ones((1, 6, 8)), state=None)[1].rule.matrix.shape
    (1, 2, 4, 4)
    """

    strength: Gate | None
    erase: Gate | None
    admit: Gate | None
    decay: ChannelDecay
    reading: LowRank | None
    negative_eigenvalues: bool = eqx.field(static=True, converter=as_bool)

    rule = staticmethod(attention.kda)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        rank: int | None = None,
        output_gate: bool = True,
        separate_gates: bool = False,
        strength_bias: bool = True,
        negative_eigenvalues: bool = False,
        key: Array,
        **options: Any,
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        rank = self.value_size if rank is None else rank
        check_sizes(rank=rank)
        names = ("strength", "erase", "admit", "decay", "reading")
        keys = split_keys(jax.random.fold_in(key, 1), names)
        self.strength = self.erase = self.admit = self.reading = None
        started = 0.0 if strength_bias else None
        if separate_gates:
            inner, read = heads * self.mapped_size, heads * self.value_size
            self.erase = Gate(dim, inner, key=keys["erase"], bias=started)
            self.admit = Gate(dim, read, key=keys["admit"], bias=started)
        else:
            self.strength = Gate(dim, heads, key=keys["strength"], bias=started)
        self.decay = ChannelDecay(dim, heads, self.mapped_size, rank, key=keys["decay"])
        if output_gate:
            wide = heads * self.value_size
            self.reading = LowRank(dim, wide, rank, key=keys["reading"], bias=0.0)
        self.negative_eigenvalues = negative_eigenvalues

    def arguments(self, x: Array) -> dict[str, Any]:
        most = 2 if self.negative_eigenvalues else 1
        arguments: dict[str, Any] = {"log_forget": self.decay(x)}
        if self.strength is not None:
            arguments["weight"] = most * jax.nn.sigmoid(self.strength(x))
        if self.erase is not None:
            arguments["erase"] = most * jax.nn.sigmoid(self.split_heads(self.erase(x)))
        return arguments

    def read(self, x: Array, recent: Any, segment_ids: Array | None) -> tuple[Any, ...]:
        q, k, v, arguments, recent = super().read(x, recent, segment_ids)
        if self.admit is not None:
            v = v * jax.nn.sigmoid(self.split_heads(self.admit(x))).astype(v.dtype)
        return q, k, v, arguments, recent

    def gate_outputs(self, o: Array, x: Array) -> Array:
        if self.reading is None:
            return o
        return o * jax.nn.sigmoid(self.split_heads(self.reading(x))).astype(o.dtype)


class GatedDelta2(KDA):
    """Gated DeltaNet-2: KDA with a gate for what is erased and one for what is written.

    ``S = S diag(a) (I - (b * k) k^T) + (w * v) k^T``, ``o = S q``, with the ``a`` of :class:`KDA`,
    ``b = sigmoid(W e)`` per key dimension and ``w = sigmoid(W e)`` per value channel.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    rank, output_gate, strength_bias, negative_eigenvalues : optional
        As for :class:`KDA`; this layer is ``KDA`` with ``separate_gates=True``.

    Notes
    -----
    Costs what :class:`KDA` does.

    References
    ----------
    "Gated DeltaNet-2: Decoupling Erase and Write in Linear Attention" (2026).

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.GatedDelta2(8, heads=2, key=jax.random.key(0))
    >>> layer.strength is None, layer.erase.project.weight.shape
    (True, (8, 8))
    """

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        super().__init__(dim, heads=heads, separate_gates=True, key=key, **options)

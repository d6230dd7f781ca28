"""Kimi Delta Attention as a layer."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
from jax import Array

from olsq import attention
from olsq.nn.gated import ChannelDecay
from olsq.nn.heads import Gate, HeadMixer
from olsq.nn.parts import LowRank, check_sizes, split_keys


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
        ``decay.project`` the low rank, whose steps ``softplus(b)`` start between .001 and .1.

    Notes
    -----
    O(V K + C (V + K) + C^2 / 3) a token and head by chunks of C <= 64, in which scores per key
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
    negative_eigenvalues: bool = eqx.field(static=True)

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
        As for :class:`KDA`, of which this is ``separate_gates=True``.

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

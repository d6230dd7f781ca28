"""Mixers whose memory is a gated sum of ``v k^T``: linear attention and its relatives."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.arrays.checks import check_number, check_sizes
from olsq.nn.base import MixerState
from olsq.nn.gated import Gated
from olsq.nn.heads import Gate, HeadMixer, JointlyNormed
from olsq.nn.parts import (
    LowRank,
    as_bool,
    at_least_float32,
    bounded_exp,
    positions,
    rotate,
    split_keys,
)

RANK = 16  # of projections to a gate per key dimension
GATE_CAP = 15.0  # of xLSTM's gates, softly


class LinearAttention(HeadMixer):
    """Linear attention without gates: ``S = S + v k^T``, ``o = S q``.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    normaliser : bool
        Divide by ``z . q``, ``z = z + k``.  It may cross 0 where features change sign; the paper's
        are ``feature_map="elu"`` with ``normalise=False``.

    Notes
    -----
    Costs as :class:`GLA`; the state is V K numbers per head, V K + K with a normaliser.

    References
    ----------
    Katharopoulos et al., "Transformers are RNNs" (2020), eq. 10 to 12.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.LinearAttention(8, heads=2, key=jax.random.key(0))
    >>> layer(jax.numpy.ones((1, 6, 8)), state=None)[1].rule.matrix.shape
    (1, 2, 4, 4)
    """

    normaliser: bool = eqx.field(static=True, converter=as_bool)
    rule = staticmethod(attention.linear)

    def __init__(
        self, dim: int, *, heads: int, normaliser: bool = False, key: Array, **options: Any
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        self.normaliser = normaliser

    def arguments(self, x: Array) -> dict[str, Any]:
        return {"normalise": self.normaliser}


class Retention(HeadMixer):
    """Retention: ``S = gamma_h S + v k^T``, ``o = S q``, one fixed factor per head.

    ``gamma_h = 1 - 2^-(5 + h)``, h from 0.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    rope_base : float or None
        Of the paper's rotation of queries and keys, as for :class:`Softmax`; none if None.

    Notes
    -----
    Costs, state and derivatives are those of :class:`GLA`.

    References
    ----------
    Sun et al., "Retentive Network" (2023), eq. 5 to 8.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> olsq.nn.Retention(9, heads=3, key=jax.random.key(0)).arguments(jax.numpy.ones((1, 6, 9)))
    {'forget': Array([0.96875  , 0.984375 , 0.9921875], dtype=float32)}
    """

    rope_base: float | None = eqx.field(static=True)
    rule = staticmethod(attention.retention)

    def __init__(
        self, dim: int, *, heads: int, rope_base: float | None = None, key: Array, **options: Any
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        if rope_base is not None:
            check_number("rope_base", rope_base, above=0)
        self.rope_base = rope_base

    def mix(
        self, x: Array, state: MixerState | None, segment_ids: Array | None, capacity: int | None
    ) -> tuple[Array, MixerState]:
        if self.rope_base is None:
            return super().mix(x, state, segment_ids, capacity)
        b, t, _ = x.shape
        zero = (jnp.zeros(b, jnp.int32), None)
        (first, recent), memory = (zero, None) if state is None else state
        q, k, v, arguments, recent = self.read(x, recent, segment_ids)
        at = positions(first, t, segment_ids)
        q, k = rotate(q, at, self.rope_base), rotate(k, at, self.rope_base)
        o, memory = self.attend(q, k, v, arguments, state=memory, segment_ids=segment_ids)
        following = at[:, -1] + 1 if t else first
        return self.write(o, x), MixerState((following, recent), memory)

    def arguments(self, x: Array) -> dict[str, Any]:
        # Numbers of a few bits, which float32 holds exactly.
        return {"forget": 1 - 2.0 ** -(5 + jnp.arange(self.heads, dtype=jnp.float32))}


class GLA(Gated):
    """Gated linear attention: ``S = gamma S + beta v k^T``, ``o = S q``.

    Gates per head, ``gamma = sigmoid(W e + b)`` and ``beta = sigmoid(W e + b)``, as in MesaNet.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    vector_gates : bool
        Forget by one gate per key dimension instead, ``S = S diag(a) + beta v k^T`` with
        ``a = sigmoid(W e + b)^(1/16)`` through ``rank``, as in Yang et al.; slower by chunks.
    rank : int
        Of these gates' projection.
    forget_bound, forget_floor, forget_bias, signed, weighted : optional
        Of scalar gates: see :class:`GatedDelta`.  Not ``signed`` with ``vector_gates``.

    Notes
    -----
    O(V K + C (V + K)) per token and head by chunks of C <= 64, O(V K) one by one; the state is V K
    numbers per head.  Differentiable to any order in both modes.

    References
    ----------
    Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training" (2024),
    eq. 3; von Oswald et al., "MesaNet" (2025), eq. 2.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.GLA(8, heads=2, key=jax.random.key(0))
    >>> layer(jax.numpy.ones((1, 6, 8)), state=None)[1].rule.matrix.shape
    (1, 2, 4, 4)
    """

    vector: LowRank | None
    rule = staticmethod(attention.gla)
    signs = True

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        vector_gates: bool = False,
        rank: int = RANK,
        key: Array,
        **options: Any,
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        check_sizes(rank=rank)
        self.vector = None
        if vector_gates:
            if self.signed:
                raise ValueError("signed=True needs scalar gates: pass vector_gates=False")
            outputs, key = heads * self.mapped_size, jax.random.fold_in(key, 2)
            self.vector = LowRank(dim, outputs, rank, key=key, bias=0.0)

    def arguments(self, x: Array) -> dict[str, Any]:
        arguments = super().arguments(x)
        if self.vector is not None:
            # sigmoid^(1/16), the GLA paper's temperature: gates start near 1
            gates = jax.nn.log_sigmoid(self.vector(at_least_float32(x))) / 16
            arguments["log_forget"] = self.split_heads(gates)
        return arguments


class Mamba2(Gated):
    """Mamba-2 as the MesaNet paper compares it: ``S = gamma S + v k^T``, ``o = S q``.

    One forget gate per head, ``gamma = sigmoid(W e + b)``, and no write gate: the paper's step
    sizes and skip are left out.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    forget_floor, forget_bias, signed : optional
        Of gamma: see :class:`GatedDelta`.

    Notes
    -----
    Costs, state and derivatives are those of :class:`GLA`.

    References
    ----------
    Dao and Gu, "Transformers are SSMs" (2024), section 5.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Mamba2(8, heads=2, key=jax.random.key(0))
    >>> layer(jax.numpy.ones((1, 6, 8)), state=None)[1].rule.matrix.shape
    (1, 2, 4, 4)
    """

    rule = staticmethod(attention.mamba2)
    signs = True

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        super().__init__(dim, heads=heads, weighted=False, key=key, **options)


class HGRN2(JointlyNormed):
    """HGRN-2: ``S = S diag(a) + v (1 - a)^T``, ``o = S q``; a gate is one minus the key.

    ``a = sigmoid(k)`` per key dimension, without the paper's lower bound.  Parameters: see
    :class:`HeadMixer`; ``feature_map`` (not "dpfp") and ``normalise`` (False) are of queries only;
    ``joint_norm`` makes one RMS norm of what all heads read together, as in the authors' code.

    Notes
    -----
    O(V K) per token and head; the state is V K numbers per head.

    References
    ----------
    Qin et al., "HGRN2: Gated Linear RNNs with State Expansion" (2024), eq. 6.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.HGRN2(8, heads=2, key=jax.random.key(0))
    >>> layer(jax.numpy.ones((1, 6, 8)), state=None)[1].rule.matrix.shape
    (1, 2, 4, 4)
    """

    rule = staticmethod(attention.hgrn2)
    own_keys = True  # they are the gates

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        if options.get("feature_map") == "dpfp":
            raise ValueError(
                "feature_map must keep the width of queries, one for each of HGRN2's gates, got "
                '"dpfp", which widens them: choose another'
            )
        super().__init__(dim, heads=heads, key=key, **{"normalise": False, **options})

    def attend(
        self, q: Array, k: Array, v: Array, arguments: dict[str, Any], **context: Any
    ) -> tuple[Array, Any]:
        return attention.hgrn2(q, v, log_forget=k, **context)

    def read(self, x: Array, recent: Any, segment_ids: Array | None) -> tuple[Any, ...]:
        streams, recent = self.project(x, recent, segment_ids)
        q, k, v = self.split_streams(streams)
        gates = jax.nn.log_sigmoid(at_least_float32(k))
        return self.features(q), gates, v, {}, recent


class RWKV6(HeadMixer):
    """RWKV-6: ``o = (S + v (u k)^T) q``, then ``S = S diag(w) + v k^T``.

    A factor per key dimension, ``w = exp(-exp(W e + b))`` through rank 16, at first slow to fast;
    the bonus u of a token's own key is learned, from 1.  Parameters: see :class:`HeadMixer`.

    Notes
    -----
    O(V K) per token and head; the state is V K numbers per head.

    References
    ----------
    Peng et al., "Eagle and Finch" (2024), eq. 19 and 20.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.RWKV6(8, heads=2, key=jax.random.key(0))
    >>> layer(jax.numpy.ones((1, 6, 8)), state=None)[1].rule.matrix.shape
    (1, 2, 4, 4)
    """

    bonus: Array  # (H, K)
    decay: LowRank
    rule = staticmethod(attention.rwkv6)

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        width = self.mapped_size
        self.bonus = jnp.ones((heads, width))
        # Slow to fast over the dimensions of a head: factors exp(-e^b), b from -6 to -1.
        start = jnp.tile(jnp.linspace(-6, -1, width), heads)
        key = jax.random.fold_in(key, 1)
        self.decay = LowRank(dim, heads * width, RANK, key=key, bias=start)

    def arguments(self, x: Array) -> dict[str, Any]:
        speed = jnp.clip(self.decay(at_least_float32(x)), -15.0, 5.0)
        return {"log_forget": -bounded_exp(self.split_heads(speed)), "bonus": self.bonus}


class MLSTM(HeadMixer):
    """mLSTM: ``S = f S + i v k^T``, ``z = f z + i k``, ``o = S q / max(1, |z^T q|)``.

    ``f = sigmoid(W e + b)``, b from 3 to 6 over the heads, and ``i = exp(W e + b)``, b from -1; the
    numbers inside are capped softly, ``15 tanh(x / 15)``.  Parameters: see :class:`HeadMixer`;
    ``normalise`` is False unless given, and ``q . k`` is then divided by ``sqrt(K)``.

    Notes
    -----
    Costs as much as :class:`GLA`; the state is V K + K + 1 numbers per head.  Exponential gates
    never overflow.  Differentiable in both modes.

    References
    ----------
    Beck et al., "xLSTM" (2024), eq. 19 to 27.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.MLSTM(8, heads=2, key=jax.random.key(0))
    >>> _, state = jax.eval_shape(lambda x: layer(x, state=None), jax.numpy.ones((1, 6, 8)))
    >>> state.rule.matrix.shape, state.rule.normaliser.shape, state.rule.maximum.shape
    ((1, 2, 4, 4), (1, 2, 4), (1, 2))
    """

    forget: Gate
    strength: Gate
    rule = staticmethod(attention.mlstm)

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        super().__init__(dim, heads=heads, key=key, **{"normalise": False, **options})
        keys = split_keys(jax.random.fold_in(key, 1), ("forget", "strength"))
        self.forget = Gate(dim, heads, key=keys["forget"], bias=jnp.linspace(3.0, 6.0, heads))
        self.strength = Gate(dim, heads, key=keys["strength"], bias=-1.0)

    def features(self, x: Array) -> Array:
        x = super().features(x)
        # K^(-1/4) on queries and on keys: q . k / sqrt(K)
        return x if self.normalise else x * self.mapped_size**-0.25

    def arguments(self, x: Array) -> dict[str, Any]:
        forget, strength = (
            GATE_CAP * jnp.tanh(gate(x) / GATE_CAP) for gate in (self.forget, self.strength)
        )
        return {"log_forget": jax.nn.log_sigmoid(forget), "log_weight": strength}

"""Delta-rule mixers that filter what they write: by a variance per key, or by a momentum."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.nn.delta import KDA
from olsq.nn.gated import Gated
from olsq.nn.heads import Gate
from olsq.nn.parts import LowRank, as_bool, at_least_float32, split_keys

SMALLEST_NOISE = 0.01  # r, precision and step bound at the start: those of the published layers
SMALLEST_PRECISION = 0.1
LARGEST_BOUND = 4.0
KEEP = 3.0  # bias of the momentum's gates: they start near 0.95


class KalmanDelta(KDA):
    """Kalman Delta Network: a delta rule whose steps are the gains of a diagonal Kalman filter.

    ``S = S diag(a) (I - k g^T) + v g^T``, ``o = S q``, with the gates a and the output gate of
    :class:`KDA`, and the gain g of :func:`olsq.attention.kalman_delta` for a noise
    ``r = 0.01 + softplus(W e + b)`` per head and a drift ``softplus(W e + b)`` per key dimension,
    through a low rank.  The precision before the first token, ``0.1 + softplus(c)`` per head,
    starts at 1.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    rank, output_gate : optional
        As for :class:`KDA`.  There are no ``separate_gates`` and no ``negative_eigenvalues``.
    isotropic : bool
        One variance and one drift per head.
    strength_bias : bool
        False leaves out the b of the noise.

    Attributes
    ----------
    strength : Gate
        Before the softplus of the noise.
    drift : LowRank or Gate
        Before the softplus of the drift.
    precision : array (H,)
        c.

    Notes
    -----
    Costs what :class:`KDA` does; the state is V K + K numbers per head.

    References
    ----------
    "Kalman Delta Networks: Uncertainty-aware Associative Memory" (2026), arXiv 2609.07816.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.KalmanDelta(8, heads=2, key=jax.random.key(0))
    >>> y, state = jax.eval_shape(lambda x: layer(x, state=None), jax.numpy.ones((1, 6, 8)))
    >>> state.rule.matrix.shape, state.rule.covariance.shape
    ((1, 2, 4, 4), (1, 2, 4))
    """

    drift: LowRank | Gate
    precision: Array  # (H,)
    isotropic: bool = eqx.field(static=True, converter=as_bool)
    rule = staticmethod(attention.kalman_delta)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        rank: int | None = None,
        isotropic: bool = False,
        strength_bias: bool = True,
        key: Array,
        **options: Any,
    ) -> None:
        options |= {"separate_gates": False, "negative_eigenvalues": False, "rank": rank}
        super().__init__(dim, heads=heads, strength_bias=strength_bias, key=key, **options)
        key, inner = jax.random.fold_in(key, 2), heads * self.mapped_size
        rank = self.value_size if rank is None else rank
        self.drift = (
            Gate(dim, heads, key=key, bias=0.0)
            if isotropic
            else LowRank(dim, inner, rank, key=key, bias=0.0)
        )
        started = math.log(math.expm1(1 - SMALLEST_PRECISION))  # softplus gives the rest of 1
        self.precision = jnp.full(heads, started)
        self.isotropic = isotropic

    def arguments(self, x: Array) -> dict[str, Any]:
        assert self.strength is not None
        drift = jax.nn.softplus(self.drift(at_least_float32(x)))
        return {
            "log_forget": self.decay(x),
            "weight": 1 / (SMALLEST_NOISE + jax.nn.softplus(self.strength(x))),
            "drift": drift if self.isotropic else self.split_heads(drift),
            "initial_precision": SMALLEST_PRECISION + jax.nn.softplus(self.precision),
            "isotropic": self.isotropic,
        }


class MomentumDelta(Gated):
    """Momentum DeltaNet: a gated delta rule whose writes go through a momentum.

    ``M = mu M + eta (v - alpha S k) k^T``, ``S = alpha S + beta M``, ``o = S q``.  Per head
    ``mu = sigmoid(W e + b)``, ``eta = 2 sigmoid(W e + b)``, ``s = (f eta)^2`` with a learned f,
    ``alpha = gamma / (1 + s)`` with the gamma of :class:`GatedDelta`, and
    ``beta = sigmoid(W e + b) s / (1 + s)``: bounds from the paper that keep the dynamics stable.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    forget_bound, forget_floor, forget_bias, forget_speed : optional
        Of gamma: see :class:`GatedDelta`.  Not ``signed``, and always ``weighted``.
    strength_bias : bool
        False leaves out the b of eta and of beta.

    Attributes
    ----------
    momentum, step : Gate
        Before the sigmoids of mu, whose b starts at 3, and of beta.
    bound : array (H,)
        The log of f, which starts spread evenly between 0 and 4 over the heads.

    Notes
    -----
    Costs what :class:`GatedDelta` does with twice the memory; the state is 2 V K numbers per head.
    The paper's layer also subtracts a share of the key from the query, as :class:`Comba` does, and
    its mu and gamma have Mamba-2's form.

    References
    ----------
    Huang et al., "MDN: Parallelizing Stepwise Momentum for Delta Linear Attention" (2026), arXiv
    2605.05838.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.MomentumDelta(8, heads=2, key=jax.random.key(0))
    >>> y, state = jax.eval_shape(lambda x: layer(x, state=None), jax.numpy.ones((1, 6, 8)))
    >>> state.rule.matrix.shape, state.rule.velocity.shape
    ((1, 2, 4, 4), (1, 2, 4, 4))
    """

    momentum: Gate
    step: Gate
    bound: Array  # (H,)
    rule = staticmethod(attention.momentum_delta)

    def __init__(
        self, dim: int, *, heads: int, strength_bias: bool = True, key: Array, **options: Any
    ) -> None:
        options |= {"weighted": True, "strength_bias": strength_bias}
        super().__init__(dim, heads=heads, key=key, **options)
        keys = split_keys(jax.random.fold_in(key, 2), ("momentum", "step"))
        self.momentum = Gate(dim, heads, key=keys["momentum"], bias=KEEP)
        self.step = Gate(dim, heads, key=keys["step"], bias=0.0 if strength_bias else None)
        self.bound = jnp.log(LARGEST_BOUND * (jnp.arange(heads) + 0.5) / heads)

    def arguments(self, x: Array) -> dict[str, Any]:
        assert self.strength is not None
        arguments = super().arguments(x)
        # s / (1 + s) = sigmoid(log s), log s = 2 (log f + log eta)
        log_s = 2 * (self.bound + math.log(2) + jax.nn.log_sigmoid(self.strength(x)))
        return {
            "weight": 2 * arguments["weight"],
            "log_forget": arguments["log_forget"] + jax.nn.log_sigmoid(-log_s),
            "momentum": jax.nn.sigmoid(self.momentum(x)),
            "step_size": jax.nn.sigmoid(self.step(x)) * jax.nn.sigmoid(log_s),
        }

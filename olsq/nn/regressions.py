"""Mixers that solve other regressions than Mesa's: windows, gates by channel, other ridges."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
from jax import Array

from olsq import attention
from olsq.arrays.checks import check_number, check_sizes
from olsq.nn.gated import RIDGE_FLOOR, RIDGE_START, ChannelDecay, Gated, Ridge
from olsq.nn.heads import Gate, HeadMixer
from olsq.nn.parts import split_keys
from olsq.solvers import Solver


class MesaWindow(Gated):
    """Mesa over the last ``window`` tokens, a token's own included.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    window : int
        Tokens that a regression has.
    ridge_floor, ridge_start : float
        As for :class:`Mesa`.
    forget_bound, forget_floor, forget_bias, weighted : optional
        As for :class:`GatedDelta`; not ``signed``.

    Notes
    -----
    Solved exactly: O(K^3 + (window + 64) K^2) per token and head; (window - 1) (K + V + 2) numbers
    of state.  Differentiable to any order in both modes.

    References
    ----------
    Behrouz et al., "Atlas: Learning to Optimally Memorize the Context at Test Time" (2025).

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.MesaWindow(8, heads=2, window=4, key=jax.random.key(0))
    >>> jax.eval_shape(layer, jax.numpy.ones((1, 6, 8))).shape
    (1, 6, 8)
    """

    ridge: Ridge
    window: int = eqx.field(static=True)

    rule = staticmethod(attention.mesa_window)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        window: int = 64,
        ridge_floor: float = RIDGE_FLOOR,
        ridge_start: float = RIDGE_START,
        key: Array,
        **options: Any,
    ) -> None:
        check_sizes(window=window)
        super().__init__(dim, heads=heads, key=key, **options)
        self.ridge = Ridge(self.heads, self.mapped_size, floor=ridge_floor, start=ridge_start)
        self.window = window

    def arguments(self, x: Array) -> dict[str, Any]:
        return {**super().arguments(x), "ridge": self.ridge(), "window": self.window}


class MesaChannel(HeadMixer):
    """Mesa with a gate per key dimension, on the information and not on the coefficients.

    ``H = D H D + beta k k^T``, ``S = S + beta (v - S k) ((H + Lambda)^-1 k)^T``, ``o = S q``, with
    ``D^2 = exp(-A softplus(W e + b))`` through a low rank, one A per head, as in :class:`KDA`, and
    ``beta = sigmoid(W e + b)`` per head.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    rank : int, optional
        Of the gates' low rank; the value size if not given.
    ridge_floor, ridge_start : float
        As for :class:`Mesa`.

    Attributes
    ----------
    decay : module
        Of the gates: ``decay.speed`` (H,) is log A, at first that of uniform numbers from 1 to 16;
        ``decay.project`` the low rank, whose steps ``softplus(b)`` start between 0.001 and 0.1.

    Notes
    -----
    O(s T K^2 + T K V) per head for s steps of conjugate gradient, some 5 to 25; O(K^3) per token in
    decoding; K (K + V) numbers of state.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.MesaChannel(8, heads=2, key=jax.random.key(0))
    >>> layer(jax.numpy.ones((1, 6, 8)), state=None)[1].rule.gram.shape
    (1, 2, 4, 4)
    """

    strength: Gate
    decay: ChannelDecay
    ridge: Ridge

    rule = staticmethod(attention.mesa_channel)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        rank: int | None = None,
        ridge_floor: float = RIDGE_FLOOR,
        ridge_start: float = RIDGE_START,
        key: Array,
        **options: Any,
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        rank = self.value_size if rank is None else rank
        check_sizes(rank=rank)
        keys = split_keys(jax.random.fold_in(key, 1), ("strength", "decay"))
        self.strength = Gate(dim, heads, key=keys["strength"])
        self.decay = ChannelDecay(dim, heads, self.mapped_size, rank, key=keys["decay"])
        self.ridge = Ridge(self.heads, self.mapped_size, floor=ridge_floor, start=ridge_start)

    def arguments(self, x: Array) -> dict[str, Any]:
        weight = jax.nn.sigmoid(self.strength(x))
        return {"log_forget": self.decay(x), "weight": weight, "ridge": self.ridge()}


class Kalman(Gated):
    """Gated KalmaNet's rule: a ridge that follows the size of the memory, and a mix with q.

    ``o = G (x (H + Lambda)^-1 + 1 - x) q``, ``Lambda = ratio |H|_F``, ``x = sigmoid(W e + b)``.
    The write gate multiplies keys and values, so that its square is the rule's weight, as in the
    published layer.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    ratio : float
        Ridge in units of H's Frobenius norm.
    solver : optional
        30 Chebyshev steps if None; ``olsq.ChunkExact()`` is exact.
    forget_bound, forget_floor, forget_bias, weighted : optional
        As for :class:`GatedDelta`; not ``signed``.

    Notes
    -----
    O(30 K^2 + K V) per token and head by default; K (K + V) numbers of state.

    References
    ----------
    Peng et al., "Gated KalmaNet" (2025).

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Kalman(8, heads=2, key=jax.random.key(0))
    >>> jax.eval_shape(layer, jax.numpy.ones((1, 6, 8))).shape
    (1, 6, 8)
    """

    mixing: Gate
    ratio: float = eqx.field(static=True)
    solver: Solver | None = eqx.field(static=True)

    rule = staticmethod(attention.kalman)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        ratio: float = 0.02,
        solver: Solver | None = None,
        key: Array,
        **options: Any,
    ) -> None:
        check_number("ratio", ratio, above=0)
        super().__init__(dim, heads=heads, key=key, **options)
        self.mixing = Gate(dim, heads, key=jax.random.fold_in(key, 2))
        self.ratio, self.solver = ratio, solver

    def arguments(self, x: Array) -> dict[str, Any]:
        mix = jax.nn.sigmoid(self.mixing(x))
        arguments = super().arguments(x)
        if "weight" in arguments:
            # the gate multiplies keys and values, so H and G get its square
            arguments["weight"] = arguments["weight"] ** 2
        return {**arguments, "mix": mix, "ratio": self.ratio, "solver": self.solver}


class Intention(HeadMixer):
    """Non-causal mixer for encoders: every query reads the regression on the whole context.

    ``o_t = G_T (H_T + Lambda)^-1 q_t``, with the ridge of :class:`Mesa` and a write gate per head.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    segments : int, optional
        The most segments that a row packs; needed where segment ids are traced.

    Notes
    -----
    O(T K (K + V) + K^3) per head; K (K + V) numbers for a context.

    References
    ----------
    Garnelo and Czarnecki, "Exploring the Space of Key-Value-Query Models with Intention" (2023),
    eq. 3.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Intention(8, heads=2, key=jax.random.key(0))
    >>> layer(jax.numpy.ones((1, 6, 8))).shape
    (1, 6, 8)
    """

    causal = False
    strength: Gate
    ridge: Ridge
    segments: int | None = eqx.field(static=True)

    rule = staticmethod(attention.intention)

    def __init__(
        self, dim: int, *, heads: int, segments: int | None = None, key: Array, **options: Any
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        if segments is not None:
            check_sizes(segments=segments)
        self.segments = segments
        self.strength = Gate(dim, heads, key=jax.random.fold_in(key, 1))
        self.ridge = Ridge(self.heads, self.mapped_size, floor=RIDGE_FLOOR, start=RIDGE_START)

    def arguments(self, x: Array) -> dict[str, Any]:
        weight = jax.nn.sigmoid(self.strength(x))
        return {"weight": weight, "ridge": self.ridge(), "segments": self.segments}

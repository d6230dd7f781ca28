"""Mixers that solve their regression at every token: Mesa, for both problems."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, Self

import equinox as eqx
from jax import Array

from olsq import attention
from olsq.nn.base import MixerState
from olsq.nn.diagnostics import Diagnostics, diagnose_regression
from olsq.nn.gated import RIDGE_FLOOR, RIDGE_START, Gated, Ridge
from olsq.nn.heads import HeadMixer
from olsq.problem import DecodeState, Moments
from olsq.sequence.jax import start_decoding
from olsq.solvers import ChunkExact, ConjugateGradient, Solver

FORGET_BOUND = 0.9975  # the paper's b_gamma
Adjoint = Literal["implicit", "unrolled"]


class Mesa(Gated):
    """The Mesa layer: every token reads the solution of a ridge regression from keys to values.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    solver : optional
        ``olsq.ChunkExact()`` if None, exact; ``olsq.ConjugateGradient(tol=1e-6)`` if None and the
        gates are signed.  :func:`olsq.nn.with_solver` changes it later.
    adjoint : {"implicit", "unrolled"}
        See :func:`olsq.online_lstsq`.
    ridge_floor, ridge_start : float
        ``Lambda = ridge_floor + softplus(raw)`` per head and key dimension, started at
        ``ridge_start``; 0.25 and 1, with signed gates the paper's 49 and 50.
    forget_bound : float or None
        b_g, 0.9975 unless given; this and ``forget_floor``, ``forget_bias``, ``signed`` and
        ``weighted`` as for :class:`GatedDelta`.

    Notes
    -----
    O(T (K^2 + K V)) per head by default, one factor per chunk.  Weights are float32; solves are
    float32 or better whatever the dtype of the input.

    References
    ----------
    von Oswald et al., "MesaNet" (2025), eq. 13 to 16, appendices B, F.5 and H.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Mesa(32, heads=2, key=jax.random.key(0))
    >>> y, state = layer(jax.random.normal(jax.random.key(1), (1, 7, 32)), state=None)
    >>> y.shape, state.rule.gram.shape
    ((1, 7, 32), (1, 2, 16, 16))
    """

    ridge: Ridge
    solver: Solver | None = eqx.field(static=True)
    adjoint: Adjoint = eqx.field(static=True)

    rule = staticmethod(attention.mesa)
    signs = True

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        solver: Solver | None = None,
        adjoint: Adjoint = "implicit",
        ridge_floor: float | None = None,
        ridge_start: float | None = None,
        forget_bound: float | None = FORGET_BOUND,
        signed: bool = False,
        key: Array,
        **options: Any,
    ) -> None:
        super().__init__(
            dim, heads=heads, forget_bound=forget_bound, signed=signed, key=key, **options
        )
        floor, start = (49.0, 50.0) if signed else (RIDGE_FLOOR, RIDGE_START)
        self.ridge = Ridge(
            self.heads,
            self.mapped_size,
            floor=floor if ridge_floor is None else ridge_floor,
            start=start if ridge_start is None else ridge_start,
        )
        self.solver, self.adjoint = solver, adjoint

    def arguments(self, x: Array) -> dict[str, Any]:
        # With signed gates and the large ridge they need, a few steps reach rounding.
        few = ConjugateGradient(tol=1e-6) if self.signed else None
        solver = few if self.solver is None else self.solver
        return {
            **super().arguments(x),
            "ridge": self.ridge(),
            "solver": solver,
            "adjoint": self.adjoint,
        }

    def attend(
        self, q: Array, k: Array, v: Array, arguments: dict[str, Any], **context: Any
    ) -> tuple[Array, Any]:
        memory = context["state"]
        if not isinstance(memory, DecodeState):
            return super().attend(q, k, v, arguments, **context)
        if q.shape[1] != 1 or context["segment_ids"] is not None:
            # Several tokens at once are a sequence: a new factorisation is cheaper than rank-one
            # updates.
            return super().attend(q, k, v, arguments, **{**context, "state": memory.moments})
        names = {"weight", "log_forget"} & arguments.keys()
        gates = {name: arguments[name][:, 0] for name in names}
        o, memory = attention.mesa_step(q[:, 0], k[:, 0], v[:, 0], **gates, state=memory)
        return o[:, None], memory

    def start_decoding(self, state: MixerState) -> MixerState:
        """Carry a factor of ``H + Lambda`` from token to token: O(K^2) per token instead of O(K^3).

        Only with an exact solver: the state of a truncated one stays as it is.
        """
        if self.exact_solver is None or not isinstance(state.rule, Moments):
            return state
        return state._replace(rule=start_decoding(state.rule, ridge=self.ridge()))

    def stop_decoding(self, state: MixerState) -> MixerState:
        """Return the moments alone."""
        rule = state.rule.moments if isinstance(state.rule, DecodeState) else state.rule
        return state._replace(rule=rule)

    @property
    def exact_solver(self) -> ChunkExact | None:
        """The solver, if it is the exact one, else None."""
        solver = ChunkExact() if self.solver is None else self.solver
        return solver if isinstance(solver, ChunkExact) and not self.signed else None

    def diagnose(self, x: Array, every: int) -> Diagnostics | None:
        """Report steps, residuals, gates and condition numbers, unless gates are signed."""
        if self.signed:
            return None
        q, k, v, arguments, _ = self.read(x, None, None)
        return diagnose_regression(
            q,
            k,
            v,
            log_forget=arguments["log_forget"],
            weight=arguments["weight"],
            ridge=arguments["ridge"],
            solver=self.solver,
            every=every,
        )

    def shard_time(self, shards: int) -> Self:
        """Pass the number of shards to an exact solver too, as ``olsq.ChunkExact(shards=...)``."""
        layer = super().shard_time(shards)
        if self.exact_solver is None:
            return layer
        return layer.with_solver(dataclasses.replace(self.exact_solver, shards=shards))


class MesaDiscounted(Mesa):
    """Mesa whose ridge is forgotten with the data: recursive least squares as a layer.

    ``H = gamma H + beta k k^T`` starts at ``H = Lambda``, ``G = gamma G + beta v k^T``,
    ``o = G H^-1 q``.  Prefer :class:`Mesa`, whose ridge stays.

    Parameters
    ----------
    dim, heads, ... :
        As for :class:`Mesa`, not ``signed``.
    forget_floor, forget_bias :
        0.99 and log 3 unless given.  A forgotten ridge leaves the regression singular where no
        recent key was, so gates start at 0.9975 and stay above 0.99; longer than some 1,000 tokens,
        keys have to keep exciting all directions.

    Notes
    -----
    O(T (K^2 + K V)) per head by default, O(K^3) per token in decoding; K (K + V) numbers of state.

    References
    ----------
    von Oswald et al., "Uncovering mesa-optimization algorithms" (2023), eq. 3.15 to 3.19 of the
    thesis; "MesaNet" (2025), eq. 17 to 24.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.MesaDiscounted(8, heads=2, key=jax.random.key(0))
    >>> jax.eval_shape(layer, jax.numpy.ones((1, 6, 8))).shape
    (1, 6, 8)
    """

    rule = staticmethod(attention.mesa_discounted)
    signs = False

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        start = {"forget_bound": None, "forget_floor": 0.99, "forget_bias": math.log(3.0)}
        super().__init__(dim, heads=heads, key=key, **{**start, **options})

    def attend(
        self, q: Array, k: Array, v: Array, arguments: dict[str, Any], **context: Any
    ) -> tuple[Array, Any]:
        if context["state"] is not None and context["segment_ids"] is None:
            # the state's gram contains the rest of the ridge
            arguments = {**arguments, "ridge": None}
        return HeadMixer.attend(self, q, k, v, arguments, **context)

    def start_decoding(self, state: MixerState) -> MixerState:
        return state

    def diagnose(self, x: Array, every: int) -> Diagnostics | None:
        return None  # the report assumes a fixed ridge

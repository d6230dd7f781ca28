"""Mixers that solve their regression: Mesa and its relatives."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from olsq import attention
from olsq.nn._mixer import Gate, HeadMixer, MixerState
from olsq.nn._parts import check_sizes, split_keys
from olsq.problem import Moments
from olsq.sequence import ChunkExact, ConjugateGradient, DecodeState, Solver, start_decoding

RIDGE_FLOOR, RIDGE_START = 0.25, 1.0
FORGET_BOUND = 0.9975  # the paper's b_gamma


class Gated(HeadMixer):
    """Forget and write gates per head, ``gamma = sigmoid(W e + b)``, ``beta = sigmoid(W e + b)``.

    ``forget_bound`` b_g makes the first ``gamma (1 - (1 - b_g) beta^2)``: a stream that repeats one
    key for ever cannot fill the memory without limit.  ``forget_floor`` f makes the first
    ``f + (1 - f) sigmoid``.  ``signed`` lets gamma lie in (-1, 1), ``tanh(W e + b)``, for state
    tracking.
    """

    forget: Gate
    strength: Gate | None
    forget_bound: float | None = eqx.field(static=True)
    forget_floor: float = eqx.field(static=True)
    signed: bool = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        forget_bound: float | None = None,
        forget_floor: float = 0.0,
        forget_bias: Any = 0.0,
        signed: bool = False,
        weighted: bool = True,
        key: Array,
        **options: Any,
    ) -> None:
        super().__init__(dim, heads=heads, key=key, **options)
        if forget_bound is not None and not 0 < forget_bound <= 1:
            raise ValueError(f"forget_bound must lie in (0, 1], got {forget_bound}")
        if not 0 <= forget_floor < 1:
            raise ValueError(f"forget_floor must lie in [0, 1), got {forget_floor}")
        if signed and forget_floor:
            raise ValueError("signed gates have no floor: give forget_floor=0")
        keys = split_keys(jax.random.fold_in(key, 1), ("forget", "strength"))
        self.forget = Gate(dim, heads, key=keys["forget"], bias=forget_bias)
        self.strength = Gate(dim, heads, key=keys["strength"]) if weighted else None
        self.forget_bound, self.forget_floor, self.signed = forget_bound, forget_floor, signed

    def arguments(self, x: Array) -> dict[str, Any]:
        given, shrink = {}, jnp.zeros(())
        if self.strength is not None:
            given["weight"] = jax.nn.sigmoid(self.strength(x))
            if self.forget_bound is not None:
                shrink = -(1 - self.forget_bound) * given["weight"] ** 2
        gate, floor = self.forget(x), self.forget_floor
        if self.signed:
            return {**given, "forget": jnp.tanh(gate) * (1 + shrink), "signed": True}
        logs = jax.nn.log_sigmoid(gate)
        if floor:
            logs = jnp.log(floor + (1 - floor) * jnp.exp(logs))
        return {**given, "log_forget": logs + jnp.log1p(shrink)}


class Ridge(eqx.Module):
    """A ridge per head and key dimension, ``floor + softplus(raw)``."""

    raw: Array  # (H, K)
    floor: float = eqx.field(static=True)

    def __init__(self, heads: int, width: int, *, floor: float, start: float) -> None:
        if not 0 <= floor < start:
            raise ValueError(f"ridge_start must exceed ridge_floor >= 0, got {start} and {floor}")
        self.floor = floor
        rise = start - floor
        inverse = rise + math.log(-math.expm1(-rise))  # of softplus
        self.raw = jnp.full((heads, width), inverse, float)

    def __call__(self) -> Array:
        return self.floor + jax.nn.softplus(self.raw)


class Mesa(Gated):
    """The Mesa layer: every token reads the solution of a ridge regression from keys to values.

    Parameters
    ----------
    dim, heads, key_size, value_size, ... :
        As for every mixer: see :class:`HeadMixer`.
    solver : optional
        ``olsq.ChunkExact()`` if None, exact.  :func:`olsq.nn.with_solver` changes it later.
    adjoint : {"implicit", "unrolled"}
        See :func:`olsq.online_lstsq`.
    ridge_floor, ridge_start : float
        ``Lambda = ridge_floor + softplus(raw)``, started at ``ridge_start``.
    forget_bound : float or None
        b_g; see :class:`Gated`.
    signed : bool
        Gates in (-1, 1) for state tracking; the paper's ridge is then 49 + softplus, from 50.

    Notes
    -----
    O(T (K^2 + K V)) a head by default, one factor per chunk.  Weights are float32; solves are
    float32 or better whatever the dtype of the input.

    References
    ----------
    von Oswald et al., "MesaNet" (2025), eq. 13 to 16, appendices B, F.5 and H.

    Examples
    --------
    >>> import jax, olsq.nn
    >>> layer = olsq.nn.Mesa(32, heads=2, key=jax.random.key(0))
    >>> x = jax.random.normal(jax.random.key(1), (1, 7, 32))
    >>> y, state = layer(x, state=None)
    >>> y.shape, state.memory.gram.shape
    ((1, 7, 32), (1, 2, 16, 16))
    """

    ridge: Ridge
    solver: Solver | None = eqx.field(static=True)
    adjoint: Any = eqx.field(static=True)

    rule = staticmethod(attention.mesa)

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        solver: Solver | None = None,
        adjoint: str = "implicit",
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
        # With gates of both signs and the large ridge they need, a few steps reach rounding.
        few = ConjugateGradient(tol=1e-6) if self.signed else None
        solver = few if self.solver is None else self.solver
        given = {"ridge": self.ridge(), "solver": solver, "adjoint": self.adjoint}
        return {**super().arguments(x), **given}

    def attend(
        self, q: Array, k: Array, v: Array, arguments: dict[str, Any], **given: Any
    ) -> tuple[Array, Any]:
        memory = given["state"]
        if not isinstance(memory, DecodeState):
            return super().attend(q, k, v, arguments, **given)
        if q.shape[1] != 1 or given["segment_ids"] is not None:
            raise ValueError("a state made for decoding takes one token at a time, unsegmented")
        gates = {name: arguments[name][:, 0] for name in ("weight", "log_forget")}
        o, memory = attention.mesa_step(q[:, 0], k[:, 0], v[:, 0], **gates, state=memory)
        return o[:, None], memory

    def start_decoding(self, state: MixerState) -> MixerState:
        """Carry a factor of ``H + Lambda`` from token to token: O(K^2) a token where moments cost
        O(K^3).  Only of an exact solver: a truncated one goes on as it is."""
        exact = self.solver is None or isinstance(self.solver, ChunkExact)
        if not exact or self.signed or not isinstance(state.memory, Moments):
            return state
        return state._replace(memory=start_decoding(state.memory, ridge=self.ridge()))


class MesaDiscounted(Mesa):
    """Mesa whose ridge is forgotten with the data: recursive least squares as a layer.

    The layer of the thesis.  A forgotten ridge leaves the regression singular in every direction
    that no recent key had, so gates start at .9975 and stay above ``forget_floor = .99``: sequences
    much longer than 1,000 tokens still ask for keys that keep exciting all directions.  Prefer
    :class:`Mesa`, whose ridge stays.
    """

    rule = staticmethod(attention.mesa_discounted)

    def __init__(self, dim: int, *, heads: int, key: Array, **options: Any) -> None:
        start = {"forget_bound": None, "forget_floor": 0.99, "forget_bias": math.log(3.0)}
        super().__init__(dim, heads=heads, key=key, **{**start, **options})

    def attend(
        self, q: Array, k: Array, v: Array, arguments: dict[str, Any], **given: Any
    ) -> tuple[Array, Any]:
        if given["state"] is not None and given["segment_ids"] is None:
            arguments = {**arguments, "ridge": None}  # the state holds what is left of it
        return HeadMixer.attend(self, q, k, v, arguments, **given)

    def start_decoding(self, state: MixerState) -> MixerState:
        return state


class MesaWindow(Gated):
    """Mesa over the last ``window`` tokens only (Atlas)."""

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


class Kalman(Gated):
    """Gated KalmaNet's rule: a ridge that follows the memory, mixed with the plain query."""

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
        super().__init__(dim, heads=heads, key=key, **options)
        self.mixing = Gate(dim, heads, key=jax.random.fold_in(key, 2))
        self.ratio, self.solver = ratio, solver

    def arguments(self, x: Array) -> dict[str, Any]:
        mix = jax.nn.sigmoid(self.mixing(x))
        return {**super().arguments(x), "mix": mix, "ratio": self.ratio, "solver": self.solver}


class Intention(HeadMixer):
    """Every query reads the regression on the whole context: not causal, for encoders.

    ``segments`` is the most segments that a row packs; needed where segment ids are traced.
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

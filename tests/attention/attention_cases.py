"""The one table of attention rules: how each is drawn, called, and known better by its oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import jax.numpy as jnp
import numpy as np
from attention_draws import (
    PRIOR,
    B,
    H,
    K,
    T,
    V,
    angles,
    channel_weights,
    directions,
    drawing,
    gates,
    head_ridge,
    inputs_only,
    large_logs,
    large_ridge,
    level_weights,
    logs,
    matrix,
    matrix_and_factor,
    mild,
    momenta,
    mostly_positive,
    network,
    one_width,
    queries_and_values,
    rates,
    removals,
    ridge,
    several,
    shares,
    sigmoids,
    signed,
    slot_gates,
    slot_weights,
    steps,
    token_ridges,
    two_weights,
    vector_gates,
    vector_shares,
    weights,
)

from olsq import Chebyshev, ConjugateGradient, Dense, Moments, attention
from olsq.reference import oracle_of
from olsq.reference.attention_solved import mesa_signed
from tests.versions import quick


@dataclass(frozen=True, eq=False)
class Row:
    """One rule: a new rule is one more row."""

    name: str
    rule: str
    draw: Callable[[np.random.Generator, int], dict[str, np.ndarray]]  # time arrays (B, t, H, ...)
    state: Any = None  # named tuple; None: the state is a store, not compared
    arrays: tuple[str, ...] = ("q", "k", "v")
    fixed: Callable[[np.random.Generator], dict[str, np.ndarray]] = lambda rng: {}  # (H, ...)
    options: dict[str, Any] = field(default_factory=dict)
    mine: dict[str, Any] = field(default_factory=dict)  # options the oracle does not have
    packed: tuple[str, ...] = ()  # arrays that the rule takes as one tuple, ``initial``
    held: tuple[str, ...] = ()  # arguments that a state makes superfluous
    forget: str | None = None  # the argument whose 0 forgets the past
    weight: str | None = None  # the argument whose 0 leaves a token out
    late: bool = False  # gates apply after the read
    resets: bool = True  # a gate of 0 forgets all of the past: no error is taken before it
    window: int = T  # how many tokens are remembered
    causal: bool = True
    fresh: bool = False  # differentiated from no past: a state would leave arguments unused
    oracle: Callable[..., Any] = None  # one stream of one head; the rule's if None
    smooth: tuple[int, ...] = (0, 1, 2, 3)  # kinds of stream on which the oracle has derivatives

    def __post_init__(self):
        object.__setattr__(self, "oracle", self.oracle or oracle_of(self.rule))

    def __str__(self):
        return self.name

    @property
    def samples(self):
        """Names of the arrays that are learned from; the others are queries."""
        return tuple(n for n in self.arrays if n != "q")


SIGNED: dict[str, Any] = {"signed": True}

ROWS = [
    Row("linear", "linear", drawing(weight=weights), attention.Memory, weight="weight"),
    Row("linear elu", "linear", drawing(weight=weights), attention.Normalised,
        options={"feature_map": "elu", "normalise": True}, weight="weight"),
    Row("linear dpfp", "linear", drawing(), attention.Normalised,
        options={"feature_map": "dpfp", "nu": 2, "normalise": True}),
    Row("retention", "retention", drawing(), attention.Memory,
        fixed=lambda rng: {"forget": rng.uniform(0.8, 1, H)}),
    Row("mamba2", "mamba2", drawing(forget=gates), attention.Memory, forget="forget"),
    Row("log_linear_mamba2", "log_linear_mamba2", drawing(forget=gates, level_weight=level_weights),
        attention.LogLinearState, forget="forget"),
    Row("mamba3", "mamba3", drawing(log_forget=logs(gates), weight=weights, trapezoid=shares,
        angle=angles), attention.Mamba3State, forget="log_forget"),
    Row("gla", "gla", drawing(log_forget=logs(gates), weight=weights), attention.Memory,
        forget="log_forget", weight="weight"),
    Row("gla vector", "gla", drawing(forget=vector_gates, weight=weights), attention.Memory,
        forget="forget", weight="weight"),
    Row("mamba2 signed", "mamba2", drawing(forget=signed(gates)), attention.Memory, mine=SIGNED,
        forget="forget"),
    Row("gla signed", "gla", drawing(forget=signed(gates), weight=weights), attention.Memory,
        mine=SIGNED, forget="forget", weight="weight"),
    Row("gla vector signed", "gla", drawing(forget=signed(vector_gates), weight=weights),
        attention.Memory, mine=SIGNED, forget="forget", weight="weight"),
    Row("gated_delta signed", "gated_delta", drawing(forget=signed(gates), weight=weights),
        attention.Memory, mine=SIGNED, forget="forget", weight="weight"),
    Row("gsa", "gsa", drawing(forget=slot_gates, weight=slot_weights), attention.SlotMemory,
        options={"scale": 0.7}, forget="forget", weight="weight"),
    Row("hgrn2", "hgrn2", drawing(queries_and_values, forget=vector_gates), attention.Memory,
        ("q", "v"), forget="forget"),
    Row("hgrn2 log", "hgrn2", drawing(queries_and_values, log_forget=logs(vector_gates)),
        attention.Memory, ("q", "v"), forget="log_forget"),
    Row("rwkv6", "rwkv6", drawing(forget=vector_gates), attention.Memory,
        fixed=lambda rng: {"bonus": rng.normal(size=(H, K))}, forget="forget", late=True),
    Row("mlstm", "mlstm", drawing(forget=gates, weight=weights), attention.MLSTMState,
        forget="forget", weight="weight"),
    Row("mlstm log", "mlstm", drawing(mostly_positive, forget=gates, log_weight=large_logs),
        attention.MLSTMState, forget="forget", weight="log_weight"),
    Row("delta", "delta", drawing(weight=weights), attention.Memory, weight="weight"),
    Row("gated_delta", "gated_delta", drawing(forget=gates, weight=weights), attention.Memory,
        forget="forget", weight="weight"),
    Row("preconditioned_delta", "preconditioned_delta", drawing(forget=gates, weight=weights,
        curvature_forget=gates, curvature_weight=weights), attention.PreconditionedState,
        forget="forget", weight="weight", smooth=(0, 1, 3)),
    Row("kda", "kda", drawing(forget=vector_gates, weight=weights, erase=vector_shares),
        attention.Memory, forget="forget", weight="weight"),
    Row("momentum_delta", "momentum_delta", drawing(forget=gates, weight=weights, momentum=momenta,
        step_size=shares), attention.MomentumState, forget="forget", weight="weight",
        resets=False),
    Row("momentum_delta read", "momentum_delta", drawing(log_forget=logs(gates), momentum=momenta,
        read=removals), attention.MomentumState, options={"step_size": 0.5}, forget="log_forget",
        resets=False),
    Row("kalman_delta", "kalman_delta", drawing(forget=vector_gates, weight=weights,
        drift=vector_shares), attention.KalmanDeltaState,
        fixed=lambda rng: {"initial_precision": rng.uniform(0.5, 2, H)}, forget="forget",
        weight="weight", held=("initial_precision",)),
    Row("kalman_delta isotropic", "kalman_delta", drawing(log_forget=logs(vector_gates),
        weight=weights, drift=shares), attention.KalmanDeltaState,
        options={"isotropic": True, "information": 1.5}, forget="log_forget", weight="weight"),
    Row("kalman_delta scalar", "kalman_delta", drawing(forget=gates), attention.KalmanDeltaState,
        options={"drift": 0.1, "initial_precision": 0.3}, forget="forget"),
    Row("rwkv7", "rwkv7", drawing(log_forget=logs(vector_gates), removal_key=removals,
        removal_rate=vector_shares), attention.Memory, forget="log_forget", resets=False),
    Row("comba", "comba", drawing(forget=gates, weight=weights, feedback=shares), attention.Memory,
        forget="forget", weight="weight", resets=False),
    Row("gated_delta_product", "gated_delta_product",
        drawing(several, forget=gates, weight=two_weights), attention.Memory, forget="forget",
        weight="weight"),
    Row("longhorn", "longhorn", drawing(weight=weights), attention.Memory, weight="weight"),
    Row("longhorn channels", "longhorn", drawing(weight=channel_weights), attention.Memory,
        weight="weight"),
    Row("mamba", "mamba", drawing(step=steps), attention.Memory,
        fixed=lambda rng: {"rate": rng.normal(size=(H, V, K))}, weight="step"),
    Row("mamba skip", "mamba", drawing(step=steps), attention.Memory,
        fixed=lambda rng: {"rate": rng.normal(size=(H, V, K)), "skip": rng.normal(size=(H, V))}),
    Row("rg_lru", "rg_lru", drawing(inputs_only, input_gate=channel_weights,
        recurrence_gate=sigmoids), attention.Hidden, ("x",),
        fixed=lambda rng: {"rate": rng.uniform(-5, -1, (H, V))}, weight="input_gate",
        smooth=(0, 2, 3)),
    Row("ttt_linear", "ttt_linear", drawing(one_width, learning_rate=rates),
        attention.TTTLinearState, fixed=matrix, packed=("w", "b"),
        options={"mini_batch": 4, "eps": 0.01}, weight="learning_rate"),
    Row("ttt_linear query factor", "ttt_linear", drawing(one_width, learning_rate=rates),
        attention.TTTLinearState, fixed=matrix_and_factor, packed=("w", "b"),
        options={"mini_batch": 4, "eps": 0.01}, weight="learning_rate"),
    Row("ttt_mlp", "ttt_mlp", drawing(one_width, learning_rate=rates), attention.TTTMLPState,
        fixed=network, packed=("w1", "b1", "w2", "b2"), options={"mini_batch": 4, "eps": 0.01},
        weight="learning_rate", fresh=True),
    Row("softmax", "softmax", drawing(), mine={"capacity": PRIOR + T}),
    Row("forgetting", "forgetting", drawing(forget=gates), mine={"capacity": PRIOR + T},
        forget="forget", smooth=(0, 2, 3)),
    Row("sliding_window", "sliding_window", drawing(), options={"window": 5}, window=5),
    Row("local_linear", "local_linear", drawing(ridge=token_ridges), mine={"capacity": PRIOR + T}),
    Row("local_linear window", "local_linear", drawing(), fixed=head_ridge,
        options={"window": 5, "scale": 2.0}, window=5),
    Row("parallax", "parallax", drawing(direction=directions), mine={"capacity": PRIOR + T}),
    Row("parallax window", "parallax", drawing(direction=directions), options={"window": 5},
        window=5),
    Row("mesa", "mesa", drawing(forget=gates, weight=weights), Moments, fixed=ridge,
        mine={"solver": Dense(chunk=16)}, forget="forget", weight="weight"),
    Row("mesa signed", "mesa", drawing(forget=signed(gates), weight=weights), Moments,
        fixed=large_ridge, mine=SIGNED, forget="forget", weight="weight", oracle=mesa_signed),
    Row("mesa signed cg", "mesa", drawing(forget=signed(gates), weight=weights), Moments,
        fixed=large_ridge, mine=SIGNED | {"solver": ConjugateGradient(tol=1e-13, max_steps=12)},
        forget="forget", weight="weight", oracle=mesa_signed),
    Row("mesa_discounted", "mesa_discounted", drawing(forget=mild, weight=weights), Moments,
        fixed=ridge, held=("ridge",), weight="weight", fresh=True),
    Row("mesa_channel", "mesa_channel", drawing(forget=vector_gates, weight=weights),
        attention.MesaChannelState, fixed=ridge, forget="forget", weight="weight", resets=False,
        smooth=(0, 2, 3)),
    Row("mesa_window", "mesa_window", drawing(forget=gates, weight=weights), fixed=ridge,
        options={"window": 5}, window=5, forget="forget", weight="weight"),
    Row("kalman", "kalman", drawing(forget=gates, weight=weights, mix=shares), Moments,
        options={"ratio": 0.1}, mine={"solver": Chebyshev(80)}, forget="forget", weight="weight"),
    Row("intention", "intention", drawing(weight=weights), Moments, fixed=ridge,
        mine={"segments": 7}, weight="weight", causal=False),
]  # fmt: skip


def arrays_of(row, t=T, seed=0):
    """All array arguments by name, and the tokens behind the initial state."""
    rng = np.random.default_rng([seed, t])
    fixed = row.fixed(np.random.default_rng(seed))
    prior = {n: a[:, :PRIOR] for n, a in row.draw(rng, T).items()}
    return {**row.draw(rng, t), **fixed}, {**prior, **fixed}


def timed(row, arrays):
    """Names of the arguments that have a time axis."""
    return [n for n in arrays if n not in row.fixed(np.random.default_rng(0))]


def window(row, arrays, *cut):
    """Tokens ``slice(*cut)`` of every argument that has a time axis."""
    names = timed(row, arrays)
    return {n: a[:, slice(*cut)] if n in names else a for n, a in arrays.items()}


def call(row, arrays, state=None, segment_ids=None, *, step=False):
    rule = getattr(attention, row.rule + "_step" if step else row.rule)
    given = {n: a for n, a in arrays.items() if n not in row.arrays and n not in row.packed}
    if row.packed:
        given["initial"] = tuple(arrays[n] for n in row.packed)
    superfluous = row.held if state is not None and segment_ids is None else ()
    rest = {n: a for n, a in given.items() if n not in superfluous}
    if segment_ids is not None:
        rest["segment_ids"] = segment_ids
    positional = [arrays[n] for n in row.arrays]
    known = signature(rule).parameters  # one token of mesa is solved directly: it has no solver
    mine = {n: x for n, x in row.mine.items() if n in known}
    return rule(*positional, **rest, **row.options, **mine, state=state)


def stream(row, arrays, b, h):
    """Return the oracle's arguments for stream b and head h."""
    names = timed(row, arrays)
    return {n: a[b, :, h] if n in names else a[h] for n, a in arrays.items()}


def exact(row, arrays, b, h, state=None, prior=None):
    """The oracle's outputs and state of stream b, head h; ``prior``: tokens before these."""
    one = stream(row, arrays, b, h)
    if row.packed:
        one["initial"] = tuple(one.pop(n) for n in row.packed)
    if prior is not None:
        before = stream(row, prior, b, h)
        names = timed(row, arrays)
        one = {n: np.concatenate([before[n], a]) if n in names else a for n, a in one.items()}
    go_on = {} if state is None else {"state": state}
    o, end = row.oracle(**one, **row.options, **go_on)
    return o[PRIOR if prior is not None else 0 :], end


def begin(row, prior, dtype=np.float64):
    """The state after the prior tokens: the oracle's, or the rule's where that is a store."""
    if row.state is None:
        return quick(lambda arrays: call(row, arrays)[1])(
            {n: a.astype(dtype) for n, a in prior.items()}
        )
    ends = [[exact(row, prior, b, h)[1] for h in range(H)] for b in range(B)]
    leaves = [np.array([[e[i] for e in line] for line in ends]) for i in range(len(ends[0][0]))]
    fields = zip(row.state._fields, leaves, strict=True)
    return row.state(*(a.astype(np.int32 if n == "position" else dtype) for n, a in fields))


def compared(row, state):
    """The fields that have one right answer, scaled memories multiplied out; () for a store."""
    if row.state is None:
        return ()
    if row.state is attention.MLSTMState:
        scale = jnp.exp(state.maximum)
        return state.matrix * scale[..., None, None], state.normaliser * scale[..., None]
    return tuple(state)


def error(got, want):
    """Largest error relative to the largest entry."""
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert got.shape == want.shape, (got.shape, want.shape)
    assert np.isfinite(got).all()
    return np.abs(got - want).max(initial=0) / max(np.abs(want).max(initial=0), 1e-300)

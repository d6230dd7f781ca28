"""The one table of attention rules: how to draw what each takes, and the oracle that knows better.

A batch holds four kinds of stream, so that one compilation meets all of them: plain ones, gates of
exactly 0 and 1, absent tokens and zero keys, and gates down to 1e-3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from olsq import Chebyshev, Moments, attention
from olsq.reference import attention as oracle
from olsq.reference import attention_solved as solved

T, H, K, V = 130, 2, 3, 2  # two chunks and two tokens; K != V
KINDS = ("plain", "hard gates", "absent tokens", "small gates")
B = len(KINDS)
LOST, RESET, ABSENT = 20, 40, 3  # a token to spoil, the gate of 0 after it, every which is absent
WIDTH = 4  # of keys and values where they must agree
PRIOR = 5  # tokens behind the initial state


@dataclass(frozen=True, eq=False)
class Row:
    """One rule: a new rule is one more row."""

    name: str
    rule: str
    draw: Callable[[np.random.Generator, int], dict[str, np.ndarray]]  # time arrays (B, t, H, ...)
    oracle: Callable[..., Any]  # one stream of one head
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
    window: int = T  # how many tokens are remembered
    causal: bool = True
    fresh: bool = False  # differentiated from no past: a state would leave arguments unused
    smooth: tuple[int, ...] = (0, 1, 2, 3)  # kinds of stream on which the oracle has derivatives

    def __str__(self):
        return self.name

    @property
    def samples(self):
        """Names of the arrays that are learnt from; the others are queries."""
        return tuple(n for n in self.arrays if n != "q")


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def qkv(rng, t):
    k = unit(rng.normal(size=(B, t, H, K)))
    k[2, ::4] = 0
    v = rng.normal(size=(B, t, H, V))
    return {"q": rng.normal(size=(B, t, H, K)), "k": k, "v": v}


def gates(rng, t, *dims):
    g = rng.uniform(0.6, 1, (B, t, H, *dims))
    g[1] = rng.choice([0, 1, 1, 0.9], g[1].shape)
    g[1, LOST - 1 : RESET] = 1
    g[1, RESET : RESET + 1] = 0
    g[2] = 0.99
    g[3] = 10 ** rng.uniform(-3, 0, g[3].shape)
    return g


def weights(rng, t, *dims):
    w = rng.uniform(0.2, 1, (B, t, H, *dims))
    w[2, 1::ABSENT] = 0
    return w


def log(x):
    with np.errstate(divide="ignore"):
        return np.log(x)


def drawing(base=qkv, **more):
    """A draw: ``base``, and what each of ``more`` makes of (rng, t)."""

    def draw(rng, t):
        return {**base(rng, t), **{n: f(rng, t) for n, f in more.items()}}

    return draw


def vector_gates(rng, t):
    return gates(rng, t, K)


def logs(f, scale=1.0):
    return lambda rng, t: scale * log(f(rng, t))


def large_logs(rng, t):
    """Log weights from -10 to 10: the running maximum moves in steps."""
    return log(weights(rng, t)) + rng.uniform(-10, 10, (B, t, H))


def mostly_positive(rng, t):
    """Keys and queries whose products add up: the normaliser has no cancellation to lose digits."""
    a = qkv(rng, t)
    return {"q": np.abs(a["q"]), "k": np.abs(a["k"]), "v": a["v"]}


def mild(rng, t):
    return rng.uniform(0.9, 1, (B, t, H))


def one_width(rng, t):
    """Values as wide as keys, wide enough for a layer normalisation to leave something."""
    return {n: rng.normal(size=(B, t, H, WIDTH)) for n in "qkv"}


def rates(rng, t):
    return 0.1 * weights(rng, t)


def channel_weights(rng, t):
    return weights(rng, t, V)


def shares(rng, t):
    return rng.uniform(size=(B, t, H))


def steps(rng, t):
    s = weights(rng, t, V)
    s[3] *= 20  # and so factors down to exp(-20 * exp(rate))
    return s


def sigmoids(rng, t):
    """Gates of the RG-LRU; those of 0 leave the hidden state as it is."""
    g = rng.uniform(0.1, 1, (B, t, H, V))
    g[1] = rng.choice([0, 1, 0.5], g[1].shape)
    g[3] = 10 ** rng.uniform(-3, 0, g[3].shape)
    return g


def inputs_only(rng, t):
    return {"x": rng.normal(size=(B, t, H, V))}


def network(rng):
    """Initial weights of a learner, and its layer normalisation."""
    return {
        "w1": rng.normal(size=(H, 2 * WIDTH, WIDTH)) / WIDTH**0.5,
        "b1": rng.normal(size=(H, 2 * WIDTH)) / WIDTH**0.5,
        "w2": rng.normal(size=(H, WIDTH, 2 * WIDTH)) / WIDTH**0.5,
        "b2": rng.normal(size=(H, WIDTH)) / WIDTH**0.5,
        **layer(rng),
    }


def layer(rng):
    return {
        "norm_scale": rng.uniform(0.5, 1, (H, WIDTH)),
        "norm_bias": 0.1 * rng.normal(size=(H, WIDTH)),
    }


def matrix(rng):
    """Initial weight and bias of a linear learner, and its layer normalisation."""
    return {"w": rng.normal(size=(H, WIDTH, WIDTH)), "b": rng.normal(size=(H, WIDTH)), **layer(rng)}


def ridge(rng):
    return {"ridge": rng.uniform(0.3, 1, (H, K))}


def queries_and_values(rng, t):
    a = qkv(rng, t)
    return {"q": a["q"], "v": a["v"]}


ROWS = [
    Row("linear", "linear", drawing(weight=weights), oracle.linear, attention.Memory,
        weight="weight"),
    Row("linear elu", "linear", drawing(weight=weights), oracle.linear, attention.Normalised,
        options={"feature_map": "elu", "normalise": True}, weight="weight"),
    Row("linear dpfp", "linear", drawing(), oracle.linear, attention.Normalised,
        options={"feature_map": "dpfp", "nu": 2, "normalise": True}),
    Row("retention", "retention", drawing(), oracle.retention, attention.Memory,
        fixed=lambda rng: {"forget": rng.uniform(0.8, 1, H)}),
    Row("mamba2", "mamba2", drawing(forget=gates), oracle.mamba2, attention.Memory,
        forget="forget"),
    Row("gla", "gla", drawing(log_forget=logs(gates), weight=weights), oracle.gla,
        attention.Memory, forget="log_forget", weight="weight"),
    Row("gla vector", "gla", drawing(forget=vector_gates, weight=weights), oracle.gla,
        attention.Memory, forget="forget", weight="weight"),
    Row("hgrn2", "hgrn2", drawing(queries_and_values, forget=vector_gates), oracle.hgrn2,
        attention.Memory, ("q", "v"), forget="forget"),
    Row("hgrn2 log", "hgrn2", drawing(queries_and_values, log_forget=logs(vector_gates)),
        oracle.hgrn2, attention.Memory, ("q", "v"), forget="log_forget"),
    Row("rwkv6", "rwkv6", drawing(forget=vector_gates), oracle.rwkv6, attention.Memory,
        fixed=lambda rng: {"bonus": rng.normal(size=(H, K))}, forget="forget", late=True),
    Row("mlstm", "mlstm", drawing(forget=gates, weight=weights), oracle.mlstm, attention.MLSTM,
        forget="forget", weight="weight"),
    Row("mlstm log", "mlstm", drawing(mostly_positive, forget=gates, log_weight=large_logs),
        oracle.mlstm, attention.MLSTM, forget="forget", weight="log_weight"),
    Row("delta", "delta", drawing(weight=weights), oracle.delta, attention.Memory,
        weight="weight"),
    Row("gated_delta", "gated_delta", drawing(forget=gates, weight=weights), oracle.gated_delta,
        attention.Memory, forget="forget", weight="weight"),
    Row("preconditioned_delta", "preconditioned_delta",
        drawing(forget=gates, weight=weights, curvature_forget=gates, curvature_weight=weights),
        oracle.preconditioned_delta, attention.Preconditioned, forget="forget", weight="weight",
        smooth=(0, 1, 3)),
    Row("longhorn", "longhorn", drawing(weight=weights), oracle.longhorn, attention.Memory,
        weight="weight"),
    Row("longhorn channels", "longhorn", drawing(weight=channel_weights), oracle.longhorn,
        attention.Memory, weight="weight"),
    Row("mamba", "mamba", drawing(step=steps), oracle.mamba, attention.Memory,
        fixed=lambda rng: {"rate": rng.normal(size=(H, V, K))}, weight="step"),
    Row("mamba skip", "mamba", drawing(step=steps), oracle.mamba, attention.Memory,
        fixed=lambda rng: {"rate": rng.normal(size=(H, V, K)), "skip": rng.normal(size=(H, V))}),
    Row("rg_lru", "rg_lru", drawing(inputs_only, input_gate=channel_weights,
        recurrence_gate=sigmoids), oracle.rg_lru, attention.Hidden, ("x",),
        fixed=lambda rng: {"rate": rng.uniform(-5, -1, (H, V))}, weight="input_gate",
        smooth=(0, 2, 3)),
    Row("ttt_linear", "ttt_linear", drawing(one_width, learning_rate=rates),
        solved.ttt_linear, attention.TTTLinear, fixed=matrix, packed=("w", "b"),
        options={"mini_batch": 4, "eps": 0.01}, weight="learning_rate"),
    Row("ttt_mlp", "ttt_mlp", drawing(one_width, learning_rate=rates), solved.ttt_mlp,
        attention.TTTMLP, fixed=network, packed=("w1", "b1", "w2", "b2"),
        options={"mini_batch": 4, "eps": 0.01}, weight="learning_rate", fresh=True),
    Row("softmax", "softmax", drawing(), solved.softmax, mine={"capacity": PRIOR + T}),
    Row("sliding_window", "sliding_window", drawing(), solved.sliding_window,
        options={"window": 5}, window=5),
    Row("mesa", "mesa", drawing(forget=gates, weight=weights), solved.mesa, Moments, fixed=ridge,
        forget="forget", weight="weight"),
    Row("mesa_discounted", "mesa_discounted", drawing(forget=mild, weight=weights),
        solved.mesa_discounted, Moments, fixed=ridge, held=("ridge",), weight="weight", fresh=True),
    Row("mesa_window", "mesa_window", drawing(forget=gates, weight=weights), solved.mesa_window,
        fixed=ridge, options={"window": 5}, window=5, forget="forget", weight="weight"),
    Row("kalman", "kalman", drawing(forget=gates, weight=weights, mix=shares), solved.kalman,
        Moments, options={"ratio": 0.1}, mine={"solver": Chebyshev(80)}, forget="forget",
        weight="weight"),
    Row("intention", "intention", drawing(weight=weights), solved.intention, Moments, fixed=ridge,
        mine={"segments": 7}, weight="weight", causal=False),
]  # fmt: skip


def quick(f):
    """``jax.jit``, compiled in a third of the time; compiling is most of what these tests do."""
    return jax.jit(f, compiler_options={"xla_cpu_use_fusion_emitters": False})


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
    return rule(*positional, **rest, **row.options, **row.mine, state=state)


def stream(row, arrays, b, h):
    """What the oracle gets of stream b and head h."""
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
        return call(row, {n: a.astype(dtype) for n, a in prior.items()})[1]
    ends = [[exact(row, prior, b, h)[1] for h in range(H)] for b in range(B)]
    leaves = [np.array([[e[i] for e in line] for line in ends]) for i in range(len(ends[0][0]))]
    fields = zip(row.state._fields, leaves, strict=True)
    return row.state(*(a.astype(np.int32 if n == "position" else dtype) for n, a in fields))


def compared(row, state):
    """The fields that have one right answer, scaled memories multiplied out; () for a store."""
    if row.state is None:
        return ()
    if row.state is attention.MLSTM:
        scale = jnp.exp(state.maximum)
        return state.memory * scale[..., None, None], state.normaliser * scale[..., None]
    return tuple(state)


def error(got, want):
    """Largest error relative to the largest entry."""
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert got.shape == want.shape, (got.shape, want.shape)
    assert np.isfinite(got).all()
    return np.abs(got - want).max(initial=0) / max(np.abs(want).max(initial=0), 1e-300)

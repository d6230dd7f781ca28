"""Every mixer: arithmetic, shapes, counts, causality, states, segments and gradients."""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn_cases import (
    DIM,
    ROWS,
    VARIANTS,
    B,
    case,
    draw,
    error,
    quick,
)
from nn_reference import (
    reference,
)

from olsq import nn
from olsq.attention.registry import RULES
from tests.tiers import LEADING, in_tiers, leading

pytestmark = pytest.mark.usefixtures("one_target")

every = pytest.mark.parametrize("row", ROWS, ids=str)
causal = leading([r for r in ROWS if r.causal])
# What a quick run has: a cache, memories, a channel's own recurrence, a solve.
FEW = {"softmax", "linear", "gla vector", "gated_delta", "hawk", "mesa"}
T, HALF = 17, 8
# Of each stream: first tokens of its three segments, of 1 and 8 tokens in either order, and 8.
STARTS = ((0, 1, 9), (0, 8, 9))
IDS = np.array([[0] + [2] * 8 + [3] * 8, [0] * 8 + [1] + [5] * 8], np.int32)
ROUNDING = 2e-5
# Mixers whose gates, moments or networks have gone wrong over long streams of half precision, one
# of each recurrence.
LONG = ("gla", "mlstm", "kda", "ttt_linear", "mesa")


@cache
def whole(row):
    """A stream and its outputs."""
    x = draw(B, T, DIM)
    return x, np.asarray(case(row)(x)[0])


@cache
def start_of(row):
    """The state before any token."""
    return case(row)(draw(B, 0, DIM))[1]


def test_the_table_is_complete():
    assert {row.mixer for row in ROWS} == set(nn.MIXERS)


def test_a_layer_computes_the_rule_that_names_it():
    for rule in RULES:
        for layer in rule.layers:
            kind = nn.MIXERS[layer.mixer]
            assert kind is getattr(nn, kind.__name__)
            # Hawk's recurrence is between its projections, and called by name.
            assert layer.mixer == "hawk" or kind.rule is rule.function


@leading(ROWS + VARIANTS, FEW, others=pytest.mark.full)
def test_it_is_the_arithmetic_of_the_papers(row):
    made = case(row)
    x = draw(B, T, DIM)
    y = whole(row)[1] if row in ROWS else made(x)[0]
    for b in range(B):
        want = reference(row, made.layer, x[b].astype(np.float64))
        assert error(y[b], want) < ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@every
def test_shapes_and_dtypes(row, dtype):
    layer = case(row).layer
    x = jax.ShapeDtypeStruct((B, T, DIM), dtype)
    for like in (x.update(shape=(B, 0, DIM)), x.update(shape=(0, T, DIM)), x):
        y, state = eqx.filter_eval_shape(lambda x: layer(x, state=None), like)
        assert (y.shape, y.dtype) == (like.shape, like.dtype)
        assert isinstance(state, nn.MixerState)
        # The batch comes first, so that rows can be taken.
        assert {s.shape[0] for s in jax.tree.leaves(state) if s.ndim} == {like.shape[0]}
    again = eqx.filter_eval_shape(layer, x)
    assert (again.shape, again.dtype) == (x.shape, x.dtype)
    numbers = [s for s in jax.tree.leaves(state.rule) if jnp.issubdtype(s.dtype, jnp.inexact)]
    assert {s.dtype for s in numbers} == {np.dtype(np.float32)}
    assert {a.dtype for a in jax.tree.leaves(eqx.filter(layer, eqx.is_array))} == {np.dtype("f4")}


@pytest.mark.full
@every
def test_what_it_counts(row):
    d, h, k, v = 20, 4, 6, 6 if row.packed else 10
    sizes = {} if row.mixer == "hawk" else {"key_size": k, "value_size": v}

    def make():
        return nn.mixer(row.mixer, d, heads=h, key=jax.random.key(0), **sizes, **row.options)

    assert nn.count_parameters(eqx.filter_eval_shape(make)) == row.count(d, h, k, v)


COMPARED = ("softmax", "sliding_window", "mamba2", "gla", "mlstm", "delta", "gated_delta", "mesa")


def test_the_compared_mixers_count_the_same():
    def size(name):
        def make():
            sizes = {} if name == "hawk" else {"key_size": 64}
            return nn.mixer(name, 256, heads=4, key=jax.random.key(0), **sizes)

        return nn.count_parameters(eqx.filter_eval_shape(make))

    mesa = size("mesa")
    for name in COMPARED:
        assert size(name) == pytest.approx(mesa, rel=0.02), name
    # Hawk's recurrence is 1.25 times as wide: more in the layer, 5 % in a block with its MLP.
    mlp = 9 * 256**2
    assert size("hawk") + mlp == pytest.approx(mesa + mlp, rel=0.05)


@in_tiers([r for r in ROWS if r.causal], FEW, LEADING)
def test_nothing_comes_from_the_future(row):
    x, y = whole(row)
    cut = 9
    for future in (draw(B, T - cut, DIM, seed=1), np.float32(np.nan)):
        other = x.copy()
        other[:, cut:] = future
        got = np.asarray(case(row)(other)[0])
        assert error(got[:, :cut], y[:, :cut]) < ROUNDING
    assert np.isnan(got[:, cut:]).all()


@pytest.mark.slow
@causal
def test_it_goes_on_from_its_state(row):
    x, y = whole(row)
    start = start_of(row)
    for cuts in ((8, 9), (1, 9), (8,), (1, 2, 3)):
        state, outputs, at = start, [], 0
        for stop in (*cuts, T):
            while at < stop:
                # All at once where a compiled length fits, else one token at a time.
                length = HALF if stop - at == HALF else 1
                o, state = case(row)(x[:, at : at + length], state)
                outputs.append(o)
                at += length
        assert error(np.concatenate(outputs, 1), y) < ROUNDING, cuts


@pytest.mark.slow
@causal
def test_decoding_is_compiled_once(row):
    x = draw(B, T, DIM)
    _, state = case(row)(x[:, :1], start_of(row))
    before = case(row).traces
    for t in range(1, 4):
        _, state = case(row)(x[:, t : t + 1], state)
    assert case(row).traces == before


def packed_apart(row, x, first):
    """Outputs and final states of the segments, each alone; ``first``: where the first begin."""
    start = start_of(row)
    pieces = [[], []]
    for b, (_, second, third) in enumerate(STARTS):
        for lo, hi in ((0, second), (second, third), (third, T)):
            line = np.broadcast_to(x[b, lo:hi], (B, hi - lo, DIM))
            o, state = case(row)(line, start if lo else first)
            pieces[b].append(np.asarray(o[b]))
        last = jax.tree.map(lambda a, b=b: a[b], state)
        pieces[b] = np.concatenate(pieces[b]), last
    outputs, states = zip(*pieces, strict=True)
    return np.stack(outputs), jax.tree.map(lambda *a: jnp.stack(a), *states)


@pytest.mark.slow
@causal
def test_packed_segments_are_sequences_of_their_own(row):
    x, y = whole(row)
    start = start_of(row)
    together = case(row)(x, start, np.full((B, T), 7, np.int32))[0]
    assert error(together, y) < ROUNDING
    past = case(row)(draw(B, HALF, DIM, seed=3), start)[1]
    following = draw(B, 1, DIM, seed=4)
    for before in (start, past):  # what a state remembers belongs to the first segment
        got, end = case(row)(x, before, IDS)
        want, last = packed_apart(row, x, before)
        assert error(got, want) < ROUNDING
        o, apart = (case(row)(following, state)[0] for state in (end, last))
        assert error(o, apart) < ROUNDING


def test_packed_segments_of_a_layer_that_sees_the_future():
    row = next(r for r in ROWS if not r.causal)
    x = draw(B, T, DIM)
    got = np.asarray(case(row)(x, None, IDS)[0])
    for b, (_, second, third) in enumerate(STARTS):
        for lo, hi in ((0, second), (second, third), (third, T)):
            want = reference(row, case(row).layer, x[b, lo:hi].astype(np.float64))
            assert error(got[b, lo:hi], want) < ROUNDING
    one = np.asarray(case(row)(x, None, np.zeros_like(IDS))[0])
    for b in range(B):
        want = reference(row, case(row).layer, x[b].astype(np.float64))
        assert error(one[b], want) < ROUNDING


@pytest.mark.slow
@leading(ROWS, LONG)
def test_gradients_of_long_bfloat16_streams(row):
    """Gradients of one repeated token and of random tokens are finite; the latter nowhere zero."""
    made = case(row)
    long = draw(B, 300, DIM)
    long[0] = long[0, :1]
    aim = draw(B, 300, DIM, seed=5)

    def loss(arrays, x, share):
        y = eqx.combine(arrays, made.static)(x.astype(jnp.bfloat16)).astype(jnp.float32)
        return jnp.sum(share[:, None, None] * aim * y), y

    derive = quick(jax.grad(loss, has_aux=True))
    for share in np.eye(B, dtype=np.float32):
        gradient, y = derive(made.arrays, long, share)
        assert np.isfinite(y).all()
        for path, leaf in jax.tree.leaves_with_path(gradient):
            assert np.isfinite(leaf).all(), jax.tree_util.keystr(path)
            assert share[0] or np.any(leaf != 0), jax.tree_util.keystr(path)


@pytest.mark.full
def test_the_factor_of_a_ttt_query_is_learned_and_goes_on_from_a_state():
    layer = nn.TTTLinear(8, heads=2, mini_batch=3, query_factor=True, key=jax.random.key(0))
    np.testing.assert_allclose(layer.query_factor(), [1, 1 / 2, 1 / 3], rtol=1e-6)
    x = jax.random.normal(jax.random.key(1), (1, 7, 8))

    @quick
    def whole_and_parts(x):
        first, state = layer(x[:, :4], state=None)
        return layer(x), jnp.concatenate([first, layer(x[:, 4:], state=state)[0]], 1)

    whole, parts = whole_and_parts(x)
    np.testing.assert_allclose(parts, whole, atol=2e-6)
    low = eqx.tree_at(lambda m: m.offset, layer, jnp.array([-2.0, 0.0, 0.0]))
    np.testing.assert_allclose(low.query_factor(), [0, 1 / 2, 1 / 3], rtol=1e-6)
    slope = eqx.filter_jit(eqx.filter_grad(lambda m: (m(x) ** 2).sum()))(layer)
    assert (np.abs(slope.offset) > 0).all()
    assert nn.TTTLinear(8, heads=2, key=jax.random.key(0)).offset is None


def with_repeated_keys(layer, whole):
    """The weights of ``layer``, which has fewer key heads, in a layer with one for each head."""
    sharing = layer.heads // layer.key_heads

    def repeated(x, sizes):
        blocks = [y.reshape(*y.shape[:-1], layer.key_heads, -1).repeat(sharing, -2)
                  for y in np.split(np.asarray(x), np.cumsum(sizes)[:-1], -1)]  # fmt: skip
        return jnp.concatenate([y.reshape(*y.shape[:-2], -1) for y in blocks], -1)

    def turned(path, mine, other):
        name = jax.tree_util.keystr(path)
        if mine.shape == other.shape:
            return mine
        if "query_proj" in name or "key_proj" in name:
            return repeated(mine, [mine.shape[-1]])
        assert "convolution" in name, name
        widths = [getattr(layer, f"{n}_proj").weight.shape[-1] for n in layer.convolved]
        kept = sum(widths[:2])
        keys = repeated(mine[..., :kept], widths[:2])
        return jnp.concatenate([keys, mine[..., kept:]], -1)

    other, static = eqx.partition(whole, eqx.is_array)
    pairs = jax.tree_util.tree_leaves_with_path(eqx.filter(layer, eqx.is_array))
    leaves, shape = jax.tree.flatten(other)
    leaves = [turned(path, x, like) for (path, x), like in zip(pairs, leaves, strict=True)]
    return eqx.combine(jax.tree.unflatten(shape, leaves), static)


@pytest.mark.full
@leading([r for r in (*ROWS, VARIANTS[-2], VARIANTS[4]) if r.mixer != "hawk"], {"gated_delta"})
def test_heads_share_keys(row):
    """As many values as heads, fewer keys: the layer with each key repeated, and its states."""
    options = {"heads": 4, "convolve_values": row.mixer == "gated_delta", **row.options}
    made = [
        nn.mixer(row.mixer, DIM, key_size=4, key_heads=n, key=jax.random.key(3), **options)
        for n in (2, 4)
    ]
    layers = made[0], with_repeated_keys(*made)
    assert made[0].key_proj.weight.shape[-1] * 2 == made[1].key_proj.weight.shape[-1]
    x = draw(1, 9, DIM)

    @quick
    def run(x):
        """Outputs and states of both layers, of the first in two parts where it can go on."""
        first, state = layers[0](x[:, :cut], state=None, capacity=9)
        if row.causal:
            last, state = layers[0](x[:, cut:], state=state)
            first = jnp.concatenate([first, last], 1)
        return (first, state), layers[1](x, state=None, capacity=9)

    cut = 8 if row.causal else 9

    (y, state), (want, theirs) = run(x)
    assert error(y, want) < ROUNDING
    for a, b in zip(jax.tree.leaves(state.rule), jax.tree.leaves(theirs.rule), strict=True):
        assert error(a, b) < 1e-4 or np.allclose(a, b, atol=1e-5)


def test_key_heads_divide_heads():
    for wrong in (3, 8):
        with pytest.raises(ValueError, match=f"key_heads must divide the 4 heads, got {wrong}"):
            nn.mixer("gla", DIM, heads=4, key_size=4, key_heads=wrong, key=jax.random.key(0))
    with pytest.raises(ValueError, match="key_heads must be an integer >= 1"):
        nn.mixer("gla", DIM, heads=4, key_size=4, key_heads=0, key=jax.random.key(0))

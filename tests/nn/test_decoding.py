"""States that go on: turns, pieces, several lengths, drafts and back, caches that grow."""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import numpy as np
import pytest
from nn_cases import (
    error,
    quick,
)

import olsq
from olsq import nn
from olsq.nn.decoding import _piece_sizes

pytestmark = pytest.mark.usefixtures("one_target")

# One of each kind of state: moments and a factor, a cache that grows and one that does not, a
# matrix with a convolution before it, a network that learns by mini-batches, a key made of the
# token before.
MIXERS = ("mesa", "softmax", "sliding_window", "mamba", "ttt_linear", "delta")
OPTIONS = {
    "sliding_window": {"window": 3}, "ttt_linear": {"mini_batch": 4}, "delta": {"key_shift": True},
}  # fmt: skip
NEWEST = ("forgetting", "gated_delta", "rwkv6", "kda"), ("rwkv7", "comba", "gsa", "local_linear")
NEWEST += (("gated_delta_product", "log_linear_mamba2", "mamba3", "parallax"),)
VOCABULARY, B, T, ROOM = 13, 3, 12, 20
ROUNDING = 5e-5


def louder(model):
    """The same model with mixers that matter: else tied embeddings say what they were told."""
    where = lambda m: [b.mixer.output_proj.weight for b in m.backbone.blocks]  # noqa: E731
    return eqx.tree_at(where, model, [4 * w for w in where(model)])


@cache
def every(mixers=MIXERS):
    """The model of all kinds, with its whole forward and its methods, compiled."""
    options = {name: of for name, of in OPTIONS.items() if name in mixers}
    model = louder(
        nn.LanguageModel(
            VOCABULARY, dim=8, blocks=len(mixers), heads=2, mixer=mixers, mixer_options=options,
            mlp_ratio=0, key=jax.random.key(0),
        )
    )  # fmt: skip
    return {
        "model": model,
        "forward": quick(lambda t: model(t)),
        "first": quick(lambda t, n: model.prefill(t, lengths=n, capacity=ROOM)),
        "more": quick(lambda t, n, s: model.prefill(t, state=s, lengths=n, capacity=ROOM)),
        "draft": quick(lambda t, s: model(t, state=s)),
        "step": quick(model.step),
    }


def lines(*parts):
    """Whole lines (B, T) of which row b is parts[0][b] + parts[1][b] + ..., padded with 0."""
    rows = [[token for part in parts for token in part[b]] for b in range(B)]
    return np.array([row + [0] * (T - len(row)) for row in rows], np.int32)


def padded(rows, width):
    """Tokens (B, width), padded with a token that would be noticed, and lengths."""
    out = np.full((len(rows), width), 7, np.int32)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out, np.array([len(row) for row in rows], np.int32)


FIRST = [[3, 1, 4, 1, 5], [9], [2, 6]]
# One row takes the first piece and another the second: caches keep what each was told.
SECOND = [[], [5], [9, 7]]
DRAFT = [[1, 2, 3], [4, 3, 2], [11, 12, 0]]


def at(logits, *parts):
    """Logits (B, V) after the last token of the lines of these parts."""
    ends = np.sum([[len(row) for row in part] for part in parts], 0) - 1
    return np.asarray(logits)[np.arange(B), ends]


@pytest.mark.slow
@pytest.mark.parametrize(
    "mixers",
    [pytest.param(MIXERS, id="kinds"), *(pytest.param(some, id=some[0]) for some in NEWEST)],
)
def test_turns_of_several_lengths_are_the_whole(mixers):
    run = every(mixers)
    whole = run["forward"](lines(FIRST, SECOND, DRAFT))
    first, state = run["first"](*padded(FIRST, 5))
    assert error(first, at(whole, FIRST)) < ROUNDING
    rows, tokens = np.array([2, 0, 0]), np.array([2, 0, 1])
    got, _ = run["step"](tokens[rows], nn.take_rows(state, rows))
    assert error(got, np.asarray(run["step"](tokens, state)[0])[rows]) < ROUNDING
    softmax = mixers[0] == "mesa"  # the second block's, with rotary positions that go on
    if softmax:
        np.testing.assert_array_equal(state[1].convolution[0], [5, 1, 2])
    second, state = run["more"](*padded(SECOND, 3), state)
    assert np.isnan(second[0]).all()  # it was told nothing
    assert error(second[1:], at(whole, FIRST, SECOND)[1:]) < ROUNDING
    if softmax:
        np.testing.assert_array_equal(state[1].convolution[0], [5, 2, 4])
        assert isinstance(state[0].rule, olsq.sequence.DecodeState)
    for t in range(3):
        spoken = [row[: t + 1] for row in DRAFT]
        logits, state = run["step"](np.array([row[t] for row in DRAFT]), state)
        assert error(logits, at(whole, FIRST, SECOND, spoken)) < ROUNDING


@pytest.mark.slow
def test_a_draft_is_verified_at_once_and_taken_back():
    run = every()
    whole = run["forward"](lines(FIRST, DRAFT))
    _, before = run["first"](*padded(FIRST, 5))
    logits, _ = run["draft"](np.array(DRAFT), before)  # on a state made for decoding
    for t in range(3):
        assert error(logits[:, t], at(whole, FIRST, [row[: t + 1] for row in DRAFT])) < ROUNDING
    accepted = [row[:n] for row, n in zip(DRAFT, [2, 0, 1], strict=True)]
    _, state = run["more"](np.array(DRAFT), np.array([2, 0, 1]), before)
    other = [[6], [0], [10]]
    got, _ = run["step"](np.array([6, 0, 10]), state)
    want = run["forward"](lines(FIRST, accepted, other))
    assert error(got, at(want, FIRST, accepted, other)) < ROUNDING


def test_lengths_that_can_be_seen_cost_no_more_pieces_than_needed():
    for t, lengths in ((9, None), (9, [9, 3, 1]), (6, [0, 6, 5]), (4, [4, 4, 4]), (4, [0, 0, 0])):
        given = None if lengths is None else np.array(lengths)
        sizes = list(_piece_sizes(t, given))
        for length in range(t + 1) if lengths is None else lengths:
            left = length
            for size in sizes:
                left -= size if size <= left else 0
            assert left == 0, (t, lengths, length)
        assert sum(sizes) < 2 * t
    assert list(_piece_sizes(4, np.array([4, 4, 4]))) == [4]


@cache
def growing():
    return louder(
        nn.LanguageModel(
            VOCABULARY, dim=8, blocks=1, heads=2, mixer="softmax", mlp_ratio=0,
            key=jax.random.key(1),
        )
    )  # fmt: skip


@pytest.mark.full
def test_caches_grow_outside_jit_and_say_how_inside():
    model = growing()
    tokens = np.array([[1, 2, 3, 4, 5]])
    want = np.asarray(quick(lambda t: model(t))(tokens))[0]
    _, state = jax.jit(model.prefill)(tokens[:, :2])
    assert state[0].rule.present.shape[2] == 2
    logits, state = model.step(tokens[:, 2], state)
    assert error(logits[0], want[2]) < ROUNDING
    assert state[0].rule.present.shape[2] == 4  # twice as much, so that few steps compile
    # Plain jit takes the method; there is room for one more.
    step = jax.jit(model.step)
    logits, state = step(tokens[:, 3], state)
    assert error(logits[0], want[3]) < ROUNDING
    assert np.isnan(step(tokens[:, 4], state)[0]).all()
    assert step._cache_size() == 1
    logits, _ = step(tokens[:, 4], model.backbone.reserve(state, 1))
    assert error(logits[0], want[4]) < ROUNDING
    with pytest.raises(ValueError, match="capacity must be at least 8, the tokens before"):
        model.prefill(tokens[:, :4], state=state, capacity=7)
    with pytest.raises(ValueError, match=r"capacity is needed under jax.jit.*give capacity="):
        jax.eval_shape(lambda s: model.prefill(tokens[:, :2], state=s), state)
    with pytest.raises(ValueError, match=r"room for 4 tokens and is to take 5 .*capacity="):
        jax.eval_shape(lambda s: model(tokens, state=s), state)


@pytest.mark.full
def test_rows_of_a_state_are_taken():
    _, state = quick(growing().prefill)(np.array([[1, 2], [3, 4]]))
    taken = nn.take_rows(state, [1, 0, 1])
    for some, every in zip(jax.tree.leaves(taken), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(some, np.asarray(every)[[1, 0, 1]] if every.ndim else every)
    with pytest.raises(ValueError, match=r"rows must be integers \(n,\), got float32 \(1,\)"):
        nn.take_rows(state, [0.5])


def test_what_is_refused():
    model = growing()
    tokens = np.ones((2, 3), int)
    state = jax.eval_shape(lambda: model.prefill(tokens)[1])
    for given, options, message in (
        (tokens, {"lengths": [4, 1]}, r"lengths must lie in \[1, 3\], got 4 at row 0"),
        (tokens, {"lengths": [1, 0]}, r"got 0 at row 1 \(0 needs a state\)"),
        (tokens, {"lengths": [1]}, r"lengths must be integers of shape \(2,\), one per prompt"),
        (tokens, {"lengths": [1.0, 2.0]}, r"lengths must be integers .* got float32"),
        (tokens, {"lengths": [1, 2], "segment_ids": tokens}, "give lengths or segment_ids"),
        ([[1], [2, 3]], {"lengths": [1, 2]}, "lengths must be left out where"),
        ([[1], []], {}, r"got 0 at row 1"),
        ([[1], [2, VOCABULARY]], {}, r"tokens must lie in \[0, 13\)"),
        ([[1], [2.5, 3]], {}, "tokens must be integers"),
        ([1, 2], {}, r"tokens\[None\]"),
        (tokens, {"capacity": 2.5}, "capacity must be a whole number"),
        (tokens, {"capacity": 2}, "capacity must be at least the length 3"),
        (tokens, {"state": state[0]}, "state must be a tuple of 1 MixerState"),
        (tokens[:1], {"state": state}, "state has a batch of 2 rows, but the input has 1"),
    ):
        with pytest.raises(ValueError, match=message):
            model.prefill(given, **options)
    for token in (3, [[1]], [1.5]):
        with pytest.raises(ValueError, match=r"token must be integers of shape \(batch,\)"):
            model.step(np.array(token), state)

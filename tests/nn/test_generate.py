"""Sampling: what is drawn, from which tokens, and what is refused."""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn_cases import (
    quick,
)
from nn_reference import (
    f64,
)

from olsq import nn
from olsq.nn.sampling import truncate

pytestmark = pytest.mark.usefixtures("one_target")

VOCABULARY, STEPS = 11, 6
KEY = jax.random.key(5)


@cache
def small(*mixer):
    """A model, and its logits of any six tokens."""
    model = nn.LanguageModel(
        VOCABULARY, dim=8, blocks=len(mixer), heads=2, mixer=mixer, key=jax.random.key(0)
    )
    # Louder than it starts: else tied embeddings have every token followed by itself.
    mixers = [block.mixer.output_proj.weight for block in model.backbone.blocks]
    model = eqx.tree_at(
        lambda m: [b.mixer.output_proj.weight for b in m.backbone.blocks],
        model,
        [4 * w for w in mixers],
    )
    return model, quick(lambda tokens: model(tokens))


def argmaxes(forward, prompt):
    """Greedy decoding by the whole forward, over and over, of one padded length."""
    length = prompt.shape[1]
    line = np.concatenate([prompt, np.zeros((len(prompt), STEPS), np.int32)], 1)
    for t in range(length, length + STEPS):
        line[:, t] = np.asarray(forward(line))[:, t - 1].argmax(-1)
    return line[:, length:]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mixer", "length"),
    [(("mesa",), 1), (("softmax", "hawk"), 3), (("softmax",), 1), (("sliding_window",), 3)],
    ids=str,
)
def test_greedy_decoding_is_that_of_the_whole_forward(mixer, length):
    model, forward = small(*mixer)
    prompt = np.random.default_rng(1).integers(0, VOCABULARY, (2, length), np.int32)
    got = model.generate(prompt, STEPS, temperature=0)
    assert (got.shape, got.dtype) == ((2, STEPS), np.int32)
    want = argmaxes(forward, prompt)
    np.testing.assert_array_equal(got, want)
    assert len(np.unique(np.concatenate([prompt[:, -1:], want], 1))) > 2


@pytest.mark.full
def test_the_likeliest_of_one_is_greedy():
    model, _ = small("hawk")
    prompt = np.array([[3, 1], [7, 7]])
    greedy = nn.generate(model, prompt, STEPS, temperature=0)
    for options in ({"top_k": 1, "top_p": 1e-6}, {"temperature": 1e-6}):
        sampled = nn.generate(model, prompt, STEPS, key=KEY, **options)
        np.testing.assert_array_equal(sampled, greedy)


@pytest.mark.full
def test_a_key_decides():
    model, _ = small("hawk")
    prompt = np.zeros((40, 1), np.int32)
    first = nn.generate(model, prompt, STEPS, key=KEY)
    np.testing.assert_array_equal(nn.generate(model, prompt, STEPS, key=KEY), first)
    assert not np.array_equal(nn.generate(model, prompt, STEPS, key=jax.random.key(6)), first)
    assert len(np.unique(first, axis=0)) > 20  # rows are drawn on their own
    assert (first >= 0).all()
    assert (first < VOCABULARY).all()
    one = nn.generate(model, prompt, 1, key=KEY)
    assert one.shape == (40, 1)


@pytest.mark.full
@pytest.mark.parametrize(
    "options", [{}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.7, "temperature": 1.5}], ids=str
)
def test_tokens_are_drawn_as_often_as_they_are_likely(options):
    model, forward = small("hawk")
    n = 4000
    logits = f64(forward(np.array([[2, 5]]))[0, -1]) / options.get("temperature", 1.0)
    p = shares(kept(logits, *(options.get(name) for name in ("top_k", "top_p", "min_p"))))
    drawn = nn.generate(model, np.tile([[2, 5]], (n, 1)), 1, key=KEY, **options)
    often = np.bincount(np.asarray(drawn)[:, 0], minlength=VOCABULARY) / n
    assert (often[p == 0] == 0).all()
    assert (np.abs(often - p) < 4.5 * np.sqrt(p * (1 - p) / n) + 1e-9).all()


def shares(logits):
    p = np.exp(logits - logits.max())
    return p / p.sum()


def kept(logits, top_k, top_p, min_p=None):
    """The definition, one token after the other from the likeliest on."""
    order = sorted(range(len(logits)), key=lambda i: -logits[i])
    if top_k is not None:
        order = order[:top_k]
    p = shares(np.array([logits[i] for i in order], float))
    chosen = []
    for n, i in enumerate(order):
        left_out = p[n:].sum()  # if this token and all after it are
        unlikely = min_p is not None and p[n] < min_p * p[0]
        if (top_p is None or left_out > 1 - top_p) and not unlikely:
            chosen.append(i)
    return np.array([logits[i] if i in chosen else -np.inf for i in range(len(logits))])


@pytest.mark.slow
@pytest.mark.parametrize("top_p", [None, 1e-9, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("top_k", [None, 1, 4, 17])
def test_truncation_is_its_definition(top_k, top_p):
    logits = (3 * np.random.default_rng(2).normal(size=(50, 17))).astype(np.float32)
    got = truncate(jnp.asarray(logits), top_k, top_p)
    np.testing.assert_array_equal(got, [kept(row, top_k, top_p) for row in logits])
    got = truncate(jnp.asarray(logits), top_k, top_p, 0.07)
    np.testing.assert_array_equal(got, [kept(row, top_k, top_p, 0.07) for row in logits])


def test_truncation_keeps_the_likeliest_whatever_the_logits():
    even = quick(lambda x: truncate(x, None, 0.5))(jnp.zeros((1, 4)))
    assert np.isfinite(even).sum() == 2
    sharp = quick(lambda x: truncate(x, 2, 0.999))(jnp.array([[0.0, 1000.0, -1000.0]]))
    np.testing.assert_array_equal(sharp, [[-np.inf, 1000.0, -np.inf]])


RAGGED, WIDTH = [[3, 1, 4, 1], [9], [2, 6]], 18


def greedy(forward, prompts, penalty=1.0):
    """Greedy decoding of prompts of several lengths by the whole forward."""
    lines = np.zeros((len(prompts), WIDTH), np.int32)
    ends = np.array([len(prompt) for prompt in prompts])
    for line, prompt in zip(lines, prompts, strict=True):
        line[: len(prompt)] = prompt
    for _ in range(STEPS):
        logits = np.array(forward(lines))[np.arange(len(lines)), ends - 1]
        for row, line, end in zip(logits, lines, ends, strict=True):
            said = np.unique(line[:end])
            row[said] = np.where(row[said] > 0, row[said] / penalty, row[said] * penalty)
        lines[np.arange(len(lines)), ends] = logits.argmax(-1)
        ends += 1
    return np.array([line[end - STEPS : end] for line, end in zip(lines, ends, strict=True)])


@pytest.mark.full
def test_prompts_of_several_lengths_go_on_as_each_alone():
    model, forward = small("softmax")
    want = greedy(forward, RAGGED)
    assert len(np.unique(want)) > 2
    found, state = model.generate(RAGGED, STEPS, temperature=0, return_state=True)
    np.testing.assert_array_equal(found, want)
    array = np.array([row + [5] * (4 - len(row)) for row in RAGGED], np.int64)
    again = model.generate(array, np.int64(STEPS), lengths=np.array([4, 1, 2]), temperature=0)
    np.testing.assert_array_equal(again, want)
    # A second turn, from the state after all of that.
    turn = [[7], [8, 2], [1]]
    more = model.generate(turn, STEPS, temperature=0, state=state)
    said = [[*a, *b, *c] for a, b, c in zip(RAGGED, want.tolist(), turn, strict=True)]
    np.testing.assert_array_equal(more, greedy(forward, said))


def test_a_row_ends_where_it_is_told_to_and_its_state_too():
    model, forward = small("softmax")
    want = greedy(forward, RAGGED)
    token, pair = int(want[0, 1]), [int(t) for t in want[1, 1:3]]
    ends = [end_of(row, token, pair) for row in want]
    assert len(set(ends)) > 1
    cut = want.copy()
    for row, end in zip(cut, ends, strict=True):
        row[end:] = -1
    options = {"temperature": 0, "stop": [np.int64(token), pair]}
    found, state = model.generate(RAGGED, STEPS, return_state=True, **options)
    np.testing.assert_array_equal(found, cut)
    stream = model.generate(RAGGED, STEPS, stream=True, **options)
    pieces = list(stream)
    np.testing.assert_array_equal(np.stack(pieces, 1), cut[:, : max(ends)])
    assert {piece.dtype for piece in pieces} == {np.dtype(np.int32)}
    said = [prompt + row[row >= 0].tolist() for prompt, row in zip(RAGGED, cut, strict=True)]
    line = np.array([[*row, 10, *[0] * (WIDTH - 1 - len(row))] for row in said])
    truth = np.asarray(forward(line))[np.arange(3), [len(row) for row in said]]
    for after in (state, stream.state):
        logits, _ = quick(model.step)(np.full(3, 10), after)
        np.testing.assert_allclose(logits, truth, atol=1e-4)


def end_of(row, token, pair):
    """Tokens of a row up to the first that stops it."""
    for t in range(STEPS):
        if row[t] == token or (t > 0 and list(row[t - 1 : t + 1]) == pair):
            return t + 1
    return STEPS


@pytest.mark.full
def test_streams_and_samples_draw_the_same():
    model, _ = small("hawk")
    options = {
        "key": 3, "temperature": 1.3, "top_k": 8, "top_p": 0.9, "min_p": 0.01,
        "repetition_penalty": 1.2, "num_samples": 2,
    }  # fmt: skip
    whole = model.generate(RAGGED, STEPS, **options)
    assert whole.shape == (3, 2, STEPS)
    assert len(np.unique(np.asarray(whole).reshape(6, -1), axis=0)) > 4
    pieces = model.generate(RAGGED, STEPS, stream=True, **options)
    np.testing.assert_array_equal(np.stack(list(pieces), -1), whole)
    for key in (np.int64(3), jax.random.key(3), jax.random.PRNGKey(3)):
        same = model.generate(RAGGED, STEPS, **{**options, "key": key})
        np.testing.assert_array_equal(same, whole)
    # With a key each, what a prompt draws is its own: in another order, the same.
    keys = jax.random.split(KEY, 3)
    first = model.generate(RAGGED, STEPS, **{**options, "key": keys})
    other = model.generate([RAGGED[2], RAGGED[0], RAGGED[1]], STEPS,
                           **{**options, "key": keys[np.array([2, 0, 1])]})  # fmt: skip
    np.testing.assert_array_equal(other, first[np.array([2, 0, 1])])


def test_a_penalty_is_its_definition():
    model, forward = small("softmax")
    want = greedy(forward, RAGGED, 1.5)
    assert not np.array_equal(want, greedy(forward, RAGGED))
    found = model.generate(RAGGED, STEPS, temperature=0, repetition_penalty=1.5)
    np.testing.assert_array_equal(found, want)


def test_states_have_the_size_of_one_token():
    model, _ = small("hawk")
    one, many = (
        eqx.filter_eval_shape(lambda t=t: model.prefill(np.zeros((1, t), int)))[1] for t in (1, 500)
    )
    assert jax.tree.leaves(one) == jax.tree.leaves(many)


def test_what_is_refused():
    model, _ = small("hawk")
    prompt = np.array([[1, 2]])
    for options, message in (
        ({}, "key is needed to sample \\(a seed will do\\)"),
        ({"steps": 2.5}, "steps must be a whole number, got 2.5"),
        ({"min_p": -0.1, "key": KEY}, r"min_p must lie in \[0, 1\], got -0.1"),
        ({"repetition_penalty": 0.0, "key": KEY}, "repetition_penalty must be a positive number"),
        ({"num_samples": 0, "key": KEY}, "num_samples must be at least 1, got 0"),
        ({"stop": VOCABULARY, "key": KEY}, r"stop must lie in \[0, 11\), got 11"),
        ({"stop": [[3, -1]], "key": KEY}, r"stop must lie in \[0, 11\), got -1"),
        ({"stop": "x", "key": KEY}, "stop must be a token, or a list of tokens or sequences"),
        ({"stop": [[]], "key": KEY}, "stop: a sequence must hold at least one token"),
        ({"stop": [1.5], "key": KEY}, "stop: a sequence must hold at least one token"),
        ({"key": "3"}, "key must be a jax.random.key, one per prompt, or a seed, got '3'"),
        ({"key": 1.5}, "key must be a jax.random.key, one per prompt, or a seed, got 1.5"),
        ({"key": jax.random.split(KEY, 2)}, r"key must be one key, or 1, one per prompt"),
        ({"lengths": [0], "key": KEY}, r"lengths must lie in \[1, 2\], got 0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"temperature": -1.0}, "temperature must be finite and >= 0"),
        ({"temperature": float("nan")}, "temperature must be finite and >= 0"),
        ({"top_k": 0, "key": KEY}, r"top_k must lie in \[1, 11\], got 0"),
        ({"top_k": 12, "key": KEY}, r"top_k must lie in \[1, 11\], got 12"),
        ({"top_p": np.array([0.5]), "key": KEY}, "top_p must be one number"),
        ({"top_p": 0.0, "key": KEY}, r"top_p must lie in \(0, 1\]"),
        ({"top_p": 1.1, "key": KEY}, r"top_p must lie in \(0, 1\]"),
    ):
        steps = options.pop("steps", 3)
        with pytest.raises(ValueError, match=message):
            nn.generate(model, prompt, steps, **options)
    for tokens, message in (
        ([1, 2], "tokens must be integers of shape"),
        ([[1.0, 2.0]], "tokens must be integers of shape"),
        ([[1, VOCABULARY]], r"tokens must lie in \[0, 11\)"),
        ([[-1, 2]], r"tokens must lie in \[0, 11\)"),
        (np.zeros((1, 0), int), "at least one token"),
    ):
        with pytest.raises(ValueError, match=message):
            nn.generate(model, np.array(tokens), 3, key=KEY)

"""Tokenizers give back the same bytes, whatever the bytes."""

import itertools
import sys
import time

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from olsq.datasets import austen
from olsq.train import (
    BytePairTokenizer,
    ByteTokenizer,
    HuggingFaceTokenizer,
    make_tokenizer,
    tokenizer_from_dict,
)

TEXT = austen()[:100_000]
PAIRS = BytePairTokenizer.train(TEXT, 400)
AWKWARD = [
    b"", b"\x00", b"\xff\xfe", b" ", b"\n\n\n", b"a" * 1000, b" \t\n x  y ",
    "naïve 東京 🙂".encode(), b"\r\n12,345.67\r\n",
]  # fmt: skip


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), PAIRS], ids=lambda t: t.name)
@pytest.mark.parametrize("content", AWKWARD)
def test_round_trip_of_awkward_bytes(tokenizer, content):
    tokens = tokenizer.encode(content)
    assert tokens.dtype == np.int32
    assert tokenizer.decode_bytes(tokens) == content


@given(st.binary(max_size=200))
def test_round_trip_of_any_bytes(content):
    assert PAIRS.decode_bytes(PAIRS.encode(content)) == content


@given(st.text(max_size=100))
def test_round_trip_of_any_text(text):
    text = text.encode("utf-8", "ignore").decode()
    assert PAIRS.decode(PAIRS.encode(text)) == text


def test_saved_tokenizer_is_the_same():
    for tokenizer in (ByteTokenizer(), PAIRS):
        again = tokenizer_from_dict(tokenizer.to_dict())
        assert again.vocab_size == tokenizer.vocab_size
        np.testing.assert_array_equal(again.encode(TEXT), tokenizer.encode(TEXT))
    with pytest.raises(ValueError, match="unknown kind of tokenizer: 'words'"):
        tokenizer_from_dict({"kind": "words"})


def test_pairs_shorten_the_text_and_are_deterministic():
    assert PAIRS.vocab_size == 400
    assert len(PAIRS.encode(TEXT)) < 0.55 * len(TEXT)
    assert BytePairTokenizer.train(TEXT, 400).merges == PAIRS.merges


def test_merges_equal_those_of_the_definition():
    """The heap finds what counting all pairs again after each merge finds."""
    words = ["low", "lower", "newest", "widest", "aaaa", "abab"]
    text = " ".join(w for i, w in enumerate(words) for _ in range(i + 2))
    found = BytePairTokenizer.train(text, 276).merges
    split = [list(piece) for piece in _pieces(text)]
    for i, pair in enumerate(found):
        counts = {}
        for tokens in split:
            for p in itertools.pairwise(tokens):
                counts[p] = counts.get(p, 0) + 1
        assert pair == min(counts, key=lambda p: (-counts[p], p))
        split = [_join(tokens, pair, 256 + i) for tokens in split]


def _pieces(text):
    return [(" " * (i > 0) + word).encode() for i, word in enumerate(text.split(" "))]


def _join(tokens, pair, new):
    i, joined = 0, []
    while i < len(tokens):
        both = tuple(tokens[i : i + 2]) == pair
        joined.append(new if both else tokens[i])
        i += 1 + both
    return joined


@pytest.mark.full
def test_a_megabyte_is_quick_even_without_spaces():
    start = time.perf_counter()
    for text in (austen(), b"a" * 1_000_000, bytes(range(256)) * 4000):
        tokenizer = BytePairTokenizer.train(text, 512)
        tokenizer.encode(text)
    assert time.perf_counter() - start < 20


def test_training_stops_when_nothing_repeats():
    assert BytePairTokenizer.train("abc", 1000).vocab_size == 256
    assert BytePairTokenizer.train("", 1000).vocab_size == 256


@pytest.mark.parametrize("spec", ["", "words", "bpe", "bpe:", "bpe:256", "bpe:-1", "bytes:3"])
def test_unknown_specification(spec):
    with pytest.raises(ValueError, match="must be bytes, or bpe:N"):
        make_tokenizer(spec, TEXT)


def test_specification():
    assert make_tokenizer("bytes", TEXT).vocab_size == 256
    assert make_tokenizer("bpe:300", TEXT).name == "bpe:300"


def test_tokens_outside_the_vocabulary():
    with pytest.raises(ValueError, match="between 0 and 255"):
        ByteTokenizer().decode([256])
    with pytest.raises(ValueError, match="between 0 and 399"):
        PAIRS.decode([-1])
    with pytest.raises(ValueError, match="one sequence"):
        PAIRS.decode([[1]])
    with pytest.raises(ValueError, match="more than 256"):
        BytePairTokenizer.train(TEXT, 256)
    with pytest.raises(ValueError, match="does not exist yet"):
        BytePairTokenizer([(256, 1)])


def test_a_tokenizer_of_hugging_face_refuses_what_it_cannot_read(monkeypatch):
    models, of = tokenizers.models, HuggingFaceTokenizer
    with pytest.raises(ValueError, match="not a tokenizer of the library tokenizers"):
        of("{}")
    with pytest.raises(ValueError, match="the tokenizer must have tokens"):
        of(tokenizers.Tokenizer(models.WordLevel({}, "?")).to_str())
    words = of(tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1}, "b")).to_str())
    assert words.vocab_size == 2
    assert words.decode(words.encode("a")) == "a"
    for tokens in ([-1], [0, 2]):
        with pytest.raises(ValueError, match="tokens must lie between 0 and 1"):
            words.decode(tokens)
    with pytest.raises(ValueError, match=r"tokens must be one sequence, got shape \(1, 1\)"):
        words.decode([[0]])
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[tokenizers\]"'):
        of("{}")

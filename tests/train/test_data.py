"""Packed documents, tokens in files, tokenizers of Hugging Face: what a batch is made from."""

import json
import sys

import jax
import numpy as np
import pytest

from olsq.nn import LanguageModel
from olsq.train import (
    IGNORE,
    BytePairTokenizer,
    ByteTokenizer,
    Corpus,
    make_tokenizer,
    next_token_loss,
    open_tokens,
    pack,
    token_loss,
    tokenizer_from_dict,
    write_tokens,
)

pytestmark = pytest.mark.usefixtures("one_target")

RNG = np.random.default_rng(0)
DOCUMENTS = [RNG.integers(0, 16, n) for n in (5, 1, 9, 2, 12, 3, 0, 7)]
TEXTS = ["one document", "", "the second", "and é a third one, which is longer", "x"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "mixers", [("mesa", "softmax", "gated_delta"), ("hawk", "mamba2", "mesa_discounted")]
)
def test_packed_documents_have_the_loss_of_separate_ones(mixers):
    """Nothing leaks: not through states, attention, convolutions nor targets."""
    model = LanguageModel(
        16, dim=8, blocks=3, heads=2, mixer=mixers, mlp_ratio=0, key=jax.random.key(0)
    )
    rows = pack(DOCUMENTS, 11)
    assert len(rows.tokens) == 3  # 4 + 8 + 1 + 11 + 2 + 6 = 32 of 33 places
    alone = [pack([d], 11) for d in DOCUMENTS if len(d) > 1]
    loss = jax.jit(lambda *rows: next_token_loss(model, *rows))
    together = loss(*rows)
    assert together.weight == sum(len(d) - 1 for d in DOCUMENTS if len(d) > 1) == 32
    # Each in a row of its own, of the same shape; nothing follows but padding.
    total = sum(
        float(found.mean * found.weight)
        for found in (loss(*(np.repeat(x, 3, 0) for x in one)) for one in alone)
    )
    np.testing.assert_allclose(together.mean, total / 3 / 32, rtol=2e-5)
    mixed = loss(rows.tokens, rows.targets, np.zeros_like(rows.segment_ids))
    assert abs(mixed.mean - together.mean) > 1e-4


def test_every_token_but_the_first_is_predicted_once():
    rows = pack([np.arange(1, 30), np.arange(30, 34)], 6)
    asked = rows.targets != IGNORE
    assert sorted(rows.targets[asked]) == [*range(2, 30), *range(31, 34)]
    np.testing.assert_array_equal(rows.targets[asked], rows.tokens[asked] + 1)
    assert (np.diff(rows.segment_ids) >= 0).all()
    inside = (rows.segment_ids[:, 1:] == rows.segment_ids[:, :-1]) & asked[:, 1:]
    np.testing.assert_array_equal(rows.tokens[:, 1:][inside], rows.targets[:, :-1][inside])
    many = [np.ones(n, int) for n in RNG.integers(2, 50, 400)]
    used = sum(len(d) - 1 for d in many) / pack(many, 64).tokens.size
    assert used > 0.97


@pytest.mark.parametrize(
    ("documents", "options", "message"),
    [
        ([], {}, "no document with two tokens or more"),
        ([[1], []], {}, "no document with two tokens or more"),
        (
            [[1, 2], [0.5, 1.0]],
            {},
            "document 1 must be one sequence of whole numbers",
        ),
        ([[[1, 2]]], {}, "document 0 must be one sequence"),
        ([[1, 2, 3, 4]], {"split": False}, "document 0 has 4 tokens: more than the 3 of a row"),
        ([[1, 2]], {"length": 0}, "length must be an integer"),
    ],
)
def test_documents_that_cannot_be_packed(documents, options, message):
    with pytest.raises(ValueError, match=message):
        pack(documents, **{"length": 2, **options})


def test_tokens_in_files_are_the_tokens(tmp_path):
    said = []
    tokens = write_tokens(
        tmp_path / "t", TEXTS, ByteTokenizer(), shard_tokens=20, progress=said.append
    )
    content = "".join(TEXTS).encode()
    want = np.frombuffer(content, np.uint8)
    assert [len(shard) for shard in tokens.shards] == [22, 35, 1]
    assert tokens.dtype == np.uint16
    assert (said[-1].documents, said[-1].size, said[-1].tokens) == (5, 58, 58)
    again = open_tokens(tmp_path / "t")
    np.testing.assert_array_equal(again[:], want)
    np.testing.assert_array_equal(again[19:25], want[19:25])
    np.testing.assert_array_equal(again[np.array([[0, -1], [21, 22]])], want[[[0, -1], [21, 22]]])
    assert [bytes(d.tolist()).decode() for d in again.documents()] == TEXTS
    assert (again.digest, again.tokenizer.name) == (tokens.digest, "bytes")
    assert len(again.part(20, 30)) == 10
    np.testing.assert_array_equal(again.part(20, 30)[:], want[20:30])
    in_memory, mapped = Corpus.split(want, 0.3), Corpus.split(again, 0.3)
    for name in ("train", "validation"):
        np.testing.assert_array_equal(getattr(mapped, name)[:], getattr(in_memory, name))
    mapped.check(8, vocab_size=256)
    options = {"seed": 0, "step": 3, "batch": 4, "length": 8}
    np.testing.assert_array_equal(mapped.batch(**options), in_memory.batch(**options))
    np.testing.assert_array_equal(mapped.windows(8), in_memory.windows(8))
    assert mapped.digest != Corpus.split(again, 0.2).digest
    np.save(tmp_path / "raw.npy", want)
    raw = Corpus.split(np.load(tmp_path / "raw.npy", mmap_mode="r"), 0.3)  # any mapped file
    assert isinstance(raw.train, np.memmap)
    np.testing.assert_array_equal(raw.batch(**options), in_memory.batch(**options))


def test_packed_batches_of_files(tmp_path):
    tokens = write_tokens(tmp_path / "t", TEXTS, ByteTokenizer(), shard_tokens=20)
    batches = tokens.packed(batch=2, length=11, seed=4)
    want = pack([ByteTokenizer().encode(text) for text in TEXTS], 11)
    assert len(want.tokens) == 5
    rows = np.concatenate([np.stack(batches(step)) for step in range(2)], 1)  # an epoch, but one
    found = {row.tobytes() for row in rows.transpose(1, 0, 2)}
    assert found < {row.tobytes() for row in np.stack(want).transpose(1, 0, 2)}
    assert len(found) == 4
    np.testing.assert_array_equal(batches(7).tokens, batches(7).tokens)
    with pytest.raises(ValueError, match="from 1 to the 5 rows, got 7"):
        tokens.packed(batch=7, length=11)


def test_folders_that_cannot_be_used(tmp_path):
    def broken():
        yield "a text"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_tokens(tmp_path / "t", broken(), ByteTokenizer(), shard_tokens=3)
    with pytest.raises(FileNotFoundError, match="not a folder of tokens"):
        open_tokens(tmp_path / "t")
    with pytest.raises(FileExistsError, match="not empty"):
        write_tokens(tmp_path / "t", TEXTS, ByteTokenizer())
    with pytest.raises(ValueError, match="there are no tokens"):
        write_tokens(tmp_path / "e", ["", ""], ByteTokenizer())
    write_tokens(tmp_path / "good", TEXTS, ByteTokenizer())
    index = json.loads((tmp_path / "good" / "index.json").read_text())
    for change, message in (
        ({"version": 9}, "has format 9"),
        ({"shards": [{**index["shards"][0], "tokens": 3}]}, "not the 3 tokens of its index"),
        ({"largest": None, "shards": 4}, "damaged or not by olsq.train.write_tokens"),
    ):
        (tmp_path / "good" / "index.json").write_text(json.dumps({**index, **change}))
        with pytest.raises(ValueError, match=message):
            open_tokens(tmp_path / "good")


def test_masks_and_the_z_loss_are_their_definitions():
    logits = 3 * RNG.normal(size=(2, 5, 7))
    targets = RNG.integers(0, 7, (2, 5))
    mask = np.array([[1, 0, 0.5, 2, 0], [0, 1, 1, 0, 3]])
    log_z = np.log(np.exp(logits).sum(-1))
    each = log_z - np.take_along_axis(logits, targets[..., None], -1)[..., 0]
    want = (mask * (each + 0.1 * log_z**2)).sum() / mask.sum()
    found = token_loss(logits.astype("f"), targets, mask=mask, z_loss=0.1)
    np.testing.assert_allclose(found, want, rtol=1e-6)
    lost = np.where((mask == 0)[..., None], np.nan, logits).astype("f")  # padding may hold anything
    np.testing.assert_allclose(token_loss(lost, targets, mask=mask, z_loss=0.1), want, rtol=1e-6)
    model = lambda tokens: logits.astype("f")  # noqa: E731
    kept = np.where(mask > 0.7, targets, IGNORE)
    found = next_token_loss(model, targets, kept, mask=mask > 0, z_loss=0.1)
    np.testing.assert_allclose(found.extra["nll"], each[mask > 0.7].mean(), rtol=1e-6)
    assert found.weight == 5
    assert token_loss(logits, targets, mask=np.zeros((2, 5))) == 0


LETTERS = {letter: place for place, letter in enumerate(["Ċ", "Ġ", "a", "Ã", "©", "aa"])}


def described(model, decoder, **other):
    """A tokenizer.json of that model and decoder."""
    parts = {"normalizer": None, "pre_tokenizer": None, "post_processor": None, **other}
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], **parts,
        "model": model, "decoder": decoder,
    })  # fmt: skip


def test_a_tokenizer_json_is_read_by_its_library(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}  # fmt: skip
    merges = {"type": "BPE", "vocab": LETTERS, "merges": [["a", "a"]], "dropout": None,
              "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
              "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}  # fmt: skip
    path = tmp_path / "tokenizer.json"
    path.write_text(described(merges, byte_level, pre_tokenizer=byte_level))
    found = make_tokenizer(str(path), b"unread")
    assert found.encode("aa aé\n").tolist() == [5, 1, 2, 3, 4, 0]
    assert found.decode([5, 1, 2, 3, 4, 0]) == "aa aé\n"
    assert [found.decode_bytes([token]) for token in (1, 3, 4)] == [b" ", b"\xc3", b"\xa9"]
    assert (found.vocab_size, found.name) == (6, "huggingface:6")
    again = tokenizer_from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.encode(b"aa a\n").tolist() == [5, 1, 2, 0]
    assert tokenizers.Tokenizer.from_file(str(path)).encode("aa a").ids == [5, 1, 2]
    with pytest.raises(ValueError, match="between 0 and 5"):
        found.decode([6])
    words = {"type": "WordLevel", "vocab": {"▁a": 0, "b": 1, "<0x0A>": 2}, "unk_token": "b"}
    path.write_text(described(words, {"type": "ByteFallback"}))
    assert make_tokenizer(str(path), b"").decode_bytes([0, 1, 2]) == b" ab\n"
    path.write_text(described({**words, "vocab": {"a": 0, "##b": 1}, "unk_token": "a"},
                              {"type": "WordPiece", "prefix": "##", "cleanup": True}))  # fmt: skip
    assert make_tokenizer(str(path), b"").decode_bytes([0, 1]) == b" ab"
    path.write_text("{}")
    with pytest.raises(ValueError, match="not a tokenizer"):
        make_tokenizer(str(path), b"")


def test_a_missing_library_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(ImportError, match=r'pip install "\.\[tokenizers\]"'):
        make_tokenizer(str(tmp_path / "t.json"), b"")


def test_a_folder_keeps_its_tokenizer(tmp_path):
    pairs = BytePairTokenizer.train("one two one two", 260)
    tokens = write_tokens(tmp_path, ["one two", "two"], pairs)
    assert tokens.tokenizer.merges == pairs.merges
    assert tokens.bytes_per_token == 10 / len(tokens)

"""Folders with a model: what is in them, what others read, what is refused."""

from __future__ import annotations

import json
import os
import random

import jax
import numpy as np
import pytest
import safetensors.numpy
import tokenizers

import olsq
import olsq.nn
from olsq.nn.kinds import named_arrays
from olsq.nn.vocabulary import tokenizer_json
from olsq.train import BytePairTokenizer, ByteTokenizer, tokenizer_from_dict

pytestmark = pytest.mark.usefixtures("one_target")

GLA = {
    "vector_gates": True, "weighted": False, "normalise": False, "feature_map": "identity",
    "convolution": False, "output_gate": True, "norm_eps": 4e-6,
}  # fmt: skip
TEXT = "low lower lowest, the naïve café \n\n\t 北京 12 34!? [x]^-&\\ " * 9
HARD = (
    "", " ", "  ", "x  ", "\n", "\x00\x0b\x1c", "é" * 40, "a" * 70, TEXT[::-1],
    "".join(chr(random.Random(0).choice([*range(128), 233, 8212])) for _ in range(9)),
)  # fmt: skip


def model_of(**more):
    given = {
        "dim": 8, "blocks": 2, "heads": 2, "mixer": "gla", "mixer_options": {"gla": GLA},
        "soft_cap": None, "scale_embedding": False, **more,
    }  # fmt: skip
    return olsq.nn.LanguageModel(300, key=jax.random.key(0), **given)


MODEL = model_of()


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), BytePairTokenizer.train(TEXT, 290)])
def test_their_library_reads_the_same_tokens(tokenizer):
    theirs = tokenizers.Tokenizer.from_str(tokenizer_json(tokenizer))
    assert theirs.get_vocab_size() == tokenizer.vocab_size
    draw = random.Random(1)
    noise = (
        "".join(chr(draw.choice([*range(128), 160, 8212])) for _ in range(50)) for _ in "12345"
    )
    for text in (TEXT, *HARD, *noise):
        tokens = tokenizer.encode(text).tolist()
        assert theirs.encode(text).ids == tokens
        assert theirs.decode(tokens, skip_special_tokens=False) == text


def test_our_layout(tmp_path):
    model = model_of(mixer=("gla", "mesa")).with_solver(olsq.ConjugateGradient(max_steps=5))
    tokenizer = BytePairTokenizer.train(TEXT, 290)
    folder = tmp_path / "deep" / "small"
    olsq.nn.save_pretrained(model, folder, tokenizer=tokenizer, data="Nine lines of nonsense.")
    assert sorted(os.listdir(folder.parent)) == ["small"]
    assert sorted(os.listdir(folder)) == [
        "README.md", "config.json", "model.safetensors", "tokenizer.json",
    ]  # fmt: skip
    found = olsq.nn.load_pretrained(folder)
    same(found.model, model)
    assert found.tokenizer is not None
    assert tokenizer_from_dict(found.tokenizer).merges == tokenizer.merges
    assert found.config["vocab_size"] == 300
    text = (folder / "README.md").read_text()
    count = f"{olsq.nn.count_parameters(model):,}"
    for said in (
        "# small", 'load_pretrained("small")', "gla x 1, mesa x 1", "Nine lines", "300", count,
        "tokenizers.Tokenizer.from_file",
    ):  # fmt: skip
        assert said in text
    assert tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode("low").ids


def test_their_layout_whole_and_in_parts(tmp_path):
    folder = tmp_path / "theirs"
    olsq.nn.save_pretrained(MODEL, folder, layout="fla", name="A model")
    weights = safetensors.numpy.load_file(folder / "model.safetensors")
    wanted, config = olsq.nn.to_fla(MODEL)
    assert {k: x.shape for k, x in weights.items()} == {k: x.shape for k, x in wanted.items()}
    written = json.loads((folder / "config.json").read_text())
    assert config.items() <= written.items()
    assert written["model_type"] == "gla"
    with safetensors.safe_open(folder / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
    assert "AutoModelForCausalLM" in (folder / "README.md").read_text()
    found = olsq.nn.load_pretrained(folder)
    assert found.tokenizer is None
    for name, x in named_arrays(MODEL).items():
        if "forget" not in name:  # a gate per head does nothing beside those per channel
            np.testing.assert_array_equal(named_arrays(found.model)[name], x, name)

    names = sorted(weights)
    halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, held in halves.items():
        safetensors.numpy.save_file({k: weights[k] for k in held}, folder / file)
    index = {"weight_map": {k: file for file, held in halves.items() for k in held}}
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    same(olsq.nn.load_pretrained(folder).model, found.model)
    (folder / "b.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no b\.safetensors"):
        olsq.nn.load_pretrained(folder)
    index["weight_map"] = dict.fromkeys(names, "a.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=r"must be those of a GLA, but model.* is missing"):
        olsq.nn.load_pretrained(folder)
    index["weight_map"] = {"x": "../a.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(olsq.StateFileError, match="which is not in the folder"):
        olsq.nn.load_pretrained(folder)


def test_a_tokenizer_of_theirs(tmp_path):
    theirs = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    read = tokenizer_from_dict({"kind": "huggingface", "json": theirs.to_str()})
    for i, given in enumerate((theirs, tmp_path / "0" / "tokenizer.json", read)):
        olsq.nn.save_pretrained(MODEL, tmp_path / str(i), tokenizer=given)
        saved = olsq.nn.load_pretrained(tmp_path / str(i)).tokenizer
        assert saved is not None
        assert tokenizer_from_dict(saved).encode("b").tolist() == [1]
        again = tokenizers.Tokenizer.from_file(str(tmp_path / str(i) / "tokenizer.json"))
        assert again.get_vocab() == {"a": 0, "b": 1}


def test_nothing_is_left_of_what_fails(tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    before = sorted(os.listdir(tmp_path))
    twice = BytePairTokenizer([(97, 98), (98, 99), (256, 99), (97, 257)])
    for error, message, given in (
        (FileExistsError, "not an empty folder", {"folder": "full"}),
        (ValueError, "layout must be one of", {"layout": "hf"}),
        (ValueError, "tokenizer must be one of", {"tokenizer": 3}),
        (ValueError, "abc are made in two ways", {"tokenizer": twice}),
        (ValueError, "has 400 tokens, more than the model's vocab_size of 300",
         {"tokenizer": BytePairTokenizer([(97, 97 + i % 2) if i < 2 else (255 + i, 97)
                                          for i in range(144)])}),
        (ValueError, "must be a LanguageModel, got a Backbone", {"model": MODEL.backbone}),
        (ValueError, "has no counterpart", {"model": model_of(mixer="hawk", mixer_options={}),
                                            "layout": "fla"}),
    ):  # fmt: skip
        options = {"model": MODEL, "folder": "new", **given}
        options["folder"] = tmp_path / options["folder"]
        with pytest.raises(error, match=message):
            olsq.nn.save_pretrained(**options)
    monkeypatch.setattr("olsq.nn.pretrained.write_atomically", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        olsq.nn.save_pretrained(MODEL, tmp_path / "new")
    assert sorted(os.listdir(tmp_path)) == before


def test_folders_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        olsq.nn.load_pretrained(tmp_path / "none")
    folder = tmp_path / "model"
    olsq.nn.save_pretrained(MODEL, folder, tokenizer=ByteTokenizer())
    config = json.loads((folder / "config.json").read_text())

    def refused(error, message, file, text):
        old = (folder / file).read_bytes()
        (folder / file).write_text(text)
        with pytest.raises(error, match=message):
            olsq.nn.load_pretrained(folder)
        (folder / file).write_bytes(old)

    refused(olsq.StateFileError, "is not JSON", "config.json", "{")
    refused(olsq.StateFileError, "must hold a JSON object", "config.json", "[]")
    for change, message in (
        ({"model_type": "llama"}, "model_type 'llama', which has no counterpart here"),
        ({"vocab_size": 301}, "do not belong together: vocab_size differ"),
    ):
        refused(olsq.StateFileError, message, "config.json", json.dumps({**config, **change}))
    refused(olsq.StateFileError, "is damaged", "tokenizer.json", "[")
    refused(ValueError, "tokenizer has 501 tokens", "tokenizer.json",
            json.dumps({"model": {"vocab": {"a": 500}}}))  # fmt: skip
    refused(olsq.StateFileError, "truncated, damaged", "model.safetensors", "x")
    same(olsq.nn.load_pretrained(folder).model, MODEL)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"pytorch_model\.bin is not read"):
        olsq.nn.load_pretrained(folder)

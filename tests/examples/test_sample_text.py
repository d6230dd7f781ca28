"""``examples/sample_text.py``: streams, pipes, Ctrl-C."""

from __future__ import annotations

import functools
import io
import sys

import jax
import numpy as np
import pytest
import sample_text
from sample_text import TextStream

import olsq.nn
from olsq.train import BytePairTokenizer, ByteTokenizer, Log, load_run
from olsq.train.checkpoint import write_checkpoint

pytestmark = pytest.mark.usefixtures("one_target")

PROMPT = "To be"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A directory like those of train_text.py, of a model that was never trained."""
    folder = tmp_path_factory.mktemp("run")
    model = olsq.nn.LanguageModel(
        256, dim=8, blocks=1, heads=2, mixer="hawk", key=jax.random.key(0)
    )
    olsq.nn.save(folder / "model.safetensors", model)
    content = {
        "step": 0, "config": {}, "setup": {}, "data": "", "tokenizer": ByteTokenizer().to_dict(),
    }  # fmt: skip
    write_checkpoint(folder / "checkpoint.safetensors", {}, content, Log())
    return folder


@pytest.fixture
def sample(in_this_process):
    return functools.partial(in_this_process, sample_text.main)


def tokens_of(model, text, steps, **options):
    found = model.generate(ByteTokenizer().encode(text)[None], steps, top_k=40, **options)
    return ByteTokenizer().decode(np.asarray(found).ravel())


def piped(monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


@pytest.mark.full
def test_one_sample_comes_as_it_is_drawn(run, sample, monkeypatch):
    want = tokens_of(load_run(run).model, PROMPT, 12, key=5, temperature=0.8)
    code, out, err = sample(run, "--prompt", PROMPT, "--tokens", 12, "--seed", 5)
    assert (code, err) == (0, "")
    assert out.rstrip("\n") == (PROMPT + want).rstrip("\n")
    piped(monkeypatch, PROMPT)
    assert sample(run, "--tokens", 12, "--seed", 5)[1] == out
    stop = next(letter for letter in want[2:] if letter.isascii() and letter != "\n")
    code, out, _ = sample(run, "--prompt", PROMPT, "--tokens", 12, "--seed", 5, "--stop", stop)
    assert out == PROMPT + want[: want.index(stop) + 1] + "\n"


def test_several_prompts_and_samples_are_told_apart(run, sample):
    code, out, _ = sample(
        run, "--prompt", PROMPT, "--prompt", "Or", "--samples", 2, "--tokens", 4,
        "--temperature", 0,
    )  # fmt: skip
    assert code == 0
    for heading in ("prompt 1, sample 1", "prompt 1, sample 2", "prompt 2, sample 2"):
        assert f"--- {heading}\n" in out
    assert out.count(PROMPT) == 2


@pytest.mark.full
def test_ctrl_c_ends_the_line(run, sample, monkeypatch):
    add = TextStream.add
    calls = []

    def interrupted(stream, token):
        calls.append(token)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return add(stream, token)

    monkeypatch.setattr(TextStream, "add", interrupted)
    piped(monkeypatch, PROMPT + "\n")
    code, out, err = sample(run, "--tokens", 12)
    assert (code, err) == (130, "")
    assert out.endswith("\n")


CASES = [
    ("--prompt x --temperature -1", "temperature"),
    ("--prompt x --top-p 0", "top_p"),
    ("--prompt x --tokens 0", "steps must be at least 1"),
    ("--prompt x --samples 0", "samples"),
    ("", "the prompt is empty"),
]


@pytest.mark.parametrize(("arguments", "message"), CASES, ids=[case[0] for case in CASES])
def test_one_line_and_exit_code_2(arguments, message, run, sample, monkeypatch):
    piped(monkeypatch, "")
    code, out, err = sample(run, *arguments.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_runs_that_cannot_be_sampled(run, tmp_path, sample):
    half = tmp_path / "half"
    half.mkdir()
    assert "has no checkpoint.safetensors" in sample(half, "--prompt", "x")[2]
    checkpoint = half / "checkpoint.safetensors"
    checkpoint.write_bytes((run / "checkpoint.safetensors").read_bytes())
    assert "its run is not finished" in sample(half, "--prompt", "x")[2]
    (half / "model.safetensors").write_bytes((run / "model.safetensors").read_bytes()[:1000])
    assert sample(half, "--prompt", "x")[0] == 2
    checkpoint.write_bytes(b"no checkpoint at all")
    code, _, err = sample(half, "--prompt", "x")
    assert (code, err.count("\n")) == (2, 1)
    assert "truncated, damaged or no checkpoint" in err


def test_text_comes_letter_by_letter_and_ends_where_told():
    tokenizer = BytePairTokenizer.train("naïve café . " * 9, 270)
    text = "naïve café. Ω naïve"
    for stop, want in (
        ([], text),
        (["é. Ω"], "naïve café. Ω"),
        (["q", "a"], "na"),
        (["ve c"],) * 2,
    ):
        stream = TextStream(tokenizer, stop)
        got = "".join(stream.add(token) for token in tokenizer.encode(text)) + stream.flush()
        assert got == (want if isinstance(want, str) else "naïve c")
    half = TextStream(tokenizer)
    assert (half.add(0xC3), half.flush()) == ("", "\ufffd")

"""``examples/train_text.py``: files of a run, Ctrl-C and --resume, one line for a wrong option."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import train_text

from olsq.train import Corpus, make_tokenizer, read_checkpoint
from olsq.train.corpus import training_part
from tests.train.small import TEXT

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples" / "train_text.py"
SMALL = [
    "--mixer", "gla", "--dim", "8", "--blocks", "1", "--heads", "1", "--length", "16",
    "--batch", "2", "--steps", "6", "--tokenizer", "bpe:270", "--evaluate-every", "2",
    "--sample", "5",
]  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "fox.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    """Processes of this module load what the first of them compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path_factory.mktemp("programs")))
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        patch.setenv("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
        yield


@pytest.fixture
def train(in_this_process):
    return functools.partial(in_this_process, train_text.main)


def in_a_process(program, *arguments, cwd=None):
    """Run a program; return what it printed and how it ended."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "examples")])
    return subprocess.run(
        [sys.executable, str(program), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu",
             "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        capture_output=True, text=True, cwd=cwd,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(text, tmp_path_factory):
    """A directory with a finished run, and what was printed."""
    out = tmp_path_factory.mktemp("run") / "out"
    done = in_a_process(PROGRAM, text, "--out", out, *SMALL, cwd=out.parent)
    assert done.returncode == 0, done.stderr
    return out, done.stdout, done.stderr


@pytest.mark.slow
def test_files_of_a_run(finished):
    import olsq.nn

    out, printed, progress = finished
    assert {path.name for path in out.iterdir()} == {
        "checkpoint.safetensors", "config.toml", "log.csv", "loss.png", "model.safetensors",
        "perplexity.png", "positions.csv",
    }  # fmt: skip
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert len((out / "log.csv").read_text().splitlines()) == 7
    assert len((out / "positions.csv").read_text().splitlines()) == 17
    for name in ("loss.png", "perplexity.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    found = read_checkpoint(out / "checkpoint.safetensors")
    model = olsq.nn.load(out / "model.safetensors")
    np.testing.assert_array_equal(model.embedding, found.tensors["weights/embedding"])
    assert model.vocab_size == found.tokenizer.vocab_size == 270
    assert found.tokenizer.decode(found.tokenizer.encode(TEXT)) == TEXT
    for words in ("perplexity", "bits per byte", "Sample", str(out / "loss.png")):
        assert words in printed
    assert [line.split("/")[0] for line in progress.splitlines()] == ["step 2", "step 4", "step 6"]


@pytest.mark.full
def test_ctrl_c_saves_and_resume_ends_with_the_same_bytes(finished, text, tmp_path):
    arguments = [text, "--out", tmp_path / "run", *SMALL]
    done = in_a_process(Path(__file__).parent / "interrupted_training.py", *arguments)
    assert (done.returncode, done.stdout) == (130, ""), done.stderr
    # The record of the third step is read when the fourth has begun.
    assert "stopped after step 4; go on with: python train_text.py 'x y' --resume" in done.stderr
    written = {"checkpoint.safetensors", "config.toml", "log.csv"}
    assert {p.name for p in (tmp_path / "run").iterdir()} == written
    done = in_a_process(PROGRAM, *arguments, "--resume", "--sample", "0")
    assert done.returncode == 0, done.stderr
    assert "going on after step 4" in done.stderr
    for name in ("checkpoint.safetensors", "log.csv", "positions.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (finished[0] / name).read_bytes()


@pytest.mark.full
def test_other_options_and_damage_stop_a_resume(finished, text, tmp_path, train):
    run = tmp_path / "run"
    shutil.copytree(finished[0], run)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    code, _, err = train(text, "--out", run, *SMALL)
    assert (code, err.count("\n")) == (2, 1)
    assert f"{run} holds a checkpoint: add --resume" in err
    other = tmp_path / "other.txt"
    other.write_text(TEXT.replace("quick", "slow "), encoding="utf-8")
    for read, change, message in (
        (text, ["--lr", "0.5", "--seed", "7"], "--lr was 0.001 and is 0.5; --seed was 0 and is 7"),
        (text, ["--mixer", "delta"], "cannot resume: --mixer was gla and is delta"),
        (text, ["--validation", "0.2"], "--validation was 0.1 and is 0.2"),
        (other, [], "cannot resume: the text has changed"),
    ):
        code, _, err = train(read, "--out", run, *SMALL, "--resume", *change)
        assert (code, err.count("\n")) == (2, 1)
        assert message in err
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    path = run / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    code, _, err = train(text, "--out", run, *SMALL, "--resume")
    assert code == 2
    assert f"{path} is truncated, damaged or no checkpoint" in err
    assert path.stat().st_size == 1000


CASES = [
    ("--mixer mamba9", "mamba9"),
    ("--mixer intention", "must be causal"),
    ("--mixer gla --solver cg:30", "--solver: gla does not solve a regression"),
    ("--solver magic", "--solver: unknown solver 'magic'; known are chunk-exact, cg, "),
    ("--solver cg:-1", "--solver cg:-1: max_steps must be an integer >= 0"),
    ("--solver cg:speed=3", "--solver cg:speed=3: "),
    ("--solver chebyshev:many", "--solver chebyshev:many: "),
    ("--dim 0", "argument --dim: must be at least 1, got 0"),
    ("--dim 10 --heads 3", "10 must be a multiple of heads 3"),
    ("--dtype int8", "argument --dtype: invalid choice: 'int8'"),
    ("--steps 0", "steps must be an integer >= 1, got 0"),
    ("--batch x", "argument --batch: invalid int value: 'x'"),
    ("--batch 4 --accumulate 3", "--batch must be a multiple of --accumulate times --devices"),
    ("--length 5000", "too few for sequences of 5000"),
    ("--lr nan", "lr must be a positive number, got nan"),
    ("--seed -1", "seed must be an integer >= 0"),
    ("--validation 1.5", "validation"),
    ("--tokenizer bpe:256", "the path of a tokenizer.json, got 'bpe:256'"),
    ("--tokenizer none.json", "No such file"),
    ("--mixer-option mesa", "--mixer-option must look like mesa.ridge_floor=0.1, got 'mesa'"),
    ("--mixer-option mesa.speed=3", "mixer 'mesa' has no option 'speed': see Mesa"),
    ("--mixer-option gla.heads=3", "options for the mixers ['mesa'] only, got some for ['gla']"),
    ("--preset huge", "argument --preset: invalid choice: 'huge'"),
    ("--dropout 1", "dropout"),
    ("--devices 16", "--devices is 16, but JAX has 1"),
    ("--config none.toml", "cannot read none.toml: "),
    ("--config fox.txt", "cannot read fox.txt: "),
    ("--config odd.toml", "unrecognized arguments: --speed=3"),
    ("--out no/where", "No such file or directory: 'no/where'"),
    ("--nonsense", "unrecognized arguments: --nonsense"),
]


@pytest.mark.parametrize(("arguments", "message"), CASES, ids=[case[0] for case in CASES])
def test_one_line_and_nothing_written(arguments, message, tmp_path, monkeypatch, train):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fox.txt").write_text(TEXT * 2)
    (tmp_path / "odd.toml").write_text("speed = 3\n")
    code, out, err = train("fox.txt", *arguments.split())
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("train_text.py: ")
    assert err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"fox.txt", "odd.toml"}


@pytest.mark.parametrize(("content", "message"), [(None, "No such file"), (b"short", "too few")])
def test_text_that_cannot_be_used(content, message, tmp_path, monkeypatch, train):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "t.txt").write_bytes(content)
    code, _, err = train("t.txt")
    assert (code, err.count("\n")) == (2, 1)
    assert message in err
    assert not (tmp_path / "olsq-run").exists()


def same(first, second):
    return {**vars(first), "config": None} == {**vars(second), "config": None}


@pytest.mark.full
def test_a_config_file_makes_the_same_run(finished, tmp_path):
    out = finished[0]
    options = train_text.read_options(["--config", str(out / "config.toml")])
    assert (options.mixer, options.dim, options.tokenizer) == ("gla", 8, "bpe:270")
    assert options.out == out
    assert train_text.write_config(options) == (out / "config.toml").read_text()
    path = tmp_path / "c.toml"
    path.write_text(
        'preset = "1m"\nblocks = 2\nlr = 1\ntext = "a \\"b\\".txt"\n'
        "[mixer_options.mesa]\nridge_floor = 0.5\nnorm_eps = 1e-5\n"
    )
    words = ["--config", str(path), "--heads", "8", "--mixer-option", "mesa.ridge_floor=2"]
    options = train_text.read_options(words)
    assert (options.dim, options.blocks, options.heads, options.lr) == (128, 2, 8, 1)
    of_mixers = {"mesa": {"ridge_floor": 2, "norm_eps": 1e-5}}
    assert train_text.mixer_options(options.mixer_option) == of_mixers
    (tmp_path / "again.toml").write_text(train_text.write_config(options))
    again = train_text.read_options(["--config", str(tmp_path / "again.toml")])
    options.text, options.out, options.preset = (
        options.text.absolute(),
        options.out.absolute(),
        None,
    )
    assert same(again, options)
    other = train_text.read_options(["--config", str(path), "--preset", "5m"])
    assert other.blocks == 6  # the command line's comes first


def test_the_config_file_of_the_page_is_read(tmp_path):
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    (tmp_path / "c.toml").write_text(re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)[0])
    words = ["--config", str(tmp_path / "c.toml"), "--mixer-option", "hawk.convolution=false"]
    options = train_text.read_options(words)
    assert (options.mixer, options.dim, options.steps) == ("hawk,mesa", 128, 5000)
    of_mixers = {"mesa": {"ridge_floor": 0.1}, "hawk": {"convolution": False}}
    assert train_text.mixer_options(options.mixer_option) == of_mixers


def test_merges_are_learned_on_the_training_part():
    first = "é" * 100 + "ab" * 40
    text = (first + "xyxy" * 60).encode()
    assert training_part(text, 240 / len(text)) == first.encode()
    assert training_part(("é" * 5).encode(), 0.1) == ("é" * 4).encode()  # not within a letter
    tokenizer = make_tokenizer("bpe:260", training_part(text, 240 / len(text)))
    pieces = b"".join(tokenizer.decode_bytes([token]) for token in range(256, 260))
    assert b"x" not in pieces
    corpus = Corpus.from_text(text, tokenizer, 240 / len(text))
    assert tokenizer.decode(corpus.train) == first
    assert tokenizer.decode(corpus.validation) == "xyxy" * 60


def test_page_names_options_and_solvers_that_exist(train):
    pages = "".join((ROOT / "docs" / p).read_text() for p in ("training.md", "start/layers.md"))
    shown = train("--help")[1]
    lines = re.findall(r"train_text\.py(.*)", pages) + re.findall(r"`(--[^`]*)`", pages)
    known = {"--prompt", *re.findall(r"--[a-z][a-z-]*", shown)}  # one is of sample_text.py
    assert set(re.findall(r"--[a-z][a-z-]*", " ".join(lines))) <= known
    for name, (kind, main) in train_text.SOLVERS.items():
        assert f"| `{name}` | `olsq.{kind}` | `{main}` |" in pages

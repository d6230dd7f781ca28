"""``olsq train``: one line for every user error, files of a run, Ctrl-C and --resume."""

import dataclasses
import importlib.util
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from olsq.cli.errors import InputError
from olsq.cli.train.options import gather, write_config
from olsq.train import Corpus, make_tokenizer, read_checkpoint
from olsq.train.corpus import training_part
from tests.cli.conftest import REPOSITORY, environment, olsq_command
from tests.train.small import TEXT

__all__ = ["olsq_command"]

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


def in_a_process(module, *arguments, cwd=None):
    """Run a module; return what it printed and how it ended."""
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        env={**environment(), "JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        capture_output=True, text=True, cwd=cwd,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(text, tmp_path_factory):
    """A directory with a finished run, and what was printed."""
    out = tmp_path_factory.mktemp("run") / "out"
    done = in_a_process("olsq.cli", "train", text, "--out", out, *SMALL, cwd=out.parent)
    assert done.returncode == 0, done.stderr
    return out, done.stdout, done.stderr


@pytest.mark.slow
def test_files_of_a_run(finished, text):
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
    assert found.tokenizer is not None
    model = olsq.nn.load(out / "model.safetensors")
    np.testing.assert_array_equal(model.embedding, found.tensors["weights/embedding"])
    assert model.vocab_size == found.tokenizer.vocab_size == 270
    assert found.tokenizer.decode(found.tokenizer.encode(TEXT)) == TEXT
    for words in ("perplexity", "bits per byte", "Sample", str(out / "loss.png")):
        assert words in printed
    assert [line.split("/")[0] for line in progress.splitlines()] == ["step 2", "step 4", "step 6"]


@pytest.mark.full
def test_ctrl_c_saves_and_resume_ends_with_the_same_bytes(finished, text, tmp_path):
    arguments = ["train", text, "--out", tmp_path / "run", *SMALL]
    done = in_a_process("tests.train.interrupted", *arguments)
    assert done.returncode == 130
    assert done.stdout == ""
    # The record of the third step is read when the fourth has begun.
    assert "olsq: stopped after step 4; go on with: olsq train 'x y' --resume" in done.stderr
    written = {"checkpoint.safetensors", "config.toml", "log.csv"}
    assert {p.name for p in (tmp_path / "run").iterdir()} == written
    done = in_a_process("olsq.cli", *arguments, "--resume", "--sample", "0")
    assert done.returncode == 0
    assert "going on after step 4" in done.stderr
    for name in ("checkpoint.safetensors", "log.csv", "positions.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (finished[0] / name).read_bytes()


def test_other_options_and_damage_stop_a_resume(finished, text, tmp_path, olsq_command):
    run = tmp_path / "run"
    shutil.copytree(finished[0], run)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    code, _, err = olsq_command("train", text, "--out", run, *SMALL)
    assert (code, err.count("\n")) == (2, 1)
    assert f"{run} holds a checkpoint: add --resume" in err
    for change, message in (
        (["--lr", "0.5", "--seed", "7"], "cannot resume: --lr was 0.001 and is 0.5; --seed was 0"),
        (["--mixer", "delta"], "cannot resume: --mixer was gla and is delta"),
        (["--validation", "0.2"], "--validation was 0.1 and is 0.2"),
    ):
        code, _, err = olsq_command("train", text, "--out", run, *SMALL, "--resume", *change)
        assert (code, err.count("\n")) == (2, 1)
        assert message in err
    other = tmp_path / "other.txt"
    other.write_text(TEXT.replace("quick", "slow "), encoding="utf-8")
    code, _, err = olsq_command("train", other, "--out", run, *SMALL, "--resume")
    assert (code, err) == (2, "olsq: cannot resume: the text has changed\n")
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    path = run / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    code, _, err = olsq_command("train", text, "--out", run, *SMALL, "--resume")
    assert code == 2
    assert f"{path} is truncated, damaged or no checkpoint" in err
    assert path.stat().st_size == 1000


CASES = [
    ("--mixer mamba9", "--mixer: unknown mixer 'mamba9'; known are softmax, "),
    ("--mixer hawk,", "--mixer: unknown mixer ''"),
    ("--mixer intention", "must be causal"),
    ("--mixer gla --solver cg:30", "--solver applies to mesa"),
    ("--solver magic", "--solver: unknown solver 'magic'; known are chunk-exact, cg, "),
    ("--solver cg:-1", "--solver cg:-1: max_steps must be >= 0"),
    ("--solver cg:speed=3", "--solver: cg has no 'speed'; it has max_steps, tol"),
    ("--solver chebyshev:many", "--solver chebyshev:many: "),
    ("--dim 0", "--dim must be at least 1, got 0"),
    ("--dim 10 --heads 3", "10 must be a multiple of heads 3"),
    ("--key-size -1", "--key-size must be at least 1"),
    ("--dtype int8", "--dtype must be float32 or bfloat16, got 'int8'"),
    ("--steps 0", "--steps must be a whole number of at least 1, got 0"),
    ("--batch x", "Invalid value for '--batch'"),
    ("--batch 4 --accumulate 3", "--batch must be a multiple of --accumulate times --devices"),
    ("--length 5000", "too few for sequences of 5000"),
    ("--lr -1", "--lr must be a positive number, got -1"),
    ("--lr nan", "--lr must be a positive number, got nan"),
    ("--warmup 2000", "--warmup must lie between 0 and the 1000 steps, got 2000"),
    ("--clip 0", "--clip must be a positive number"),
    ("--seed -1", "--seed must be a whole number of at least 0"),
    ("--validation 1.5", "--validation must lie between 0 and 1, got 1.5"),
    ("--tokenizer words", "--tokenizer: the tokenizer must be bytes, or bpe:N"),
    ("--tokenizer bpe:256", "the path of a tokenizer.json, got 'bpe:256'"),
    ("--tokenizer none.json", "--tokenizer: cannot read none.json: No such file"),
    ("--mixer-option mesa", "--mixer-option must look like mesa.ridge_floor=0.1, got 'mesa'"),
    ("--mixer-option mesa.speed=3", "mixer 'mesa' has no option 'speed': see Mesa"),
    ("--mixer-option gla.heads=3", "options for the mixers ['mesa'] only, got some for ['gla']"),
    ("--preset huge", "--preset: unknown preset 'huge'; known are 1m, 5m, "),
    ("--remat some", "--remat must be none, dots, full, got 'some'"),
    ("--dropout 1", "--dropout must lie in [0, 1), got 1"),
    ("--average 1", "--average must lie between 0 and 1, got 1.0"),
    ("--z-loss -1", "--z-loss must not be negative, got -1.0"),
    ("--devices 0", "--devices must be at least 1, got 0"),
    ("--devices 16", "--devices is 16, but JAX has 1 (cpu)"),
    ("--config none.toml", "cannot read none.toml: No such file or directory"),
    ("--config fox.txt", "fox.txt is not TOML: "),
    ("--sample -1", "--sample must not be negative"),
    ("--checkpoint-every -1", "--checkpoint-every must be finite and not negative"),
    ("--out fox.txt", "cannot write to fox.txt: it is not a directory"),
    ("--out no/where", "cannot create no/where: there is no directory no"),
    ("--nonsense", "No such option: --nonsense"),
]


@pytest.mark.full
@pytest.mark.parametrize(("arguments", "message"), CASES, ids=[case[0] for case in CASES])
def test_one_line_exit_code_2_and_nothing_written(
    arguments, message, tmp_path, monkeypatch, olsq_command
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fox.txt").write_text(TEXT * 2)
    code, out, err = olsq_command("train", "fox.txt", *arguments.split())
    assert code == 2
    assert out == ""
    assert message in err
    assert err.startswith("olsq: ")
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["fox.txt"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read t.txt: No such file or directory"),
        (b"", "t.txt is empty: there is no text to learn from"),
        (b" \n\t\n", "t.txt is empty"),
        (b"short", "the training part has 4 tokens: too few for sequences of 256"),
    ],
)
def test_text_that_cannot_be_used(content, message, tmp_path, monkeypatch, olsq_command):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / "t.txt").write_bytes(content)
    code, _, err = olsq_command("train", "t.txt")
    assert (code, err.count("\n")) == (2, 1)
    assert message in err
    assert not (tmp_path / "olsq-run").exists()


@pytest.mark.parametrize("name", ["equinox", "optax", "safetensors"])
def test_missing_library_says_what_to_install(name, tmp_path, monkeypatch, olsq_command):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == name else find(n))
    code, _, err = olsq_command("train", "--out", tmp_path / "run")
    assert code == 1
    assert f"{name} is not installed; olsq train needs pip install" in err
    assert '"online-least-squares[cli,nn]"' in err


def test_a_tokenizer_file_without_its_library(tmp_path, monkeypatch, olsq_command):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "t.json").write_text("{}")
    code, _, err = olsq_command(
        "train", "--tokenizer", tmp_path / "t.json", "--out", tmp_path / "run"
    )
    assert (code, err.count("\n")) == (1, 1)
    assert 'pip install "online-least-squares[tokenizers]"' in err
    assert not (tmp_path / "run").exists()


@pytest.mark.full
def test_other_commands_import_neither_jax_nor_equinox():
    code = """
import sys
from olsq.cli.app import run
run(["--help"]); run(["train", "--help"]); run(["fit", "none.csv", "--target", "y"])
print([m for m in ("jax", "equinox", "optax", "safetensors") if m in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True,
        cwd=REPOSITORY,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_config_file_makes_the_same_run(finished, tmp_path):
    out = finished[0]
    options = gather({"config": out / "config.toml"})
    assert (options.mixer, options.dim, options.tokenizer, options.out) == (
        "gla", 8, "bpe:270", out,
    )  # fmt: skip
    assert write_config(options) == (out / "config.toml").read_text()
    path = tmp_path / "c.toml"
    path.write_text(
        'preset = "1m"\nblocks = 2\nlr = 1\ntext = "a \\"b\\".txt"\n'
        "[mixer_options.mesa]\nridge_floor = 0.5\nnorm_eps = 1e-5\n"
    )
    options = gather({"config": path, "heads": 8, "mixer_option": ["mesa.ridge_floor=2"]})
    assert (options.dim, options.blocks, options.heads, options.lr) == (128, 2, 8, 1)
    assert options.mixer_options == {"mesa": {"ridge_floor": 2, "norm_eps": 1e-5}}
    (tmp_path / "again.toml").write_text(write_config(options))
    again = gather({"config": tmp_path / "again.toml"})
    assert again == dataclasses.replace(
        options, text=options.text.absolute(), out=options.out.absolute()
    )
    assert gather({"config": path, "preset": "5m"}).blocks == 6  # the command line's comes first


def test_the_config_file_of_the_page_is_read(tmp_path):
    page = (REPOSITORY / "docs" / "training.md").read_text(encoding="utf-8")
    (tmp_path / "c.toml").write_text(re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)[0])
    options = gather({"config": tmp_path / "c.toml", "mixer_option": ["hawk.convolution=false"]})
    assert (options.mixers, options.dim, options.steps) == (["hawk", "mesa"], 128, 5000)
    assert options.mixer_options == {"mesa": {"ridge_floor": 0.1}, "hawk": {"convolution": False}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speed = 3", "has an unknown option 'speed'; known are text, out, mixer"),
        ('steps = "many"', "steps must be a whole number, got 'many'"),
        ("steps = true", "steps must be a whole number, got True"),
        ("resume = 1", "resume must be true or false, got 1"),
        ("mixer_options = {mesa = 1}", "mixer_options must be tables of options by mixer"),
    ],
)
def test_config_files_that_cannot_be_used(text, message, tmp_path):
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(message)):
        gather({"config": path})


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


def test_page_names_options_and_solvers_that_exist(olsq_command, monkeypatch):
    from olsq.cli.train.build import SOLVERS

    monkeypatch.setenv("COLUMNS", "120")
    page = (REPOSITORY / "docs" / "training.md").read_text(encoding="utf-8")
    _, shown, _ = olsq_command("train", "--help")
    assert set(re.findall(r"--[a-z][a-z-]*", page)) <= set(re.findall(r"--[a-z][a-z-]*", shown))
    for name, (kind, main) in SOLVERS.items():
        assert f"| `{name}` | `olsq.{kind}` | `{main}` |" in page

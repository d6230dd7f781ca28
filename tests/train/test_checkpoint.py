"""A run that was stopped, killed or copied ends with the same bits as one that was not."""

import itertools
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from olsq.train import (
    CheckpointError,
    CheckpointMismatch,
    CorpusTrainer,
    fit,
    read_checkpoint,
)
from olsq.train import checkpoint as checkpoint_module
from tests.train.small import TEXT, SmallModel, config, corpus, same_bits, trainer, weights

pytestmark = pytest.mark.usefixtures("one_target")

REPOSITORY = Path(__file__).parents[2]


def stopped_after(directory, steps, **options):
    """A trainer that was left, with a checkpoint, at the record of ``steps``, one step ahead."""
    run = trainer(directory, **options)
    list(itertools.islice(run.run(), steps))
    run.save()
    return run


def everything(run):
    """Weights, the optimiser's state and the log of a run, to be compared."""
    found = checkpoint_module.named_arrays("o", run._state)
    return [*weights(run.model), *(np.asarray(x) for x in found.values())], run.log.as_csv()


@pytest.mark.full
def test_stopped_anywhere_and_resumed_is_the_same_run(tmp_path):
    whole = trainer(tmp_path / "whole")
    list(whole.run())
    stopped_after(tmp_path / "parts", 7)
    second = trainer(tmp_path / "parts")
    assert second.resume()
    assert second.step == 8
    list(itertools.islice(second.run(), 20))
    second.save()
    last = trainer(tmp_path / "parts")
    last.resume()
    list(last.run())
    arrays, log = everything(last)
    expected, expected_log = everything(whole)
    assert same_bits(arrays, expected)
    assert log == expected_log
    for name in ("checkpoint.safetensors", "log.csv"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert last.resume()  # a finished run
    assert list(last.run()) == []


@pytest.mark.slow
def test_killed_at_random_moments_and_resumed_is_the_same_run(tmp_path):
    """SIGKILL while steps are made and checkpoints, one a step, are written."""
    steps, rng = 150, random.Random(0)
    environment = {
        **os.environ, "PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }  # fmt: skip

    def start(directory):
        return subprocess.Popen(
            [sys.executable, "-m", "tests.train.small", str(directory), str(steps)],
            cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    whole = start(tmp_path / "whole")
    for _ in range(3):
        process = start(tmp_path / "killed")
        for _ in range(rng.randint(1, 40)):  # some steps, then some thousandths of a second
            process.stdout.readline()
        time.sleep(rng.uniform(0, 0.005))
        process.kill()
        process.communicate()
        left = tmp_path / "killed" / "checkpoint.safetensors"
        if left.exists():
            assert 0 < read_checkpoint(left).step < steps
    process = start(tmp_path / "killed")
    process.communicate()
    whole.communicate()
    assert process.returncode == whole.returncode == 0
    for name in ("checkpoint.safetensors", "log.csv"):
        killed = (tmp_path / "killed" / name).read_bytes()
        assert killed == (tmp_path / "whole" / name).read_bytes()


def test_directory_with_a_checkpoint_is_not_overwritten(tmp_path):
    stopped_after(tmp_path, 3)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(CheckpointError, match="exists: resume from it"):
        fit(SmallModel(), corpus(), config(), directory=tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_options_are_named(tmp_path):
    stopped_after(tmp_path, 3, setup={"mixer": ["mesa"], "dim": 16})
    other = trainer(tmp_path, config={"lr": 1.0, "seed": 9}, setup={"mixer": ["gla"], "dim": 16})
    with pytest.raises(CheckpointMismatch) as raised:
        other.resume()
    assert raised.value.differences == {
        "mixer": (["mesa"], ["gla"]), "lr": (3e-3, 1.0), "seed": (0, 9),
    }  # fmt: skip
    assert "lr was 0.003 and is 1.0" in str(raised.value)
    assert trainer(tmp_path, setup={"mixer": ("mesa",), "dim": 16}).resume()


def test_other_text_is_refused(tmp_path):
    stopped_after(tmp_path, 3)
    data = corpus(TEXT.replace("q", "k", 1))
    other = CorpusTrainer(SmallModel(), data, config(), directory=tmp_path)
    with pytest.raises(CheckpointMismatch, match="the text was"):
        other.resume()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: SmallModel(dim=8), r"weights/embedding is float32 \(256, 16\) there"),
        (lambda: SmallModelWithMore(), "only this run has weights/more"),
    ],
)
def test_other_model_is_refused(tmp_path, model, message):
    stopped_after(tmp_path, 3)
    with pytest.raises(CheckpointError, match=message):
        trainer(tmp_path, model=model()).resume()


class SmallModelWithMore(SmallModel):
    more: jnp.ndarray

    def __init__(self):
        super().__init__()
        self.more = jnp.zeros(3)


def damage(path, how):
    content = path.read_bytes()
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "text":
        path.write_text("this is not a checkpoint\n" * 20)
    elif how == "one bit":
        path.write_bytes(content[:-100] + bytes([content[-100] ^ 1]) + content[-99:])
    elif how == "foreign":
        safetensors.numpy.save_file({"weights/embedding": np.zeros(3)}, path)
    elif how == "newer":
        safetensors.numpy.save_file({"a": np.zeros(3)}, path, {"olsq train": '{"version": 99}'})


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated", "truncated, damaged or no checkpoint"),
        ("empty", "truncated, damaged or no checkpoint"),
        ("text", "truncated, damaged or no checkpoint"),
        ("one bit", "damaged: its checksum does not match"),
        ("foreign", "not a checkpoint of olsq.train"),
        ("newer", "has format 99"),
    ],
)
def test_unusable_checkpoint_is_named_and_left_alone(tmp_path, how, message):
    stopped_after(tmp_path, 3)
    path = tmp_path / "checkpoint.safetensors"
    damage(path, how)
    before = path.read_bytes()
    run = trainer(tmp_path)
    with pytest.raises(CheckpointError, match=message) as raised:
        run.resume()
    assert str(path) in str(raised.value)
    assert run.step == 0
    with pytest.raises(CheckpointError, match="exists"):
        next(run.run())
    assert path.read_bytes() == before


def test_failed_write_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    run = stopped_after(tmp_path, 3)
    path = tmp_path / "checkpoint.safetensors"
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_module.os, "fsync", full)
    run._saved = 0
    with pytest.raises(OSError, match="No space left"):
        run.save()
    assert path.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"checkpoint.safetensors", "log.csv"}


def test_bfloat16_weights_survive(tmp_path):
    tree = {"a": jnp.asarray([1.5, -2.0], jnp.bfloat16), "b": jnp.asarray(3)}
    path = tmp_path / "c.safetensors"
    notes = {"step": 0, "config": {}, "setup": {}, "data": "", "tokenizer": None}
    checkpoint_module.write_checkpoint(path, {"weights": tree}, notes, trainer().log)
    again = read_checkpoint(path).restore("weights", tree)
    assert again["a"].dtype == jnp.bfloat16
    assert again["a"].tolist() == [1.5, -2.0]
    assert again["b"].shape == ()


def test_checkpoint_knows_its_tokenizer_and_step(tmp_path):
    stopped_after(tmp_path, 3)
    found = read_checkpoint(tmp_path / "checkpoint.safetensors")
    assert found.step == 4
    assert found.tokenizer is not None
    assert found.tokenizer.name == "bytes"
    assert found.config["lr"] == 3e-3
    assert len(found.log) == 4


def test_no_checkpoint_to_resume_from(tmp_path):
    assert not trainer(tmp_path / "nothing").resume()
    assert not trainer().resume()
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "none")

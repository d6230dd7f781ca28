"""The gallery's scripts hold their own claims."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "gallery"
FIVE = ["rolling_betas", "echo_canceller", "bandit", "force_readout", "seasonal_forecast"]
STREAMS = [
    "sensor_calibration",
    "year_ahead",
    "fisher_effect",
    "inflation_persistence",
    "self_tuning",
    "filters_in_prange",
    "class_incremental",
    "panel_regression",
    "larger_than_memory",
    "dask_cluster",
    "equaliser",
    "beamformer",
    "stft_canceller",
]
SEQUENCES = [
    "learn_features",
    "in_context_regression",
    "train_and_sample",
    "swap_solvers",
    "property_test",
]
SLOW = {"learn_features", "in_context_regression", "train_and_sample", "swap_solvers"}  # they train
APART = ["shard_sequence"]  # needs devices, which JAX takes before it starts
NAMES = [*FIVE, *STREAMS, *SEQUENCES]
QUICK = {
    "rolling_betas": ["--assets", "12"],
    "bandit": ["--steps", "600"],
    "inflation_persistence": ["--draws", "39"],
    "self_tuning": ["--steps", "50000"],
    "filters_in_prange": ["--filters", "100", "--steps", "1000"],
    "class_incremental": ["--features", "512"],
    "larger_than_memory": ["--rows", "500000"],
}


def test_every_script_is_tested():
    assert {path.stem for path in SCRIPTS.glob("*.py")} == {*NAMES, *APART, "figures"}


def test_every_script_is_in_the_gallery(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    gallery = importlib.import_module("gallery")
    shown = {**gallery.STREAMS, **gallery.SEQUENCES}
    assert set(shown) == {*NAMES, *APART}
    for name, figure in shown.items():
        assert (ROOT / "docs" / "img" / figure).exists()
        assert f"literalinclude}} ../../examples/gallery/{name}.py" in gallery.page(name, figure)
    assert gallery.index().count("grid-item-card") == len(shown)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in NAMES]
)
def test_a_script_holds_what_it_claims(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    matplotlib.use("agg")
    figure = tmp_path / "figure.png"
    importlib.import_module(name).main([*QUICK.get(name, []), "--figure", str(figure)])
    assert figure.stat().st_size > 10_000
    assert capsys.readouterr().out


@pytest.mark.slow
def test_a_sequence_is_solved_on_several_devices(tmp_path):
    command = [sys.executable, str(SCRIPTS / "shard_sequence.py"), "--tokens", "256"]
    figure = tmp_path / "figure.png"
    done = subprocess.run(
        [*command, "--figure", str(figure)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "256 tokens on 4 devices" in done.stdout
    assert figure.stat().st_size > 10_000

"""Every experiment's --quick mode, which asserts its own criterion."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import matplotlib
import pytest

EXPERIMENTS = Path(__file__).parents[2] / "examples" / "experiments"
SHARED = {"dynamics_tasks", "icl_training", "regression_tasks", "sander_claims", "task_training"}
NAMES = sorted(path.stem for path in EXPERIMENTS.glob("*.py") if path.stem not in SHARED)


@pytest.mark.parametrize("name", NAMES)
def test_quick(name, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXPERIMENTS), *sys.path])
    matplotlib.use("agg")
    importlib.import_module(name).main(["--quick"])


def test_there_are_experiments():
    assert len(NAMES) >= 5

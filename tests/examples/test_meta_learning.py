"""Meta-gradients against their equations: the quick mode of examples/meta_learning.py."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
def test_quick(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    importlib.import_module("meta_learning").main(["--quick"])

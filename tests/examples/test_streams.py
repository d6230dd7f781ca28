"""The five streams of docs/five-streams.md: each script holds its own claims; the page shows it."""

from __future__ import annotations

import importlib
import re
import sys
import textwrap
from pathlib import Path

import matplotlib
import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "streams"
NAMES = ["rolling_betas", "echo_canceller", "bandit", "force_readout", "seasonal_forecast"]
QUICK = {"rolling_betas": ["--assets", "12"], "bandit": ["--steps", "600"]}
MARKED = re.compile(r"^ *# \[use\]\n(.*?)^ *# \[end\]$", re.S | re.M)


def test_every_script_is_tested():
    assert {path.stem for path in SCRIPTS.glob("*.py")} == {*NAMES, "figures"}


@pytest.mark.parametrize("name", NAMES)
def test_a_script_holds_what_it_claims(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    matplotlib.use("agg")
    figure = tmp_path / "figure.png"
    importlib.import_module(name).main([*QUICK.get(name, []), "--figure", str(figure)])
    assert figure.stat().st_size > 10_000
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_the_lines_that_use_olsq(name):
    page = (ROOT / "docs" / "five-streams.md").read_text()
    (use,) = MARKED.findall((SCRIPTS / f"{name}.py").read_text())
    code = textwrap.dedent(use).rstrip()
    assert len(code.splitlines()) <= 25
    assert f"```python\n{code}\n```" in page

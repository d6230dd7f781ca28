"""The printable pages: every line of the cheat sheet runs, and names on the chart exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

import olsq
from olsq import forgetting

SCRIPT = Path(__file__).parent.parent / "docs" / "sheets.py"


def load_sheets():
    spec = importlib.util.spec_from_file_location("sheets", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


sheets = load_sheets()


@pytest.mark.full
def test_every_line_of_the_cheat_sheet_runs(tmp_path):
    pytest.importorskip("matplotlib")
    names = {"path_of_state": tmp_path / "state.olsq"}
    exec(sheets.SETUP, names)
    for _, code in sheets.SHEET:
        for line, _ in code:
            if not line.startswith("$"):
                exec(line, names)


def test_names_on_the_chart_are_public():
    answers = [answer for _, answer, _ in sheets.QUESTIONS] + [sheets.OTHERWISE[0]]
    for name in re.findall(r"(\w+)\(", " ".join(answers)):
        assert hasattr(olsq, name) or hasattr(forgetting, name), name


@pytest.mark.full
def test_both_pages_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    with sheets.house_style():
        for draw in (sheets.draw_questions, sheets.draw_sheet):
            figure = draw()
            figure.savefig(tmp_path / "page.pdf")
            width, height = figure.get_size_inches() * figure.dpi
            for text in figure.axes[0].texts:  # nothing is cut at the edge of the page
                box = text.get_window_extent()
                assert box.x0 >= 0
                assert box.x1 <= width
                assert box.y0 >= 0
                assert box.y1 <= height

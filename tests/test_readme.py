"""Every block of the README runs when it is pasted alone, and its numbers are those measured."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", README, re.S | re.M)


@pytest.mark.usefixtures("one_target")
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs_alone_and_prints_what_is_shown(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, shown = BLOCKS[number]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, f"README block {number}", "exec"), {})
    assert printed.getvalue() == shown


def test_the_readme_fits_a_hundred_lines_of_a_hundred_columns():
    lines = README.splitlines()
    assert len(lines) <= 100
    assert not [line for line in lines if len(line) > 100]


def test_blocks_are_found():
    assert len(BLOCKS) >= 4
    assert README.index("coefficient_path") < README.index("import jax")


def times():
    """Seconds a row by regressors and method, as docs/measurements/speed.md was made from."""
    page = (ROOT / "docs" / "measurements" / "speed.md").read_text()
    table = page.partition("<!-- times:begin -->")[2].partition("<!-- times:end -->")[0]
    units = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}
    found = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        values = [re.match(r"([\d.]+) (ns|us|ms)", cell) for cell in cells[1:]]
        if cells and any(values):
            found[cells[0]] = [v and float(v[1]) * units[v[2]] for v in values]
    return found


ROWS = {
    "final coefficients": ("olsq fit", "river, smoothing", "padasip", None),
    "after every row": ("olsq coefficient_path", None, None, "polars-ols rls"),
    "one row per call": ("olsq partial_fit", "river, smoothing", "padasip", None),
}


@pytest.mark.parametrize("row", ROWS)
def test_speeds_are_compared_like_for_like(row):
    measured = times()
    lines = [line for line in README.splitlines() if line.startswith("|")]
    (line,) = (line for line in lines if row in line)
    assert "16 regressors" in line
    cells = [cell.strip(" *") for cell in line.strip("|").split("|")][1:]
    ours, *others = [name and measured[name][1] for name in ROWS[row]]
    number, unit = cells[0].split()
    assert float(number) * {"ns": 1e-9, "us": 1e-6}[unit] == pytest.approx(ours, rel=1e-9)
    for cell, theirs in zip(cells[1:], others, strict=True):
        assert bool(cell) == (theirs is not None)
        if cell:
            assert float(cell.rstrip("x")) == pytest.approx(theirs / ours, rel=0.04)


def test_the_landing_page_has_rows_of_the_readme():
    page = (ROOT / "docs" / "index.md").read_text()
    table = page.partition("| one regression, forgetting")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    assert len(rows) >= 4
    assert not [row for row in rows if row not in README]


def test_the_command_line_has_the_numbers_measured():
    page = (ROOT / "docs" / "measurements" / "speed.md").read_text()
    result = json.loads((ROOT / "benchmarks" / "results" / "cli_memory.json").read_text())
    rows = re.findall(r"\| ([\d]+) MB \| ([\d,]+) \|", page)
    for (peak, rate), run in zip(rows, result["runs"], strict=True):
        assert int(peak) == round(run["peak_mb"])
        assert int(rate.replace(",", "")) == round(run["rows_per_second"], -3)
    page = (ROOT / "docs" / "cli.md").read_text()
    named = re.search(r"^(\w+) commands", page.partition("checkout). ")[2])[1]
    assert named.lower() == "four"
    block = re.search(r"^```\n(olsq demo.*?)^```", page, re.S | re.M)[1]
    assert len(block.splitlines()) == 4

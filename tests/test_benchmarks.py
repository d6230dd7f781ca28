"""Benchmarks: asv's suites stand alone, and pages say what their reports stored."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from pathlib import Path

import pytest

from benchmarks.reports import __main__ as reports
from benchmarks.reports import untied
from benchmarks.reports.prose import QUOTES, Quote
from benchmarks.reports.registry import BY_NAME, REPORTS
from benchmarks.reports.traced import block, moved, tables_outside
from benchmarks.suites import common

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
SUITES = "online paths rolling sequence gradients decode layers memory accuracy startup peers"


def test_suites_import_nothing_else_of_benchmarks():
    settings = json.loads((BENCHMARKS / "asv.conf.json").read_text())
    folder = BENCHMARKS / settings["benchmark_dir"]
    assert {f"{name}.py" for name in SUITES.split()} <= {path.name for path in folder.iterdir()}
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level < 2, path
                assert node.level or not (node.module or "").startswith("benchmarks"), path
            if isinstance(node, ast.Import):
                assert not any(a.name.startswith("benchmarks") for a in node.names), path


def test_readme_has_ten_lines_and_folders_say_who_they_are():
    assert len((BENCHMARKS / "README.md").read_text().splitlines()) <= 10
    for folder in ("suites", "reports", "support", "results"):
        assert (BENCHMARKS / folder).is_dir()


def test_what_a_commit_lacks_is_skipped_with_the_reason():
    assert common.need("olsq.RecursiveLeastSquares.partial_fit")
    with pytest.raises(NotImplementedError, match=r"has no olsq\.Clairvoyant"):
        common.need("olsq.Clairvoyant")
    with pytest.raises(NotImplementedError, match="pip install no-such-library"):
        common.library("no_such_library", "no-such-library")


def test_a_ratio_is_of_processor_time():
    def work(n):
        return lambda: sum(range(n))

    assert 2 < common.ratio(work(400_000), work(100_000), seconds=0.05) < 8


def test_pages_say_what_is_stored(capsys):
    wrong = reports.main(["--check"])
    assert not wrong, capsys.readouterr().out


@pytest.mark.parametrize("name", ["many", "attention"])
def test_a_page_that_says_otherwise_is_found(name, monkeypatch, tmp_path):
    report = BY_NAME[name]
    shown = report.blocks(report.stored())
    for page, _ in shown:
        (tmp_path / page).parent.mkdir(exist_ok=True)
        (tmp_path / page).write_text((ROOT / "docs" / page).read_text())
    monkeypatch.setattr("benchmarks.reports.traced.DOCS", tmp_path)
    assert not reports.check(report)
    for (page, marker), text in shown.items():
        kept = (tmp_path / page).read_text()
        last = text.strip().splitlines()[-1]
        for other in ("", f"{last}\n\nA sentence written by hand."):
            (tmp_path / page).write_text(kept.replace(last, other))
            (complaint,) = reports.check(report)
            assert f"docs/{page}, {marker} is not" in complaint
        (tmp_path / page).write_text(kept)


@pytest.mark.parametrize(("factor", "wrong"), [(1.1, 0), (0.9, 0), (4.0, 1), (0.2, 1)])
def test_a_sentence_further_from_the_results_than_the_spread_is_found(factor, wrong, monkeypatch):
    old = next(quote for quote in QUOTES if quote.reports == "variants")
    moved = Quote(old.page, old.text, old.reports, lambda s: [factor * v for v in old.values(s)])
    monkeypatch.setattr(reports, "QUOTES", [moved])
    assert bool(reports.quoted(["variants"])) == bool(reports.quoted([])) == wrong
    assert not reports.quoted(["many"])


def test_a_sentence_that_is_gone_is_found(monkeypatch):
    said = Quote("README.md", "olsq takes {} years", "many", lambda s: [1.0])
    (complaint,) = said.wrong([0], 0.5)
    assert complaint.startswith("no such sentence in README.md")
    monkeypatch.setattr(untied, "UNTIED", [("README.md", "takes 3 years", "nobody waited")])
    assert untied.gone() == ["README.md no longer says: takes 3 years"]


def test_no_report_is_without_a_page():
    told = {name for quote in QUOTES for name in quote.reports.split()}
    for report in REPORTS:
        stored = report.stored()
        assert stored is not None, f"never run: {report.name}"
        assert report.name in told or report.blocks(stored), report.name


@pytest.mark.parametrize(("factor", "far"), [(1.05, False), (3.0, True)])
def test_a_run_rewrites_the_page_and_says_what_moved(factor, far, monkeypatch, tmp_path):
    many = BY_NAME["many"]
    stored = many.stored()
    ((page, marker),) = many.blocks(stored)
    (tmp_path / page).parent.mkdir()
    (tmp_path / page).write_text((ROOT / "docs" / page).read_text())
    (tmp_path / "many.json").write_text(json.dumps(stored))
    for name in ("traced.DOCS", "registry.DOCS", "registry.RESULTS"):
        monkeypatch.setattr(f"benchmarks.reports.{name}", tmp_path)

    def measure(report):
        for case in stored["cases"].values():
            case["ratio"] *= factor
        report.results.write_text(json.dumps(stored))

    monkeypatch.setattr(reports, "measure", measure)
    assert bool(reports.run(many)) is far
    assert many.blocks(stored)[page, marker] == block(page, marker)

    def broken(report):
        raise subprocess.CalledProcessError(1, "many")

    monkeypatch.setattr(reports, "measure", broken)
    (complaint,) = reports.run(many)
    assert complaint.startswith("many: ")
    assert many.stored() == stored  # put back


def short(value):
    """An error as the README writes it: 2e-4."""
    return f"{value:.0e}".replace("e-0", "e-")


def test_the_readme_quotes_what_is_stored():
    rows = (ROOT / "README.md").read_text().splitlines()
    rows = [re.sub(r"[*\s]", "", row) for row in rows if row.startswith("|")]
    results = {n: json.loads((BENCHMARKS / "results" / f"{n}.json").read_text())
               for n in ("sequence", "sequence_numpy", "stability")}  # fmt: skip
    found = results["sequence"]["speed|H8 T4096 d64|0.999"]
    default, cg, gla = (found[n] for n in ("default", "CG, 30 steps", "gated linear attention"))
    forward, both = (f"{x:.0f}ms" for x in default[:2])
    assert any(row.endswith(f"|{forward}|{both}|{short(default[3])}|") for row in rows)
    for name, other, digits, error in (
        ("30conjugate", cg, 1, short(cg[3])), ("gatedlinear", gla, 2, ""),
    ):  # fmt: skip
        (row,) = (row for row in rows if row.startswith(f"|{name}"))
        _, _, *cells, last, _ = row.split("|")
        for cell, theirs, ours in zip(cells, other, default, strict=False):
            assert float(cell.rstrip("x")) == pytest.approx(theirs / ours, abs=0.6 * 10**-digits)
        assert last == error
    cells = results["stability"]["cells"]
    for condition, label in (("1e+06", "1e6"), ("1e+08", "1e8")):
        found = cells[f"float64 cond {condition} forget 0.99"]
        (row,) = (row for row in rows if row.startswith(f"|1e6rows,condition{label}"))
        for cell, name in zip(
            row.split("|")[2:-1], ("olsq", "river", "padasip", "polars-ols"), strict=True
        ):
            one = found[name]
            lost = "raises" if "Error" in one["status"] else "NaN"
            said = lost if one["status"] != "ok" else "lost" if one["lost_at"] else None
            assert cell == (said or short(one["error"])), row


@pytest.mark.parametrize(
    ("old", "new", "spread", "far"),
    [
        ("| a | 1.20 |", "| a | 1.25 |", 0.1, False),
        ("| a | 1.20 |", "| a | 1.90 |", 0.1, True),
        ("| a | 3e-16 |", "| a | 8e-16 |", 0.1, False),  # an error: the order counts
        ("| a | 3e-16 |", "| a | 3e-12 |", 0.1, True),
        ("| a | 0 |", "| a | 3 |", 0.5, True),
        ("| a | 12,000 |", "| a | 13,000 |", 0.2, False),
        ("| a | lost |", "| a | 1e-9 |", 0.5, True),  # words that change always count
        ("| a | 1 |\n| b | 1 |", "| a | 1 |", 0.5, True),
        ("On 2026-01-01.", "On 2027-02-02.", 0.0, False),
    ],
)
def test_numbers_that_moved_by_more_than_the_spread(old, new, spread, far):
    assert bool(moved(old, new, spread)) is far


def test_tables_between_no_markers_are_found(tmp_path):
    page = tmp_path / "page.md"
    table = "| method | time |\n|---|---|\n| a | 1.5 |\n| b | 2.5 |\n| c | 3.5 |\n"
    page.write_text(f"{table}\n<!-- x:begin -->\n\n{table}\n<!-- x:end -->\n")
    assert tables_outside(page) == ["| method | time |"]

"""``olsq compile`` and ``olsq.compile_kernels``: parts, progress, and what is refused."""

from __future__ import annotations

import pytest

import olsq
from olsq import compiling, kernel_cache
from olsq.cli.app import run


@pytest.fixture
def two_steps(monkeypatch):
    calls = []
    steps = {"streams": [("a", lambda: calls.append("a")), ("b", lambda: calls.append("b"))]}
    monkeypatch.setattr(compiling, "PARTS", {"streams": lambda: iter(steps["streams"])})
    return calls


def test_a_part_calls_its_kernels(two_steps, capsys):
    assert run(["compile", "streams"]) == 0
    assert two_steps == ["a", "b"]
    shown = capsys.readouterr()
    assert "files of compiled code in" in shown.out
    assert shown.err == ""  # no terminal, no bar


def test_progress_counts_steps(two_steps):
    seen = []
    done = olsq.compile_kernels(progress=lambda *now: seen.append(now))
    assert seen == [("a", 0, 2), ("b", 1, 2), ("", 2, 2)]
    assert done.folder.is_dir()
    assert done.files >= 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name the parts to compile, or --all"),
        (["streams", "--all"], "name parts or take --all, not both"),
        (["streams", "steams"], "parts are streams; got 'steams'"),
    ],
)
def test_one_line_and_exit_code_2(two_steps, arguments, message, capsys):
    assert run(["compile", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert two_steps == []


def test_nothing_to_write_into_is_an_error(two_steps, monkeypatch, capsys):
    nothing = kernel_cache.CacheFolders((), None)
    monkeypatch.setattr(compiling, "cache_folders", lambda package: nothing)
    assert run(["compile", "streams"]) == 1
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().err
    assert two_steps == []


@pytest.mark.full
@pytest.mark.parametrize("part", compiling.PARTS)
def test_every_step_of_a_part_runs(part):
    if part == "polars":
        pytest.importorskip("polars")
    assert olsq.compile_kernels(part).files > 0

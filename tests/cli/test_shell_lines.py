"""Shell lines of the README, the pages and the cheat sheet are run, as their Python blocks are.

`olsq fit` and `predict` run on tables made up for the line; `compile` without compiling; the other
commands, which take minutes, only have their options read.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer.main

from olsq import compiling
from olsq.cli.app import app, run
from olsq.compiling import Compiled

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGES += [p for p in (ROOT / "docs").rglob("*.md") if not {"_build", "gallery"} & {*p.parts}]
FENCE = re.compile(r"^```(?:sh|bash|console|text)?\n(.*?)^```", re.S | re.M)
INLINE = re.compile(r"`(olsq [^`\n]+)`")
COMMANDS = ["demo", "fit", "predict", "compile"]
ROWS = 300
KEYS = ("features", "target", "time", "by")


def arguments_of(line):
    """Arguments of the command in a line; None for one that is another's or has placeholders."""
    try:
        words = shlex.split(line.removeprefix("$ "), comments=True)
    except ValueError:
        return None
    if len(words) < 2 or words[0] != "olsq" or words[1] not in COMMANDS:
        return None
    if any(re.fullmatch(r"\[?[A-Z]{2,}\]?|\.\.\.", word) for word in words):
        return None
    return words[1:]


def sessions(text):
    """Commands of a page: those of a block run one after another, one in a sentence by itself."""
    for block in FENCE.findall(text):
        lines = re.sub(r"\\\n\s*", "", block).replace("&&", "\n").splitlines()
        commands = [arguments_of(line.strip()) for line in lines]
        yield [command for command in commands if command]
    for line in INLINE.findall(FENCE.sub("", text)):
        command = arguments_of(line)
        whole = command and (command[0] not in ("fit", "predict") or "--target" in command)
        if whole and command[1:]:
            yield [command]


def options_of(command):
    """Values of a command's options by name; a command line that it refuses raises."""
    root = typer.main.get_command(app)
    name, *rest = command
    if "--help" in rest:
        return {}
    return root.get_command(None, name).make_context(name, rest).params


class Tables:
    """Makes the tables that the commands of a session read, each with later rows than the last."""

    def __init__(self):
        self.made, self.columns = 0, {}

    def columns_of(self, options, key):
        """Names that this command, or else an earlier one, gives to an option."""
        given = options.get(key) or []
        names = [name for part in ([given] if isinstance(given, str) else given)
                 for name in part.split(",")]  # fmt: skip
        self.columns[key] = names or self.columns.get(key, [])
        return self.columns[key]

    def write(self, options):
        name, rng = Path(options["data"]), np.random.default_rng(self.made)
        features, targets, time, by = (self.columns_of(options, key) for key in KEYS)
        features, targets = features or ["a", "b"], targets or ["y"]
        X = rng.standard_normal((ROWS, len(features)))
        table = dict(zip(features, X.T, strict=True))
        for place, one in enumerate(targets):
            table[one] = X.sum(axis=1) + place + 0.1 * rng.standard_normal(ROWS)
        for one in time:
            step = np.arange(ROWS) + ROWS * self.made
            stamps = np.datetime64("2024-01-01", "h" if "hour" in one else "D") + step
            table[one] = stamps.astype("datetime64[ms]")
        for one in by:
            table[one] = np.array(["one", "two", "three"])[np.arange(ROWS) % 3]
        frame = pl.DataFrame(table)
        frame.write_parquet(name) if name.suffix == ".parquet" else frame.write_csv(name)
        self.made += 1


def run_session(commands):
    tables = Tables()
    for command in commands:
        options = options_of(command)
        if command[0] in ("fit", "predict"):
            if not Path(options["data"]).exists():
                tables.write(options)
            if command[0] == "predict" and not Path(options["state"]).exists():
                continue  # of a session that is not shown
            assert run(command) == 0, command
        elif command[0] == "compile":
            assert run(command) == 0, command


@pytest.fixture(autouse=True)
def nothing_is_compiled_beforehand(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def named(*parts, progress=None):
        assert set(parts) <= set(compiling.PARTS), parts
        return Compiled(tmp_path, 0)

    monkeypatch.setattr(compiling, "compile_kernels", named)


FOUND = {str(page.relative_to(ROOT)): list(sessions(page.read_text())) for page in PAGES}
FOUND = {page: found for page, found in FOUND.items() if any(found)}


@pytest.mark.full
@pytest.mark.parametrize("page", sorted(FOUND))
def test_shell_lines_of_a_page_run(page, capsys):
    for number, commands in enumerate(FOUND[page]):
        folder = Path(f"session{number}")
        folder.mkdir()
        with pytest.MonkeyPatch.context() as here:
            here.chdir(folder)
            run_session(commands)


@pytest.mark.full
def test_shell_lines_of_the_cheat_sheet_run(capsys):
    spec = importlib.util.spec_from_file_location("sheets", ROOT / "docs" / "sheets.py")
    sheets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sheets)
    lines = [line for _, code in sheets.SHEET for line, _ in code if line.startswith("$ ")]
    commands = [arguments_of(line) for line in lines]
    assert len(commands) >= 3
    assert all(commands)
    run_session(commands)


def test_lines_are_found_and_wrong_ones_refused():
    assert len(FOUND) >= 5
    with pytest.raises(AssertionError):
        run_session([["compile"]])
    with pytest.raises(Exception, match="No such option"):
        run_session([["fit", "data.csv", "--targets", "y"]])

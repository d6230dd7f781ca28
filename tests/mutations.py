"""Break the package in places drawn by a seed, and see which run of the tests turns red.

    python -m tests.mutations                  # all that tests/mutations.md does not have yet
    python -m tests.mutations --only 3 17      # these again
    python -m tests.mutations --near           # by the nearest tests; others stay for a whole run

A place is a comparison, an operator, a number, a condition or a message of an error; each is as
likely as any other, so files come in proportion to their code.  The changed copy lies in a git
worktree of its own.  The tests nearest to the place come first, those of its folder next, the whole
quick run last, until one is red; where the quick run stays green, ``pytest --rest`` of the folder.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "tests" / "mutations.md"
SEED, NUMBER = 20261129, 40
NEAREST = 5  # test files that come first
PATIENCE = 1800  # seconds: a change may make a loop endless, which is found too
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}

COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
OPERATORS = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.MatMult: "+", ast.FloorDiv: "*",
    ast.Pow: "*", ast.Mod: "+", ast.BitAnd: "|", ast.BitOr: "&",
}  # fmt: skip

# Changes that nobody would call a break: of these no test is asked to turn red.
EQUIVALENT = {
    1: "a threshold of a float that no stream meets",
    15: "a cell of the year 1000 says 1000, so it is kept either way",
    19: "larger blocks of rows have the same results",
}

HEAD = """# Breaks that the tests find

Made by `python -m tests.mutations` (seed {seed}, {date}): {number} changes of single places
of the package, drawn in proportion to code.  A quick run (`pytest`) finds {quick} of {done},
`pytest --all` {full} more; {equivalent} change nothing that anyone would call a break.

| | place | change | found by | test |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Change:
    path: str
    line: int
    function: str
    start: int  # bytes of the file
    stop: int
    new: str
    old: str

    def __str__(self):
        return f"{self.path}:{self.line} {self.function}: {self.old} -> {self.new}"


def changes_of(path: Path) -> list[Change]:
    """Return every change of a file that could be drawn."""
    source = path.read_bytes()
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    found = []

    def span(node):
        begin = starts[node.lineno - 1] + node.col_offset
        return begin, starts[node.end_lineno - 1] + node.end_col_offset

    def text_of(node):
        return source[slice(*span(node))].decode()

    def replace(node, new, function):
        name = str(path.relative_to(ROOT))
        found.append(Change(name, node.lineno, function, *span(node), new, text_of(node)))

    def visit(node, function):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function = node.name
        if isinstance(node, ast.Raise):
            message = next((n for n in ast.walk(node) if isinstance(n, ast.JoinedStr)), None)
            message = message or next(
                (n for n in ast.walk(node) if isinstance(n, ast.Constant) and text(n)), None
            )
            if message is not None:
                replace(message, '"something is wrong"', function)
            return
        if isinstance(node, ast.If | ast.IfExp):
            replace(node.test, f"(not ({text_of(node.test)}))", function)
        elif isinstance(node, ast.Compare) and len(node.ops) == 1:
            new = COMPARISONS[type(node.ops[0])]
            left, right = text_of(node.left), text_of(node.comparators[0])
            replace(node, f"(({left}) {new} ({right}))", function)
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            new = OPERATORS[type(node.op)]
            replace(node, f"(({text_of(node.left)}) {new} ({text_of(node.right)}))", function)
        elif isinstance(node, ast.BoolOp) and len(node.values) == 2:
            new = " or " if isinstance(node.op, ast.And) else " and "
            replace(node, "(" + new.join(f"({text_of(v)})" for v in node.values) + ")", function)
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            replace(node, f"({node.value} + 1)", function)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    visit(child, function)

    def text(node):
        return isinstance(node.value, str) and " " in node.value

    visit(ast.parse(source), "module")
    return found


@cache
def drawn() -> list[Change]:
    """Return the changes that the seed draws, no two of them in one function."""
    every = [c for path in sorted((ROOT / "olsq").rglob("*.py")) for c in changes_of(path)]
    random.Random(SEED).shuffle(every)
    first: dict[tuple[str, str], Change] = {}
    for change in every:
        first.setdefault((change.path, change.function), change)
    return list(first.values())[:NUMBER]


def pieces(text: str) -> list[str]:
    """Return the words that names are made of, in lower case."""
    return [piece.lower() for piece in re.findall(r"[A-Z]?[a-z]{3,}", text)]


@cache
def texts() -> dict[str, Counter[str]]:
    """Return how often each word occurs, by test file."""
    return {
        str(path.relative_to(ROOT)): Counter(pieces(path.read_text()))
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
    }


def nearest(change: Change) -> list[str]:
    """Return the test files that speak of the changed place most often, the nearest first."""
    module = Path(change.path)
    tree = ast.parse((ROOT / module).read_text())
    defined = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    words = Counter(pieces(" ".join([change.function, *module.parts[1:], *defined])))
    files = {word: sum(word in text for text in texts().values()) for word in words}

    def score(name):
        text, among = texts()[name], name.startswith(f"tests/{module.parts[1]}/")
        found = sum(min(words[w], 3) * min(text[w], 10) / files[w] for w in words if text[w])
        return found * (4 if among else 1)

    ranked = sorted(texts(), key=lambda name: -score(name))
    return [name for name in ranked if score(name)][:NEAREST]


def run(folder: Path, where: list[str], *options: str) -> str:
    """Run tests of the copy; return the name of one that is red, or an empty text."""
    paths = " ".join(path for path in where if (folder / path).exists())
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--no-header",
        "-o",
        f"testpaths={paths}",
    ]
    environment = {**ENVIRONMENT, "PYTHONPATH": str(folder)}
    try:
        done = subprocess.run(
            [*command, *options], cwd=folder, env=environment, capture_output=True, text=True,
            timeout=PATIENCE,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "endless"
    red = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if red:
        return red.group(1)
    return "" if done.returncode in (0, 5) else f"exit code {done.returncode}"


def found_by(folder: Path, change: Change, near_only: bool) -> tuple[str, str]:
    """Return which run finds a change, and by which test."""
    room = Path(change.path).parts[1]
    near = [change.path, *nearest(change)]
    around = [f"tests/{room}", f"olsq/{room}"] if (folder / "tests" / room).is_dir() else []
    for where, options in ((near, ["-n", "0"]), (around, []), (["tests", "olsq"], [])):
        if where and (red := run(folder, where, *options)):
            return "quick", red
        if near_only:
            return "", ""
    red = run(folder, [*near, *around], "--rest")
    return ("all", red) if red else ("none", "")


def rows() -> dict[int, str]:
    """Return the rows that the page has."""
    text = PAGE.read_text() if PAGE.exists() else ""
    if f"seed {SEED}," not in text:
        return {}
    return {int(row.split("|")[1]): row for row in text.splitlines() if re.match(r"\| \d", row)}


def write(found: dict[int, str]) -> None:
    date = subprocess.check_output(["date", "+%Y-%m-%d"], text=True).strip()
    by = [row.split("|")[4].strip() for i, row in found.items() if i not in EQUIVALENT]
    head = HEAD.format(
        seed=SEED, date=date, number=len(found), quick=by.count("quick"), full=by.count("all"),
        done=len(by), equivalent=len(found) - len(by),
    )  # fmt: skip
    PAGE.write_text(head + "".join(f"{found[i]}\n" for i in sorted(found)))


def shown(text: str) -> str:
    """Return code as a cell of a table."""
    text = re.sub(r"\s+", " ", text).replace("|", "\\|")
    return f"`{text[:57] + '...' if len(text) > 60 else text}`"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=int, nargs="*", help="numbers of changes, made again")
    parser.add_argument("--near", action="store_true", help="run the nearest tests only")
    parser.add_argument("--list", action="store_true", help="show the changes, run nothing")
    given = parser.parse_args()
    if given.list:
        for number, change in enumerate(drawn(), 1):
            print(number, change, nearest(change))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "copy"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--detach", "-q", str(folder), "HEAD"], check=True)
        try:
            for number, change in enumerate(drawn(), 1):
                if number not in (given.only or set(range(1, NUMBER + 1)) - set(rows())):
                    continue
                place = f"`{change.path}`, `{change.function}`"
                how = f"{shown(change.old)} to {shown(change.new)}"
                row = f"| {number} | {place} | {how}"
                if number in EQUIVALENT:
                    write({**rows(), number: f"{row} | nothing breaks | {EQUIVALENT[number]} |"})
                    continue
                path = folder / change.path
                source = path.read_bytes()
                path.write_bytes(
                    source[: change.start] + change.new.encode() + source[change.stop :]
                )
                by, test = found_by(folder, change, given.near)
                path.write_bytes(source)
                if by:
                    write({**rows(), number: f"{row} | {by} | {shown(test) if test else ''} |"})
                print(number, change, by, test, flush=True)
        finally:
            subprocess.run([*git, "remove", "--force", str(folder)], check=True)


if __name__ == "__main__":
    main()

"""Break the package in places drawn by a seed, and see which run of the tests turns red.

    python -m tests.mutations                  # all that tests/mutations.md does not have yet
    python -m tests.mutations --list           # show them
    python -m tests.mutations --only 3f20 a1   # these again, by the beginning of their number
    python -m tests.mutations --near           # by the nearest tests; others stay for a whole run
    python -m tests.mutations --only 3f20 --tests tests/test_plot.py::test_ticks

A place is a comparison, an operator, a number, a condition or a message of an error; each is as
likely as any other, so files come in proportion to their code.  A change has a number that depends
on the seed and on its function alone, and those with the smallest numbers are drawn: an edit
elsewhere draws the same ones.  The tests nearest to the place come first, those of its folder next,
the whole quick run last, until one is red; where the quick run stays green, ``pytest --rest`` of
the folder.  A test that is red must be green again without the change.

The copy with the change is a git worktree of the last commit in ``build/``.  It stays there, since
kernels are compiled once for each place.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "tests" / "mutations.md"
COPY = ROOT.joinpath("build", "mutations")  # written, not read
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
EQUIVALENT: dict[str, str] = {}

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
    before: int  # how many changes of the same text its function has above it

    @property
    def number(self) -> str:
        """The place in the order in which the seed draws."""
        text = f"{SEED} {self.path} {self.function} {self.old} {self.new} {self.before}"
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    def __str__(self):
        return f"{self.number} {self.path}:{self.line} {self.function}: {self.old} -> {self.new}"


def changes_of(path: Path) -> list[Change]:
    """Return every change of a file that could be drawn."""
    source = path.read_bytes()
    starts, seen = [0], Counter()
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
        old = text_of(node)
        before, seen[function, old, new] = seen[function, old, new], seen[function, old, new] + 1
        found.append(Change(name, node.lineno, function, *span(node), new, old, before))

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
def drawn() -> dict[str, Change]:
    """Return the changes that the seed draws by number, no two of them in one function."""
    every = [c for path in sorted((ROOT / "olsq").rglob("*.py")) for c in changes_of(path)]
    first: dict[tuple[str, str], Change] = {}
    for change in sorted(every, key=lambda change: change.number):
        first.setdefault((change.path, change.function), change)
    taken, breaks = {}, 0
    for change in first.values():
        if breaks == NUMBER:
            break
        taken[change.number] = change
        breaks += change.number not in EQUIVALENT
    return taken


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


def run(where: list[str], *options: str) -> str:
    """Run tests of the copy; return the name of one that is red, or an empty text."""
    paths = " ".join(path for path in where if (COPY / path).exists())
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
    environment = {**ENVIRONMENT, "PYTHONPATH": str(COPY)}
    try:
        done = subprocess.run(
            [*command, *options], cwd=COPY, env=environment, capture_output=True, text=True,
            timeout=PATIENCE,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "endless"
    red = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, re.MULTILINE)
    if red:
        return red.group(1)
    if done.returncode in (2, 3, 4):  # stopped, an error of its own, used wrongly
        raise SystemExit(done.stdout + done.stderr)
    return "" if done.returncode in (0, 5) else f"exit code {done.returncode}"


def run_named(names: list[str], *options: str) -> str:
    """Run what a run has of tests given as ``file`` or ``file::test``."""
    files, _, tests = zip(*(name.partition("::") for name in names), strict=True)
    if missing := [file for file in files if not (COPY / file).exists()]:
        raise SystemExit(f"no such tests: {missing}")
    plain = [test.partition("[")[0] for test in tests if test]
    chosen = ["-k", " or ".join(plain)] if plain else []
    return run(list(dict.fromkeys(files)), "-n", "0", *chosen, *options)


def found_by(change: Change, named: list[str], near_only: bool) -> tuple[str, str]:
    """Return which run finds a change, and by which test."""
    room = Path(change.path).parts[1]
    near = [change.path, *nearest(change)]
    around = [f"tests/{room}", f"olsq/{room}"] if (COPY / "tests" / room).is_dir() else []
    if named or near_only:
        red = run_named(named or near)
        return ("quick", red) if red else ("", "")
    for where, options in ((near, ["-n", "0"]), (around, []), (["tests", "olsq"], [])):
        if where and (red := run(where, *options)):
            return "quick", red
    red = run([*near, *around], "--rest")
    return ("all", red) if red else ("none", "")


def prepare_copy() -> None:
    """Set the copy to the last commit; make it where there is none."""
    if not (COPY / ".git").exists():
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "prune"], check=True)
        subprocess.run([*git, "add", "--detach", "-q", str(COPY), "HEAD"], check=True)
    head = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "HEAD"], text=True).strip()
    subprocess.run(["git", "-C", str(COPY), "checkout", "-q", "--detach", "-f", head], check=True)


def rows() -> dict[str, str]:
    """Return the rows that the page has of the changes that are drawn."""
    text = PAGE.read_text() if PAGE.exists() else ""
    found = {row.split("|")[1].strip(): row for row in text.splitlines() if row.startswith("| ")}
    return {number: row for number, row in found.items() if number in drawn()}


def write(found: dict[str, str]) -> None:
    date = subprocess.check_output(["date", "+%Y-%m-%d"], text=True).strip()
    by = [row.split("|")[-3].strip() for i, row in found.items() if i not in EQUIVALENT]
    head = HEAD.format(
        seed=SEED, date=date, number=len(found), quick=by.count("quick"), full=by.count("all"),
        done=len(by), equivalent=len(found) - len(by),
    )  # fmt: skip
    PAGE.write_text(head + "".join(f"{found[i]}\n" for i in drawn() if i in found))


def shown(text: str) -> str:
    """Return code as a cell of a table."""
    text = re.sub(r"\s+", " ", text).replace("|", "\\|")
    return f"`{text[:57] + '...' if len(text) > 60 else text}`"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="numbers of changes, made again")
    parser.add_argument("--near", action="store_true", help="run the nearest tests only")
    parser.add_argument(
        "--tests", nargs="*", default=[], help="run these tests only, of the quick run"
    )
    parser.add_argument(
        "--once", action="store_true", help="do not check that red tests were green"
    )
    parser.add_argument("--list", action="store_true", help="show the changes, run nothing")
    given = parser.parse_args()
    if given.only:
        asked = [c for n, c in drawn().items() if n.startswith(tuple(given.only))]
    else:
        asked = [c for n, c in drawn().items() if n not in rows()]
    if given.list:
        for change in asked:
            print(change, nearest(change))
        return
    prepare_copy()
    for change in asked:
        place = f"`{change.path}`, `{change.function}`"
        row = f"| {change.number} | {place} | {shown(change.old)} to {shown(change.new)}"
        if change.number in EQUIVALENT:
            reason = EQUIVALENT[change.number]
            write({**rows(), change.number: f"{row} | nothing breaks | {reason} |"})
            continue
        path = COPY / change.path
        source = path.read_bytes()
        path.write_bytes(source[: change.start] + change.new.encode() + source[change.stop :])
        try:
            by, test = found_by(change, given.tests, given.near)
        finally:
            path.write_bytes(source)
        options = ["--all"] if by == "all" else []
        if "::" in test and not given.once and run_named([test], *options):
            by, test = "", f"{test} is red without the change too"
        if by:
            write({**rows(), change.number: f"{row} | {by} | {shown(test) if test else ''} |"})
        print(change, by or "not found", test, flush=True)


if __name__ == "__main__":
    main()

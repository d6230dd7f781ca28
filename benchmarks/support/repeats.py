"""List code that stands in two places: runs of six or more equal lines.

    python -m benchmarks.support.repeats olsq/attention

Blank lines, comments, docstrings, imports and the signatures of functions do not count: rules of
one kind have the same signature on purpose.  Without paths all of ``olsq`` is read.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LINES = 6


class Place(NamedTuple):
    """A line of code: its file, its place among the file's lines of code, and its number."""

    path: Path
    index: int
    number: int


def find_code(path: Path) -> list[tuple[int, str]]:
    """Return the lines of code of a file, with their numbers."""
    text = path.read_text(encoding="utf-8")
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            left_out.update(range(node.lineno, node.body[0].lineno))
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        if documented and ast.get_docstring(node):
            first = node.body[0]
            left_out.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines = ((n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if n not in left_out)
    return [(n, line) for n, line in lines if line.strip("()[]{},:") and not line.startswith("#")]


def find_repeats(paths: Sequence[Path]) -> list[tuple[Place, Place, int]]:
    """Return pairs of places, and how many lines they share from there on, the longest first."""
    codes = {path: find_code(path) for path in paths}
    places: dict[tuple[str, ...], list[Place]] = defaultdict(list)
    for path, code in codes.items():
        for i in range(len(code) - LINES + 1):
            run = tuple(line for _, line in code[i : i + LINES])
            places[run].append(Place(path, i, code[i][0]))
    starts = {(a, b) for same in places.values() for a in same for b in same if a < b}
    at = {(a.path, a.index, b.path, b.index) for a, b in starts}
    found = []
    for a, b in starts:
        if (a.path, a.index - 1, b.path, b.index - 1) in at:
            continue
        count = LINES
        while (a.path, a.index + count - LINES + 1, b.path, b.index + count - LINES + 1) in at:
            count += 1
        if a.path != b.path or a.index + count <= b.index:
            found.append((a, b, count))
    return sorted(found, key=lambda pair: (-pair[2], pair))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the pairs of the packages given, and their number."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "olsq"])
    options = parser.parse_args(arguments)
    files = [f for p in options.paths for f in (sorted(p.rglob("*.py")) if p.is_dir() else [p])]
    pairs = find_repeats(files)
    for a, b, count in pairs:
        print(f"{count} lines: {a.path}:{a.number} and {b.path}:{b.number}")
    print(f"{len(pairs)} pairs in {len(files)} files")


if __name__ == "__main__":
    main()

"""Count what the package is made of: code, kernels and their arguments, names, layout by hand.

    python -m benchmarks.support.house [FOLDER]

Code is every line but docstrings, comments and blank ones.  Prints a Markdown table; with a folder,
of the package in it, which is how two versions are compared.
"""

from __future__ import annotations

import argparse
import ast
import io
import keyword
import tokenize
from collections.abc import Iterator
from pathlib import Path

VAGUE = frozenset(["given", "own", "found", "known", "made", "chosen", "whole", "rest", "others"])
VAGUE |= {"settled", "wanted", "seen"}
STREAMS = ("online", "compiled", "polars", "distributed")
MANY = 8  # arguments


def sources(package: Path) -> dict[Path, str]:
    """Text of every module, by path in the package."""
    return {path.relative_to(package): path.read_text() for path in sorted(package.rglob("*.py"))}


def docstring_lines(tree: ast.AST) -> set[int]:
    """Lines of docstrings, and of strings below attributes."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(text: str) -> int:
    """Lines that hold code."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(ast.parse(text)))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Every function and method."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def is_kernel(function: ast.FunctionDef) -> bool:
    """Test whether Numba compiles a function."""
    calls = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
    return any(isinstance(d, ast.Name) and d.id in ("kernel", "external_kernel") for d in calls)


def argument_count(function: ast.FunctionDef) -> int:
    """Count the arguments of a function."""
    arguments = function.args
    return len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)


def vague_share(texts: list[str]) -> float:
    """Names among the vague ones, per thousand names."""
    names = [
        token.string
        for text in texts
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.NAME and not keyword.iskeyword(token.string)
    ]
    return 1000 * sum(name in VAGUE for name in names) / max(len(names), 1)


def counts(package: Path) -> dict[str, str]:
    """What is counted, by what it is called."""
    files = sources(package)
    trees = {path: ast.parse(text) for path, text in files.items()}
    code = {path: code_lines(text) for path, text in files.items()}
    kernels = [f for tree in trees.values() for f in functions(tree) if is_kernel(f)]
    wide = sum(argument_count(f) > MANY for f in kernels)
    streams = sum(lines for path, lines in code.items() if path.parts[0] in STREAMS)
    return {
        f"code in {', '.join(STREAMS)}": f"{streams:,}",
        "code in the package": f"{sum(code.values()):,}",
        f"kernels; with more than {MANY} arguments": f"{len(kernels)}; {wide}",
        "`NotHere`": str(sum(text.count("NotHere(") for text in files.values())),
        "`# fmt: skip`": str(sum(text.count("# fmt: skip") for text in files.values())),
        "vague names per 1,000": f"{vague_share(list(files.values())):.1f}",
        "modules": str(len(files)),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[2])
    print("| | |\n|---|---|")
    for name, value in counts(parser.parse_args().folder / "olsq").items():
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()

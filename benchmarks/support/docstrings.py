"""Count comments, and docstrings by how they open.

    python -m benchmarks.support.docstrings olsq/sequence olsq/attention

Docstrings of the old kind open with What, Whether, Of, How, Which, That or Those, have fewer than
four words, or, on a function, do not open with a verb.  Properties are values, not functions.
``--list`` names them.  Without paths all of ``olsq`` is read.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
OPENINGS = {"What", "Whether", "Of", "How", "Which", "That", "Those"}
# Verbs that open the docstrings of functions; add others as they come into use.
VERBS = """
Absorb Accumulate Add Adopt Advance Align Allocate Answer Append Apply Approximate Ask Attend
Average Bind Bound Bring Broadcast Build Call Carry Cast Check Choose Clean Clip Close Collect
Combine Compare Compile Complete Compose Compute Concatenate Construct Continue Convert Convolve
Copy Correct Count Cut Declare Decode Decompose Decorate Delay Delete Derive Descend Describe Detect
Determine Diagnose Differentiate Divide Do Double Downdate Draw Drop Eliminate Embed Enable Encode
End Estimate Evaluate Factor Factorise Feed Fill Find Fit Flip Flush Fold Follow Force Forget Form
Format Gate Gather Give Group Hide Hold Inline Insert Interpolate Invert Iterate Join Keep Label
Lay Learn Leave Let List Load Lock Make Map Mark Mask Merge Minimise Mix Move Multiply Name
Normalise Note Number Open Optimise Pack Pad Parse Pass Place Plot Predict Prepare Prepend Print
Put Raise Read Rebuild Record Reduce Reflect Refresh Register Regress Remove Rename Replace Report
Rescale Reset Reshape Restart Restore Resume Return Rewrite Rotate Run Sample Save Scale Scan Score
Search Select Set Shift Show Slice Solve Split Stack Start Stop Store Subtract Sum Summarise Swap
Tabulate Take Tell Test Tokenise Trace Train Transpose Triangularise Try Turn Undo Unpack Update
Validate Wait Warn Watch Widen Write Yield
"""
MARKS = ("# fmt:", "# noqa", "# pyright:", "# type:", "# pragma:")


def find_docstrings(path: Path) -> Iterator[tuple[str, bool, str]]:
    """Yield the name, whether it is a function, and the first paragraph of every docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            continue
        text = ast.get_docstring(node)
        if text:
            decorators = [getattr(d, "id", "") for d in getattr(node, "decorator_list", ())]
            value = "property" in decorators or "cached_property" in decorators
            function = isinstance(node, ast.FunctionDef) and not value
            yield getattr(node, "name", "module"), function, text.split("\n\n")[0]


def find_faults(function: bool, summary: str) -> set[str]:
    """Return the ways in which a summary is of the old kind."""
    words = summary.split()
    value = not function and words[0] == "Whether"  # a property that is a truth
    return {
        name
        for name, wrong in (
            ("opening", words[0] in OPENINGS and not value),
            ("short", len(words) < 4),
            ("no verb", function and words[0].rstrip(",:;") not in VERBS.split()),
        )
        if wrong
    }


def count_comments(path: Path) -> int:
    """Count the comments of a file, except those for tools."""
    text = io.StringIO(path.read_text(encoding="utf-8"))
    tokens = tokenize.generate_tokens(text.readline)
    return sum(t.type == tokenize.COMMENT and not t.string.startswith(MARKS) for t in tokens)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the counts of the packages given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[ROOT / "olsq"])
    parser.add_argument("--list", action="store_true", help="name the docstrings of the old kind")
    options = parser.parse_args(arguments)
    names = "docstrings", "opening", "short", "no verb", "comments"
    counts: dict[str, int] = dict.fromkeys(names, 0)
    for given in options.paths:
        for path in sorted(given.rglob("*.py")) if given.is_dir() else [given]:
            counts["comments"] += count_comments(path)
            for name, function, summary in find_docstrings(path):
                counts["docstrings"] += 1
                faults = find_faults(function, summary)
                for fault in faults:
                    counts[fault] += 1
                if faults and options.list:
                    text = " ".join(summary.split())
                    print(f"{path} {name} [{', '.join(sorted(faults))}] {text}")
    print(", ".join(f"{name} {count}" for name, count in counts.items()))


if __name__ == "__main__":
    main()

"""Measured numbers that no stored result backs: where each stands, and why.

Nothing detects when these sentences become wrong.  ``--check`` fails where a page no longer
contains a sentence of the list.
"""

from __future__ import annotations

import re

from .traced import ROOT

ONCE = "measured by hand"
UNTIED = (  # page, how the sentence goes, why nothing holds it
    (
        "docs/project/development.md",
        "takes 12 ms of processor time more than `import numpy`",
        "asv's suite `startup` follows it",
    ),
    (
        "docs/measurements/sequences.md",
        "compile in 18 s instead of 50 s",
        "printed by `python -m benchmarks.reports.depth`",
    ),
    ("docs/measurements/rows.md", "A call costs about 14 µs of Python", ONCE),
    (
        "docs/measurements/sequences.md",
        "takes 29 µs with a factor that each token updates, 125 µs from moments",
        ONCE,
    ),
    ("docs/many-machines.md", "one machine's coefficients to 9e-16", "run once, as the page says"),
    (
        "docs/measurements/accuracy.md",
        "came out as 3.040 after 4 million rows",
        "an ordinary float32 state, which olsq no longer has",
    ),
    (
        "docs/project/testing-and-measuring.md",
        "97 % of statements and 93 % of branches",
        "hours of tests; printed by coverage.py",
    ),
    ("docs/tasks.md", "In 2.4% of test sequences", "counted once; no script kept"),
    (
        "docs/training.md",
        "cores it ends at 1.720 nats per byte",
        "the command stands beside it; five minutes",
    ),
    ("docs/tuning.md", "takes the time of 300 to 600 passes", ONCE),
)


def spaced(text: str) -> str:
    """Line ends as spaces."""
    return re.sub(r"\s+", " ", text)


def gone() -> list[str]:
    """Entries whose sentence no page has."""
    texts = {p: spaced((ROOT / p).read_text(encoding="utf-8")) for p in {u[0] for u in UNTIED}}
    return [f"{page} no longer says: {text}" for page, text, _ in UNTIED if text not in texts[page]]

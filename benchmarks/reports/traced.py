"""Numbers on pages: which lie between markers, which moved, which come from nowhere."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w.]*\w)")
BLOCK = re.compile(r"<!-- ([\w ,-]+):begin -->(.*?)<!-- \1:end -->", re.S)
TABLE = re.compile(r"(?:^\|.*\n)+", re.M)


def block(page: str, marker: str) -> str:
    """The text between two markers of a page of ``docs/``.

    Raises
    ------
    ValueError
        If the page has no such markers.
    """
    text = (DOCS / page).read_text(encoding="utf-8")
    for name, body in BLOCK.findall(text):
        if name == marker:
            return body.strip()
    raise ValueError(f"docs/{page} lacks the markers <!-- {marker}:begin --> and :end")


def numbers(text: str) -> list[tuple[str, float]]:
    """Every number of a text, as written and as a float."""
    return [(found, float(found.replace(",", ""))) for found in NUMBER.findall(text)]


def moved(old: str, new: str, spread: float) -> list[str]:
    """Lines of ``new`` in which a number is further from ``old``'s than the spread allows.

    ``spread`` is relative, to the larger of both.  Numbers written with an exponent are errors:
    what matters of them is the order, and they may move by a factor of ten.  Numbers that are
    written alike, and dates, never count; a line without its counterpart does.
    """
    before, after = (lines_of(text) for text in (old, new))
    if len(before) != len(after):
        return [f"{len(before)} lines became {len(after)}"]
    found = []
    for was, now in zip(before, after, strict=True):
        pairs = list(zip(numbers(was), numbers(now), strict=False))
        same_words = NUMBER.sub("#", was) == NUMBER.sub("#", now)
        if not same_words or any(apart(*pair, spread) for pair in pairs):
            found.append(f"{was}  ->  {now}")
    return found


def lines_of(text: str) -> list[str]:
    """Rows of tables and list items: prose that says when and where is not compared."""
    return [line for line in text.splitlines() if line.startswith(("|", "* "))]


def apart(was: tuple[str, float], now: tuple[str, float], spread: float) -> bool:
    """Whether two numbers differ by more than the spread."""
    (text, a), (other, b) = was, now
    if "e" in text or "e" in other:
        low, high = sorted((abs(a), abs(b)))
        return high > 10 * low
    return abs(a - b) > spread * max(abs(a), abs(b)) + 0.5 * digit(text)


def digit(text: str) -> float:
    """The unit of the last digit that a number is written with."""
    return 10.0 ** -len(text.partition(".")[2])


def tables_outside(page: Path) -> list[str]:
    """First lines of a page's tables of numbers that lie between no markers."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    found = []
    for table in TABLE.findall(text):
        head, _, *rows = table.splitlines() if table.count("\n") > 2 else [table, ""]
        cells = [cell.strip(" *`") for row in rows for cell in row.strip("|").split("|")[1:]]
        measured = [cell for cell in cells if re.match(r"[-+~<]?\d", cell)]
        if len(measured) > 0.4 * len(cells) and len(measured) > 2:
            found.append(head)
    return found

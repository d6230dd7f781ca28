"""Make text from files and options safe to print on a terminal and to draw in a figure."""

from __future__ import annotations

from rich import markup


def printable(text: str) -> str:
    r"""Return ``text`` with control characters written as escapes, such as ``\\x1b``.

    A column's name must not move the cursor, change colours or hide what was printed before it.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escape(text: str) -> str:
    """Return printable ``text`` that Rich does not read as markup."""
    return markup.escape(printable(text))


def label(text: str) -> str:
    """Return printable ``text`` that matplotlib does not read as mathematics."""
    return printable(text).replace("$", r"\$")

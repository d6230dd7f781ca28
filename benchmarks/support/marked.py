"""Rewrite the part of a page that lies between two HTML comment markers."""

from __future__ import annotations

from pathlib import Path


def replace_between(page: Path, name: str, body: str) -> None:
    """Put ``body`` between ``<!-- name:begin -->`` and ``<!-- name:end -->`` of ``page``.

    Raises
    ------
    ValueError
        If the page lacks either marker; nothing is written then.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    text = page.read_text(encoding="utf-8")
    if begin not in text or end not in text:
        raise ValueError(f"{page.name} lacks the markers {begin} ... {end}")
    head, rest = text.split(begin, 1)
    _, tail = rest.split(end, 1)
    page.write_text(f"{head}{begin}\n\n{body.strip()}\n\n{end}{tail}", encoding="utf-8")

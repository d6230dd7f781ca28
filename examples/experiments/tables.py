"""Tables of the pages of results."""

from __future__ import annotations

import re
from typing import Any

# How the forget gates of stored results started, for the captions of their tables.
FROM_HALF = "Forget gates start [at one half](index.md)."


def table(head: list[str], rows: list[list[Any]]) -> str:
    """In Markdown, with a newline at the end."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def with_zeros(text: str) -> str:
    """Decimals with their zero: 0.99 for .99."""
    return re.sub(r"(?<=[\s(|±\[/])\.(?=\d)", "0.", text)

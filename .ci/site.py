"""Hooks of the documentation site."""

from __future__ import annotations

import re
from typing import Any

# [`name.py`](../../examples/experiments/name.py): a link in the repository, nothing on the site.
OUTSIDE = re.compile(r"\[(`[^`\]]+`)\]\((?:\.\./)+(?:examples|tests|benchmarks|olsq)/[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links that leave the documentation become names."""
    return OUTSIDE.sub(r"\1", markdown)

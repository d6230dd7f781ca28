"""The how-to pages: every block runs, in the order of the page, and prints what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ["coming-from.md", "decoding.md", "frames-and-time.md", "inference.md", "index.md"]
PAGES += ["forgetting.md", "linalg.md", "many-machines.md", "service.md", "variants.md"]
PAGES += sorted(
    str(p.relative_to(DOCS)) for part in ("start", "concepts") for p in (DOCS / part).glob("*.md")
)
PAGES = [page for page in PAGES if "```python" in (DOCS / page).read_text()]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.S | re.M)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run_and_print_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    blocks = BLOCK.findall((DOCS / page).read_text())
    assert blocks
    for number, (code, shown) in enumerate(blocks):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page} block {number}", "exec"), names)
        if shown:
            assert printed.getvalue() == shown, f"{page} block {number}"

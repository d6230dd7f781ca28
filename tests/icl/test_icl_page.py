"""The page on in-context learning: its blocks print what it shows."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tests.versions import x64

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "in-context-learning.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_blocks_print_what_the_page_shows():
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "in-context-learning.md", None, 0)
    assert len(test.examples) > 30
    failed = []
    with x64(False):  # as for a reader: the page does not ask for float64
        doctest.DocTestRunner().run(test, out=failed.append)
    assert failed == []

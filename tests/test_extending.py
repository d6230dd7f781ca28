"""The page on adding a solver, a rule or a layer: its blocks run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import olsq.nn

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()


@pytest.mark.full
def test_blocks_print_what_the_page_shows():
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "extending.md", "docs/extending.md", 0)
    assert len(test.examples) > 10
    failed, known = [], set(olsq.nn.MIXERS)
    doctest.DocTestRunner().run(test, out=failed.append)
    for name in set(olsq.nn.MIXERS) - known:  # other tests have a row for every mixer
        del olsq.nn.MIXERS[name]
    assert failed == []

"""The page on testing: its blocks run, and its table names every property and nothing else."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from olsq.testing import estimator_properties, rule_properties, solver_properties

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()


def test_blocks_print_what_the_page_shows():
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "testing.md", "docs/testing.md", 0)
    assert len(test.examples) > 10
    failed = []
    doctest.DocTestRunner().run(test, out=failed.append)
    assert failed == []


def test_the_table_is_the_properties():
    rows = re.findall(
        r"^\| ([\w =-]+) \|.*\| (x?) ?\| (x?) ?\| (x?) ?\|$", PAGE, flags=re.MULTILINE
    )
    modules = solver_properties, rule_properties, estimator_properties
    for column, module in enumerate(modules, start=1):
        assert {r[0] for r in rows if r[column]} == set(module.PROPERTIES)

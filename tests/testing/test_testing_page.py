"""The page on testing: its blocks run, and its list names every property and nothing else."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from olsq.testing import (
    check_estimator_stream,
    check_rule,
    check_solver,
    estimator_properties,
    rule_properties,
    solver_properties,
)

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()


@pytest.mark.full
def test_blocks_print_what_the_page_shows():
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "testing.md", "docs/testing.md", 0)
    assert len(test.examples) > 10
    failed = []
    doctest.DocTestRunner().run(test, out=failed.append)
    assert failed == []


def test_the_list_is_the_properties():
    section = PAGE.split("## The properties\n")[1].split("\n## ")[0]
    listed = re.findall(r"^- ([\w =-]+): ", section, flags=re.MULTILINE)
    modules = solver_properties, rule_properties, estimator_properties
    assert sorted(listed) == sorted({name for m in modules for name in m.PROPERTIES})


@pytest.mark.parametrize(
    ("check", "module"),
    [
        (check_solver, solver_properties),
        (check_rule, rule_properties),
        (check_estimator_stream, estimator_properties),
    ],
)
def test_docstrings_name_the_properties_that_are_checked(check, module):
    text = re.sub(r"\s+", " ", check.__doc__)
    named = re.findall(
        r'"([\w =-]+)"', text.partition("The properties are")[2].partition(" Examples ")[0]
    )
    assert set(module.PROPERTIES) <= set(named)

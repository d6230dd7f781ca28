"""The page on tasks: its blocks run, and its table of controls is measured again."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

from olsq.tasks import mad, token_accuracy
from olsq.tasks.tokens import IGNORE

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()


def test_blocks_print_what_the_page_shows():
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "tasks.md", "docs/tasks.md", 0)
    assert len(test.examples) > 5
    failed = []
    doctest.DocTestRunner().run(test, out=failed.append)
    assert failed == []


@pytest.mark.full
@pytest.mark.parametrize("task", [task for task in mad.BASELINES if task != "compression"])
def test_controls_are_those_of_the_page(task):
    cells = re.search(rf"\| {task.replace('_', '.')} \|(.*)\|\n", PAGE).group(1).split("|")
    asked_for, guess, bigram, _ = (cell.strip() for cell in cells)
    train, test = mad.split(mad.BASELINES[task], 1)
    asked = test.targets != IGNORE
    assert asked.sum(-1).mean() == pytest.approx(float(asked_for), rel=0.03)
    values = np.unique(test.targets[asked])
    # one of the 128 values of memorisation has no key
    assert len(values) + (task == "memorisation") == int(guess.removeprefix("1/"))
    counts = np.zeros((mad.BASELINES[task].classes,) * 2)
    asked = train.targets != IGNORE
    np.add.at(counts, (train.inputs[asked], train.targets[asked]), 1)
    share = token_accuracy(counts.argmax(-1)[test.inputs], test.targets)
    assert 100 * share == pytest.approx(float(bigram.removesuffix("%")), abs=1.5)

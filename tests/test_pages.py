"""The how-to pages: every block runs, in the order of the page, and prints what the page shows."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
from itertools import chain
from pathlib import Path
from unittest import mock

import pytest

import olsq.nn

DOCS = Path(__file__).parents[1] / "docs"
FOLDERS = ("start", "concepts", "guides")
ELSEWHERE = {  # pages of sessions, or of an example's code, and who runs them
    "extending.md": "test_extending.py",
    "features.md": "features/test_builder_conventions.py",
    "forecasting.md": "online/test_horizon.py",
    "in-context-learning.md": "icl/test_icl_page.py",
    "layers-interop.md": "nn/test_flax.py",
    "many-regressions.md": "online/test_groups.py",
    "panels.md": "online/test_panels.py",
    "tasks.md": "tasks/test_page.py",
    "testing.md": "testing/test_testing_page.py",
    "tuning.md": "online/test_tune.py",
}
PAGES = sorted(
    str(page.relative_to(DOCS))
    for page in chain(DOCS.glob("*.md"), *((DOCS / part).glob("*.md") for part in FOLDERS))
    if "```python" in page.read_text() and page.name not in ELSEWHERE
)
# Many layers to compile; README has some of them.
SLOW = {
    "decoding.md", "guides/from-data-to-a-served-model.md", "layers.md", "start/layers.md",
}  # fmt: skip
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.S | re.M)


@pytest.mark.full
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow if page in SLOW else ()) for page in PAGES]
)
@mock.patch.dict(olsq.nn.MIXERS)  # a page may register its own
def test_blocks_run_and_print_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(DOCS.parent / "examples")  # service.py
    names = {}
    blocks = BLOCK.findall((DOCS / page).read_text())
    assert blocks
    for number, (code, shown) in enumerate(blocks):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page} block {number}", "exec"), names)
        if shown:
            assert printed.getvalue() == shown, f"{page} block {number}"


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items())
def test_other_pages_with_code_are_read_by_a_test_of_their_own(page, test):
    assert page in (Path(__file__).parent / test).read_text()


def test_the_table_of_polars_methods_has_the_options_of_each():
    from olsq.polars import LeastSquares

    page = (DOCS / "polars.md").read_text()
    common = re.search(r"All four take (.*?), as", page, re.S)[1]
    for name in ("ols", "expanding", "rls", "rolling"):
        own = re.search(rf"^\| `{name}` \|[^|]*\| (.*) \|$", page, re.M)[1]
        shown = set(re.findall(r"`(\w+)`", f"{own} {common}"))
        options = set(inspect.signature(getattr(LeastSquares, name)).parameters)
        assert shown == options - {"self", "regressors"}, name

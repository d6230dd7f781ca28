"""Links and pictures of the README and the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
FILE = re.compile(r"\b(?:olsq|tests|benchmarks|examples)/[a-z0-9_/]+\.py\b")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The names of a page's headings."""
    titles = HEADING.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    code = re.compile(r"^```.*?^```|`[^`\n]*`", re.S | re.M)
    for link in LINK.findall(code.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.name}: no heading {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page):
    missing = {name for name in FILE.findall(page.read_text()) if not (ROOT / name).exists()}
    assert not missing


def test_pages_are_found():
    assert len(PAGES) > 10


def test_tests_that_the_table_of_kinds_names_exist():
    page = (ROOT / "tests" / "KINDS.md").read_text()
    rows = [row for row in page.splitlines() if row.startswith("| ")][1:]
    named = [re.findall(r"`(tests/[^`:]+)::(\w+)`", row) for row in rows]
    assert all(named), "a row names no test"
    assert len(rows) <= 40
    for file, name in (test for row in named for test in row):
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), (file, name)

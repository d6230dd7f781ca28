"""The documentation's site: every public name and every page has its place in it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import olsq

DOCS = Path(__file__).parents[1] / "docs"
TREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.S | re.M)
LISTED = re.compile(r"^   (olsq\.[\w.]+)$", re.M)
# Rooms whose names are those of olsq itself, or which are not meant to be imported by users.
WITHIN = {"online", "problem", "reference", "tuning"}


def public():
    """Every public name, once: an object that two rooms export counts where it was made."""
    names = {f"olsq.{name}": getattr(olsq, name) for name in olsq.__all__}
    seen = {id(value) for value in names.values()}
    for room in sorted(olsq._SUBMODULES - WITHIN):
        module = importlib.import_module(f"olsq.{room}")
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if id(value) not in seen:
                names[f"olsq.{room}.{name}"] = value
    return names


def listed():
    """Names on the API's pages."""
    return [n for page in (DOCS / "api").glob("*.md") for n in LISTED.findall(page.read_text())]


def test_every_public_name_has_a_page():
    known = {id(found(name)) for name in listed()}
    missing = [name for name, value in public().items() if id(value) not in known]
    assert not missing, "add them to a page of docs/api"


def found(name):
    """The object of a dotted name."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            value = getattr(value, part)
        return value
    raise AssertionError(name)


def test_names_on_the_pages_exist_once():
    names = listed()
    assert len(names) == len(set(names)) > 200
    values = [id(found(name)) for name in names if callable(found(name))]
    assert len(values) == len(set(values))


def test_every_public_name_says_what_it_is():
    bare = [
        name for name in listed() if callable(v := found(name)) and not (v.__doc__ or "").strip()
    ]
    assert not bare


def test_summaries_can_be_cut_at_their_first_sentence():
    """The lists of names quote docstrings up to the first full stop, also one inside a literal."""
    cut = [
        name
        for name in listed()
        if (found(name).__doc__ or "").split(". ")[0].split("\n\n")[0].count("``") % 2
    ]
    assert not cut, "write these summaries without a full stop inside a literal"


def entries(page):
    """Pages that a page's tables of contents lead to."""
    for block in TREE.findall(page.read_text()):
        for line in block.splitlines():
            if line and not line.startswith(":"):
                yield (page.parent / f"{line}.md").resolve()


def test_every_page_is_reached_from_the_landing_page():
    reached, ahead = set(), [DOCS / "index.md"]
    while ahead:
        page = ahead.pop()
        if page == DOCS / "gallery" / "index.md":  # made while building
            continue
        assert page.exists(), page
        if page not in reached:
            reached.add(page)
            ahead += entries(page)
    made = {"_build", "generated", "gallery"}
    pages = {page for page in DOCS.rglob("*.md") if not made & {*page.parts}}
    assert pages - reached == set()

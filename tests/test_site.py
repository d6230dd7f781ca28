"""The documentation's site: every public name and every page has its place in it."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import olsq

DOCS = Path(__file__).parents[1] / "docs"
TREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.S | re.M)
LISTED = re.compile(r"^   (olsq\.[\w.]+)$", re.M)
DATA = re.compile(
    r"^\.\. py:data:: (olsq\.[\w.]+)$", re.M
)  # constants, described on the page itself
# Rooms whose names are those of olsq itself, or which are not meant to be imported by users.
WITHIN = {"online", "problem", "reference", "tuning"}


def public():
    """Every public name, once: an object that two rooms export counts where it was made.

    A module that a room exports counts by its own names.
    """
    names = {f"olsq.{name}": getattr(olsq, name) for name in olsq.__all__}
    seen = {id(value) for value in names.values()}
    modules = [
        importlib.import_module(f"olsq.{room}") for room in sorted(olsq._SUBMODULES - WITHIN)
    ]
    while modules:
        module = modules.pop()
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if isinstance(value, ModuleType):
                modules.append(value)
            elif id(value) not in seen:
                names[f"{module.__name__}.{name}"] = value
    return names


def listed(pattern=LISTED):
    """Names on the API's pages that have a page of their own."""
    return [n for page in (DOCS / "api").glob("*.md") for n in pattern.findall(page.read_text())]


def test_every_public_name_has_a_page():
    known = {id(found(name)) for name in listed() + listed(DATA)}
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


def test_only_what_has_a_docstring_of_its_own_has_a_page_made_from_it():
    """The docstring of a constant is that of `int` or `tuple`; a module's is a list of imports."""
    plain = [name for name in listed() if not callable(found(name))]
    assert not plain, "describe constants by py:data, and list the names of a module"
    assert not [name for name in listed(DATA) if callable(found(name))]


def test_what_the_page_on_extending_imports_has_a_page():
    text = (DOCS / "extending.md").read_text()
    wanted = {
        f"{module}.{name.partition(' as ')[0].strip()}"
        for module, names in re.findall(r">>> from (olsq[\w.]*) import (.+)", text)
        for name in names.split(",")
    }
    known = {id(found(name)) for name in listed()}
    assert wanted
    assert not [name for name in wanted if id(found(name)) not in known]


def test_members_that_refer_to_another_class_are_not_shown_as_members():
    spec = importlib.util.spec_from_file_location("docs_conf", DOCS / "conf.py")
    names = {
        node.name: node for node in ast.parse(spec.loader.get_source("docs_conf")).body
        if isinstance(node, ast.FunctionDef)
    }  # fmt: skip
    namespace = {}
    exec(ast.unparse(names["has_another_page"]), namespace)
    skip = namespace["has_another_page"]
    estimator = olsq.RecursiveLeastSquares
    assert skip(None, "class", "ENGINE", estimator.ENGINE, False, None)
    assert skip(None, "class", "fit", estimator.fit, False, None) is None


def test_every_public_name_says_what_it_is():
    bare = [
        name for name in listed() if callable(v := found(name)) and not (v.__doc__ or "").strip()
    ]
    assert not bare


def test_summaries_can_be_cut_at_their_first_sentence():
    """The lists of names quote docstrings up to a full stop, also one in a literal or in "..."."""
    things = {name: found(name) for name in listed()}
    for name, thing in list(things.items()):
        if isinstance(thing, type):  # a class's page lists its methods
            members = {n: getattr(thing, n, None) for n in dir(thing) if not n.startswith("_")}
            things |= {f"{name}.{n}": m for n, m in members.items() if callable(m)}
    cut = [
        name
        for name, thing in things.items()
        if (text := (thing.__doc__ or "").split("\n\n")[0])
        and (text.split(". ")[0].count("``") % 2 or ".. " in text)
        and (getattr(thing, "__module__", None) or "").startswith("olsq")
    ]
    assert not cut, "write these summaries without a full stop inside a literal, and without dots"


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


def test_docstrings_name_no_file_of_the_documentation():
    """A reader of `help` has no such file, and a page may move."""
    sources = (DOCS.parent / "olsq").rglob("*.py")
    assert not [path for path in sources if re.search(r"\bdocs/[\w/-]+\.md", path.read_text())]

"""Installed names, and the messages where a library is missing."""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
import tomllib
from importlib.metadata import metadata
from itertools import chain
from pathlib import Path

import pytest

import olsq

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = "online-least-squares"
IMPORTED_AS = {"polars-ols": "polars_ols", "scikit-learn": "sklearn"}


def provided(*extras):
    """Modules that the package with these extras brings."""
    modules = set()
    optional = PROJECT["optional-dependencies"]
    for requirement in chain(PROJECT["dependencies"], *(optional[extra] for extra in extras)):
        name, inner = re.match(r"([\w-]+)(?:\[([\w,-]+)\])?", requirement).groups()
        if name == NAME:
            modules |= provided(*inner.split(","))
        else:
            modules.add(IMPORTED_AS.get(name, name))
    return modules


def imported(path):
    """Modules that importing a file imports: those at its top."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0]


def test_the_distribution_has_its_own_name():
    assert PROJECT["name"] == NAME
    assert PROJECT["authors"] == [{"name": "olsq developers"}]
    assert "urls" not in PROJECT
    for extra, requirements in PROJECT["optional-dependencies"].items():
        assert not any(r.startswith("olsq") for r in requirements), extra


def test_nobody_is_told_to_install_another_project():
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "pyproject.toml"]
    for folder, pattern in (("docs", "*.md"), ("olsq", "*.py"), ("examples", "*.py")):
        pages += (ROOT / folder).rglob(pattern)
    for page in pages:
        text = re.sub(r"`pip install olsq` (\w+) \**another\s+project", "", page.read_text())
        wrong = re.search(r"""pip install (-\S+ )*["']?olsq\b|["'`]olsq\[""", text)
        assert wrong is None, f"{page}: {wrong}"


def test_benchmarks_import_what_their_environment_has():
    settings = json.loads((ROOT / "benchmarks" / "asv.conf.json").read_text())
    extras = re.search(r"\[([\w,]+)\]", settings["install_command"][0]).group(1).split(",")
    known = {"olsq", "benchmarks"} | set(sys.stdlib_module_names)
    reports = provided("bench", "cli", "nn") | known
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        suite = path.parent.name == settings["benchmark_dir"]
        assert set(imported(path)) <= (provided(*extras) | known if suite else reports), path


def test_tests_import_what_the_extra_dev_has():
    known = provided("dev") | {"olsq", "benchmarks", "tests"} | set(sys.stdlib_module_names)
    known |= {"ml_dtypes"}  # comes with JAX
    known |= {"torch", "torch_cases"}  # of tests/torch, skipped without PyTorch
    known |= {path.stem for path in (ROOT / "examples").glob("*.py")}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        beside = {p.stem for p in path.parent.glob("*.py")}
        assert set(imported(path)) <= known | beside, path


def test_the_source_distribution_holds_what_its_tests_read():
    text = (ROOT / "pyproject.toml").read_text()
    included = tomllib.loads(text)["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert all((ROOT / name.lstrip("/")).exists() for name in included)
    read = {"/tests", "/conftest.py"}
    place = re.compile(r'(?:ROOT|parents\[\d\]\)?) / "(\w+)"')
    for path in (ROOT / "tests").rglob("*.py"):
        read |= {f"/{name}" for name in place.findall(path.read_text())}
    assert {"/docs", "/examples", "/benchmarks"} <= read
    assert read <= {*included, "/olsq", "/pyproject"}


@pytest.mark.parametrize(
    ("module", "absent", "extra"),
    [
        ("olsq.nn", "equinox", "nn"),
        ("olsq.nn", "safetensors", "nn"),
        ("olsq.polars", "polars", "polars"),
        ("olsq.testing", "hypothesis", "testing"),
        ("olsq.torch", "torch", "torch"),
        ("olsq.train", "equinox", "nn"),
        ("olsq.train", "optax", "nn"),
        ("olsq.train", "safetensors", "nn"),
    ],
)
def test_a_missing_extra_is_named(module, absent, extra, monkeypatch):
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(ImportError) as caught:
        importlib.import_module(module)
    hint = f'pip install ".[{extra}]" in a checkout of olsq'
    assert str(caught.value) == f"{module} needs {absent}: {hint}"


def test_the_version_is_said_without_the_command_line_s_extra(monkeypatch, capsys):
    from olsq.cli import main

    monkeypatch.delitem(sys.modules, "olsq.cli.app", raising=False)
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert (left.value.code, capsys.readouterr().out) == (0, f"olsq {olsq.__version__}\n")
    with pytest.raises(SystemExit) as left:
        main(["fit", "--version"])
    assert left.value.code == 1
    hint = (
        'typer is not installed; the command line needs pip install ".[cli]" in a checkout of olsq'
    )
    assert hint in capsys.readouterr().err


def test_plots_name_their_extra(monkeypatch):
    path = olsq.coefficient_path([[1.0], [2.0], [3.0]], [1.0, 3.0, 2.0])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'plots need matplotlib: pip install "\.\[plot\]"'):
        path.plot()


def test_the_index_shows_no_link_into_the_repository():
    """The installed description is the README, except for links that only lead somewhere here."""
    shown = metadata(NAME)["Description"]
    outside_code = re.sub(r"^```.*?^```$", "", shown, flags=re.S | re.M)
    targets = re.findall(r"\]\(([^)]*)\)", outside_code)
    assert all(re.match(r"https?://", target) for target in targets)
    readme = (ROOT / "README.md").read_text()
    assert re.findall(r"^```.*?^```$", shown, re.S | re.M) == re.findall(
        r"^```.*?^```$", readme, re.S | re.M
    )

"""The cost of imports, and the imports that rooms may make."""

from __future__ import annotations

import ast
import pkgutil
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import olsq
from olsq.public_names import load_on_first_use

PACKAGE = Path(olsq.__file__).parent


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_import_is_light():
    code = """
import sys, time
start = time.perf_counter()
import olsq
print(time.perf_counter() - start)
print([m for m in ("jax", "jaxlib", "matplotlib", "dask", "sklearn", "pandas", "polars", "numba", "hypothesis", "torch") if m in sys.modules])
"""  # noqa: E501
    run(code)  # the first time compiles
    seconds, heavy = run(code).splitlines()
    assert float(seconds) < 0.5
    assert heavy == "[]"


@pytest.mark.full
def test_estimators_need_neither_jax_nor_scikit_learn():
    code = """
import sys
import numpy as np, olsq
est = olsq.RecursiveLeastSquares().fit(np.eye(4), np.ones(4))
est.predict(np.eye(4))
print([m for m in ("jax", "matplotlib", "dask", "sklearn", "pandas") if m in sys.modules])
"""
    assert run(code) == "[]"


@pytest.mark.full
def test_not_fitted_error_without_scikit_learn():
    code = """
import numpy as np, olsq
try:
    olsq.RecursiveLeastSquares().predict(np.eye(2))
except ValueError as error:
    print(isinstance(error, AttributeError), error)
"""
    assert run(code).startswith("True This RecursiveLeastSquares instance is not fitted yet")


@pytest.mark.full
def test_no_module_but_tests_imports_the_reference():
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] in ("reference", "testing"):  # both are for tests
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(n.startswith("olsq.reference") for n in names), path


def test_public_names_exist_and_others_do_not():
    for name in olsq.__all__:
        assert getattr(olsq, name) is not None
        assert name in dir(olsq)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = olsq.nonsense


def test_a_missing_stub_says_what_to_do(monkeypatch):
    def missing(*_):
        raise FileNotFoundError

    monkeypatch.setattr(pkgutil, "get_data", missing)
    with pytest.raises(ImportError, match=r"__init__.pyi.*--collect-all olsq"):
        load_on_first_use({"__name__": "olsq"})


BASE = {"problem", "arrays", "files", "threads", "first_call", "public_names"}
BASE |= {"kernels", "whole_kernels", "kernel_cache", "kernel_references", "kernel_typing"}
ROOMS = {
    **dict.fromkeys(BASE, BASE),
    "solvers": BASE,
    "reference": set(),
    "datasets": {"arrays"},
    "linalg": BASE,
    "forgetting": BASE,
    # sequence only to merge moments that are JAX arrays
    "online": {*BASE, "forgetting", "linalg", "solvers", "sequence", "progress"},
    "compiled": {*BASE, "forgetting", "online"},
    "sequence": {*BASE, "solvers"},
    "local": {*BASE, "sequence"},
    "attention": {*BASE, "solvers", "sequence", "local"},
    "nn": {*BASE, "solvers", "sequence", "attention"},
    "train": {*BASE, "solvers", "sequence", "attention", "nn", "datasets", "plot"},
    "tasks": {*BASE},
    "icl": {*BASE, "solvers", "sequence", "attention", "tasks"},
    "stability": {*BASE, "online"},
    "plot": {*BASE, "online", "stability"},
    "features": {*BASE, "online"},
    "distributed": {*BASE, "forgetting", "online"},
    "polars": {*BASE, "forgetting", "online"},
    "torch": {*BASE, "local", "sequence", "solvers", "attention", "nn"},
    "progress": set(),
    "drift": {*BASE, "forgetting", "online", "progress"},
    "tuning": {*BASE, "solvers", "online", "sequence", "progress"},
}


def imports(path):
    """(module, names) of every import of the package in a file, also those inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "olsq":
            yield node.module, [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from ((a.name, []) for a in node.names if a.name.split(".")[0] == "olsq")


def test_imports_flow_down_only():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room not in ROOMS:  # the package itself, cli, testing: on top
            continue
        for module, names in imports(path):
            parts = module.split(".")
            targets = [parts[1]] if len(parts) > 1 else names
            below = {room, *ROOMS[room]}
            if room == "solvers" and module.startswith("olsq.sequence."):
                continue  # the methods that make a form import it, when they are called
            if room == "online" and module == "olsq.plot":
                continue  # a path's plot(), when it is called
            if path == PACKAGE / "files" / "loading.py":
                continue  # olsq.load asks the room that wrote the file
            rooms = [t for t in targets if (PACKAGE / t).exists() or (PACKAGE / f"{t}.py").exists()]
            wrong += [(str(path.relative_to(PACKAGE)), t) for t in rooms if t not in below]
    assert not wrong


ONLINE = (
    "rows", "forms", "files", "conventions", "parameters", "windows", "paths", "calls", "inference",
    "estimators", "many", "variants", "known_rows", "horizon", "delayed_targets",
    "whole_array", "pieces", "loading",
)  # fmt: skip


def test_rooms_of_online_import_only_those_before_them():
    wrong = []
    for path in (PACKAGE / "online").rglob("*.py"):
        room = path.relative_to(PACKAGE / "online").parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for module, names in imports(path):
            parts = module.split(".")
            if parts[1:2] == ["online"]:
                targets = parts[2:3] or names
                above = ONLINE[ONLINE.index(room) + 1 :]
                wrong += [(str(path.relative_to(PACKAGE)), t) for t in targets if t in above]
    assert not wrong


@pytest.mark.parametrize("room", ["attention", "nn", "sequence/jax", "sequence/numpy", "torch"])
def test_no_file_of_a_room_imports_in_a_circle(room):
    """Imports inside functions, and those only for type checkers, count."""
    files = {
        ".".join(("olsq", *path.relative_to(PACKAGE).with_suffix("").parts)): path
        for path in (PACKAGE / room).rglob("*.py")
        if path.stem != "__init__"
    }
    graph = {
        name: {t for module, names in imports(path) for t in (module, *joined(module, names))}
        & files.keys()
        for name, path in files.items()
    }
    list(TopologicalSorter(graph).static_order())  # raises CycleError


def joined(module, names):
    return (f"{module}.{name}" for name in names)


@pytest.mark.full
def test_no_room_imports_the_private_names_of_another():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        for module, names in imports(path):
            parts = module.split(".")
            if parts[1:2] != [room]:
                private = [n for n in (*parts, *names) if n.startswith("_") and n != "__version__"]
                wrong += [(str(path.relative_to(PACKAGE)), module, n) for n in private]
    assert not wrong


def test_no_module_is_hidden_by_a_name_of_its_package():
    for init in PACKAGE.rglob("__init__.py*"):
        modules = {p.stem for p in init.parent.glob("*.py")}
        modules |= {p.name for p in init.parent.iterdir() if p.is_dir()}
        for node in ast.parse(init.read_text()).body:
            if isinstance(node, ast.ImportFrom):
                package = ".".join(("olsq", *init.parent.relative_to(PACKAGE).parts))
                hidden = {a.asname or a.name for a in node.names} & modules
                assert node.module == package or not hidden, (init, hidden)


def test_making_a_solver_imports_no_backend():
    code = """
import sys, olsq
for name in ("ChunkExact", "ConjugateGradient", "Chebyshev", "Neumann", "Recursive", "Dense"):
    getattr(olsq, name)()
olsq.forgetting.Directional(0.9)
print([m for m in ("jax", "numba", "scipy") if m in sys.modules])
"""
    assert run(code) == "[]"


def test_every_public_solver_has_a_row():
    from olsq import solvers

    sys.path.insert(0, str(PACKAGE.parent / "tests" / "sequence"))
    from sequence_cases import ROWS

    public = {
        x
        for x in vars(solvers).values()
        if isinstance(x, type) and issubclass(x, solvers.Solver) and x is not solvers.Solver
    }
    assert {type(row.solver(float)) for row in ROWS} == public

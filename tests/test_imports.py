"""What an import costs, and who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import olsq

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
print([m for m in ("jax", "jaxlib", "matplotlib", "dask", "sklearn", "pandas", "polars", "numba") if m in sys.modules])
"""  # noqa: E501
    run(code)  # the first time compiles
    seconds, heavy = run(code).splitlines()
    assert float(seconds) < 0.5
    assert heavy == "[]"


def test_estimators_need_neither_jax_nor_scikit_learn():
    code = """
import sys
import numpy as np, olsq
est = olsq.RecursiveLeastSquares().fit(np.eye(4), np.ones(4))
est.predict(np.eye(4))
print([m for m in ("jax", "matplotlib", "dask", "sklearn", "pandas") if m in sys.modules])
"""
    assert run(code) == "[]"


def test_not_fitted_error_without_scikit_learn():
    code = """
import numpy as np, olsq
try:
    olsq.RecursiveLeastSquares().predict(np.eye(2))
except ValueError as error:
    print(isinstance(error, AttributeError), error)
"""
    assert run(code).startswith("True This RecursiveLeastSquares instance is not fitted yet")


def test_no_module_but_tests_imports_the_reference():
    for path in PACKAGE.rglob("*.py"):
        if "reference" in path.parts:
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

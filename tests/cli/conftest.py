"""Small data files and ways to run the command line."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from olsq.cli import main, progress

REPOSITORY = Path(__file__).parents[2]


def command(*arguments):
    """The command line as a list, for a process of its own."""
    return [sys.executable, "-m", "olsq.cli", *map(str, arguments)]


def environment():
    """Environment in which that process finds this checkout."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "100"}


def start(*arguments, **options):
    """Start the command in a process of its own."""
    return subprocess.Popen(
        command(*arguments),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


@pytest.fixture(autouse=True)
def without_lines_of_progress(monkeypatch):
    """Standard error stays empty however long a busy machine takes."""
    monkeypatch.setattr(progress, "LINE_SECONDS", math.inf)


@pytest.fixture
def olsq_command(capsys):
    """Run the command line in this process; return (exit code, stdout, stderr)."""

    def run(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return run


def make_rows(n=2000, seed=0):
    """X (n, 3) and y (n,) whose coefficients drift, with some missing cells."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    coef = np.array([1.0, -2.0, 0.5]) + np.cumsum(0.02 * rng.standard_normal((n, 3)), axis=0)
    y = np.einsum("nd,nd->n", X, coef) + 3.0 + 0.1 * rng.standard_normal(n)
    X[rng.random((n, 3)) < 0.01] = np.nan
    y[rng.random(n) < 0.02] = np.nan
    return X, y


def csv_text(X, y, weight=None):
    """The rows as CSV text, missing cells empty."""
    names = ["a", "b", "c", "y"] + (["w"] if weight is not None else [])
    columns = [*X.T, y] + ([weight] if weight is not None else [])
    lines = [",".join(names)]
    for cells in zip(*columns, strict=True):
        lines.append(",".join("" if np.isnan(cell) else repr(float(cell)) for cell in cells))
    return "\n".join(lines) + "\n"


@pytest.fixture
def table(tmp_path):
    """A CSV file of 2000 rows and what it holds: (path, X, y)."""
    X, y = make_rows()
    path = tmp_path / "data.csv"
    path.write_text(csv_text(X, y), encoding="utf-8")
    return path, X, y

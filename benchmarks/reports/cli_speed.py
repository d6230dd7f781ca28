"""Processor seconds of ``olsq fit`` on a CSV file, beside those of its two parts on their own.

    python benchmarks/reports/cli_speed.py [--rows 10000000] [--repeats 4] [--directory DIR]

Makes a CSV file of five columns (deleted afterwards) and runs, in turn, processes that fit it, that
only scan it with Polars' streaming reader, and that only learn arrays of as many rows.  What each
takes for a thousand rows is taken off: the start of Python and its imports.  The smallest of the
repeats counts.  Writes ``benchmarks/results/cli_speed.json``.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

RESULT = Path(__file__).parents[1] / "results" / "cli_speed.json"
SCAN = """
import polars as pl, sys
frames = pl.scan_csv(sys.argv[1]).select(["x0", "x1", "x2", "x3", "y"]).collect_batches()
print(sum(frame.height for frame in frames))
"""
LEARN = """
import numpy as np, olsq, sys
rng = np.random.default_rng(0)
n = 16384
X = rng.standard_normal((n, 4))
y = X @ [1.0, -2.0, 0.5, 3.0] + rng.standard_normal(n)
est = olsq.RecursiveLeastSquares()
for _ in range(-(-int(sys.argv[1]) // n)):
    est.partial_fit(X, y)
"""


def make_csv(path: Path, rows: int) -> None:
    """Write random rows with four decimals."""
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        for start in range(0, rows, 500_000):
            X = rng.standard_normal((min(500_000, rows - start), 4))
            y = X @ [1.0, -2.0, 0.5, 3.0] + rng.standard_normal(len(X))
            frame = pl.DataFrame({f"x{j}": X[:, j] for j in range(4)} | {"y": y})
            text = frame.with_columns(pl.all().round(4)).write_csv(include_header=not start)
            file.write(text.encode())


def processor_seconds(command: list[str]) -> float:
    """User and system time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # as the command line sets it
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--directory", type=Path, help="where there is room for the file")
    arguments = parser.parse_args()
    python = sys.executable
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        sizes = {"all": arguments.rows, "start": 1000}
        commands = {}
        for size, rows in sizes.items():
            data = str(Path(folder) / f"{size}.csv")
            make_csv(Path(data), rows)
            fit = [python, "-m", "olsq.cli", "fit", data, "--target", "y"]
            commands["olsq fit", size] = fit
            commands["Polars' scan", size] = [python, "-c", SCAN, data]
            commands["learning arrays", size] = [python, "-c", LEARN, str(rows)]
        for command in commands.values():
            processor_seconds(command)  # compiles, and brings the file into memory
        found: dict[tuple[str, str], list[float]] = {key: [] for key in commands}
        for _ in range(arguments.repeats):
            for key, command in commands.items():
                found[key].append(processor_seconds(command))
    seconds = {
        part: round(min(found[part, "all"]) - min(found[part, "start"]), 2)
        for part in ("olsq fit", "Polars' scan", "learning arrays")
    }
    parts = seconds["Polars' scan"] + seconds["learning arrays"]
    result = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "rows": arguments.rows,
        "processor_seconds": seconds,
        "start_of_olsq_fit": round(min(found["olsq fit", "start"]), 2),
        "fit_over_its_parts": round(seconds["olsq fit"] / parts, 2),
        "versions": {"python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in ("numpy", "numba", "polars")},
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()

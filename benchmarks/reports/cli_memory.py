"""Peak memory of ``olsq fit`` on a CSV file far larger than it may use.

    python -m benchmarks.reports.cli_memory [--gigabytes 5] [--directory DIR]

Makes a CSV file (deleted afterwards), fits it in several ways and sums its columns with Polars,
which is what reading it takes.  Reads the peak resident memory of each process from /proc (Linux
only) and writes ``benchmarks/results/cli_memory.json``.  The limit is 400 MB; the exit code is 1 if
any run of olsq exceeds it.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

LIMIT_MB = 400
FEATURES = 16
RESULT = Path(__file__).parents[1] / "results" / "cli_memory.json"

CASES = {
    "fit": [],
    "fit with --state": ["--state", "run.olsq"],
    "fit with --out .csv, --plot, --state": [
        "--out", "path.csv", "--plot", "fit.png", "--state", "run.olsq",
    ],
    "fit with --out .parquet": ["--out", "path.parquet"],
    "fit --window 250": ["--window", "250"],
}  # fmt: skip
READING = """
import polars
polars.scan_csv("big.csv").sum().collect(engine="streaming")
"""


def make_csv(path: Path, n_bytes: float) -> int:
    """Write random rows with 16 significant digits until the file is large enough."""
    rng = np.random.default_rng(0)
    rows = 0
    with path.open("wb") as file:
        while file.tell() < n_bytes:
            X = rng.standard_normal((50_000, FEATURES))
            y = X @ np.arange(1.0, FEATURES + 1) + rng.standard_normal(len(X))
            frame = pl.DataFrame({f"x{j}": X[:, j] for j in range(FEATURES)} | {"y": y})
            file.write(frame.write_csv(include_header=not rows).encode())
            rows += len(X)
    return rows


def peak_memory(command: list[str], directory: Path) -> tuple[float, float]:
    """Run a command; return its peak resident memory in MB and its seconds."""
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL)
    peak = 0.0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        for line in status.splitlines():
            if line.startswith("VmHWM"):
                peak = max(peak, int(line.split()[1]) / 1000)
        time.sleep(0.02)
    if process.wait():
        raise SystemExit(f"failed: {' '.join(command)}")
    return peak, time.monotonic() - start


def main() -> int:
    """Measure every case and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--directory", type=Path, help="where there is room for the big file")
    arguments = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        directory = Path(name)
        rows = make_csv(directory / "big.csv", arguments.gigabytes * 1e9)
        size = (directory / "big.csv").stat().st_size
        commands = {case: ["fit", "big.csv", "--target", "y", *o] for case, o in CASES.items()}
        programs = {case: ["-m", "olsq.cli", *command] for case, command in commands.items()}
        for case, program in ({"Polars": ["-c", READING]} | programs).items():
            peak, seconds = peak_memory([sys.executable, *program], directory)
            runs.append(
                {
                    "case": case,
                    "command": " ".join(["olsq", *commands[case]]) if case in commands else READING,
                    "peak_mb": round(peak, 1),
                    "seconds": round(seconds, 1),
                    "rows_per_second": round(rows / seconds),
                }
            )
            print(f"{case:40s} {peak:6.0f} MB {seconds:7.1f} s {rows / seconds:10,.0f} rows/s")
            for leftover in directory.iterdir():
                if leftover.name != "big.csv":
                    leftover.unlink()
    packages = ("numpy", "numba", "polars", "typer", "rich", "matplotlib")
    result = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "file": {"bytes": size, "rows": rows, "columns": FEATURES + 1},
        "limit_mb": LIMIT_MB,
        "runs": runs,
        "versions": {"python": platform.python_version()}
        | {package: importlib.metadata.version(package) for package in packages},
    }
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return int(max(run["peak_mb"] for run in runs if run["case"] in CASES) > LIMIT_MB)


if __name__ == "__main__":
    sys.exit(main())

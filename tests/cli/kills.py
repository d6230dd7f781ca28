"""Kill the commands at random and compare what they end with: ``python -m tests.cli.kills``.

Every shape of a run is first made whole.  Then the same run is started, killed (SIGKILL) at a
random time and resumed, again and again until it is done, in a new folder each time, until there
were as many kills as asked for.  All files must have the bytes of the whole run, and nothing else
may lie beside them.  ``olsq predict`` has no state: after each kill an old file must be as it was.

    python -m tests.cli.kills [--fit 20] [--predict 20] [--seed 0] [--folder DIR]

The numbers are kills for each of the five shapes of ``olsq fit``, and for ``olsq predict``.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from tests.cli.conftest import command, csv_text, environment, make_rows

STATE = ("--state", "s.olsq", "--checkpoint-every", "0", "--resume")
SHAPES = {
    "csv to csv": (
        "d.csv", "--target", "y", "--forget", "0.99", "--out", "o.csv",
        "--chunk-rows", "200", *STATE,
    ),
    "csv to parquet and a figure": (
        "d.csv", "--target", "y", "--half-life", "50", "--out", "o.parquet", "--plot", "p.png",
        "--chunk-rows", "200", *STATE,
    ),
    "csv by group to csv": (
        "g.csv", "--target", "y", "--by", "g", "--out", "o.csv", "--chunk-rows", "200", *STATE,
    ),
    "parquet with lags to parquet": (
        "d.parquet", "--target", "y", "--features", "a,b,c", "--lags", "2", "--out", "o.parquet",
        "--chunk-rows", "200", *STATE,
    ),
    "two targets in a window to csv and figures": (
        "d.csv", "--target", "y,c", "--window", "100", "--out", "o.csv", "--plot", "p.png",
        "--chunk-rows", "200", *STATE,
    ),
}  # fmt: skip
PATIENCE = 900.0


def make_inputs(folder: Path) -> None:
    """The same rows as CSV, with labels of groups too, and as Parquet."""
    X, y = make_rows(6_000)
    (folder / "d.csv").write_text(csv_text(X, y))
    frame = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y}, nan_to_null=True)
    frame = frame.with_columns(g=pl.Series(["red", "green", "blue", "red"] * 1500))
    frame.write_parquet(folder / "d.parquet")
    frame.write_csv(folder / "g.csv")


def start(folder: Path, inputs: Path, name: str, arguments: Sequence[str]) -> subprocess.Popen:
    """Start a command in a folder; names of inputs are those of the other folder."""
    given = [str(inputs / a) if (inputs / a).is_file() else a for a in arguments]
    return subprocess.Popen(
        command(name, *given), env=environment(), cwd=folder, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen) -> None:
    """Wait for a process, and raise if it failed."""
    _, err = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise AssertionError(f"exit code {process.returncode}: {err.decode()}")


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its bytes, without the folder's name (which config.toml has)."""
    own = str(folder).encode()
    return {
        str(p.relative_to(folder)): p.read_bytes().replace(own, b"")
        for p in folder.rglob("*") if p.is_file()
    }  # fmt: skip


def kill_at_random(
    process: subprocess.Popen, folder: Path, lasts: float, rng: random.Random
) -> bool:
    """Kill a process; False if it was done before.

    One kill in four is at a time within what a whole run took, the others a moment after a file
    has changed, so that files are being written whatever else the machine does.
    """
    before, end = stamps(folder), time.monotonic() + PATIENCE
    if rng.random() < 0.25:
        end = time.monotonic() + rng.uniform(0.1, 1.0) * lasts
    else:
        changes = rng.randrange(1, 6)
        while process.poll() is None and changes and time.monotonic() < end:
            time.sleep(0.002)
            if (now := stamps(folder)) != before:
                before, changes = now, changes - 1
        end = time.monotonic() + rng.choice([0.0, rng.uniform(0, 0.05), rng.uniform(0, 0.5)])
    while process.poll() is None and time.monotonic() < end:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    _, err = process.communicate()
    if process.returncode not in (0, -signal.SIGKILL):
        raise AssertionError(f"exit code {process.returncode}: {err.decode()}")
    return process.returncode != 0


def stamps(folder: Path) -> dict[str, int]:
    """When every file of a folder but the locks was changed."""
    found = {}
    for path in folder.rglob("*"):
        if not path.name.endswith("olsq-lock"):
            try:
                found[str(path)] = path.stat().st_mtime_ns
            except OSError:  # gone meanwhile
                continue
    return found


def resumed(
    name: str, arguments: Sequence[str], kills: int, inputs: Path, rng: random.Random
) -> dict[str, object]:
    """Kill a run that can be resumed; return counts of kills and ended runs, and differences."""
    folder = Path(tempfile.mkdtemp(dir=inputs))
    begun = time.monotonic()
    finish(start(folder, inputs, name, arguments))
    lasts, whole = time.monotonic() - begun, contents(folder)
    found = {"kills": 0, "with a file under construction": 0, "runs ended": 0, "differences": []}
    while found["kills"] < kills:
        folder = Path(tempfile.mkdtemp(dir=inputs))
        while found["kills"] < kills:
            process = start(folder, inputs, name, arguments)
            if not kill_at_random(process, folder, lasts, rng):
                break
            found["kills"] += 1
            beside = [p for p in folder.rglob(".*") if p.suffix in (".tmp", ".part")]
            found["with a file under construction"] += bool(beside)
        finish(start(folder, inputs, name, arguments))
        found["runs ended"] += 1
        ended = contents(folder)
        for file in sorted(whole.keys() | ended.keys()):
            if whole.get(file) != ended.get(file):
                found["differences"].append(f"{folder.name}/{file}")
    return found


def predicted(kills: int, inputs: Path, rng: random.Random) -> dict[str, object]:
    """Kill ``olsq predict``; counts as above."""
    folder = Path(tempfile.mkdtemp(dir=inputs))
    fit = ("d.csv", "--target", "y", "--state", "s.olsq")
    finish(start(folder, inputs, "fit", fit))
    arguments = (str(folder / "s.olsq"), "d.csv", "--out", "o.csv")
    begun = time.monotonic()
    finish(start(folder, inputs, "predict", arguments))
    lasts, whole = time.monotonic() - begun, (folder / "o.csv").read_bytes()
    found = {"kills": 0, "with a file under construction": 0, "runs ended": 0, "differences": []}
    while found["kills"] < kills:
        (folder / "o.csv").write_bytes(b"old")
        process = start(folder, inputs, "predict", arguments)
        killed = kill_at_random(process, folder, lasts, rng)
        found["kills"] += killed
        found["with a file under construction"] += bool(list(folder.glob(".o.csv.*.tmp")))
        if (folder / "o.csv").read_bytes() not in (whole, *([b"old"] if killed else [])):
            found["differences"].append(f"o.csv after kill {found['kills']}")
    finish(start(folder, inputs, "predict", arguments))
    found["runs ended"] += 1
    left = sorted(p.name for p in folder.iterdir())
    if (folder / "o.csv").read_bytes() != whole or left != ["o.csv", "s.olsq"]:
        found["differences"].append(f"at the end: {left}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("fit", "predict"):
        parser.add_argument(f"--{name}", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    inputs = Path(asked.folder or tempfile.mkdtemp())
    make_inputs(inputs)
    rng, found = random.Random(asked.seed), {}
    for shape, arguments in SHAPES.items() if asked.fit else ():
        found[f"fit: {shape}"] = resumed("fit", arguments, asked.fit, inputs, rng)
        print(f"fit: {shape}: {json.dumps(found[f'fit: {shape}'])}", flush=True)
    if asked.predict:
        found["predict"] = predicted(asked.predict, inputs, rng)
        print(f"predict: {json.dumps(found['predict'])}", flush=True)
    sys.exit(any(result["differences"] for result in found.values()))


if __name__ == "__main__":
    main()

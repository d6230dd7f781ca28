"""What asv measured over commits of this repository, as tables.

python -m benchmarks.reports.history           # adds asv's results in .asv, and prints them
python -m benchmarks.reports.history --results a/.asv/results b/.asv/results
python -m benchmarks.reports.history --commits 29a9343 4691d4c    # leaves the others out
python -m benchmarks.reports.history --tables  # only print benchmarks/results/history.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

from .history_page import every_table

ROOT = Path(__file__).parents[2]
ASV = ROOT / ".asv" / "results"
RESULTS = ROOT / "benchmarks" / "results" / "history.json"


def log(commit: str, form: str) -> str:
    """A field of a commit."""
    call = ["git", "log", "-1", "--date=format:%Y-%m-%d %H:%M", f"--format={form}", commit]
    return subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def collect(folder: Path) -> dict[str, Any]:
    """asv's results of all commits, those with a value only: what the page needs."""
    from ..support.machine import describe

    about = json.loads((folder / "benchmarks.json").read_text())
    commits, found = set(), {}
    for path in folder.glob("*/*-*.json"):
        stored = json.loads(path.read_text())
        commit = stored["commit_hash"][:7]
        commits.add((int(log(commit, "%ct")), commit))
        for name, row in stored["results"].items():
            values = row[0] if row and row[0] is not None else None
            if name not in about or values is None:
                continue
            entry = found.setdefault(name, {"unit": about[name]["unit"], "values": {}})
            entry["names"], entry["params"] = about[name]["param_names"], row[1]
            entry["values"][commit] = [v if v == v else None for v in values]
    rows = [[c, log(c, "%cd"), log(c, "%s")] for _, c in sorted(commits)]
    return {"machine": describe(), "commits": rows, "benchmarks": dict(sorted(found.items()))}


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Stored results with what was measured since: later values of a benchmark and commit count."""
    benchmarks = dict(old["benchmarks"])
    for name, entry in new["benchmarks"].items():
        before = benchmarks.get(name, entry)
        same = (before["names"], before["params"]) == (entry["names"], entry["params"])
        values = (before["values"] if same else {}) | entry["values"]
        benchmarks[name] = {**entry, "values": values}
    rows = {commit: [commit, when, what] for commit, when, what in old["commits"]}
    rows |= {commit: [commit, when, what] for commit, when, what in new["commits"]}
    by_date = sorted(rows.values(), key=lambda row: row[1])
    return {**new, "commits": by_date, "benchmarks": dict(sorted(benchmarks.items()))}


def kept(found: dict[str, Any], commits: list[str]) -> dict[str, Any]:
    """Of these commits alone; a benchmark that none of them has goes."""
    if unknown := set(commits) - {commit for commit, _, _ in found["commits"]}:
        raise SystemExit(f"no results of {', '.join(sorted(unknown))}")
    benchmarks = {
        name: {**entry, "values": values}
        for name, entry in found["benchmarks"].items()
        if (values := {c: v for c, v in entry["values"].items() if c in commits})
    }
    rows = [row for row in found["commits"] if row[0] in commits]
    return {**found, "commits": rows, "benchmarks": benchmarks}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", action="store_true", help="only print every table")
    parser.add_argument(
        "--results",
        nargs="+",
        type=Path,
        default=[ASV],
        metavar="FOLDER",
        help="asv's results, of this clone or of others, the newest last",
    )
    parser.add_argument("--commits", nargs="+", metavar="HASH", help="keep these, by seven digits")
    args = parser.parse_args()
    found = json.loads(RESULTS.read_text())
    if not args.tables:
        for folder in args.results:
            found = merged(found, collect(folder))
        if args.commits:
            found = kept(found, args.commits)
        RESULTS.write_text(json.dumps(found) + "\n")
    print(every_table(found))


if __name__ == "__main__":
    main()

"""Make every table and figure that the docs quote again, or check that pages and results agree.

    python -m benchmarks.reports                # measures all: about three hours on an idle core
    python -m benchmarks.reports --only many    # one of them
    python -m benchmarks.reports --check        # pages against stored results: seconds
    python -m benchmarks.reports --list

Prints the machine and the versions first.  The exit code is 1 if a number that a page quotes has
moved by more than its report's spread, or, with --check, if a page does not say what is stored.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Collection

from ..support import machine
from .prose import QUOTES
from .registry import BY_NAME, ELSEWHERE, REPORTS, RESULTS, TYPED, Report, pages, write_blocks
from .traced import ROOT, TABLE, block, moved, tables_outside
from .untied import gone


def check(report: Report) -> list[str]:
    """What a page says otherwise than the stored results."""
    found = report.stored()
    if found is None:
        return []
    wrong = []
    for (page, marker), text in report.blocks(found).items():
        if text.strip() != block(page, marker):
            place = f"docs/{page}, {marker}"
            wrong.append(f"{report.name}: {place} is not what {report.results.name} says")
    return wrong


def prose_of(name: str) -> set[str]:
    """Pages whose sentences quote a report."""
    return {q.page.removeprefix("docs/") for q in QUOTES if name in q.reports.split()}


def quoted(names: Collection[str]) -> list[str]:
    """Sentences that quote one of these results, and are further from them than the spread."""
    wrong = []
    for quote in QUOTES:
        sources = quote.reports.split()
        if names and not set(sources) & set(names):
            continue
        paths = [RESULTS / f"{one}.json" for one in sources]
        if not all(path.exists() for path in paths):
            continue  # lost when a run was broken off, which is said elsewhere
        spread = max((BY_NAME[one].spread for one in sources if one in BY_NAME), default=0.5)
        wrong += quote.wrong([json.loads(path.read_text()) for path in paths], spread)
    return wrong


def untraced() -> list[str]:
    """Tables of numbers that no report makes and that no other home is known for."""
    found = []
    for page in pages():
        name = str(page.relative_to(ROOT))
        if any(home in page.parts for home in ELSEWHERE):
            continue
        found += [f"{name}: {head}" for head in tables_outside(page)]
    return [table for table in found if table not in TYPED]


def run(report: Report) -> list[str]:
    """Measure, put the numbers into the pages, and say which have moved beyond the spread."""
    old = report.stored()
    kept = report.results.read_bytes() if old is not None else None
    before = report.blocks(old) if old is not None else {}
    if not report.printed:
        report.results.unlink(missing_ok=True)  # scripts that resume would find nothing to do
    try:
        measure(report)
    except BaseException as error:
        if kept is not None:
            report.results.write_bytes(kept)
        if not isinstance(error, subprocess.CalledProcessError):
            raise
        return [f"{report.name}: {error}"]
    wrong = []
    found = report.stored()
    for place, text in report.blocks(found).items():
        wrong += moved(before[place] if before else block(*place), text, report.spread)
    write_blocks(report.name, found)
    return wrong + quoted([report.name])


def measure(report: Report) -> None:
    """Run its commands; store what a printing one prints."""
    for command in report.commands:
        name, *arguments = command.split()
        call = [sys.executable, "-m", f"benchmarks.reports.{name}", *arguments]
        print("$ python " + " ".join(call[1:]), flush=True)
        done = subprocess.run(call, cwd=ROOT, stdout=subprocess.PIPE if report.printed else None,
                              text=True, check=True)  # fmt: skip
        if report.printed:
            print(done.stdout)
            tables = [table.strip() for table in TABLE.findall(done.stdout + "\n")]
            found = {"command": " ".join(call[1:]), "machine": machine.describe(), "tables": tables}
            report.results.write_text(json.dumps(found, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reports", description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=sorted(BY_NAME), help="these reports")
    parser.add_argument("--check", action="store_true", help="hold pages against stored results")
    parser.add_argument("--list", action="store_true", help="reports, minutes, pages")
    options = parser.parse_args(arguments)
    chosen = [BY_NAME[name] for name in options.only] if options.only else list(REPORTS)
    print(re.sub("^Measured", "On", machine.sentence(machine.describe(), *machine.PACKAGES[1:])))
    if options.list:
        for r in chosen:
            found = r.stored()
            where = {page for page, _ in r.blocks(found)} | prose_of(r.name) if found else ()
            where = sorted(where) or ["not run yet"]
            print(f"{r.name:18} {r.minutes:4g} min  spread {r.spread:.0%}  {', '.join(where)}")
        return 0
    wrong: list[str] = []
    for report in chosen:
        wrong += check(report) if options.check else run(report)
    if options.check:
        wrong += quoted(options.only or [])
    if options.check and not options.only:
        wrong += [f"no report makes this table: {head}" for head in untraced()] + gone()
    print("\n".join(wrong) if wrong else f"{len(chosen)} reports: nothing has moved")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

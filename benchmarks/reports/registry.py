"""Every report: what measures it, where its results lie, and which blocks of which pages quote it.

A spread is what a number may move by from one run to the next before a report fails: 0.5 for times
on a shared machine, less where the script measures ratios in turn or counts.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..support.marked import replace_between
from .traced import DOCS, ROOT

ACCURACY_PAGE, ROWS_PAGE = "measurements/accuracy.md", "measurements/rows.md"
SEQUENCES_PAGE, SPEED_PAGE = "measurements/sequences.md", "measurements/speed.md"
SCALING_PAGE, FAMILY_PAGE = "measurements/scaling.md", "the-family.md"
RESULTS = Path(__file__).parents[1] / "results"
Blocks = dict[tuple[str, str], str]  # (page, marker) -> text


@dataclass(frozen=True)
class Report:
    """One report.

    Attributes
    ----------
    name : str
        What ``--only`` takes; ``benchmarks/results/NAME.json`` holds its numbers.
    commands : tuple of str
        Modules of ``benchmarks.reports`` with their arguments, which measure and store.
    blocks : callable
        Texts of the pages out of the stored results.
    spread : float
        Relative movement of a quoted number that is noise.
    minutes : float
        Roughly, on an idle core.
    figures : tuple of str
        Pictures under ``docs/`` that its commands draw.
    printed : bool
        The command only prints Markdown tables: they are stored from its output.
    """

    name: str
    commands: tuple[str, ...]
    blocks: Callable[[Any], Blocks]
    spread: float
    minutes: float
    figures: tuple[str, ...] = ()
    printed: bool = False

    @property
    def results(self) -> Path:
        return RESULTS / f"{self.name}.json"

    def stored(self) -> Any:
        """Its results, or None where it has not been run yet."""
        return json.loads(self.results.read_text()) if self.results.exists() else None


def without(text: str, rows: str = "", columns: tuple[int, ...] = ()) -> str:
    """A Markdown table without the rows that begin with a pattern, and without these columns."""
    shown = []
    for line in text.splitlines():
        if line.startswith("|"):
            if rows and re.match(rf"\| ({rows})", line):
                continue
            cells = line.strip("|").split("|")
            line = "|" + "|".join(c for i, c in enumerate(cells) if i not in columns) + "|"
        shown.append(line)
    return "\n".join(shown)


def stability(found: dict) -> Blocks:
    from .stability_report import tables

    texts = tables(found)
    texts["float64"] = without(texts["float64"], r"1\.0, 1e\+0[24]", (3,))
    texts["special"] = without(texts["special"], "white noise|scale", (3,))
    texts["float32"] = without(texts["float32"], r"0\.99, 1e\+02")
    return {(ACCURACY_PAGE, marker): text for marker, text in texts.items()}


def nist(found: dict) -> Blocks:
    """Without datasets of the kind of another one; nist.json has all."""
    from .nist import text

    unshown = "NoInt|Pontius|Wampler[134]|Nasty (big|huge|tiny|round)|Norris"
    return {(ACCURACY_PAGE, "nist"): without(text(found), unshown, (3,))}


def speed(found: dict) -> Blocks:
    from .speed_report import tables

    return {(SPEED_PAGE, marker): text for marker, text in tables(found).items()}


def first_call(found: dict) -> Blocks:
    from .first_call import table

    unshown = "several|`RandomWalk`|`RollingLeast|`from olsq|`Grouped|`compiled|the same"
    return {(SPEED_PAGE, "first call"): without(table(found), unshown, (2,))}


def forgetting(found: dict) -> Blocks:
    from .forgetting_report import tables

    return {(ROWS_PAGE, marker): text for marker, text in tables(found).items()}


def text_of(
    module: str, page: str, marker: str, rows: str = "", columns: tuple[int, ...] = ()
) -> Callable[[Any], Blocks]:
    """The one block of a script, which its function ``text`` writes, without rows and columns."""

    def blocks(found: Any) -> Blocks:
        made = importlib.import_module(f".{module}", __package__).text(found)
        return {(page, marker): without(made, rows, columns)}

    return blocks


def channel_gates(found: dict) -> Blocks:
    """Without the errors of two forms of the rule; channel_gates.json has them."""
    from .channel_gates import solve_table

    solves = solve_table(found["solves"], found["date"])
    return {(SEQUENCES_PAGE, "channel solves"): without(solves, "half 0.999|a rate|0 at one", (3,))}


def filtered_rules(found: dict) -> Blocks:
    from .filtered_rules import error_table

    errors = error_table(found["errors"])
    return {(SEQUENCES_PAGE, "filtered errors"): without(errors, r"`kalman_delta`, `isotropic")}


def sequence_gates(found: dict) -> Blocks:
    from .sequence_gates import table

    unshown = r"\S+ \| (0\.3|0\.99|1\.0|mixed) "
    return {(SEQUENCES_PAGE, "gates"): without(table(found["rows"]), unshown, columns=(2, 3))}


def long_sequence(found: dict) -> Blocks:
    from .long_sequence import table

    return {(SEQUENCES_PAGE, "long"): without(table(found["rows"]), "65,536|262,144", (3, 4, 5))}


def training_step(found: dict) -> Blocks:
    from .training_step import table

    return {(SEQUENCES_PAGE, "step"): table(found)}


def sequence(found: dict) -> Blocks:
    from .sequence_report import tables

    texts = tables(found)
    texts["sequence d64"] = without(texts["sequence d64"], columns=(2, 3, 5, 6))
    texts["sequence steps"] = without(
        texts["sequence steps"], r"(long runs|one token) \| 0\.9 ", (3,)
    )
    texts["sequence memory"] = without(texts["sequence memory"], "H4", (0,))
    return {(SEQUENCES_PAGE, marker): text for marker, text in texts.items()}


def attention(found: dict) -> Blocks:
    from .attention_report import costs_of_rules, map_of_rules, rows_of_rules

    return {
        (FAMILY_PAGE, "map"): map_of_rules(),
        (FAMILY_PAGE, "rules"): rows_of_rules(),
        (SEQUENCES_PAGE, "attention costs"): costs_of_rules(found),
    }


def cli_memory(found: dict) -> Blocks:
    lines = ["| run | peak resident memory | rows per second |", "|---|---|---|"]
    labels = {
        "Polars": "sums of all columns by Polars' `scan_csv`",
        "fit": "`olsq fit`",
        "fit with --state": "... with `--state`",
        "fit with --out .csv, --plot, --state": (
            "... with `--out path.csv --plot fit.png --state run.olsq`"
        ),
        "fit with --out .parquet": "... with `--out path.parquet`",
        "fit --window 250": "... with `--window 250`",
    }
    for run in found["runs"]:
        rate = round(run["rows_per_second"], -3)
        lines.append(f"| {labels[run['case']]} | {run['peak_mb']:.0f} MB | {rate:,} |")
    return {(SPEED_PAGE, "memory"): "\n".join(lines)}


def dask_rows(found: dict) -> Blocks:
    from . import how_far

    return {
        (SCALING_PAGE, "constants"): without(how_far.constants(found), "64 ", (2,)),
        (SCALING_PAGE, "partition memory"): without(
            how_far.memory(found), "path, two|fit, two|rolling|predictions"
        ),
    }


def devices(found: dict) -> Blocks:
    from . import how_far

    return {(SCALING_PAGE, "received"): how_far.received(found)}


def accelerator(found: dict) -> Blocks:
    from .accelerator_page import measured_blocks

    blocks = measured_blocks(found)
    place = "measurements/accelerators.md", "accelerator measured"
    return blocks | {place: without(blocks[place], r"olsq softmax, \w+, 2048", (4,))}


def accelerator_counts(found: dict) -> Blocks:
    from .accelerator_page import blocks

    unshown = "olsq (mesa, (factors|everything)|mesa cg|kda|momentum|kalman_|mamba)"
    shown = {place: without(text, unshown) for place, text in blocks(found).items()}
    counts, prediction = (
        ("measurements/accelerators.md", f"accelerator {name}") for name in ("counts", "prediction")
    )
    return {
        counts: without(shown[counts], columns=(2, 3)),
        prediction: without(shown[prediction], columns=(2,)),
    }


def printed(page: str, *markers: str) -> Callable[[dict], Blocks]:
    """Blocks of a script that prints its tables: the first ones, in order."""

    def blocks(found: dict) -> Blocks:
        texts = found["tables"][: len(markers)]
        return {(page, m): text for m, text in zip(markers, texts, strict=True)}

    return blocks


def columns(table: str, *kept: int) -> str:
    """A Markdown table with these columns only."""
    rows = [[row.strip("|").split("|")[i].strip() for i in kept] for row in table.splitlines()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def coverage(found: dict) -> Blocks:
    return {(ACCURACY_PAGE, "coverage"): without(found["tables"][0], r"0\.99 ")}


def interruptions(found: dict) -> Blocks:
    night, silent = found["tables"][:2]
    return {
        (ACCURACY_PAGE, "night"): without(columns(night, 0, 1, 2, 4), "olsq, `Robust"),
        (ACCURACY_PAGE, "silent start"): without(columns(silent, 0, 1, 4), "pandas"),
    }


def float32_rows(found: dict) -> Blocks:
    """Return no table: a sentence of the page quotes the report."""
    return {}


def linalg(found: dict) -> Blocks:
    """Without some of the sizes, and without QR."""
    cholesky = without(found["tables"][0], r"32 |\d+ \| 8 |(8|128) \| 64 ")
    return {(ROWS_PAGE, "cholesky"): cholesky}


UNSHOWN = tuple(f"| {d} " for d in (32, 64, 128, 512, 2048))  # its figure has these sizes


def many_coefficients(found: dict) -> Blocks:
    """Some sizes, with the ratio to the bound in brackets, and without the errors."""
    rows = [row for row in found["tables"][0].splitlines() if not row.startswith(UNSHOWN)]
    shown = re.sub(r", ([\d.]+) times \([^)]*\)", r" (\1)", "\n".join(rows))
    return {(SPEED_PAGE, "many coefficients"): shown}


REPORTS = (
    Report(
        "stability", ("stability",), stability, 0.5, 30,
        ("img/numerics-drift.png", "img/numerics-windup.png"),
    ),
    Report("nist", ("nist",), nist, 0.5, 1),
    Report("speed", ("online_table",), speed, 0.5, 15),
    Report("forgetting", ("forgetting",), forgetting, 0.5, 10, ("img/forgetting.png",)),
    Report("busy", ("busy",), lambda found: {}, 0.3, 4),
    Report("first_call", ("first_call",), first_call, 0.5, 8),
    Report("first_programs", ("first_call --programs",), lambda found: {}, 0.5, 4),
    Report(
        "many", ("many",), text_of("many", ROWS_PAGE, "many", "the same with an intercept"),
        0.4, 2,
    ),
    Report(
        "panels", ("panels",), text_of("panels", ROWS_PAGE, "panels", "olsq, all rows|`within"),
        0.5, 10,
    ),
    Report(
        "compiled", ("compiled",),
        text_of(
            "compiled", ROWS_PAGE, "compiled",
            "the same for|symmetric|textbook recursion by hand in PyTorch|`pl\\.|polars-ols|"
            ".*from Python",
        ), 0.5, 2,
    ),
    Report(
        "complex_embedding", ("complex_embedding",),
        text_of("complex_embedding", ROWS_PAGE, "complex", "`R.*real rows", (2,)), 0.5, 1,
    ),
    Report(
        "torch_calls", ("torch_calls",), text_of("torch_calls", ROWS_PAGE, "torch"),
        0.5, 2,
    ),
    Report(
        "polars_expressions", ("polars_expressions",),
        text_of(
            "polars_expressions", ROWS_PAGE, "polars",
            "`(ols|rls|rolling)`, prediction|`expanding`|`ols`, stderr",
        ), 0.5, 5,
    ),
    Report(
        "time_varying", ("time_varying",),
        text_of("time_varying", ROWS_PAGE, "time varying", "2(00, 2|,000, 4) "), 0.5, 3,
    ),
    Report(
        "variants", ("variants",),
        text_of(
            "variants", ROWS_PAGE, "variants",
            r"`RobustLeastSquares`, Student|\*(NumPy lstsq|statsmodels)|.*Kernel", (1, 2, 3, 6),
        ), 0.5, 10,
        ("img/variants.png",),
    ),
    Report("hard_tokens", ("hard_tokens",), lambda found: {}, 0.3, 5),
    Report("channel_gates", ("channel_gates",), channel_gates, 0.5, 5),
    Report("filtered_rules", ("filtered_rules",), filtered_rules, 0.02, 5),
    Report("numpy_solvers", ("numpy_solvers",), lambda found: {}, 0.5, 4),
    Report("sequence_gates", ("sequence_gates",), sequence_gates, 0.5, 5),
    Report("long_sequence", ("long_sequence",), long_sequence, 0.5, 5),
    Report("training_step", ("training_step",), training_step, 0.5, 4),
    Report("sequence_numpy", ("sequence_numpy",), lambda found: {}, 0.5, 6),
    Report(
        "sequence",
        ("sequence_table speed memory growth small decoding iterations", "sequence_figure"),
        sequence, 0.5, 30, ("img/chunk-exact.png",),
    ),
    Report(
        "attention", ("attention_table speed step growth",), attention, 0.5, 40,
        ("img/family-one-shot.png", "img/family-map.png", "img/family-time.png"),
    ),
    Report("cli_memory", ("cli_memory",), cli_memory, 0.5, 5),
    Report("cli_speed", ("cli_speed",), lambda found: {}, 0.5, 5),
    Report(
        "dask_rows",
        ("dask_rows constants", "dask_rows rows --partitions 1000", "dask_rows memory",
         "dask_rows workers --repeats 1", "dask_rows figure"),
        dask_rows, 0.5, 90, ("img/how-far.png",),
    ),
    Report("devices", ("devices",), devices, 0.5, 20),
    Report("accelerator", ("accelerator",), accelerator, 0.5, 15),
    Report(
        "accelerator_counts", ("accelerator_counts",), accelerator_counts, 0.1, 60,
    ),
    Report("coverage", ("coverage",), coverage, 0.02, 5, printed=True),
    Report(
        "interruptions", ("interruptions",), interruptions, 0.02, 1, printed=True,
    ),
    Report(
        "long_float32", ("long_float32",), float32_rows, 0.5, 10, printed=True,
    ),
    Report(
        "linalg", ("linalg",), linalg, 0.5, 3, printed=True,
    ),
    Report(
        "local_preconditioners", ("local_figure", "local_preconditioners"),
        lambda found: {}, 0.5, 10,
        ("img/local-least-squares.png",), printed=True,
    ),
    Report(
        "random_walk_forms", ("random_walk_forms",), lambda found: {}, 0.5, 1, printed=True,
    ),
    Report(
        "linalg_downdates", ("linalg_downdates",), lambda found: {}, 0.3, 1, printed=True,
    ),
    Report(
        "many_coefficients", ("many_coefficients",), many_coefficients, 0.5, 10,
        ("img/many-coefficients.png",), printed=True,
    ),
)  # fmt: skip
BY_NAME = {report.name: report for report in REPORTS}


def write_blocks(name: str, found: Any) -> None:
    """Put what the pages show of one report's results between their markers."""
    for (page, marker), text in BY_NAME[name].blocks(found).items():
        replace_between(DOCS / page, marker, text)


# Pages whose numbers have another home, with the reason; the tests let no other page quote any.
ELSEWHERE = {
    "results": "made by examples/experiments from docs/results/*.json",
    "README.md": "tests/test_readme.py and test_benchmarks.py hold it against stored results",
    "testing-and-measuring.md": "each row names the test, script or page that measures it",
}

# Tables on other pages that are not measured by a report, each with where its numbers come from.
TYPED = {
    "docs/concepts/how-it-works.md: | `forget` | half-life in rows | effective rows |": (
        "arithmetic"
    ),
    "docs/index.md: | one regression, forgetting 0.99 | olsq | river | padasip | polars-ols |": (
        "rows of the README"
    ),
    "docs/tasks.md: | test at the baseline | answers per sequence | score of a guess "
    "| of the most frequent next token | best possible |": "counted once; no script kept",
}


def pages() -> list[Path]:
    """The README and every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

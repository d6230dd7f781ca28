"""Measured numbers in sentences: which result each comes from, and which come from none.

A table is rewritten by its report.  A sentence is written by hand, so it is only held: ``--check``
fails where a quoted number is further from the stored result than the report's spread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .traced import ROOT, apart

HOLE = r"([-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?)"


@dataclass(frozen=True)
class Quote:
    """A sentence of a page with its numbers.

    Attributes
    ----------
    page : str
        From the root of the repository.
    text : str
        Part of a sentence, ``{}`` where its numbers stand; line ends count as spaces.
    reports : str
        Names of the reports whose stored results ``values`` takes, in order.
    values : callable
        The numbers out of the results, in the units of the sentence.
    spread : float or None
        Relative movement that is noise; None: the largest of the reports'.
    """

    page: str
    text: str
    reports: str
    values: Callable[..., Sequence[float]]
    spread: float | None = None

    def numbers(self) -> list[str] | None:
        """Its numbers as the page writes them; None where the page has no such sentence."""
        words = re.split(r"\s+", self.text.strip())
        pattern = r"\s+".join(re.escape(word).replace(r"\{\}", HOLE) for word in words)
        found = re.search(pattern, (ROOT / self.page).read_text(encoding="utf-8"))
        return list(found.groups()) if found else None

    def wrong(self, stored: Sequence[Any], spread: float) -> list[str]:
        """What the page says otherwise than the results."""
        written, place = self.numbers(), f"{self.page}: {self.text}"
        if written is None:
            return [f"no such sentence in {place}"]
        measured = self.values(*stored)
        return [
            f"{place}: {text} is written, {value:.3g} measured"
            for text, value in zip(written, measured, strict=True)
            if apart((text, float(text.replace(",", ""))), (text, value), self.spread or spread)
        ]


def row(found: dict[str, Any], part: str, **wanted: Any) -> dict[str, Any]:
    """The row of a table of dask_rows.json with these entries."""
    (one,) = (r for r in found[part]["table"] if all(r[k] == v for k, v in wanted.items()))
    return one


def speed_of(found: dict[str, Any], method: str, d: int, m: int = 1) -> float:
    """Nanoseconds per row of m targets."""
    return next(r["ns"] for r in found["records"]
                if (r["method"], r["d"], r["m"]) == (method, d, m))  # fmt: skip


def sides(found: list, dtype: str) -> list[float]:
    """JAX's time over NumPy's, of all streams but the narrowest."""
    return [float(r[5].split()[0]) for r in found if r[1] == dtype and "d2" not in r[0]]


def passes(found: dict[str, Any]) -> list[float]:
    """A local solve's time in passes of softmax attention, forward and backward: least, most."""
    rows = [row.split("|") for row in found["tables"][1].splitlines()[2:]]
    return [f(float(row[i]) for row in rows) for i in (6, 8) for f in (min, max)]


def busy_ratios(found: dict[str, Any]) -> list[float]:
    """Times on busy cores over quiet ones: least and most of olsq, their number, two others."""
    ratios = {name: row["busy"] / row["one"] for name, row in found["doors"].items()}
    others = [ratios.pop(name) for name in list(ratios) if name.startswith(("NumPy", "statsm"))]
    return [min(ratios.values()), max(ratios.values()), len(ratios), *others[:2]]


def short(found: dict[str, Any]) -> list[float]:
    """Per cent that predictions were off, and factors that arithmetic was short: least, most."""
    table = found["workers"]["table"]
    off = [100 * abs(r["busiest_worker_seconds"] / r["predicted_seconds"] - 1) for r in table]
    alone = [r["busiest_worker_seconds"] / r["arithmetic_seconds"] for r in table]
    return [max(off), min(alone), max(alone)]


SCALING = "docs/measurements/scaling.md"
ACCURACY, ROWS = "docs/measurements/accuracy.md", "docs/measurements/rows.md"
SEQUENCES, SPEED = "docs/measurements/sequences.md", "docs/measurements/speed.md"
QUOTES = (
    Quote("README.md", "A Python call costs about {} us", "speed",
          lambda s: [speed_of(s, "olsq partial_fit", 4) / 1e3]),
    Quote("README.md", "Without forgetting conjugate gradient takes {}x.", "sequence",
          lambda s: [s["speed|H8 T4096 d64|1.0"]["CG, 30 steps"][0]
                     / s["speed|H8 T4096 d64|1.0"]["default"][0]], 0.1),
    Quote(SEQUENCES,
          "On other shapes JAX takes {} to {} times as long as NumPy in float64 and {} to {} times "
          "in float32",
          "sequence_numpy",
          lambda s: [f(sides(s, t)) for t in ("float64", "float32") for f in (min, max)], 0.1),
    Quote(SEQUENCES, "`ChunkExact()` takes {} ms with NumPy and {} ms with JAX, 30 steps of "
          "conjugate gradient {} and {}, and a gradient in float64 {} and {}.", "numpy_solvers",
          lambda s: [1e3 * ms for name in ("`ChunkExact()`", "`ConjugateGradient(30, 0)`",
                                           "gradient, float64")
                     for ms in next(r for r in s["rows"] if r[0] == name)[1:3]]),
    Quote(SPEED, "{} to {} in all {} calls of olsq that were measured, {} in NumPy's `lstsq` and "
          "{} in statsmodels' `OLS`", "busy", busy_ratios, 0.1),
    Quote(SPEED, "Ten targets with the same 16 regressors take {} ns per row instead of {}, and "
          "coefficients after every row {} instead of {} us.", "speed",
          lambda s: [speed_of(s, method, 16, m) / unit
                     for method, unit in (("olsq fit", 1), ("olsq coefficient_path", 1e3))
                     for m in (10, 1)]),
    Quote(SEQUENCES, "the largest error of the default is {} (JAX) and {} (NumPy) in float32; one "
          "Cholesky factorisation per token gives NaN in {} of {} streams", "hard_tokens",
          lambda s: [*(s["rows"][i][5] for i in (0, 2)), s["rows"][4][2], s["streams"]], 0.3),
    Quote(SEQUENCES, "differ by {} % at K = 4, {} % at K = 16 and {} % at K = 64", "filtered_rules",
          lambda s: [100 * row["`information=1`"] for row in s["distances"]
                     if row["keys"] == "any direction"]),
    Quote(SEQUENCES, "a token takes {} steps to 1e-4 and {} to 1e-7 with gates of 0.999, and {} "
          "and {} with gates of 0.7.", "sequence",
          lambda s: [*s["decoding|0.999"], *s["decoding|0.7"]], 0.1),
    Quote(SEQUENCES, "Errors are at most {} with both", "sequence_gates",
          lambda s: [max(max(row[4:6]) for row in s["rows"])]),
    Quote(SEQUENCES, "a solve takes {} to {} times the processor time of `1 + steps` passes of "
          "`olsq.attention.softmax`, and backward {} to {} times", "local_preconditioners", passes),
    Quote(ROWS, "are wrong by {} (d = 4) and {} (d = 16), those of the "
          "textbook recursion by {} and {}.", "compiled",
          lambda s: [s["cases"][d][n]["error"] for n in ("compiled", "hand")
                     for d in ("4", "16")]),
    Quote(SPEED, "takes {} s of processor time with `attention.gla`, {} s with "
          "`attention.mesa` and {} s with `online_lstsq`", "first_programs",
          lambda s: [s["calls"][name]["after"]["plain"]["seconds"]
                     for name in ("`attention.gla`", "`attention.mesa`", "`online_lstsq`, JAX")]),
    Quote(SPEED, "on a {} GB file of {} million rows and {} columns", "cli_memory",
          lambda s: [s["file"]["bytes"] / 1e9, s["file"]["rows"] / 1e6, s["file"]["columns"]],
          0.02),
    Quote(SPEED, "`olsq fit` {} seconds, where Polars' own scan of the file takes {} and the "
          "kernel on arrays {} on their own: {} times their sum. The start of Python and its "
          "imports ({})",
          "cli_speed",
          lambda s: [*s["processor_seconds"].values(), s["fit_over_its_parts"],
                     s["start_of_olsq_fit"]]),
    Quote(ACCURACY, "factor of 0.99 it is lost after {} to {} rows.", "stability",
          lambda s: [f(rows["textbook, P x reused"]["lost_at"] for name, rows in s["cells"].items()
                       if re.fullmatch("float64 cond .* forget 0.99", name)) for f in (min, max)]),
    Quote(ACCURACY, "coefficients are within {} *standard errors*", "forgetting",
          lambda s: [max(x for row in s["rounding"].values() for x in row.values())]),
    Quote(ACCURACY, "wrong by {} after 1,000 rows, the square root by {}.",
          "random_walk_forms",
          lambda s: [float(x) for x in s["tables"][0].splitlines()[-1].split("|")[2:4]]),
    Quote(ROWS, "residual of {} units after plain hyperbolic rotations, of {} with LINPACK's "
          "method and of {} with olsq's", "linalg_downdates",
          lambda s: [float(cell.split(";")[0])
                     for cell in s["tables"][0].splitlines()[-1].strip("|").split("|")[1:]]),
    Quote(ROWS, "fresh / update is {} with NumPy arrays and {} with JAX arrays", "linalg",
          lambda s: [float(row.split("|")[2]) for row in s["tables"][2].splitlines()[2:]]),
    Quote(ACCURACY, "within {} standard errors of the same rows in float64 after ten "
          "million rows", "long_float32",
          lambda s: [max(float(x) for row in s["tables"][0].splitlines()[2:]
                         for x in row.split("|")[4:6])]),
    Quote(ROWS, "agree with dense solves to {}.", "polars_expressions",
          lambda s: [max(e for case in s["cases"] if case["d"] == 8 for e in case["errors"])]),
    Quote(SPEED, "against a dense solve are below {}.", "many_coefficients",
          lambda s: [max(float(e) for e in re.findall(r"\((\S+)\)", s["tables"][0]))]),
    Quote(ROWS, "1/{} of a fresh `nnls`, and 1/{} of a fresh `svd`", "variants",
          lambda s: [s["methods"][fresh]["microseconds"] / s["methods"][ours]["path_microseconds"]
                     for fresh, ours in (("SciPy nnls", "ConstrainedLeastSquares, >= 0"),
                                         ("NumPy svd", "TotalLeastSquares"))]),
    Quote(SCALING, "({} ms at d = 16, {} ms at d = 256)", "dask_rows",
          lambda s: [1e3 * row(s, "workers", d=d, workers=1)["tasks_seconds"] for d in (16, 256)]),
    Quote(SCALING, "over memory): {} to {} ms of each second", "dask_rows",
          lambda s: [f(1e3 * r["upkeep"] for r in s["workers"]["table"]) for f in (min, max)]),
    Quote(SCALING, "{} rows of 8 regressors, {} GiB in {} partitions of {} MiB", "dask_rows",
          lambda s: [s["rows"][k] for k in ("rows", "data_GiB", "partitions", "partition_MiB")],
          0.02),
    Quote(SCALING, "grew from {} MiB to a peak of {} MiB, and took {} s of processor time "
          "({} million rows", "dask_rows",
          lambda s: [s["rows"]["peak_before_MiB"], s["rows"]["peak_MiB"], s["rows"]["cpu_seconds"],
                     s["rows"]["rows_per_cpu_second"] / 1e6], 0.2),
    Quote(SCALING, "take {} ms of processor time for softmax and its gradient, where one device "
          "takes {}", "devices",
          lambda s: [1e3 * s["devices"][n]["softmax"]["gradient"]["cpu_seconds"] for n in "81"]),
    Quote(SCALING, "whose pieces take turns, it is {} ms instead of {}.", "devices",
          lambda s: [1e3 * s["devices"][n]["ttt_linear"]["gradient"]["cpu_seconds"] for n in "81"]),
    Quote(SCALING, "within {} standard errors of the truth", "dask_rows",
          lambda s: [s["rows"]["largest_error_in_stderr"]], 0.02),
    Quote(SCALING, "is within {} % of the formula. A prediction from arithmetic alone is too "
          "low by a factor of {} to {}.", "dask_rows", short, 0.1),
    Quote(SCALING, "Four workers are {} times as fast as one at d = 16 and {} times at d = 256.",
          "dask_rows",
          lambda s: [row(s, "workers", d=d, workers=1)["busiest_worker_seconds"]
                     / row(s, "workers", d=d, workers=4)["busiest_worker_seconds"]
                     for d in (16, 256)], 0.1),
    Quote(SCALING, "1e9 / {}e3 = {} s", "dask_rows",
          lambda s: [row(s, "constants", d=1024)["rows_per_second"] / 1e3,
                     1e9 / row(s, "constants", d=1024)["rows_per_second"]], 0.05),
)  # fmt: skip

"""Print the tables at the end of ``olsq fit``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from olsq.cli.fit.scores import Scores
from olsq.cli.sources.source import Source
from olsq.cli.terminal import escape, printable
from olsq.online import RecursiveLeastSquares, RollingLeastSquares

Alone = RecursiveLeastSquares | RollingLeastSquares

MOST_COEFFICIENTS = 40  # rows of the table, so that it fits on a screen
SKILL = (
    "skill: the share of the baseline's squared error that olsq removes; 1 is perfect, below 0 "
    "the baseline is better"
)


def print_report(
    console: Console,
    estimator: Alone,
    features: Sequence[str],
    targets: Sequence[str],
    scores: Sequence[Scores],
    *,
    heading: str,
    files: Sequence[str],
) -> None:
    """Print the coefficients, those not determined by the data, and the prediction errors."""
    console.print(f"\n[bold]{escape(heading)}[/bold]")
    console.print(f"{describe_rows(scores[0])}\n")
    undetermined = [
        name for name, known in zip(features, estimator.determined_, strict=True) if not known
    ]
    tables = []
    for j, target in enumerate(targets):
        several = len(targets) > 1
        console.print(_coefficients_table(estimator, features, j if several else None, target))
        tables.append(make_errors_table(scores[j], target if several else ""))
    if undetermined:
        console.print(
            f"[yellow]Not determined by these data:[/yellow] {escape(', '.join(undetermined))}. "
            "Many values fit equally well; the one of smallest norm is shown."
        )
    shown = [table for table in tables if table is not None]
    if shown:
        console.print(*shown, sep="\n")
        console.print(SKILL, style="dim")
    for line in files:
        console.print(printable(line), soft_wrap=True)


def _coefficients_table(
    estimator: Alone, features: Sequence[str], target: int | None, name: str
) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", title_style="bold",
        title=None if target is None else escape(name),
    )  # fmt: skip
    table.add_column("coefficient")
    for heading in ("value", "std. error", "t"):
        table.add_column(heading, justify="right")
    at = () if target is None else (target,)
    coef, stderr = np.asarray(estimator.coef_)[at], np.asarray(estimator.coef_stderr_)[at]
    rows = list(zip(map(escape, features), coef, stderr, strict=True))
    if estimator.fit_intercept:
        constant = np.asarray(estimator.intercept_)[at], np.asarray(estimator.intercept_stderr_)[at]
        rows.insert(0, ("intercept", *constant))
    for name, value, error in rows[:MOST_COEFFICIENTS]:
        known = np.isfinite(error) and error > 0
        table.add_row(
            name,
            f"{value:.6g}",
            f"{error:.3g}" if np.isfinite(error) else "unknown",
            f"{value / error:.1f}" if known else "",
        )
    if len(rows) > MOST_COEFFICIENTS:
        table.add_row(f"... {len(rows) - MOST_COEFFICIENTS} more", "", "", "", style="dim")
    return table


def describe_rows(scores: Scores) -> str:
    """Describe how many rows were learned and how many skipped."""
    skipped = scores.rows - scores.used
    note = f", {skipped:,} skipped (a value is missing)" if skipped else ", none skipped"
    return f"{scores.used:,} rows learned{note}"


def make_errors_table(scores: Scores, target: str, whose: str = "") -> Table | None:
    """Tabulate the errors of olsq and of the baselines; None if no row was scored.

    ``whose`` says what the baselines are of.
    """
    rows = scores.table()
    if not rows:
        return None
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title=f"One-step-ahead errors {f'of {escape(target)} ' * bool(target)}"
        f"over {scores.scored:,} rows",
        title_justify="left",
        title_style="bold",
    )
    table.add_column("prediction")
    for heading in ("MAE", "RMSE", "skill of olsq"):
        table.add_column(heading, justify="right")
    own = rows[0][2]
    best = min(rows, key=lambda row: row[2])[0]
    for who, absolute, root in rows:
        skill = "" if who == "olsq" or root == 0 else f"{1 - (own / root) ** 2:.3f}"
        style = "bold" if who == best else None
        named = who if who == "olsq" else f"{who} {whose}".rstrip()
        table.add_row(named, f"{absolute:.4g}", f"{root:.4g}", skill, style=style)
    return table


def warn_of_unnamed_columns(source: Source, console: Console) -> None:
    """Print the columns without a name, which are left out."""
    for place in source.columns.left_out:
        name = source.header[place]
        console.print(
            f"olsq: column {place + 1} is left out: its name is {name!r}, as of an index "
            "(--features takes it, --exclude keeps this quiet)",
            soft_wrap=True, markup=False, highlight=False,
        )  # fmt: skip

"""The tables printed at the end of ``olsq fit``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from olsq.cli.fit.options import Estimator
from olsq.cli.fit.scores import Scores

MOST_COEFFICIENTS = 40
SKILL = (
    "skill: the share of the baseline's squared error that olsq removes; 1 is perfect, below 0 "
    "the baseline is better"
)


def print_report(
    console: Console,
    estimator: Estimator,
    features: Sequence[str],
    scores: Scores,
    *,
    heading: str,
    files: Sequence[str],
) -> None:
    """Print coefficients, how well they predicted, and what the data did not determine."""
    console.print(f"\n[bold]{heading}[/bold]")
    skipped = scores.rows - scores.used
    note = f", {skipped:,} skipped (a value is missing)" if skipped else ", none skipped"
    console.print(f"{scores.used:,} rows learned{note}\n")
    console.print(_coefficients(estimator, features))
    undetermined = [
        name for name, known in zip(features, estimator.determined_, strict=True) if not known
    ]
    if undetermined:
        console.print(
            f"[yellow]Not determined by these data:[/yellow] {', '.join(undetermined)}. Many "
            "values fit equally well; the one of smallest norm is shown."
        )
    if table := _errors(scores):
        console.print(table)
        console.print(SKILL, style="dim")
    for line in files:
        console.print(line, soft_wrap=True)


def _coefficients(estimator: Estimator, features: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("coefficient")
    for heading in ("value", "std. error", "t"):
        table.add_column(heading, justify="right")
    rows = list(zip(features, estimator.coef_, estimator.coef_stderr_, strict=True))
    if estimator.fit_intercept:
        rows.insert(0, ("intercept", estimator.intercept_, estimator.intercept_stderr_))
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


def _errors(scores: Scores) -> Table | None:
    rows = scores.table()
    if not rows:
        return None
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        title=f"One-step-ahead errors over {scores.scored:,} rows",
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
        table.add_row(who, f"{absolute:.4g}", f"{root:.4g}", skill, style=style)
    return table

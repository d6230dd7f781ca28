"""Print the tables at the end of ``olsq fit``, with ``--by`` or without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from olsq.cli.errors import escape, printable, say
from olsq.cli.fit.estimators import Estimator, Groups
from olsq.cli.fit.scores import Scores
from olsq.cli.sources.source import Source
from olsq.online import RecursiveLeastSquares, RollingLeastSquares

Alone = RecursiveLeastSquares | RollingLeastSquares

MOST_COEFFICIENTS = 40  # rows of the table, so that it fits on a screen
SKILL = (
    "skill: the share of the baseline's squared error that olsq removes; 1 is perfect, below 0 "
    "the baseline is better"
)
MOST_GROUPS = 20  # rows of the table, so that it fits on a screen
LONGEST_LABEL = 24
LEVELS = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
# Which of these are shown: the first choice that fits into the terminal.
CHOICES_OF_LEVELS = ((0, 1, 2, 3, 4, 5, 6), (0, 2, 3, 4, 6), (0, 3, 6), (3,))
SHORTEST_NAMES = 16  # characters of a line that names are given
GAP = 3  # blanks between two columns


def print_report(
    console: Console,
    estimator: Estimator,
    features: Sequence[str],
    targets: Sequence[str],
    scores: Sequence[Scores],
    *,
    heading: str,
    ahead: str,
    by: str | None,
    files: Sequence[str],
    robust: dict[str, Any],
) -> None:
    """Print the coefficients (with ``by``, of the groups and their quantiles), those that the data
    do not determine, and the prediction errors.
    """
    grouped = isinstance(estimator, Groups)
    learned, skipped = scores[0].used, scores[0].rows - scores[0].used
    note = f"{skipped:,} skipped (a value is missing)" if skipped else "none skipped"
    counts = f"{learned:,} rows learned, {note}"
    if isinstance(estimator, Groups):
        n = int((estimator.n_samples_seen_ > 0).sum())
        heading, counts = f"{heading}, by {by}", f"{counts}; {n:,} group{'s'[: n != 1]}"
    console.print(f"\n[bold]{escape(heading)}[/bold]\n{counts}\n")
    if isinstance(estimator, RollingLeastSquares) and not estimator._has_estimate():
        few = f"fewer than {estimator.min_samples} rows" if estimator.min_samples else "no row"
        console.print(f"[yellow]The window holds {few} at the end:[/yellow] no coefficients.")
        _print_files(console, files)
        return
    tables = []
    for j, target in enumerate(targets):
        title = target if len(targets) > 1 else ""
        if isinstance(estimator, Groups):
            _print_groups(console, estimator, str(by), features, j, title)
        else:
            console.print(_coefficients_table(estimator, features, j, title, robust))
        tables.append(_errors_table(scores[j], title, ahead, "of the group" * grouped))
    if isinstance(estimator, Groups):
        named = _undetermined_groups(console, estimator, features)
    else:
        pairs = zip(features, estimator.determined_, strict=True)
        named = [name for name, determined in pairs if not determined]
    most = 10 if grouped else len(named)
    if named:
        console.print(
            f"[yellow]Not determined by these data:[/yellow] {escape(', '.join(named[:most]))}"
            f"{', ...' * (len(named) > most)}. Many values fit equally well; the one of smallest "
            "norm is shown."
        )
    shown = [table for table in tables if table is not None]
    if shown:
        console.print(*shown, sep="\n")
        console.print(SKILL, style="dim")
    else:
        what = f"{ahead[0].lower()}{ahead[1:]} errors"
        console.print(f"[yellow]No {what}:[/yellow] no forecast rests on enough rows to be scored.")
    _print_files(console, files)


def _print_files(console: Console, files: Sequence[str]) -> None:
    for line in files:
        console.print(printable(line), soft_wrap=True)


def _make_table(title: str, **options: Any) -> Table:
    """Return an empty table with a title, or without one where it is empty."""
    style = {"title_justify": "left", "title_style": "bold"}
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title or None, **style, **options)


def _coefficients_table(
    estimator: Alone, features: Sequence[str], target: int, title: str, robust: dict[str, Any]
) -> Table:
    table = _make_table(escape(title))
    table.add_column("coefficient", overflow="fold")
    statistic = "t" if estimator.noise_variance is None else "z"
    for heading in ("value", "std. error", statistic):
        table.add_column(heading, justify="right", no_wrap=True)
    names, coef, stderr = coefficients_of(estimator, features, target)
    if robust:
        covariance = estimator.cov_params(robust["cov"], lags=robust["maxlags"])
        errors = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
        stderr = errors[target] if errors.ndim == 2 else errors
    names = [*map(escape, names)]
    rows = list(zip(names, coef, stderr, strict=True))
    for name, value, error in rows[:MOST_COEFFICIENTS]:
        testable = np.isfinite(error) and error > 0
        table.add_row(
            name,
            f"{value:.6g}",
            f"{error:.3g}" if np.isfinite(error) else "unknown",
            f"{value / error:.1f}" if testable else "",
        )
    if len(rows) > MOST_COEFFICIENTS:
        table.add_row(f"... {len(rows) - MOST_COEFFICIENTS} more", "", "", "", style="dim")
    return table


def _errors_table(scores: Scores, target: str, ahead: str, whose: str) -> Table | None:
    """Tabulate the errors of olsq and of the baselines; None if no row was scored.

    ``ahead`` says how far ahead predictions are, ``whose`` what the baselines are of.
    """
    rows = scores.table()
    if not rows:
        return None
    of_target = f"of {escape(target)} " * bool(target)
    table = _make_table(f"{ahead} errors {of_target}over {scores.scored:,} rows")
    table.add_column("prediction")
    for heading in ("MAE", "RMSE", "skill of olsq"):
        table.add_column(heading, justify="right")
    olsq_root = rows[0][2]
    best = min(rows, key=lambda row: row[2])[0]
    for who, absolute, root in rows:
        skill = "" if who == "olsq" or root == 0 else f"{1 - (olsq_root / root) ** 2:.3f}"
        style = "bold" if who == best else None
        named = who if who == "olsq" else f"{who} {whose}".rstrip()
        table.add_row(named, f"{absolute:.4g}", f"{root:.4g}", skill, style=style)
    return table


def warn_of_unnamed_columns(source: Source, console: Console) -> None:
    """Print the columns without a name, which are left out."""
    for place in source.columns.left_out:
        name = source.header[place]
        say(
            console,
            f"olsq: column {place + 1} is left out: its name is {name!r}, as of an index "
            "(--features takes it, --exclude keeps this quiet)",
        )


def _print_groups(
    console: Console, groups: Groups, by: str, features: Sequence[str], target: int, title: str
) -> None:
    """Print the coefficients of one target: of the first groups, and their quantiles."""
    names, coef, stderr = coefficients_of(groups, features, target)
    console.print(_table_by_group(console, groups, by, names, coef, stderr, title))
    estimated = has_estimate(groups, coef)
    if (groups.n_samples_seen_ > 0).sum() > MOST_GROUPS and estimated.any():
        console.print(_table_of_quantiles(names, coef[estimated], console.width))


def coefficients_of(
    estimator: Estimator, features: Sequence[str], target: int
) -> tuple[list[str], NDArray, NDArray]:
    """Return names (k,), coefficients and errors (k,) of one target, intercept first.

    Of groups they are (groups, k), and NaN in those without an estimate.
    """
    coef, stderr = np.asarray(estimator.coef_), np.asarray(estimator.coef_stderr_)
    if coef.ndim < 2 + isinstance(estimator, Groups):  # one target
        coef, stderr = coef[..., None, :], stderr[..., None, :]
    names = [*features]
    if estimator.fit_intercept:
        names = ["intercept", *names]
        shape = (*coef.shape[:-1], 1)
        coef = np.concatenate([np.reshape(estimator.intercept_, shape), coef], axis=-1)
        stderr = np.concatenate([np.reshape(estimator.intercept_stderr_, shape), stderr], axis=-1)
    return names, coef[..., target, :], stderr[..., target, :]


def has_estimate(groups: Groups, coef: NDArray) -> NDArray[np.bool_]:
    """Mask (groups,) of those with coefficients: some row was learned and has not left."""
    return (groups.n_samples_seen_ > 0) & np.isfinite(coef).all(axis=1)


def _table_by_group(
    console: Console,
    groups: Groups,
    by: str,
    names: list[str],
    coef: NDArray,
    stderr: NDArray,
    target: str,
) -> Table:
    keys, rows = list(map(str, groups.keys())), groups.n_samples_seen_
    order = sorted(range(len(keys)), key=keys.__getitem__)[:MOST_GROUPS]
    labels, estimated = [_shorten(keys[i]) for i in order], has_estimate(groups, coef)
    more = f"... and {len(keys) - MOST_GROUPS:,} more" if len(keys) > MOST_GROUPS else ""
    cells = [
        [_format_cell(coef[i, k], stderr[i, k]) if estimated[i] else "" for i in order]
        for k in range(len(names))
    ]
    counts = [f"{rows[i]:,}" for i in order]
    first = [[*labels, by, more], ["rows", *counts]]
    shown = len(names)
    while shown > 1 and not _fits(
        [*first, *cells[:shown], *[[f"... {len(names)} more"]] * (shown < len(names))],
        console.width,
        names=LONGEST_LABEL,
    ):
        shown -= 1
    caption = "coefficient (std. error)"
    table = _make_table(escape(target), caption=caption, caption_justify="left")
    table.add_column(escape(by), no_wrap=True)
    table.add_column("rows", justify="right", no_wrap=True)
    for name, column in zip(names[:shown], cells, strict=False):
        # The name may go on in a second line, the numbers may not.
        table.add_column(
            escape(name), justify="right", overflow="fold", min_width=max(map(len, column))
        )
    if shown < len(names):
        table.add_column(f"... {len(names) - shown} more", style="dim")
    for place, (label, count) in enumerate(zip(labels, counts, strict=True)):
        table.add_row(escape(label), count, *(column[place] for column in cells[:shown]))
    if more:
        table.add_row(more, style="dim")
    return table


def _table_of_quantiles(names: list[str], coef: NDArray, width: int) -> Table:
    """Tabulate quantiles over the groups of each coefficient, as many as the width allows whole."""
    table = _make_table(f"Coefficients over {len(coef):,} groups: least, quantiles, most")
    most = 20
    named = [escape(name) for name in names[:most]]
    quantiles = np.quantile(coef[:, :most], LEVELS, axis=0)
    cells = [[f"{value:.4g}" for value in row] for row in quantiles]
    places = next(
        (p for p in CHOICES_OF_LEVELS if _fits([named, *(cells[j] for j in p)], width)),
        CHOICES_OF_LEVELS[-1],
    )
    # A long name goes on in a second line: cut names may look alike, and cut numbers are wrong.
    table.add_column("coefficient", overflow="fold")
    for place in places:
        heading = {0.0: "least", 1.0: "most"}.get(LEVELS[place], f"{100 * LEVELS[place]:.0f} %")
        table.add_column(heading, justify="right", no_wrap=True)
    for k, name in enumerate(named):
        table.add_row(name, *(cells[place][k] for place in places))
    if len(names) > most:
        table.add_row(f"... {len(names) - most} more", style="dim")
    return table


def _fits(columns: list[list[str]], width: int, names: int = SHORTEST_NAMES) -> bool:
    """Test whether columns fit side by side; of the first, ``names`` characters are enough."""
    widths = [max(map(len, column)) for column in columns]
    return min(widths[0], names) + sum(widths[1:]) + GAP * len(columns) <= width


def _undetermined_groups(console: Console, groups: Groups, features: Sequence[str]) -> list[str]:
    """Say of every coefficient in how many groups the data do not determine it, if in any."""
    estimated = has_estimate(groups, coefficients_of(groups, features, 0)[1])
    if not estimated.any():
        console.print("[yellow]No window holds a row at the end:[/yellow] no coefficients.")
        return []
    counts = (~groups.determined_ & estimated[:, None]).sum(axis=0)
    return [
        f"{name} in {count:,} group{'s'[: count != 1]}"
        for name, count in zip(features, counts.tolist(), strict=True)
        if count
    ]


def _format_cell(value: float, error: float) -> str:
    """Format value and error, both to the second digit of the error: 3.200 (0.021)."""
    if not np.isfinite(error):
        return f"{value:.4g} (unknown)"
    places = 1 - math.floor(math.log10(error)) if error > 0 else 0
    if 0 < places <= 6 and abs(value) < 1e5:
        return f"{value:.{places}f} ({error:.{places}f})"
    return f"{value:.5g} ({error:.2g})"


def _shorten(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 3] + "..."

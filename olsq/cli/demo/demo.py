"""Run ``olsq demo``: two regressions on bundled data and one inside a sequence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

import olsq
from olsq.cli.demo.studies import (
    DIM,
    EARLY,
    JUMP,
    LATE,
    SEQUENCES,
    TOKENS,
    Entry,
    Reading,
    Study,
    co2_study,
    compare,
    drifting_sequences,
    macro_study,
    read_sequences,
    scored_rows,
)
from olsq.cli.errors import CommandError, InputError
from olsq.cli.fit.declared import FIGURES
from olsq.cli.paths import FULL, check_paths, locked_paths

MACRO_WORDS = """\
203 quarters, 1959 to 2009. Each quarter olsq predicts the consumer price index from the money stock
with what it has learned so far, and then learns the quarter. Nothing is ever fitted twice."""

CO2_WORDS = """\
2284 weeks, 1958 to 2001, of which 59 have no measurement and are skipped. Each week olsq predicts
the next value from a straight line and a yearly wave. The line bends and the wave grows, so
a memory that fades does much better than one that keeps everything."""

CONTEXT_TITLE = "A regression inside a sequence"
CONTEXT_WORDS = f"""\
{SEQUENCES} sequences of {TOKENS} keys and values, {DIM} numbers each. Every sequence hides a linear
map of its own, which drifts and, at token {JUMP}, jumps. Attention rules learn it while they read:
linear attention adds up, the delta rules take one gradient step per token, Mesa solves."""


def run_demo(out: Path, console: Console) -> None:
    """Run the three acts, print their tables and sentences, and save the figure at ``out``.

    Raises
    ------
    InputError
        If the figure cannot be written there.
    CommandError
        If the disk is full.
    """
    if out.suffix.lower() not in FIGURES:
        raise InputError(f"--out must end in {', '.join(FIGURES)}, got {out.name}")
    check_paths([], [("--out", out)])
    with locked_paths(out):
        _run_locked(out, console)


def _run_locked(out: Path, console: Console) -> None:
    """Run the demo, while no other run can write the figure."""
    macro, co2 = macro_study(), co2_study()
    with console.status("Compiling the kernels (the first run only; some ten seconds) ..."):
        _compile_kernels()
    console.print("\n[bold]olsq: least squares, solved again after every row[/bold]\n")
    for number, (study, words) in enumerate(((macro, MACRO_WORDS), (co2, CO2_WORDS)), start=1):
        console.print(f"[bold]{number}. {study.title}[/bold]   [cyan]{study.formula}[/cyan]")
        console.print(" ".join(words.split()))
        with console.status("Fitting OLS anew for every row, for comparison ..."):
            entries = compare(study)
        console.print(_comparison_table(study, entries))
        console.print(_summarise_study(study, entries) + "\n")
    console.print(
        "[dim]* has already seen the rows it is asked for: no forecast, shown for comparison[/dim]"
    )
    console.print()
    readings = _run_context_act(console)
    with console.status("Drawing ..."):
        from olsq.cli.demo.figure import draw_demo
        from olsq.plot.drawing import save_figure

        try:
            save_figure(draw_demo(macro, co2, readings), out, dpi=200)
        except OSError as error:
            kind = CommandError if error.errno in FULL else InputError
            raise kind(f"cannot write {out}: {error.strerror}") from None
    console.print(f"\nFigure: [bold]{out}[/bold]", soft_wrap=True)
    console.print("Your own data: olsq fit DATA.csv --target COLUMN")
    console.print("Layers that solve: olsq.attention, olsq.nn, olsq.train")


def _run_context_act(console: Console) -> list[Reading]:
    """Print the third act and return the readings that the figure shows."""
    console.print(f"[bold]3. {CONTEXT_TITLE}[/bold]   [cyan]value ~ key, by token[/cyan]")
    console.print(" ".join(CONTEXT_WORDS.split()))
    with console.status("Compiling three attention rules (some seconds) ..."):
        readings = read_sequences(*drifting_sequences())
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("squared error of the next value, of the values' square")
    for heading in ("before the jump", "at the end"):
        table.add_column(heading, justify="right")
    for reading in readings:
        early, late = (f"{100 * reading.error[part].mean():.2f} %" for part in (EARLY, LATE))
        style = "bold green" if reading.best else None
        table.add_row(reading.name, early, late, style=style)
    console.print(table)
    console.print(_summarise_context(readings))
    return readings


def _summarise_context(readings: list[Reading]) -> str:
    """Summarise in one sentence, from the numbers, what solving and forgetting did."""
    late = [float(reading.error[LATE].mean()) for reading in readings]
    solved, deltas = late[-1], late[1:3]
    return (
        f"At the end the solve that forgets has {min(deltas) / solved:.1f} times less error than"
        f" the better delta rule, and {late[-2] / solved:.0f} times less than the solve that"
        " remembers all, which mixes both maps."
    )


def _compile_kernels() -> None:
    """Compile the kernels that the studies use, so that the tables' seconds are those of work."""
    X, y = np.arange(40.0)[:, None] % 7, np.arange(40.0) % 5
    for half_life in (None, 8.0):
        olsq.coefficient_path(X, y, fit_intercept=True, half_life=half_life, cov="sandwich")


def _comparison_table(study: Study, entries: list[Entry]) -> Table:
    rows = scored_rows(study)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"one-step-ahead error in {study.unit}, {rows.sum():,} rows")
    for heading in ("MAE", "RMSE", "time"):
        table.add_column(heading, justify="right")
    best = min((entry for entry in entries if entry.honest), key=lambda e: _mean_errors(e, rows)[1])
    for entry in entries:
        absolute, root = _mean_errors(entry, rows)
        seconds = "" if entry.seconds is None else f"{1e3 * entry.seconds:,.1f} ms"
        style = "bold green" if entry is best else None if entry.honest else "dim"
        table.add_row(entry.name, f"{absolute:.3f}", f"{root:.3f}", seconds, style=style)
    return table


def _mean_errors(entry: Entry, rows: np.ndarray) -> tuple[float, float]:
    error = entry.error[rows]
    return float(np.abs(error).mean()), float(np.sqrt(np.square(error).mean()))


def _summarise_study(study: Study, entries: list[Entry]) -> str:
    """Summarise in one sentence, from the numbers, which method won and what forgetting did."""
    rows = scored_rows(study)
    score = {entry.name: _mean_errors(entry, rows)[0] for entry in entries}
    fading, everything, refitted, last, *_ = (score[entry.name] for entry in entries)
    same = np.isclose(everything, refitted, rtol=1e-6)
    ratio = everything / fading
    sentence = f"Forgetting makes the typical error {ratio:.1f} times smaller"
    if last < fading:
        sentence += f", yet the last value is a better forecast ({last:.2f} against {fading:.2f}): "
        sentence += "prices drift, and money alone does not explain them."
    else:
        sentence += f" and beats the last value ({fading:.2f} against {last:.2f})."
    if same:
        sentence += " Without forgetting, olsq gives exactly what fitting anew gives"
        recursive, anew = entries[1].seconds, entries[2].seconds
        faster = anew / recursive if recursive and anew else 0.0
        sentence += f", {faster:,.0f} times faster." if faster >= 2 else "."
    return sentence

"""A progress bar on the terminal, and a line now and then where there is none."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import ProgressColumn, Task, TextColumn
from rich.text import Text

from olsq import first_call
from olsq.progress import make_progress, silent_calls

LINE_SECONDS = 10.0


class _RateColumn(ProgressColumn):
    """A column with the rows done, and the rows per second of this run."""

    def render(self, task: Task) -> Text:
        done, first = task.fields["rows"], task.fields["first"]
        seconds = task.elapsed or 0.0
        rate = f"  {(done - first) / seconds:,.0f} rows/s" if seconds > 0.5 else ""
        return Text(f"{done:,} rows{rate}", style="progress.data.speed")


class RowProgress:
    """Progress over the rows of one source; use as a context manager.

    Parameters
    ----------
    console : Console
        Where to draw; if it is no terminal, a line is printed every ten seconds.
    first : int
        Rows done by an earlier run.
    """

    def __init__(self, console: Console, first: int) -> None:
        self._console = console
        self._counted: tuple[float, int] | None = None  # time and rows of the last line
        self._silence = silent_calls()
        percentage = TextColumn("{task.percentage:>3.0f}%")
        self._progress = make_progress(console, percentage, _RateColumn())
        self._task = self._progress.add_task(
            "compiling (first run only)", total=None, rows=first, first=first
        )

    def __enter__(self) -> RowProgress:
        self._silence.__enter__()
        if not self._progress.disable:
            first_call.say_nothing()  # the bar does
            self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._silence.__exit__(None, None, None)
        if not self._progress.disable:  # older versions of Rich would print an empty line
            self._progress.stop()

    def update(self, rows: int, fraction: float | None) -> None:
        """Show that ``rows`` are done, which is ``fraction`` of the input if that is known."""
        if self._progress.disable:
            self._print_line(rows, fraction)
        self._progress.update(
            self._task,
            description="fitting",
            rows=rows,
            total=None if fraction is None else 1.0,
            completed=0.0 if fraction is None else fraction,
        )

    def _print_line(self, rows: int, fraction: float | None) -> None:
        now = time.monotonic()
        # The first rows include what is compiled.
        before, rows_before = self._counted = self._counted or (now, rows)
        if now - before > LINE_SECONDS:
            share = "" if fraction is None else f", {fraction:.0%} of the input read"
            rate = (rows - rows_before) / (now - before)
            self._console.print(f"olsq: {rows:,} rows{share}, {rate:,.0f} rows/s", soft_wrap=True)
            self._counted = now, rows

"""Progress of calls that take long: a bar on a terminal, elsewhere a line now and then.

Rich, which draws bars, is imported when there is something to draw.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

SHOWN_AFTER = 2.0  # seconds, after which a user begins to wonder
LINE_SECONDS = 10.0  # between the lines where there is no terminal
Item = TypeVar("Item")
_callers_showing = 0  # calls in progress that show how far they are, and those within them


@contextmanager
def silent_calls() -> Iterator[None]:
    """Show no progress of the calls within, whose caller shows its own."""
    global _callers_showing
    _callers_showing += 1
    try:
        yield
    finally:
        _callers_showing -= 1


def make_progress(console: Console, *columns: ProgressColumn) -> Progress:
    """Make a progress bar with ``columns`` between its bar and the time left."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        expand=True,
    )


class PassProgress:
    """Progress of a call that passes over its rows many times; use as a context manager.

    Once the call has taken ``SHOWN_AFTER`` seconds, its progress is shown on standard error: as a
    bar on a terminal, elsewhere as a line, and another one every ``LINE_SECONDS``.

    Parameters
    ----------
    description : str
    expected : int
        How many passes there will be; a guess, which grows with the passes beyond it.
    unit : str
        What is counted.
    """

    def __init__(self, description: str, expected: int, unit: str = "passes") -> None:
        self._description, self._expected, self._unit = description, expected, unit
        self._passes = 0
        self._next_line = time.perf_counter() + SHOWN_AFTER
        self._bar: Progress | None = None

    def __enter__(self) -> PassProgress:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, passes: int = 1) -> None:
        """Count so many more passes, and show them if it is time."""
        self._passes += passes
        if _callers_showing or sys.stderr is None:
            return
        if self._bar is None and time.perf_counter() < self._next_line:
            return
        if self._bar is None and not self._start_bar():
            self._next_line = time.perf_counter() + LINE_SECONDS
            done = f"{self._passes:,} of about {max(self._expected, self._passes):,} {self._unit}"
            print(f"olsq: {self._description}, {done}", file=sys.stderr, flush=True)
            return
        assert self._bar is not None
        total = max(self._expected, self._passes + 1)
        self._bar.update(self._bar.task_ids[0], completed=self._passes, total=total)

    def _start_bar(self) -> bool:
        """Draw the bar, if there is a terminal and Rich."""
        if not sys.stderr.isatty() or not importlib.util.find_spec("rich"):
            return False
        from rich.console import Console
        from rich.progress import TextColumn

        passes = TextColumn(f"{{task.completed:.0f}} {self._unit}")
        self._bar = make_progress(Console(file=sys.stderr), passes)
        self._bar.add_task(self._description, total=self._expected)
        self._bar.start()
        return True


def count_groups(groups: Iterable[Item], description: str, total: int) -> Iterator[Item]:
    """Iterate over ``groups``, of which there are ``total``, and show how many are done."""
    with PassProgress(description, total, "groups") as progress:
        for group in groups:
            yield group
            progress.advance()

"""Progress bars on a terminal, and nothing where there is none or a call is quick.

Rich, which draws them, is imported when there is something to draw.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

SHOWN_AFTER = 2.0  # seconds, after which a user begins to wonder


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

    The bar is drawn on the standard error, if that is a terminal, once the call has taken
    ``SHOWN_AFTER`` seconds.

    Parameters
    ----------
    description : str
    expected : int
        How many passes there will be; a guess, which grows with the passes beyond it.
    """

    def __init__(self, description: str, expected: int) -> None:
        self._description, self._expected = description, expected
        self._begin, self._passes = time.perf_counter(), 0
        self._bar: Progress | None = None

    def __enter__(self) -> PassProgress:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self) -> None:
        """Count one more pass."""
        self._passes += 1
        if self._bar is None and not self._start():
            return
        assert self._bar is not None
        total = max(self._expected, self._passes + 1)
        self._bar.update(self._bar.task_ids[0], completed=self._passes, total=total)

    def _start(self) -> bool:
        """Draw the bar if it is time to, and there is a terminal and Rich."""
        if time.perf_counter() - self._begin < SHOWN_AFTER:
            return False
        if sys.stderr is None or not sys.stderr.isatty() or not importlib.util.find_spec("rich"):
            return False
        from rich.console import Console
        from rich.progress import TextColumn

        passes = TextColumn("{task.completed:.0f} passes")
        self._bar = make_progress(Console(file=sys.stderr), passes)
        self._bar.add_task(self._description, total=self._expected)
        self._bar.start()
        return True

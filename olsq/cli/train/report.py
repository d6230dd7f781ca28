"""Show a run of ``olsq train``: a progress bar, a line per evaluation, a table at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.progress import TextColumn
from rich.table import Table
from rich.text import Text

from olsq.progress import make_progress

if TYPE_CHECKING:
    from olsq.train import CorpusTrainer, Evaluation, Record


class StepProgress:
    """Progress over the steps of a run; use as a context manager.

    On a terminal a bar with loss, tokens per second and time left; everywhere a line for each
    validation loss.

    Parameters
    ----------
    console : Console
    trainer : CorpusTrainer
        At the step from which it goes on.
    """

    def __init__(self, console: Console, trainer: CorpusTrainer) -> None:
        self._console, config = console, trainer.config
        self._steps, self._tokens = config.steps, config.batch * config.length
        self._seconds, self._timed = 0.0, 0
        self._skipped = trainer.log.skipped
        self._last = time.perf_counter()
        self._first = True
        done = TextColumn("{task.completed:,}/{task.total:,}")
        shown = TextColumn("{task.fields[shown]}", style="progress.data.speed")
        self._progress = make_progress(console, done, shown)
        self._task = self._progress.add_task(
            "compiling", total=self._steps, completed=trainer.step, shown=""
        )

    def __enter__(self) -> StepProgress:
        self._last = time.perf_counter()
        self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()

    @property
    def speed(self) -> float | None:
        """Tokens per second, without compilation and evaluation; None before it is known."""
        return self._tokens * self._timed / self._seconds if self._timed else None

    def update(self, record: Record) -> None:
        """Show the progress after one more step."""
        now = time.perf_counter()
        evaluated = record.validation_loss is not None
        if not self._first and not evaluated:
            self._seconds += now - self._last
            self._timed += 1
        self._first, self._last = False, now
        speed = "" if self.speed is None else f"  {self.speed:,.0f} tokens/s"
        if record.skipped:
            self._skipped += 1
            if self._skipped <= 3 or self._skipped & (self._skipped - 1) == 0:  # then powers of two
                self._console.print(
                    f"[yellow]step {record.step:,} skipped: its loss or gradient is not finite "
                    f"({self._skipped:,} so far)[/yellow]"
                )
        if record.validation_loss is not None:
            width = len(f"{self._steps:,}")
            self._console.print(
                f"step {record.step:>{width},}/{self._steps:,}  training {record.loss:.3f}  "
                f"validation {record.validation_loss:.3f}{speed}",
                highlight=False,
            )
        self._progress.update(
            self._task,
            description="training",
            completed=record.step,
            shown=f"loss {record.loss:.3f}{speed}",
        )


def print_report(
    console: Console,
    trainer: CorpusTrainer,
    evaluation: Evaluation,
    *,
    heading: str,
    parameters: int,
    bytes_per_token: float,
    speed: float | None,
    files: Sequence[Path],
    prompt: str,
    sample: str,
) -> None:
    """Print the scores on the validation part, the files, and a sample."""
    config, tokens = trainer.config, evaluation.losses.size
    console.print(f"\n[bold]{heading}[/bold], {parameters:,} parameters", highlight=False)
    trained = config.steps * config.batch * config.length
    rate = "" if speed is None else f", {speed:,.0f} a second"
    console.print(
        f"{config.steps:,} steps of {config.batch} x {config.length}: {trained:,} tokens{rate}, "
        f"{trained / len(trainer.corpus.train):.2g} times the training part",
        highlight=False,
    )
    if skipped := trainer.log.skipped:
        console.print(
            f"[yellow]{skipped:,} steps were skipped: their loss or gradient was not finite"
            "[/yellow]"
        )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(f"validation, {tokens:,} tokens")
    table.add_column("", justify="right")
    bits = evaluation.loss / bytes_per_token / math.log(2)
    bins = evaluation.binned()
    table.add_row("loss, nats per token", f"{evaluation.loss:.4f}")
    table.add_row("perplexity", f"{evaluation.perplexity:.3f}")
    ends = f"{bins.first[-1]:,} to {bins.last[-1]:,}"
    table.add_row(f"perplexity at positions {ends}", f"{math.exp(bins.loss[-1]):.3f}")
    table.add_row("bits per byte", f"{bits:.3f}")
    console.print(table)
    for path in files:
        console.print(str(path), soft_wrap=True, highlight=False)
    if sample:
        console.print("\n[bold]Sample[/bold] (the beginning is from the validation part)\n")
        console.print(Text(printable(prompt), style="dim") + Text(printable(sample)))


def printable(text: str) -> str:
    """Replace control characters of ``text``, which could manipulate the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)

"""Run ``olsq fit``: learn a table of any size in one pass, stopped and resumed anywhere."""

from __future__ import annotations

import shlex
import sys
import time
from functools import partial
from typing import Any, NoReturn

from numpy.typing import NDArray
from rich.console import Console

from olsq.cli.errors import CommandError, InputError, Interrupted, say, writing
from olsq.cli.fit.checkpoint import (
    continue_source,
    keep_stored_ridge,
    load_checkpoint,
    make_notes,
    reading_notes,
    resume_source,
)
from olsq.cli.fit.design import Design, usable_rows
from olsq.cli.fit.estimators import Estimator, Groups, make_estimator
from olsq.cli.fit.figures import draw, draw_by_group
from olsq.cli.fit.options import FitOptions
from olsq.cli.fit.repeats import LastRows, Repetition
from olsq.cli.fit.report import print_report, warn_of_unnamed_columns
from olsq.cli.fit.results import Learned, Results
from olsq.cli.fit.size import check_size
from olsq.cli.interrupts import Interrupts
from olsq.cli.paths import locked_paths
from olsq.cli.progress import RowProgress
from olsq.cli.sources.columns import Chunk
from olsq.cli.sources.grouping import GroupedRows
from olsq.cli.sources.opening import open_source
from olsq.cli.sources.source import Source


def run_fit(options: FitOptions, console: Console, progress_console: Console) -> None:
    """Run ``olsq fit``; results are printed on ``console``, progress on the other.

    Raises
    ------
    InputError
        If the options or the data must be changed.
    Interrupted
        After Ctrl-C or SIGTERM.
    CommandError
        If the run failed for another reason, a full disk for example.
    """
    if options.takes_options and options.state is not None:
        saved = load_checkpoint(options.state)
        if saved is not None:
            _, notes = saved
            with reading_notes(options.state):
                options = options.with_options_of(notes["options"], notes["columns"]["features"])
        elif options.continued:
            raise InputError(f"cannot continue: there is no state {options.state}")
    options.check()
    with locked_paths(*(path for _, path in options.written())):
        _run_locked(options, console, progress_console)


def _run_locked(options: FitOptions, console: Console, progress_console: Console) -> None:
    """Fit, while no other run can write any of the files."""
    checkpoint = None
    if (options.resume or options.continued) and options.state is not None:
        checkpoint = load_checkpoint(options.state)
        if checkpoint is None:
            say(progress_console, f"{options.state} does not exist yet: starting from row 1")
    source = open_source(options.data, options.reading())
    warn_of_unnamed_columns(source, progress_console)
    with source, Interrupts() as interrupts:
        run = FitRun(options, source, checkpoint, progress_console)
        done = False
        try:
            run.learn(interrupts, progress_console)
            run.finish()
            done = True
        except OSError as error:
            reason = f"{error.strerror}: {error.filename or 'writing failed'}"
            raise CommandError(f"{reason}; {run.advise_resume()}") from None
        finally:
            # Without a state file nobody can go on with a draft: leave none behind.
            if not done:
                run.close(discard=options.state is None or not options.state.exists())
        with writing("standard output"):
            run.report(console)


class FitRun:
    """One run over one source, fresh or continued from a checkpoint.

    Parameters
    ----------
    options : FitOptions
        Checked options.
    source : Source
        Opened at its first row.
    found : tuple or None
        Estimator and notes of the checkpoint to go on from.
    console : Console
        Where to say how much memory many coefficients take.
    """

    def __init__(
        self,
        options: FitOptions,
        source: Source,
        checkpoint: tuple[Estimator, dict[str, Any]] | None,
        console: Console,
    ) -> None:
        if checkpoint is not None:
            with reading_notes(options.state):
                options = keep_stored_ridge(options, checkpoint[1])
        self.options, self.source, self._console = options, source, console
        self.design = Design(
            source.columns, source.table, options.lags, intercept=options.intercept
        )
        self.estimator: Estimator = make_estimator(options) if checkpoint is None else checkpoint[0]
        self.notes = None if checkpoint is None else checkpoint[1]
        self.last_rows = LastRows("" if self.notes is None else self.notes.get("last_rows", ""))
        self.repetition: Repetition | None = None
        if self.notes is not None:
            with reading_notes(options.state):
                if options.continued:
                    self.repetition = continue_source(options, source, self.notes)
                    self._warn_of_rows_left(self.notes)
                else:
                    resume_source(options, source, self.notes)
                self.design.restore(self.notes["design"])
        self.first_row = self.saved_rows = source.rows
        # Where the rows learned so far end.  Not the source's own position, which a signal may
        # find one chunk ahead: read, but not learned.
        self.position = source.position()
        self.results: Results | None = None
        if source.table.is_determined:
            self._open_results()

    def _warn_of_rows_left(self, notes: dict[str, Any]) -> None:
        """Print that the table before was not learned to its end (old states do not say)."""
        if not notes.get("finished", True):
            say(
                self._console,
                f"olsq: the run before stopped after row {notes['position']['rows']:,} of its "
                "table; the rows after that, if it has more, are not learned (--resume with that "
                "table learns them)",
            )

    def _open_results(self) -> Results:
        """Open everything that needs the regressors' names, which may depend on the first chunk."""
        options, source = self.options, self.source
        n_coefs = self.design.count() + options.intercept
        check_size(source.name, n_coefs, grouped=options.by is not None, console=self._console)
        self.results = Results(options, source, self.design.names(), self.notes)
        return self.results

    def learn(self, interrupts: Interrupts, progress_console: Console) -> None:
        """Read, learn and write chunk after chunk, and save a checkpoint every few seconds."""
        saved = time.monotonic()
        with RowProgress(progress_console, self.first_row) as progress:
            for chunk in interrupts.read_chunks(self.source, self._stop):
                self._learn_chunk(chunk)
                self.position = self.source.position()
                progress.update(self.source.rows, self.source.fraction())
                if time.monotonic() - saved >= self.options.checkpoint_every:
                    self._save()
                    saved = time.monotonic()

    def _learn_chunk(self, chunk: Chunk) -> None:
        results = self.results or self._open_results()
        chunk = self.source.table.in_order(chunk)
        if self.repetition is not None and self.repetition.is_possible:
            self.repetition.check(chunk)
        X = self.design.matrix(chunk)
        y, weight, used = usable_rows(chunk, X, self.source.columns, self.options.missing)
        rows = Learned(chunk, X, y, used, GroupedRows.of(chunk.by, len(y)))
        if results.need_path:
            rows_before = results.rows_before(self.estimator, rows)
            learn = partial(self.estimator.partial_fit_path, **self.options.robust)
            path = self._call_estimator(learn, rows, weight)
            results.add(rows, path.residual, path, rows_before)
        else:
            learned = self._call_estimator(self.estimator.partial_fit, rows, weight)
            results.add(rows, learned.residual_)
        self.design.advance(chunk)
        if self.options.state is not None:
            self.last_rows.add(chunk)

    def _call_estimator(self, learn: Any, rows: Learned, weight: NDArray | None) -> Any:
        chunk, table = rows.chunk, self.source.table
        y = rows.y[:, 0] if rows.y.shape[1] == 1 else rows.y
        more: dict[str, Any] = {}
        if self.options.span and table.time and chunk.time is not None:
            more["times"] = table.time.dates(chunk.time, chunk.start, self.options.span)
        if chunk.by is not None and table.groups is not None:
            more["by"] = table.groups.of(chunk.by)
        try:
            return learn(rows.X, y, sample_weight=weight, **more)
        except ValueError as error:
            first, last = self.source.rows - len(y) + 1, self.source.rows
            reason = str(error).splitlines()[0]
            raise InputError(f"rows {first:,} to {last:,}: {reason}") from None

    def _save(self, *, finished: bool = False) -> bool:
        """Write a checkpoint if a state file is given and there are rows; return whether it did."""
        results = self.results
        if self.options.state is None or results is None or not self.position["rows"]:
            return False
        if self.source.table.categories.strangers:  # which may turn out to be an error
            return False
        if not finished and self.repetition is not None and self.repetition.is_possible:
            return False
        parts = results.notes()
        parts |= {"design": self.design.as_dict(), "last_rows": self.last_rows.as_text()}
        self.estimator.save(
            self.options.state,
            metadata=make_notes(self.options, self.source, self.position, parts, finished=finished),
        )
        self.saved_rows = self.position["rows"]
        if results.output is not None:
            results.output.recorded()
        return True

    def advise_resume(self) -> str:
        """Return advice for the user of a run that failed: what was saved, and how to resume."""
        state = self.options.state
        if state is None or not self.saved_rows:
            return "nothing was saved (--state FILE saves)"
        return (
            f"{state} holds what was learned up to row {self.saved_rows:,}: remove the cause, "
            f"then go on with: {self._resume_command()}"
        )

    def _resume_command(self) -> str:
        command = [word for word in sys.argv[1:] if word != "--continue"]
        command += [] if self.options.resume else ["--resume"]
        return f"olsq {shlex.join(command)}"

    def _stop(self, interrupts: Interrupts) -> NoReturn:
        message = f"stopped after row {self.position['rows']:,}; "
        if self._save():
            message += f"go on with: {self._resume_command()}"
        else:
            message += "nothing was saved (--state FILE saves)"
        raise Interrupted(message, interrupts.signum or 2)

    def finish(self) -> None:
        """Check that something was learned, save, complete the output and draw the figures."""
        source, results = self.source, self.results
        if results is None or not self.position["rows"]:
            raise InputError(f"{source.name} has a header but no rows")
        source.table.categories.check_known(source.name, listed=not self.options.continued)
        for target, scores in zip(source.columns.targets, results.scores, strict=True):
            rows = f"{scores.rows:,} row{'s'[: scores.rows != 1]}"
            if not scores.used:
                lags = f" or fewer than {self.options.lags:,} before them" * bool(self.options.lags)
                reason = f"all {rows} of {source.name} have a missing value{lags}"
                if self._save(finished=True):
                    reason += f"; when it has more rows, go on with: {self._resume_command()}"
                raise InputError(reason)
            if scores.smallest == scores.largest:
                raise InputError(
                    f"the target {target!r} is constant ({scores.smallest:g} in all "
                    f"{scores.used:,} row{'s'[: scores.used != 1]}): there is nothing to explain"
                )
        self._save(finished=True)
        if results.output is not None:
            results.output.finish()
            self._save(finished=True)  # now without the draft, which has become the output
        figures = self.options.figures()
        if isinstance(self.estimator, Groups):
            for j, path in enumerate(figures):
                draw_by_group(self.estimator, self.design.names(), j, self.options, path)
        for trace, target, path in zip(
            results.traces, source.columns.targets, figures, strict=False
        ):
            draw(trace, self.options, target, source.table.time, path)

    def close(self, *, discard: bool) -> None:
        """Close the output of a run that did not finish."""
        if self.results is not None and self.results.output is not None:
            self.results.output.close(discard=discard)

    def report(self, console: Console) -> None:
        """Print the tables of coefficients and errors, and the files that were written."""
        options, columns = self.options, self.source.columns
        figures = options.figures()
        written = [("every row", options.out), *(("figure", path) for path in figures)]
        written.append(("state", options.state))
        files = [f"{what}: {path}" for what, path in written if path is not None]
        names = self.design.names()
        heading = (
            f"{', '.join(columns.targets)} on {len(names)} regressor{'s'[: len(names) > 1]}, "
            f"{options.describe()}"
        )
        assert self.results is not None
        print_report(
            console,
            self.estimator,
            names,
            columns.targets,
            self.results.scores,
            heading=heading,
            ahead=options.ahead,
            by=options.by,
            files=files,
            robust=options.robust,
        )

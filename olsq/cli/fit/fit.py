"""``olsq fit``: learn a table of any size in one pass, and be able to stop anywhere."""

from __future__ import annotations

import math
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from olsq.cli.errors import CommandError, InputError, Interrupted
from olsq.cli.fit.checkpoint import load_checkpoint, make_notes, rejoin
from olsq.cli.fit.options import Estimator, FitOptions
from olsq.cli.fit.output import Output, output_names
from olsq.cli.fit.report import print_report
from olsq.cli.fit.scores import Scores
from olsq.cli.fit.trace import Trace
from olsq.cli.interrupts import Interrupts
from olsq.cli.progress import RowProgress
from olsq.cli.sources.columns import Chunk
from olsq.cli.sources.source import Source, open_source
from olsq.online import CoefficientPath


def run_fit(options: FitOptions, console: Console, progress_console: Console) -> None:
    """Do what ``olsq fit`` was asked; results go to ``console``, progress to the other.

    Raises
    ------
    InputError
        If the options or the data must be changed.
    Interrupted
        After Ctrl-C or SIGTERM.
    CommandError
        If the run failed for another reason, a full disk for example.
    """
    options.check()
    found = None
    if options.resume and options.state is not None:
        found = load_checkpoint(options.state)
        if found is None:
            progress_console.print(f"{options.state} does not exist yet: starting from row 1")
    source = open_source(
        options.data, options.target, options.features, options.weight, options.separator,
        options.chunk_rows,
    )  # fmt: skip
    with source, Interrupts() as interrupts:
        run = FitRun(options, source, found)
        done = False
        try:
            run.learn(interrupts, progress_console)
            run.finish()
            done = True
        except OSError as error:
            raise CommandError(f"{error.strerror}: {error.filename or 'writing failed'}") from None
        finally:
            # Without a state file nobody can go on with a part file: leave none behind.
            if not done:
                run.close(discard=options.state is None or not options.state.exists())
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
    """

    def __init__(
        self, options: FitOptions, source: Source, found: tuple[Estimator, dict[str, Any]] | None
    ) -> None:
        self.options, self.source = options, source
        features = source.columns.features
        names = [*(["intercept"] if options.intercept else []), *features]
        notes = None
        if found is None:
            self.estimator = options.estimator()
            self.scores = Scores(burn_in=len(names))
            self.trace = Trace(names) if options.plot else None
        else:
            self.estimator, notes = found
            rejoin(options, source, notes)
            self.scores = Scores.from_dict(notes["scores"])
            self.trace = Trace.from_dict(names, notes["trace"]) if options.plot else None
        self.first_row = source.rows
        # Where the rows learned so far end.  Not the source's own position, which a signal may
        # find one chunk ahead: read, but not learned.
        self.position = source.position()
        self.output = None
        if options.out is not None:
            out_names = output_names(features, intercept=options.intercept)
            self.output = Output(options.out, out_names, notes["output"] if notes else None)

    def learn(self, interrupts: Interrupts, progress_console: Console) -> None:
        """Read, learn and write chunk after chunk; save a checkpoint every few seconds."""
        saved = time.monotonic()
        chunks = self.source.chunks()
        with RowProgress(progress_console, self.first_row) as progress:
            while True:
                try:
                    with interrupts.waiting():
                        chunk = next(chunks, None)
                except KeyboardInterrupt:
                    self._stop(interrupts)
                if chunk is None:
                    break
                self._learn_chunk(chunk)
                self.position = self.source.position()
                progress.update(self.source.rows, self.source.fraction())
                if interrupts.signum is not None:
                    self._stop(interrupts)
                if time.monotonic() - saved >= self.options.checkpoint_every:
                    self._save()
                    saved = time.monotonic()

    def _learn_chunk(self, chunk: Chunk) -> None:
        X, y, weight, used = self._usable(chunk)
        if not used.any() and not self._started:
            # The estimator cannot begin with a row it must skip; such rows only pass through.
            path = unlearned_path(*X.shape)
        elif self.output is None and self.trace is None:
            path = None
            residual = self._call(self.estimator.partial_fit, X, y, weight).residual_
        else:
            path = self._call(self.estimator.partial_fit_path, X, y, weight)
        if path is not None:
            residual = path.residual
            coef, stderr = path.coef, path.stderr
            if self.options.intercept:
                coef = np.column_stack([path.intercept, coef])
                stderr = np.column_stack([path.intercept_stderr, stderr])
            if self.output is not None:
                self._write(chunk.start, X, y, residual, coef)
            if self.trace is not None:
                # The first rows say more about the start than about the regression.
                learned = self.scores.used + np.cumsum(used)
                tests = used & (learned > self.scores.burn_in)
                recursive = np.where(tests, path.recursive_residual, np.nan)
                error = np.where(tests, residual, np.nan)
                self.trace.update(chunk.start, coef, stderr, error, recursive)
        self.scores.update(y, residual, used)

    @property
    def _started(self) -> bool:
        return self.scores.used > 0

    def _call(self, learn: Any, X: NDArray, y: NDArray, weight: NDArray | None) -> Any:
        try:
            return learn(X, y, sample_weight=weight)
        except ValueError as error:
            first, last = self.source.rows - len(y) + 1, self.source.rows
            reason = str(error).splitlines()[0]
            raise InputError(f"rows {first:,} to {last:,}: {reason}") from None

    def _usable(self, chunk: Chunk) -> tuple[NDArray, NDArray, NDArray | None, NDArray[np.bool_]]:
        """The chunk with every row that lacks a value marked by NaN, and the mask of the others."""
        X, y, weight = chunk.X, chunk.y, chunk.weight
        # A sum is much cheaper than a test of every cell, and finite only if all of them are.
        with np.errstate(over="ignore", invalid="ignore"):
            total = X.sum() + y.sum()
        if weight is None and math.isfinite(total):
            return X, y, None, np.ones(len(y), np.bool_)
        whole = np.isfinite(X).all(axis=1)
        used = whole & np.isfinite(y)
        if weight is not None:
            used &= np.isfinite(weight)
            negative = np.flatnonzero(weight < 0)
            if negative.size:
                raise InputError(
                    f"weight column {self.options.weight!r} is negative in row "
                    f"{chunk.start + negative[0] + 1:,}"
                )
            # The estimator skips by X and y; a row without a weight has no usable target.
            y = np.where(np.isfinite(weight), y, np.nan)
            weight = np.where(used, weight, 0.0)
        if self.options.missing == "raise" and not used.all():
            self._refuse(chunk, int(np.flatnonzero(~used)[0]))
        return X, np.where(np.isfinite(y), y, np.nan), weight, used

    def _refuse(self, chunk: Chunk, row: int) -> None:
        values = [*chunk.X[row], chunk.y[row]]
        values += [] if chunk.weight is None else [chunk.weight[row]]
        column = self.source.columns.all[int(np.flatnonzero(~np.isfinite(values))[0])]
        raise InputError(
            f"row {chunk.start + row + 1:,} has no value in column {column!r} "
            "(--missing skip passes over such rows)"
        )

    def _write(self, start: int, X: NDArray, y: NDArray, residual: NDArray, coef: NDArray) -> None:
        assert self.output is not None
        # A skipped row leaves the coefficients alone, so those "after" it are those before it:
        # they predict where only the target is missing.
        constant = coef[:, 0] if self.options.intercept else 0.0
        fitted = constant + np.einsum("nd,nd->n", X, coef[:, -X.shape[1] :])
        prediction = np.where(np.isfinite(residual), y - residual, fitted)
        self.output.append(start, np.column_stack([prediction, residual, coef]))

    def _save(self) -> bool:
        """Write a checkpoint if one is wanted and there is anything to save."""
        if self.options.state is None or not self._started:
            return False
        parts = {
            "output": self.output.checkpoint() if self.output else None,
            "scores": self.scores.as_dict(),
            "trace": self.trace.as_dict() if self.trace else None,
        }
        self.estimator.save(
            self.options.state,
            metadata=make_notes(self.options, self.source, self.position, parts),
        )
        return True

    def _stop(self, interrupts: Interrupts) -> None:
        saved = self._save()
        message = f"stopped after row {self.scores.rows:,}; "
        if saved:
            command = [*sys.argv[1:], *([] if self.options.resume else ["--resume"])]
            message += f"go on with: olsq {shlex.join(command)}"
        else:
            message += "nothing was saved (--state FILE saves)"
        raise Interrupted(message, interrupts.signum or 2)

    def finish(self) -> None:
        """Check that there was something to learn, then save and give files their final names."""
        scores, source = self.scores, self.source
        if not scores.rows:
            raise InputError(f"{source.name} has a header but no rows")
        if not scores.used:
            raise InputError(f"all {scores.rows:,} rows of {source.name} have a missing value")
        if scores.smallest == scores.largest:
            raise InputError(
                f"the target {self.options.target!r} is constant ({scores.first:g} in all "
                f"{scores.used:,} rows): there is nothing to explain"
            )
        self._save()
        if self.output is not None:
            self.output.finish()
        if self.trace is not None and self.options.plot is not None:
            self._draw(self.trace, self.options.plot)

    def _draw(self, trace: Trace, path: Path) -> None:
        from olsq.plot.drawing import draw_fit

        constant = self.options.window is None and self.options.half_life is None
        constant &= self.options.forget in (None, 1.0) and self.options.weight is None
        title = f"{self.options.target}   ({self.options.describe()})"
        figure = draw_fit(trace.curves(bounds=constant), title=title)
        figure.savefig(path, dpi=150)

    def close(self, *, discard: bool) -> None:
        """Stop without finishing."""
        if self.output is not None:
            self.output.close(discard=discard)

    def report(self, console: Console) -> None:
        """Print the tables."""
        options = self.options
        files = [
            f"{what}: {path}"
            for what, path in (
                ("every row", options.out), ("figure", options.plot), ("state", options.state),
            )
            if path is not None
        ]  # fmt: skip
        columns = self.source.columns
        print_report(
            console, self.estimator, columns.features, self.scores,
            heading=f"{columns.target} on {len(columns.features)} "
            f"regressor{'s'[: len(columns.features) > 1]}, {options.describe()}",
            files=files,
        )  # fmt: skip


def unlearned_path(n: int, d: int) -> CoefficientPath:
    """The path over ``n`` rows before the first that can be learned."""
    nothing, unknown = np.full(n, np.nan), np.full(n, np.inf)
    return CoefficientPath(
        coef=np.full((n, d), np.nan), intercept=nothing, residual=nothing,
        recursive_residual=nothing, sigma2=unknown, stderr=np.full((n, d), np.inf),
        intercept_stderr=unknown,
    )  # fmt: skip

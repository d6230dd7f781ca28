"""Run ``olsq predict``: read new rows chunk by chunk and write their predictions."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from olsq.cli.errors import InputError, Interrupted, say, writing
from olsq.cli.fit.checkpoint import KEY, check_notes, load_state, reading_notes
from olsq.cli.fit.design import Design
from olsq.cli.fit.estimators import Estimator
from olsq.cli.fit.output import Output, StandardOutput, output_names
from olsq.cli.interrupts import Interrupts
from olsq.cli.paths import locked_paths
from olsq.cli.predict.options import PredictOptions
from olsq.cli.progress import RowProgress
from olsq.cli.sources.columns import Chunk, Reading
from olsq.cli.sources.opening import open_source
from olsq.cli.sources.source import Source

# Rows are held back until one of them has a level or group that the state knows: a table without
# any is an error, and what went to standard output is not undone.
HELD_CHUNKS = 64


class Model:
    """A saved estimator, with what is needed to build its regressors from a table.

    Raises
    ------
    InputError
        If there is no such file, or it does not say the names of its columns.
    """

    def __init__(self, path: Path) -> None:
        self.estimator, notes = load_state(path), None
        if not isinstance(self.estimator, Estimator):
            raise InputError(f"{path} does not hold a regression")
        if KEY in self.estimator.metadata_:
            _, notes = check_notes(path, self.estimator)
        self.table: dict[str, Any] | None = None
        self.categories: list[str] = []
        self.design: dict[str, Any] | None = None
        self.lags, self.by, self.time_zone, self.time_name = 0, None, None, None
        if notes is None:
            names = getattr(self.estimator, "feature_names_in_", None)
            if names is None:
                raise InputError(
                    f"{path} has no names of regressors: fit to a data frame, or with olsq fit"
                )
            m = self.estimator.coef_.shape[0] if self.estimator.coef_.ndim == 2 else 1
            self.features = tuple(map(str, names))
            self.targets = ("y",) if m == 1 else tuple(f"y{j}" for j in range(m))
        else:
            self.features = tuple(notes["columns"]["features"])
            self.targets = tuple(notes["columns"]["targets"])
            self.table, self.design = notes["table"], notes["design"]
            self.categories = list(notes["table"]["categories"]["levels"])
            options = notes["options"]
            self.lags, self.by = options["--lags"] or 0, options["--by"]
            self.time_zone, self.time_name = options.get("--time-zone"), options.get("--time")

    def reading(self, options: PredictOptions) -> Reading:
        """Return the columns to read from the new rows; targets only if lags of them are
        regressors.
        """
        written = options.format_options()
        if self.lags and options.time is not None and options.time_zone is None:
            written["time_zone"] = self.time_zone
        return Reading(
            targets=self.targets if self.lags else (),
            features=self.features,
            categorical=dict.fromkeys(self.categories),
            by=self.by,
            targets_required=False,
            **written,
        )


def run_predict(options: PredictOptions, progress_console: Console) -> None:
    """Run ``olsq predict``; predictions go to the output, progress to ``progress_console``.

    Raises
    ------
    InputError
        If the options or the data must be changed.
    Interrupted
        After Ctrl-C or SIGTERM; nothing is left behind.
    CommandError
        If the run failed for another reason, a full disk for example.
    """
    options.check()
    with reading_notes(options.state):
        model = Model(options.state)
    source = open_source(options.data, model.reading(options))
    with (
        source,
        locked_paths(*([options.out] if options.out else [])),
        Interrupts() as interrupts,
    ):
        run = PredictRun(options, model, source)
        done = False
        try:
            with writing(options.out or "standard output"):
                run.run(interrupts, progress_console)
            done = True
            run.warn(progress_console)
        finally:
            if not done and run.output is not None:
                run.output.close(discard=True)


class PredictRun:
    """One pass over the new rows, from reading to writing."""

    def __init__(self, options: PredictOptions, model: Model, source: Source) -> None:
        self.options, self.source = options, source
        self.estimator, self.lags = model.estimator, model.lags
        self.targets, self.learned_time = model.targets, model.time_name
        columns = source.columns._replace(targets=model.targets)
        self.design = Design(
            columns, source.table, model.lags, intercept=self.estimator.fit_intercept
        )
        if model.table is not None and model.design is not None:
            # without lags rows need not follow those that were learned
            followed = model.table if model.lags else model.table | {"time": None}
            with reading_notes(options.state):
                source.table.continue_from(followed, step_by_step=True)
                self.design.restore(model.design)
        self.group_count = len(source.table.groups.labels) if source.table.groups else 0
        self.known_rows = self.unknown_rows = 0
        self.output: Output | None = None

    def _open_output(self) -> None:
        columns = ("prediction",) if self.options.level is None else ("prediction", "interval")
        names = output_names(columns, self.targets, (), intercept=False)
        time, groups = self.source.table.time, self.source.table.groups
        out = self.options.out
        self.output = (
            StandardOutput(names, time, groups)
            if out is None
            else Output(out, names, time, None, groups)
        )

    def run(self, interrupts: Interrupts, progress_console: Console) -> None:
        """Read, predict and write chunk after chunk."""
        held: list[tuple[Any, ...]] = []
        with RowProgress(progress_console, 0) as progress:
            for read in interrupts.read_chunks(self.source, self._stop):
                chunk = self.source.table.in_order(read)
                if self.output is None:
                    self._open_output()
                held.append((chunk.start, self._predict_chunk(chunk), chunk.time, chunk.by))
                if len(held) == HELD_CHUNKS or not self._only_strangers():
                    self._write(held)
                progress.update(self.source.rows, self.source.fraction())
        if self.output is None:
            raise InputError(f"{self.source.name} has a header but no rows")
        self._check_known()
        self._write(held)
        self.output.finish()

    def _write(self, held: list[tuple[Any, ...]]) -> None:
        assert self.output is not None
        for rows in held:
            self.output.append(*rows)
        held.clear()

    def _only_strangers(self) -> bool:
        """Test whether a column has held labels, and none so far that the state knows."""
        stranger = self.unknown_rows > 0 and not self.known_rows
        return stranger or bool(self.source.table.categories.strangers)

    def _check_known(self) -> None:
        self.source.table.categories.check_known(self.source.name, listed=False)
        groups = self.source.table.groups
        if groups is not None and self.unknown_rows and not self.known_rows:
            learned, new = groups.labels[: self.group_count], groups.labels[self.group_count :]
            raise InputError(
                f"not one group of {self.source.name} is in the state: column {groups.name!r} "
                f"holds {_few(new)} and the state {_few(learned)}"
            )

    def warn(self, console: Console) -> None:
        """Print the groups that were never learned, and whether times were left unchecked."""
        name, groups = self.learned_time, self.source.table.groups
        if self.lags and self.source.table.time is None and name in self.source.header:
            say(
                console,
                f"olsq: --lags: the rows of {self.source.name} were taken as those that follow the "
                f"last one learned, whatever column {name!r} holds: give --time "
                f"{shlex.quote(name)} to have it checked",
            )
        if groups is not None and self.unknown_rows:
            new = groups.labels[self.group_count :]
            say(
                console,
                f"olsq: {self.unknown_rows:,} row{'s'[: self.unknown_rows != 1]} of {len(new):,} "
                f"group{'s'[: len(new) != 1]} that the state does not know ({_few(new)}): no "
                "prediction",
            )

    def _stop(self, interrupts: Interrupts) -> NoReturn:
        raise Interrupted("stopped", interrupts.signum or 2)

    def _predict_chunk(self, chunk: Chunk) -> NDArray[np.float64]:
        """Return the columns of the output (n, k) for a chunk."""
        if chunk.by is not None:
            self.unknown_rows += int(np.count_nonzero(chunk.by >= self.group_count))
            self.known_rows += int(
                np.count_nonzero((chunk.by >= 0) & (chunk.by < self.group_count))
            )
        targets = np.full((len(chunk.X), len(self.targets)), np.nan)
        for j, target in enumerate(self.source.columns.targets):
            targets[:, self.targets.index(target)] = chunk.y[:, j]
        if self.lags and not np.isfinite(targets).all():
            # One row at a time: a prediction stands in for the target that the next row needs.
            rows = [
                self._predict_rows(chunk, slice(t, t + 1), targets) for t in range(len(targets))
            ]
            return np.concatenate(rows)
        return self._predict_rows(chunk, slice(None), targets)

    def _predict_rows(
        self, chunk: Chunk, rows: slice, all_targets: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        targets = all_targets[rows]
        by = None if chunk.by is None else chunk.by[rows]
        part = chunk._replace(X=chunk.X[rows], y=targets, by=by)
        X = self.design.matrix(part)
        predictable = np.isfinite(X).all(axis=1)
        more = {}
        if by is not None and self.source.table.groups is not None:
            predictable &= (by >= 0) & (by < self.group_count)
            more["by"] = self.source.table.groups.of(by[predictable])
        level, m = self.options.level, len(self.targets)
        predictions = np.full((len(X), m, 1 if level is None else 3), np.nan)
        if predictable.any():
            try:
                predictions[predictable, :, 0] = self.estimator.predict(
                    X[predictable], **more
                ).reshape(-1, m)
                if level is not None:
                    bounds = self.estimator.predict_interval(X[predictable], level, **more)
                    for place, bound in enumerate(bounds):
                        predictions[predictable, :, 1 + place] = np.asarray(bound).reshape(-1, m)
            except ValueError as error:
                reason = str(error).splitlines()[0]
                raise InputError(
                    f"rows {chunk.start + 1:,} to {chunk.start + len(chunk.X):,}: {reason}"
                ) from None
        known_or_predicted = np.where(np.isfinite(targets), targets, predictions[:, :, 0])
        self.design.advance(part._replace(y=known_or_predicted))
        return predictions.reshape(len(X), -1)


def _few(labels: list[str]) -> str:
    """Return the first of some labels as text."""
    return ", ".join(map(repr, labels[:3])) + ", ..." * (len(labels) > 3)

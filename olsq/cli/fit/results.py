"""Results of the rows that ``olsq fit`` learns: errors, intervals, figures, the output."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.cli.errors import InputError
from olsq.cli.fit.checkpoint import reading_notes
from olsq.cli.fit.estimators import Estimator
from olsq.cli.fit.figures import Trace
from olsq.cli.fit.horizon import ChunkForecasts, Forecaster, RowsBefore, skipped_rows_change
from olsq.cli.fit.intervals import Intervals, TargetPath, hide_first
from olsq.cli.fit.options import FitOptions
from olsq.cli.fit.output import Output, output_names
from olsq.cli.fit.scores import LEARNED, TARGETS, Baselines, Known, Scores
from olsq.cli.sources.columns import Chunk
from olsq.cli.sources.grouping import GroupedRows
from olsq.cli.sources.source import Source
from olsq.online import CoefficientPath
from olsq.online.rows.times import as_values


class Learned(NamedTuple):
    """Rows of a chunk as they are learned: regressors X (n, d), targets y (n, m), by group.

    ``used`` (n,) marks those that can be.
    """

    chunk: Chunk
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    used: NDArray[np.bool_]
    groups: GroupedRows


class Results:
    """The results of one run, chunk after chunk.

    Parameters
    ----------
    options : FitOptions
        Checked options.
    source : Source
        Its columns and what is known about its cells.
    regressors : list of str
        Names of the columns of X.
    notes : dict or None
        Of the checkpoint that the run goes on from.
    """

    def __init__(
        self,
        options: FitOptions,
        source: Source,
        regressors: list[str],
        notes: dict[str, Any] | None,
    ) -> None:
        self.options, self.source = options, source
        targets, table = source.columns.targets, source.table
        names = [*(["intercept"] if options.intercept else []), *regressors]
        self.baselines = Baselines(len(targets))
        self.scores = [Scores(burn_in=len(names)) for _ in targets]
        # The figure of groups shows their final coefficients only: no traces.
        traced = options.plot is not None and options.by is None
        self.traces = [Trace(names) for _ in targets if traced]
        self.forecaster: Forecaster | None = None
        if options.forecasts:
            self.forecaster = Forecaster(
                options.horizon, options.level, len(names), options.min_samples
            )
        bounded = "interval" in options.columns and not options.forecasts
        self.intervals = [Intervals(options, len(names)) for _ in targets if bounded]
        if notes is not None:
            with reading_notes(options.state):
                self._restore(notes)
        self.output: Output | None = None
        if options.out is not None:
            out_names = output_names(
                options.columns, targets, regressors, intercept=options.intercept
            )
            mark = notes["output"] if notes and not options.continued else None
            with reading_notes(options.state):
                self.output = Output(options.out, out_names, table.time, mark, table.groups)

    def _restore(self, notes: dict[str, Any]) -> None:
        if self.forecaster is not None and "baselines" not in notes:
            # the rows of each group were not counted
            raise InputError(
                f"{self.options.state} was written by another version of olsq fit: start again"
            )
        self.baselines.restore(notes)
        pairs = zip(self.scores, notes["scores"], strict=True)
        self.scores = [scores.from_dict(saved) for scores, saved in pairs]
        if self.traces and not self.options.continued:  # the figure of a new table is of its rows
            names = self.traces[0].names
            self.traces = [Trace.from_dict(names, saved) for saved in notes["trace"]]
        if self.forecaster is not None:
            self.forecaster.restore(notes["forecasts"])
        for intervals, saved in zip(self.intervals, notes["intervals"], strict=False):
            intervals.restore(saved)

    @property
    def need_path(self) -> bool:
        """True if the coefficients after every row are needed, and not only the errors."""
        return self.output is not None or bool(self.traces) or self.forecaster is not None

    def rows_before(self, estimator: Estimator, rows: Learned) -> RowsBefore | None:
        """Predict what the path of rows cannot, before the estimator learns them."""
        if self.output is None or not skipped_rows_change(self.options):
            return None
        groups = self.source.table.groups
        labels = None if groups is None else groups.of
        return RowsBefore.of(estimator, rows.X, rows.y.shape[1], rows.groups, labels)

    def add(
        self,
        rows: Learned,
        residual: NDArray[np.float64],
        path: CoefficientPath | None = None,
        rows_before: RowsBefore | None = None,
    ) -> None:
        """Add rows that were learned, with the errors ``residual`` before that."""
        y, used = rows.y, rows.used
        before, after = self.baselines.advance(y, used, rows.groups)
        learned = before[:, LEARNED]
        scored = used & (learned >= max(self.scores[0].burn_in, 1))
        bases = Known.of(before[:, TARGETS:], learned, scored)
        if path is not None:
            forecasts = None
            if self.forecaster is not None:
                forecasts = self._forecast(self.forecaster, rows, path, after)
                path = path._replace(residual=forecasts.residual.reshape(path.residual.shape))
                bases = forecasts.bases
            # a window's estimator does so itself
            fewest = self.options.min_samples if self.options.window is None else None
            path = hide_first(path, learned + used, fewest)
            residual = path.residual
            parts = [
                TargetPath.of(path, j if y.shape[1] > 1 else None, self.options)
                for j in range(y.shape[1])
            ]
            if self.output is not None:
                fitted = None if forecasts is None else forecasts.fitted
                fitted = fitted if rows_before is None else rows_before.predict(path, rows.X)
                bounds = None if forecasts is None else forecasts.bounds
                self._write(self.output, rows, parts, fitted, bounds, learned)
            self._trace(rows, parts, learned, bases[0].scored if forecasts else None)
        residual = residual.reshape(y.shape)
        for j, scores in enumerate(self.scores):
            scores.update(y[:, j], residual[:, j], used, bases[j])

    def _forecast(
        self,
        forecaster: Forecaster,
        rows: Learned,
        path: CoefficientPath,
        after: NDArray[np.float64],
    ) -> ChunkForecasts:
        chunk, times = rows.chunk, None
        if isinstance(self.options.horizon, str):
            assert self.source.table.time is not None
            assert chunk.time is not None
            what = f"--horizon {self.options.horizon}"
            times = as_values(self.source.table.time.dates(chunk.time, chunk.start, what))
        return forecaster.forecast(rows.X, rows.y, path, rows.used, after, rows.groups, times)

    def _write(
        self,
        output: Output,
        rows: Learned,
        parts: list[TargetPath],
        fitted: NDArray[np.float64] | None,
        bounds: Any,
        learned: NDArray[np.float64],
    ) -> None:
        columns = []
        for j, part in enumerate(parts):
            bound = bounds[j] if bounds else None
            if self.intervals:
                bound = self.intervals[j].bounds(
                    part, rows.y[:, j], learned, rows.used, rows.groups
                )
            of_target = None if fitted is None else fitted[:, j]
            columns.append(
                part.columns(rows.X, rows.y[:, j], self.options.columns, bound, of_target)
            )
        output.append(rows.chunk.start, np.column_stack(columns), rows.chunk.time, rows.chunk.by)

    def _trace(
        self,
        rows: Learned,
        parts: list[TargetPath],
        learned: NDArray[np.float64],
        scored: NDArray[np.bool_] | None,
    ) -> None:
        for part, scores, trace in zip(parts, self.scores, self.traces, strict=False):
            # The first rows say more about the start than about the regression.  Without a
            # ridge a recursive residual of 0 marks those that determined a coefficient.
            tests = rows.used & (learned >= scores.burn_in)
            trace.update(
                rows.chunk.start,
                part.coef,
                part.stderr,
                np.where(tests if scored is None else scored, part.residual, np.nan),
                np.where(tests if self.options.ridge else rows.used, part.recursive, np.nan),
                rows.chunk.time,
            )

    def notes(self) -> dict[str, Any]:
        """Return what a run needs to go on from here, for the checkpoint."""
        parts = {
            "output": self.output.checkpoint() if self.output else None,
            "scores": [scores.as_dict() for scores in self.scores],
            "baselines": self.baselines.as_text(),
            "trace": [trace.as_dict() for trace in self.traces],
            "intervals": [intervals.as_dict() for intervals in self.intervals],
        }
        if self.forecaster is not None:
            parts["forecasts"] = self.forecaster.as_dict()
        return parts

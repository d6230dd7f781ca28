"""The rolling windows of all groups of a stream, with their clocks and counts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.calls.call import Call, Origin
from olsq.online.calls.history import kept_values, put_values
from olsq.online.estimators.rolling import RollingLeastSquares
from olsq.online.forms.targets import Group, TargetGroups, select
from olsq.online.many.clocks import Clocks, TimedRows
from olsq.online.many.window_paths import PathOptions, WindowPath, rows_by_member
from olsq.online.many.window_stack import WindowStack
from olsq.online.paths.collector import joined
from olsq.online.paths.goodness import GroupRows, constant_rows
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows.durations import DATES
from olsq.online.rows.times import Clock


class GroupWindows(NamedTuple):
    """The windows of all groups, and what else is known of them.

    ``origin`` is what the first rows have fixed.  Where targets miss rows of their own
    (``parting``), each has one of the ``stacks`` and of the ``clocks``; else all share one.
    ``seen`` (n,) counts samples.  ``values`` (n, d), or (n, m d) if parting, are those of columns
    that had one value in every row (see ``calls/history.py``), NaN before the first row; None
    beside an intercept.  There may be more entries than groups.
    """

    origin: Origin
    parting: bool
    places: dict[Any, int]  # the number of every key's group, in order of appearance
    stacks: list[WindowStack]
    clocks: list[Clocks] | None  # if a window or half-life is one of time
    seen: NDArray[np.int64]
    values: NDArray[np.float64] | None

    @classmethod
    def start(cls, estimator: RollingLeastSquares, origin: Origin) -> GroupWindows:
        """Make windows of no group yet; ``estimator`` has their parameters."""
        parting = estimator.missing == "skip_target"
        parts, like = (origin.columns if parting else 1), estimator._start(origin)
        stacks = [WindowStack(like, origin.columns // parts) for _ in range(parts)]
        values = None if origin.intercept else np.empty((0, parts * origin.n_features))
        return cls(origin, parting, {}, stacks, None, np.zeros(0, np.int64), values)

    @classmethod
    def of_estimators(
        cls, windows: dict[Any, RollingLeastSquares], like: RollingLeastSquares, zoned: Clock
    ) -> GroupWindows:
        """Make the windows of groups that are estimators like ``like``."""
        groups = cls.start(like, like._origin).grown(list(windows))
        kinds = [est._timing.kind for est in windows.values() if est._timing is not None]
        if kinds or zoned is not None:  # which is said of dates alone
            kind, n = kinds[0] if kinds else DATES, len(windows)
            clocks = [Clocks.start(kind, n, zoned) for _ in groups.stacks]
            groups = groups._replace(clocks=clocks)
        for group, est in enumerate(windows.values()):
            groups.put(group, est)
        return groups

    def copy(self) -> GroupWindows:
        values = None if self.values is None else self.values.copy()
        stacks, seen = [stack.copy() for stack in self.stacks], self.seen.copy()
        return self._replace(places=dict(self.places), stacks=stacks, seen=seen, values=values)

    def grown(self, fresh: list[Any]) -> GroupWindows:
        """Return windows with a group for each new key."""
        n, values, seen = len(self.places), self.values, self.seen
        places = {**self.places, **{key: n + i for i, key in enumerate(fresh)}}
        stacks = [stack.grown(len(places)) for stack in self.stacks]
        clocks = self.clocks and [clocks.grown(len(places)) for clocks in self.clocks]
        if (more := len(stacks[0]) - len(seen)) > 0:
            seen = np.append(seen, np.zeros(more, np.int64))
            if values is not None:
                values = np.concatenate([values, np.full((more, values.shape[1]), np.nan)])
        return self._replace(places=places, stacks=stacks, clocks=clocks, seen=seen, values=values)

    @property
    def targets(self) -> list[NDArray[np.int64]]:
        """The targets of each stack."""
        every = np.arange(self.origin.columns)
        return np.split(every, every.size) if self.parting else [every]

    @property
    def n_slots(self) -> int:
        """The rows that the windows have room for."""
        return sum(stack.used for stack in self.stacks)

    # -- single groups ----------------------------------------------------------------------------

    def estimator(self, parameters: dict[str, Any], group: int | None) -> RollingLeastSquares:
        """Return a group as an estimator with a copy of its state; None: one that has no row."""
        est = RollingLeastSquares(**parameters)
        if group is None:
            est._settle(self.origin, est._engine_of(self.origin))
            return est
        windows, values, timing = [stack.window(group) for stack in self.stacks], None, None
        if self.values is not None:
            values = kept_values(self.values[group])
        if self.clocks is not None:
            timing = self.clocks[0].timing(group)
            for window, clocks in zip(windows, self.clocks, strict=True):
                span = clocks.span(group)
                if span.size or est._half_life_in_time(True) is not None:
                    window.span = span
        engines = map(Group, self.targets, windows)
        est._settle(
            self.origin,
            TargetGroups(list(engines), self.parting),
            n_samples_seen_=int(self.seen[group]),
            _constant_values=values,
            _timing=timing,
        )
        return est

    def put(self, group: int, est: RollingLeastSquares) -> None:
        """Replace a group's windows by those of an estimator."""
        window: Any
        for targets, window in est._engine.groups:
            for j, target in enumerate(targets.tolist() if self.parting else [0]):
                own: Any = select(window, np.array([j])) if self.parting else window
                self.stacks[target].put(group, own)
                if self.clocks is not None:
                    self.clocks[target].set_group(group, est._timing, window.span)
        self.seen[group] = est.n_samples_seen_
        if self.values is not None:
            own = self.values[group].reshape(-1, self.origin.n_features)
            put_values(own, est._constant_values)

    # -- learning ---------------------------------------------------------------------------------

    def calls_of(self, call: Call, timed: list[TimedRows], forgets_in_time: bool) -> list[Call]:
        """Return the rows of the targets of each stack, with the factors of their times."""
        calls = [call.of(targets) for targets in self.targets]
        for part, times in enumerate(timed):
            usable = calls[part].usable
            gates = times.gates(usable)
            if not forgets_in_time:  # rows that cannot be learned do not forget
                gates = call.gates if usable is None else np.where(usable, call.gates, 1.0)
            calls[part] = calls[part]._replace(gates=gates)
        return calls

    def learn(
        self,
        calls: list[Call],
        groups: NDArray[np.int64],
        times: NDArray | None,
        asked: PathOptions | None = None,
    ) -> tuple[NDArray[np.float64], CoefficientPath | None]:
        """Learn rows, each in its group (n,); return their a-priori residuals (n, m), and their
        path if one is asked for.

        ``calls`` holds the rows of the targets of each stack.
        """
        learned, residual, parts = np.zeros(groups.size, np.bool_), [], []
        by_group = rows_by_member(groups, len(self.seen))
        for part, (call, stack, targets) in enumerate(
            zip(calls, self.stacks, self.targets, strict=True)
        ):
            path = None
            if asked is not None:
                noise = None if asked.noise is None else asked.noise[targets]
                path = WindowPath.open(stack, call, groups, by_group, times, noise)
            errors = stack.learn(call, groups, by_group.order, times, path and path.collector)
            own = (call.weights > 0) if call.usable is None else call.usable & (call.weights > 0)
            constant = self._follow_constants(part, call.X, by_group, own)
            if path is not None and asked is not None:
                parts.append(path.finish(errors, constant, asked, self.origin.ridge, call.X))
            residual.append(errors)
            learned |= own
        self.seen[:] += np.bincount(groups[learned], minlength=self.seen.size)
        path = None
        if asked is not None:
            one_target = self.origin.n_targets == 0
            path = joined(parts, self.targets, self.origin.intercept, one_target)
        return np.concatenate(residual, axis=1), path

    def _follow_constants(
        self, part: int, X: NDArray, by_group: GroupRows, learned: NDArray[np.bool_]
    ) -> NDArray[np.int64] | None:
        """Update the values of a part by rows that were ``learned``; return how many first rows of
        each group in this call have had a column with one value; None beside an intercept.
        """
        if self.values is None:
            return None
        by_part = self.values.reshape(len(self.values), len(self.stacks), self.origin.n_features)
        values = by_part[:, part].copy()  # contiguous, as the kernel takes it
        counts = constant_rows(by_group, learned.astype(np.float64), X, values)
        by_part[:, part] = values
        return counts

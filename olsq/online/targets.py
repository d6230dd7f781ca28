"""Several targets that miss different rows: one factor for every history.

A row whose k-th target is missing is no sample for target k, and one for the others.  Targets that
have missed the same rows share a factor; when a call holds a row that some of them miss, the
factor is copied, and from there each copy sees its own rows.  So every target is learnt exactly as
it would be alone, at the cost of one factor per history that differs (at most one per target).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Group(NamedTuple):
    """Targets (k,) with one history, ascending, and the engine that learns them."""

    targets: NDArray[np.int64]
    engine: Any


class TargetGroups:
    """Engines for groups of targets; together they are one engine for all targets."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups

    @property
    def reports_residuals(self) -> bool:
        return self.groups[0].engine.reports_residuals

    @property
    def form(self) -> Any:
        """The form of the first group: for what all groups have in common."""
        return self.groups[0].engine.form

    def copy(self) -> TargetGroups:
        return copy.deepcopy(self)

    def split(self, usable: NDArray[np.bool_]) -> TargetGroups:
        """Groups that miss no row of ``usable`` (n, m) alone; engines are copied where split."""
        groups = []
        for targets, engine in self.groups:
            columns = usable[:, targets]
            if (columns == columns[:, :1]).all():
                groups.append(Group(targets, engine))
                continue
            _, kind = np.unique(columns, axis=1, return_inverse=True)
            kind = kind.ravel()
            for k in dict.fromkeys(kind.tolist()):
                chosen = np.flatnonzero(kind == k)
                groups.append(Group(targets[chosen], select(engine, chosen)))
        return TargetGroups(groups)

    # -- saving -----------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray]:
        return {
            f"group{i}_{name}": array
            for i, group in enumerate(self.groups)
            for name, array in group.engine.arrays().items()
        }

    def describe(self) -> dict[str, Any]:
        return {
            "groups": [
                {"targets": group.targets.tolist(), "engine": group.engine.describe()}
                for group in self.groups
            ]
        }

    @classmethod
    def restore(
        cls, description: dict[str, Any], arrays: dict[str, NDArray],
        restore: Callable[[dict[str, Any], dict[str, NDArray]], Any],
    ) -> TargetGroups:  # fmt: skip
        groups = []
        for i, group in enumerate(description["groups"]):
            start = f"group{i}_"
            own = {k[len(start) :]: a for k, a in arrays.items() if k.startswith(start)}
            groups.append(Group(np.array(group["targets"]), restore(group["engine"], own)))
        return cls(groups)


def select(engine: Any, targets: NDArray[np.int64]) -> Any:
    """A copy of an engine for some of its targets."""
    engine = engine.copy()
    for part in (engine, engine.form):
        for name, axis in getattr(part, "PER_TARGET", {}).items():
            setattr(part, name, np.take(getattr(part, name), targets, axis))
    return engine


def merge(
    first: TargetGroups, second: TargetGroups, merge_engines: Callable[[Any, Any], Any]
) -> TargetGroups:
    """Targets that shared a history in both share one now."""
    groups = []
    for a in first.groups:
        for b in second.groups:
            both, in_a, in_b = np.intersect1d(a.targets, b.targets, return_indices=True)
            if both.size:
                engine = merge_engines(select(a.engine, in_a), select(b.engine, in_b))
                groups.append(Group(both, engine))
    return TargetGroups(groups)

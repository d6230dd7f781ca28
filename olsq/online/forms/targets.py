"""Groups of targets that miss different rows: one factor for every history.

A row whose k-th target is missing is no sample for target k, and one for the others.  Targets that
have missed the same rows share a factor; when a call holds a row that some of them miss, the
factor is copied, and from there each copy sees its own rows.  So every target is learned exactly as
it would be alone, at the cost of one factor per history that differs (at most one per target).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.form import Form
from olsq.online.forms.rows import Rows, Trace


class Engine(Protocol):
    """The state behind an estimator: a form switch or a rolling window."""

    @property
    def form(self) -> Form: ...
    @property
    def advances_on_missing(self) -> bool:
        """True if a row that cannot be learned takes a place in the window, or lets coefficients
        drift: the engine is given it as a row of zeros and weight 0.
        """
        ...

    @property
    def rows_in_place(self) -> int:
        """Number of rows up to which a call does not take a copy of the state to learn them."""
        ...

    def learns_in_steps(self, gate: float) -> bool:
        """Test whether a row changes the state in steps, of which an interrupt could part two."""
        ...

    def copy(self) -> Engine: ...
    def update(
        self, rows: Rows, residual: NDArray, trace: Trace, times: NDArray | None = None
    ) -> NDArray[np.int64] | None:
        """Absorb rows; return the number of samples held after each, if the trace does not say."""
        ...

    def arrays(self) -> dict[str, NDArray]: ...
    def describe(self) -> dict[str, Any]: ...


class Group(NamedTuple):
    """Targets (k,) with one history, ascending, and the engine that learns them."""

    targets: NDArray[np.int64]
    engine: Engine


class TargetGroups:
    """Engines for groups of targets, which together learn all targets.

    Where targets may not part (``parting`` is False) there is one group.
    """

    def __init__(self, groups: list[Group], parting: bool) -> None:
        self.groups = groups
        self.parting = parting

    @classmethod
    def together(cls, engine: Engine, n_targets: int, parting: bool) -> TargetGroups:
        """Start with one engine for all targets."""
        return cls([Group(np.arange(n_targets), engine)], parting)

    @property
    def engine(self) -> Engine:
        """The engine of the first group, for what all groups have in common."""
        return self.groups[0].engine

    @property
    def form(self) -> Form:
        """The form of the first group."""
        return self.engine.form

    @property
    def forms(self) -> list[Form]:
        return [group.engine.form for group in self.groups]

    def copy(self) -> TargetGroups:
        groups = []
        for targets, engine in self.groups:
            groups.append(Group(targets, engine.copy()))
        return TargetGroups(groups, self.parting)

    def by_target(self, read: Callable[[Form], NDArray]) -> NDArray:
        """Return ``read`` of the forms, (m, ...), in the order of the targets."""
        if len(self.groups) == 1:
            return read(self.form)
        order = np.argsort(np.concatenate([group.targets for group in self.groups]))
        return np.concatenate([read(form) for form in self.forms])[order]

    def for_each(self, read: Callable[[Form], Any]) -> NDArray:
        """Return ``read``, one value for all targets of a form, as an array (m, ...)."""
        entries = [(target, read(g.engine.form)) for g in self.groups for target in g.targets]
        return np.array([entry for _, entry in sorted(entries, key=lambda pair: pair[0])])

    def split(self, usable: NDArray[np.bool_]) -> TargetGroups:
        """Split groups whose targets miss different rows of ``usable`` (n, m); these get copies."""
        if usable.ndim == 1:
            return self
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
        return TargetGroups(groups, self.parting)

    # -- saving -----------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray]:
        if not self.parting:
            return self.engine.arrays()
        return {
            f"group{i}_{name}": array
            for i, group in enumerate(self.groups)
            for name, array in group.engine.arrays().items()
        }

    def describe(self) -> dict[str, Any]:
        if not self.parting:
            return self.engine.describe()
        return {
            "groups": [
                {"targets": group.targets.tolist(), "engine": group.engine.describe()}
                for group in self.groups
            ]
        }

    @classmethod
    def restore(
        cls,
        description: dict[str, Any],
        arrays: dict[str, NDArray],
        n_targets: int,
        restore: Callable[[dict[str, Any], dict[str, NDArray]], Engine],
    ) -> TargetGroups:
        if "groups" not in description:
            return cls.together(restore(description, arrays), n_targets, False)
        groups = []
        for i, group in enumerate(description["groups"]):
            start = f"group{i}_"
            own = {k[len(start) :]: a for k, a in arrays.items() if k.startswith(start)}
            groups.append(Group(np.array(group["targets"]), restore(group["engine"], own)))
        return cls(groups, True)


def select(engine: Engine, targets: NDArray[np.int64]) -> Engine:
    """Copy an engine for some of its targets."""
    engine = engine.copy()
    engine.form.keep_targets(targets)
    for name, field in getattr(engine, "FIELDS", {}).items():
        array = getattr(engine, name)
        if field.target_axis is not None and array is not None:
            setattr(engine, name, np.take(array, targets, field.target_axis))
    return engine


def merge(
    first: TargetGroups, second: TargetGroups, merge_engines: Callable[[Any, Any], Engine]
) -> TargetGroups:
    """Merge the engines; targets that shared a history in both share one now."""
    if not first.parting:
        engine = merge_engines(first.engine, second.engine)
        return TargetGroups.together(engine, len(first.groups[0].targets), False)
    groups = []
    for a in first.groups:
        for b in second.groups:
            both, in_a, in_b = np.intersect1d(a.targets, b.targets, return_indices=True)
            if both.size:
                engine = merge_engines(select(a.engine, in_a), select(b.engine, in_b))
                groups.append(Group(both, engine))
    return TargetGroups(groups, True)

"""Second pass over the rows, which reads them again one partition at a time.

Where two passes share a partition in one graph, Dask keeps it from the first pass to the second,
which starts when the first has finished: all rows may be in memory at once. So the tasks that lead
to one partition alone (reading a file, generating, slicing, cleaning) become part of the second
pass's task of that partition and run there again. Sources that several partitions share (a shuffle,
one array in memory), and data that are in memory already (persisted partitions), remain arguments
of the task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dask.core import get, istask
from dask.highlevelgraph import HighLevelGraph

SHARED = -1


@dataclass(frozen=True)
class Reading:
    """The tasks that lead to one partition, and the work on it, as one task.

    ``graph`` holds the tasks by their keys, ``given`` the keys whose values a call receives,
    ``blocks`` the six keys or None whose values ``work`` receives after the state.
    """

    work: Callable[..., Any]
    graph: dict[Any, Any]
    given: tuple[Any, ...]
    blocks: tuple[Any, ...]

    def __call__(self, before: Any, *values: Any) -> Any:
        """Run ``work(before, *blocks)``, computing the blocks from the values of ``given``."""
        known = dict(zip(self.given, values, strict=True))
        inner = [key for key in self.blocks if key is not None and key not in known]
        # dask.get would call the callbacks of the outer computation: its progress bar would
        # restart.
        known.update(zip(inner, get(dict(self.graph), inner, dict(known)), strict=True))
        return self.work(before, *(None if key is None else known[key] for key in self.blocks))


def second_pass_tasks(
    work: Callable[..., Any], befores: list[Any], blocks: list[tuple[Any, ...]],
    dependencies: list[Any],
) -> list[tuple[Any, ...]]:  # fmt: skip
    """Build the tasks of the partitions: ``work`` after the state of key ``befores[i]``, rows
    reread.

    ``blocks`` and ``dependencies`` are those of :class:`Partitions`. O(tasks) of the whole graph.
    """
    layers = HighLevelGraph.from_collections("", {}, dependencies=dependencies)
    tasks, needs = dict(layers), layers.get_all_dependencies()
    owner: dict[Any, int] = {}
    for i, keys in enumerate(blocks):
        _claim_tasks(i, [key for key in keys if key is not None], tasks, needs, owner)
    found = []
    for i, (before, keys) in enumerate(zip(befores, blocks, strict=True)):
        inner, given, ahead = {}, {}, [key for key in keys if key is not None]
        while ahead:
            key = ahead.pop()
            if owner[key] != i:
                given[key] = None
            elif key not in inner:
                inner[key] = tasks[key]
                ahead.extend(needs[key])
        reading = Reading(work, inner, tuple(given), keys)
        found.append((reading, before, *given))
    return found


def _claim_tasks(
    i: int, ahead: list[Any], tasks: dict[Any, Any], needs: Any, owner: dict[Any, int]
) -> None:
    """Record partition i as the owner of its tasks.

    Those that already have an owner become shared.
    """
    seen = set()
    while ahead:
        key = ahead.pop()
        if key in seen:
            continue
        seen.add(key)
        if _is_held(key, tasks, needs[key]) or owner.get(key, i) != i:
            if owner.get(key) == SHARED:
                continue
            owner[key] = SHARED
        else:
            owner[key] = i
        ahead.extend(needs[key])


def _is_held(key: Any, tasks: dict[Any, Any], needs: Any) -> bool:
    """Test whether this is in memory already, or computed directly from what is.

    A future of a cluster is a node that needs itself, or what a task needs without being a node.
    """
    outside = getattr(tasks[key], "dependencies", frozenset()) - tasks.keys()
    return bool(outside) or not (istask(tasks[key]) or needs - {key})

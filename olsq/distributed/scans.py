"""Trees of tasks that merge states in order: of all partitions, and of those before each.

A merge is associative but does not commute, so neighbours are merged with neighbours: n - 1 merges
of depth log2 n for all, and at most as many again for the states before every partition (Blelloch
1990, the work-efficient exclusive scan).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Graph = dict[Any, Any]


def add_merge_tree(
    graph: Graph, keys: list[Any], merge: Callable[..., Any], name: str
) -> list[list[Any]]:
    """Add the tasks of the tree to ``graph``; return the keys of its levels, the root's last."""
    levels = [keys]
    while len(levels[-1]) > 1:
        below, level = levels[-1], []
        for i in range(0, len(below), 2):
            if i + 1 == len(below):
                level.append(below[i])
                continue
            key = (f"merged-{name}", len(levels), i // 2)
            graph[key] = (merge, below[i], below[i + 1])
            level.append(key)
        levels.append(level)
    return levels


def add_states_before(
    graph: Graph, levels: list[list[Any]], merge: Callable[..., Any], name: str
) -> list[Any]:
    """Return the keys of the states of all partitions before each, None before the first."""
    before: list[Any] = [None]
    for depth in range(len(levels) - 2, -1, -1):
        below, wanted = levels[depth], []
        for i, left in enumerate(before):
            wanted.append(left)
            if 2 * i + 1 == len(below):
                break
            if left is None:
                wanted.append(below[2 * i])
                continue
            key = (f"before-{name}", depth, 2 * i + 1)
            graph[key] = (merge, left, below[2 * i])
            wanted.append(key)
        before = wanted
    return before

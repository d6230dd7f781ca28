"""Tests and rows of tables that a plain run takes; ``pytest --slow`` takes all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any
from zlib import crc32

import pytest

SPARSE = 6  # a plain run takes one of so many cases of tests marked sparse

# One rule per shared recurrence: what holds for one nearly always holds for the others.
LEADING = {
    "linear", "mamba2", "gla", "gla vector", "gla signed", "gsa", "log_linear_mamba2", "mlstm",
    "gated_delta", "kda", "rwkv7", "gated_delta_product", "mamba", "rg_lru", "hawk", "ttt_linear",
    "ttt_mlp", "softmax", "forgetting", "mesa", "mesa_discounted", "mesa_channel", "mesa_window",
}  # fmt: skip


def once_a_rule(rows: Iterable[Any]) -> Any:
    """Parametrise as ``leading``, keeping also the first row of every rule and kind of state."""
    rows, first = list(rows), {}
    for row in rows:
        first.setdefault((row.rule, row.state), str(row))
    return leading(rows, LEADING | set(first.values()))


def leading(rows: Iterable[Any], names: Collection[str] = LEADING) -> Any:
    """Parametrise a test by ``rows``, with those of other ``names`` marked slow."""
    marked = [
        pytest.param(row, marks=() if str(row) in names else pytest.mark.slow) for row in rows
    ]
    return pytest.mark.parametrize("row", marked, ids=str)


def thin_out(items):
    """Keep one in six cases of every test marked ``sparse``, and all cases of other tests.

    Tests of one module keep the same rows of a table, since these share compiled programs; another
    module keeps others.  A test that would lose every case keeps all of them.
    """
    groups = {}
    for item in items:
        groups.setdefault(item.path if row_of(item) else case_of(item), []).append(item)
    taken = set()
    for of_group in groups.values():
        rows = {item: row_of(item) or item.name for item in of_group}
        places = {row: place for place, row in enumerate(dict.fromkeys(rows.values()))}
        first = crc32(of_group[0].location[0].encode()) % min(len(places), SPARSE)
        taken |= {item for item in of_group if places[rows[item]] % SPARSE == first}
    kept = {case_of(item) for item in taken}
    return [
        item
        for item in items
        if item in taken or case_of(item) not in kept or not item.get_closest_marker("sparse")
    ]


def case_of(item):
    """Return what all cases of a parametrised test have in common."""
    return item.path, item.name.partition("[")[0]


def row_of(item):
    """Return (row, mode) of a test that is parametrised by rows of a table; None for others."""
    given = getattr(item, "callspec", None)
    row = given and given.params.get("row")
    return None if row is None else (str(row), str(given.params.get("mode")))

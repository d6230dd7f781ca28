"""Tests and rows of tables that a plain run takes; ``pytest --slow`` takes all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any
from zlib import crc32

import pytest

SPARSE = 6  # a plain run takes one of so many cases of tests marked sparse

# One rule for each loop that rules share: what holds for one holds for its kin, nearly always.
LEADING = {
    "linear", "mamba2", "gla", "gla vector", "gla signed", "gsa", "log_linear_mamba2", "mlstm",
    "gated_delta", "kda", "rwkv7", "gated_delta_product", "mamba", "rg_lru", "hawk", "ttt_linear",
    "ttt_mlp", "softmax", "forgetting", "mesa", "mesa_discounted", "mesa_channel", "mesa_window",
}  # fmt: skip


def once_a_rule(rows: Iterable[Any]) -> Any:
    """As ``leading``, with one row of every rule and kind of state; its other options are slow."""
    rows, first = list(rows), {}
    for row in rows:
        first.setdefault((row.rule, row.state), str(row))
    return leading(rows, LEADING | set(first.values()))


def leading(rows: Iterable[Any], names: Collection[str] = LEADING) -> Any:
    """``every`` of a test that does the same for each row: rows of other names are slow."""
    marked = [
        pytest.param(row, marks=() if str(row) in names else pytest.mark.slow) for row in rows
    ]
    return pytest.mark.parametrize("row", marked, ids=str)


def thin_out(items):
    """Leave out five of six cases of every test marked ``sparse``.

    Tests of a module take the same rows of a table, for these share compiled programs; another
    module takes others.  Every test has at least one case left.
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
    """Return the row of a table, with the problem that it solves, that a test is given; or None."""
    given = getattr(item, "callspec", None)
    row = given and given.params.get("row")
    return None if row is None else (str(row), str(given.params.get("mode")))

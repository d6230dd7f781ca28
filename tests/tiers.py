"""Rows of a table that a plain test run takes; ``pytest --slow`` takes all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

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

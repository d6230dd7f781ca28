"""Which tests and cases of tables a run takes: quick (plain ``pytest``), ``--all`` or ``--slow``.

A test without a mark is in every run.  One marked ``full`` is in ``pytest --all`` and above, one
marked ``slow`` in ``pytest --slow`` alone.  A marked test that is a table of cases is thinned out
for the run just below: of ``full`` tables a quick run takes one case in six, of ``slow`` tables
``--all`` takes one in twelve, at least one.  A case that is marked by itself is in no run below.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any
from zlib import crc32

import pytest

RUNS = ("quick", "full", "slow")  # pytest, pytest --all, pytest --slow
SHARES = {"quick": 6, "full": 12, "slow": 1}  # a run takes one in so many cases of the run above
FEWEST = {"quick": 6, "full": 2, "slow": 1}  # and none of tables of fewer cases

# Examples of docstrings that take seconds; quicker tests hold what they show.
FULL_EXAMPLES = {
    "check_solver", "comba_step", "Decoder.prefill", "Delta", "diagnose", "fit_revalg1",
    "gated_delta_product", "gated_delta_product_step", "GatedDelta", "generate", "GSA", "kalman",
    "kalman_step", "KDA", "LanguageModel", "local_linear", "local_linear_step", "local_lstsq",
    "Longhorn", "make_step", "Mamba3", "mamba3", "Mesa", "mesa", "mesa_channel",
    "mesa_channel_step", "mesa_discounted", "mesa_update", "MesaChannel", "mlstm",
    "non_augmented_loss", "online_lstsq", "parallax_step", "preset", "regressions", "shard",
    "state_at", "streams", "to_nnx", "ttt_linear", "ttt_linear_step", "ttt_mlp", "ttt_mlp_step",
}  # fmt: skip

current = RUNS[0]  # the run that is under way: conftest.py

# One rule per shared recurrence: what holds for one nearly always holds for the others.
LEADING = {
    "linear", "mamba2", "gla", "gla vector", "gla signed", "gsa", "log_linear_mamba2", "mlstm",
    "gated_delta", "momentum_delta", "kda", "rwkv7", "gated_delta_product", "mamba",
    "rg_lru", "hawk", "ttt_linear", "ttt_mlp", "softmax", "forgetting", "mesa", "mesa_discounted",
    "mesa_channel", "mesa_window",
}  # fmt: skip

# One row for each recurrence.
RECURRENCES = {
    "linear", "gla vector", "gsa", "log_linear_mamba2", "gated_delta", "kda", "mamba", "rg_lru",
    "ttt_linear", "softmax", "forgetting", "sliding_window", "local_linear", "parallax",
    "mesa_channel", "mesa_window",
}  # fmt: skip


def once_a_rule(rows: Iterable[Any]) -> Any:
    """Parametrise as ``leading``, keeping also the first row of every rule and kind of state."""
    rows, first = list(rows), {}
    for row in rows:
        first.setdefault((row.rule, row.state), str(row))
    return leading(rows, LEADING | set(first.values()))


def leading(
    rows: Iterable[Any], names: Collection[str] = LEADING, others: Any = pytest.mark.slow
) -> Any:
    """Parametrise a test by ``rows``, with those of other ``names`` marked slow, or as said."""
    marked = [pytest.param(row, marks=() if str(row) in names else others) for row in rows]
    return pytest.mark.parametrize("row", marked, ids=str)


def in_tiers(rows: Iterable[Any], quick: Collection[str], full: Collection[str]) -> Any:
    """Parametrise a test by ``rows``: those of the names ``quick``, ``--all`` has ``full`` too."""
    marks = dict.fromkeys(full, pytest.mark.full) | dict.fromkeys(quick, ())
    return pytest.mark.parametrize(
        "row",
        [pytest.param(row, marks=marks.get(str(row), pytest.mark.slow)) for row in rows],
        ids=str,
    )


def nightly(values: Iterable[Any]) -> list[Any]:
    """Cases that only ``pytest --slow`` takes."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def examples(number: int) -> int:
    """How many examples hypothesis draws of a test that draws ``number`` in ``pytest --all``."""
    return max(number // SHARES["quick"], 5) if current == "quick" else number


def thin_out(items, run):
    """Keep what ``run`` takes: see above.

    Tests of one module keep the same rows of a table, since these share compiled programs; another
    module keeps others.  A table that would lose every case keeps its first.
    """
    above = {item: max(RUNS.index(run_of(item)) - RUNS.index(run), 0) for item in items}
    items = [item for item in items if not above[item] or not marked_alone(item)]
    share = SHARES[run]
    groups, cases = {}, {}
    for item in items:
        groups.setdefault(item.path if row_of(item) else case_of(item), []).append(item)
        cases.setdefault(case_of(item), []).append(item)
    taken = set()
    for of_group in groups.values():
        rows = {item: row_of(item) or item.name for item in of_group}
        places = {row: place for place, row in enumerate(dict.fromkeys(rows.values()))}
        first = crc32(of_group[0].location[0].encode()) % min(len(places), share)
        taken |= {item for item in of_group if places[rows[item]] % share == first}
    for of_test in cases.values():
        if len(of_test) < FEWEST[run]:
            taken.difference_update(of_test)
        elif taken.isdisjoint(of_test):
            taken.add(of_test[0])
    return [item for item in items if not above[item] or (above[item] == 1 and item in taken)]


def run_of(item):
    """Return the first run that takes all of ``item``."""
    if item.get_closest_marker("slow"):
        return "slow"
    example = item.name.startswith("olsq.") and any(
        item.name.endswith(f".{name}") for name in FULL_EXAMPLES
    )
    return "full" if example or item.get_closest_marker("full") else "quick"


def marked_alone(item):
    """Return whether a case has the mark of its run by itself, apart from its table."""
    given = getattr(item, "callspec", None)
    return given is not None and any(mark.name == run_of(item) for mark in given.marks)


def case_of(item):
    """Return what all cases of a parametrised test have in common."""
    return item.path, item.name.partition("[")[0]


def row_of(item):
    """Return (row, mode) of a test that is parametrised by rows of a table; None for others."""
    given = getattr(item, "callspec", None)
    row = given and given.params.get("row")
    return None if row is None else (str(row), str(given.params.get("mode")))

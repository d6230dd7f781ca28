"""Markdown of the speed results, put into ``docs/measurements/speed.md``."""

from __future__ import annotations

from ..support import machine

PEERS = ("numba", "padasip", "river", "filterpy", "statsmodels", "polars-ols")
LEFT_OUT = (  # of the page; the JSON has them
    *("traffic: read and write P", "NumPy loop", "river, no forgetting"),
    *("filterpy", "RollingOLS, full"),
)
GROUPS = ("bound", "whole array", "one row at a time", "coefficient path", "rolling window")


def duration(ns: float) -> str:
    """Nanoseconds with a unit and three digits."""
    for unit, size in (("ns", 1.0), ("us", 1e3), ("ms", 1e6)):
        if ns < 1000 * size or unit == "ms":
            return f"{ns / size:.3g} {unit}"
    raise AssertionError("unreachable")


def _cell(record: dict | None) -> str:
    if record is None:
        return "-"
    error = "" if record["error"] is None else f" ({record['error']:.0e})"
    return duration(record["ns"]) + error


def _rows(records: list[dict], m: int) -> tuple[list[int], dict[tuple[str, str], dict[int, dict]]]:
    mine = [r for r in records if r["m"] == m]
    sizes = sorted({r["d"] for r in mine})
    table: dict[tuple[str, str], dict[int, dict]] = {}
    for r in mine:
        table.setdefault((r["group"], r["method"]), {})[r["d"]] = r
    return sizes, table


def times(records: list[dict], m: int) -> str:
    """Table of time per row (and error of the coefficients)."""
    sizes, table = _rows(records, m)
    lines = [
        "| | " + " | ".join(f"d = {d}" for d in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    for group in GROUPS:
        members = {name: cells for (g, name), cells in table.items() if g == group}
        if members:
            lines.append(f"| **{group}** |" + " |" * len(sizes))
        for name, cells in members.items():
            lines.append(f"| {name} | " + " | ".join(_cell(cells.get(d)) for d in sizes) + " |")
    return "\n".join(lines)


def tables(results: dict) -> dict[str, str]:
    """The marked parts of the page."""
    records = results["records"]
    return {
        "machine": machine.sentence(results["machine"], *PEERS),
        "times": times([r for r in records if r["method"] not in LEFT_OUT], 1),
    }

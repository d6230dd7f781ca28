"""The tables of docs/measurements/scaling.md, out of what dask_rows.py and devices.py stored."""

from __future__ import annotations

from typing import Any

FITS = {  # `what` as stored -> as the page says it
    "fit": "fit",
    "path": "path",
    "rolling path": "rolling path (1000 rows)",
    "predictions": "predictions",
    "path, rows kept": "path with `reread=False`",
}
THREADS = {"synchronous": "synchronous", "threads": "two threads"}
RULES = ("softmax", "sliding_window", "gla", "ttt_linear")
WAYS = ("forward", "gradient")
SHOWN = "8"  # devices; results/devices.json has 1, 2 and 4 too


def figures(value: float, digits: int) -> str:
    """As many significant digits, without an exponent: 40.7, 0.18, 534."""
    decimals = max(0, digits - len(f"{value:.0f}") if value >= 1 else digits)
    return f"{value:.{decimals}f}"


def many(value: float) -> str:
    """A count of rows: 40.7 million, 125 thousand."""
    unit, name = (1e6, "million") if value >= 1e6 else (1e3, "thousand")
    return f"{figures(value / unit, 3)} {name}"


def size(value: float) -> str:
    """Bytes that a device received: 819 kB, 2.51 MB."""
    if not value:
        return "0"
    return f"{value / 1e6:.2f} MB" if value >= 1e6 else f"{value / 1e3:.0f} kB"


def constants(found: dict[str, Any]) -> str:
    """Rates, merges and states by the number of coefficients."""
    lines = [
        "| d | rows/s per core, r(d) | Gflop/s (2 d² per row) | one merge, m(d) "
        "| state, bytes(d) |",
        "|---|---|---|---|---|",
    ]
    for row in found["constants"]["table"]:
        bytes_, unit = (row["state_bytes"] / 1e3, "kB")
        if bytes_ >= 1000:
            bytes_, unit = bytes_ / 1e3, "MB"
        lines.append(
            f"| {row['d']} | {many(row['rows_per_second'])} | {figures(row['gflops'], 2)} "
            f"| {figures(1e3 * row['merge_seconds'], 2)} ms | {figures(bytes_, 2)} {unit} |"
        )
    return "\n".join(lines)


def memory(found: dict[str, Any]) -> str:
    """Growth of a process for each computation, with its partitions in columns."""
    rows = found["memory"]["table"]
    counts = sorted({row["partitions"] for row in rows})
    grown = {
        (row["what"], row["scheduler"], row["partitions"]): row["peak_MiB"] - row["before_MiB"]
        for row in rows
    }
    one = {(row["what"], row["scheduler"]): row["partition_MiB"] for row in rows}
    heads = [f"{count} of them" for count in counts]
    lines = [f"| | a partition | {' | '.join(heads)} |", "|---" * (2 + len(counts)) + "|"]
    for what, scheduler in sorted(one, key=lambda key: list(FITS).index(key[0])):
        cells = [f"{grown[what, scheduler, count]:.0f} MiB" for count in counts]
        lines.append(
            f"| {FITS[what]}, {THREADS[scheduler]} | {figures(one[what, scheduler], 2)} MiB "
            f"| {' | '.join(cells)} |"
        )
    return "\n".join(lines)


def received(found: dict[str, Any]) -> str:
    """Bytes that a device receives in the compiled program."""
    lines = [
        f"| {SHOWN} devices | forward | gradient | temporary memory of a device, gradient "
        "(one device) |",
        "|---|---|---|---|",
    ]
    for rule in RULES:
        alone, each = (
            found["devices"][devices][rule]["gradient"]["temporary_bytes"] / 1e6
            for devices in ("1", SHOWN)
        )
        both = [size(found["devices"][SHOWN][rule][way]["bytes"]) for way in WAYS]
        lines.append(f"| {rule} | {' | '.join(both)} | {each:.1f} ({alone:.1f}) MB |")
    return "\n".join(lines)

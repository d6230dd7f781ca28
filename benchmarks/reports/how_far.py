"""The tables of docs/how-far.md, out of what dask_rows.py and devices.py stored."""

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
        "| d | rows/s a core, r(d) | Gflop/s (2 d² a row) | a merge, m(d) | state, bytes(d) |",
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
    """What processes grew by, one for each computation and number of partitions."""
    lines = ["| | partitions | a partition | rows in all | grew by |", "|---|---|---|---|---|"]
    order = list(FITS)
    for row in sorted(found["memory"]["table"], key=lambda row: order.index(row["what"])):
        one = row["partition_MiB"]
        lines.append(
            f"| {FITS[row['what']]}, {THREADS[row['scheduler']]} | {row['partitions']} "
            f"| {figures(one, 2)} MiB | {one * row['partitions']:.0f} MiB "
            f"| {row['peak_MiB'] - row['before_MiB']:.0f} MiB |"
        )
    return "\n".join(lines)


def workers(found: dict[str, Any]) -> str:
    """Processor time of the busiest worker, predicted and measured."""
    lines = [
        "| d, rows | workers | arithmetic | predicted | measured | measured / predicted "
        "| speed-up, measured |",
        "|---|---|---|---|---|---|---|",
    ]
    alone = 0.0
    for row in found["workers"]["table"]:
        first, busiest = row["workers"] == 1, row["busiest_worker_seconds"]
        alone = busiest if first else alone
        label = f"{row['d']}, {many(row['rows'])}" if first else ""
        cells = (
            f"{row['workers']}",
            f"{row['arithmetic_seconds']:.2f} s",
            f"{row['predicted_seconds']:.2f} s",
            f"{busiest:.2f} s",
            f"{busiest / row['predicted_seconds']:.2f}",
            "1" if first else f"{alone / busiest:.2f}",
        )
        lines.append(f"| {label} | {' | '.join(cells)} |".replace("|  |", "| |", 1))
    return "\n".join(lines)


def received(found: dict[str, Any]) -> str:
    """Bytes that a device receives, by the formulas and in the compiled program."""
    lines = [
        "| rule | devices | forward, predicted | measured | gradient, predicted | measured "
        "| temporary memory of a device, gradient |",
        "|---|---|---|---|---|---|---|",
    ]
    for rule in RULES:
        for number, (devices, rules) in enumerate(found["devices"].items()):
            one = rules[rule]
            both = [
                size(x) for way in WAYS for x in (one["predicted_bytes"][way], one[way]["bytes"])
            ]
            name = "" if number else f" {rule}"
            temporary = one["gradient"]["temporary_bytes"] / 1e6
            lines.append(f"|{name} | {devices} | {' | '.join(both)} | {temporary:.1f} MB |")
    return "\n".join(lines)


def device_times(found: dict[str, Any]) -> str:
    """Processor time of all devices together."""
    names = [f"{n} device" + "s" * (n != "1") for n in found["devices"]]
    lines = [f"| rule | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for rule in RULES:
        cells = [
            " / ".join(f"{1e3 * one[rule][way]['cpu_seconds']:.0f}" for way in WAYS) + " ms"
            for one in found["devices"].values()
        ]
        lines.append(f"| {rule}, forward / gradient | {' | '.join(cells)} |")
    return "\n".join(lines)

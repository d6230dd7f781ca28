"""Tables of docs/measurements/accelerators.md: counts, predictions and measured times."""

from __future__ import annotations

from typing import Any

from benchmarks.reports.accelerator_counts import RULES
from benchmarks.support import accelerators
from benchmarks.support.accelerators import DEVICES, SOLVES

LENGTH, STREAMS, WIDTH = 8192, 32, 128
WAYS = ("forward", "both")
MANY = 2000  # kernels of the forward pass, from which a rule has a row
PREDICTED = ("mesa", "mesa cg", "gla", "gated_delta", "kda", "momentum_delta", "kalman_delta",
             "mamba", "softmax")  # fmt: skip


def number(value: float, unit: float = 1) -> str:
    """Write three figures at most, without an exponent."""
    value /= unit
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def counts_table(found: dict[str, Any]) -> str:
    """Table of what the programs do of rules with many kernels, and the most of the others."""
    lines = [
        "| rule | kernels | Gflop | GB moved | GB of temporaries |",
        "|---|---|---|---|---|",
    ]
    few = []
    for name in RULES:
        pair = [found["counts"].get(f"{name}, {way}, {LENGTH}") for way in WAYS]
        if None in pair:
            continue
        if pair[0]["kernels"] < MANY:
            few.append(pair)
            continue
        columns = (("kernels", 1), ("flops", 1e9), ("bytes", 1e9), ("temporary", 1e9))
        cells = [" / ".join(number(one[key], unit) for one in pair) for key, unit in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    kernels, temporary = (
        " / ".join(number(max(each), unit) for each in zip(*values, strict=True))
        for values, unit in (
            ([[one["kernels"] for one in pair] for pair in few], 1),
            ([[one["temporary"] for one in pair] for pair in few], 1e9),
        )
    )
    rest = f"The other {len(few)} start at most {kernels} kernels, and need {temporary} GB at most."
    return "\n".join([*lines, "", rest, versions_text(found["counts"])])


def versions_text(counts: dict[str, Any]) -> str:
    """Name the rules by the version of JAX that they were counted with: its compiler fuses."""
    by_version: dict[tuple[str, str], list[str]] = {}
    for key, row in counts.items():
        if "jax" in row and key.endswith(f", both, {LENGTH}"):
            rules = by_version.setdefault((row["jax"], row["date"]), [])
            rules.append(f"`{key.split(',')[0]}`")
    lines = [
        f"Counted with JAX {version} on {day}: {', '.join(rules)}."
        for (version, day), rules in by_version.items()
    ]
    return "\n".join([*lines, "The version that the others were counted with was not recorded."])


def prediction_table(found: dict[str, Any]) -> str:
    """Table of predicted milliseconds, with the largest term where it is not memory."""
    lines = [f"| predicted, ms | {' | '.join(DEVICES)} |", "|---" * (1 + len(DEVICES)) + "|"]

    def row(name: str, pair: Any, exact: bool) -> None:
        cells = []
        for device in DEVICES:
            made = [accelerators.predict(counts, device, exact) for counts in pair]
            times = " / ".join(number(1e3 * seconds) for seconds, _ in made)
            limit = made[0][1]
            cells.append(times if limit == "memory" else f"{times} ({limit})")
        lines.append(f"| {name} | {' | '.join(cells)} |")

    for name in PREDICTED:
        pair = [found["counts"].get(f"{name}, {way}, {LENGTH}") for way in WAYS]
        if None not in pair:
            row(f"olsq {name}", pair, name in SOLVES)
    for name in ("mesa", "gla"):
        made = accelerators.fused(name, LENGTH, STREAMS, WIDTH)
        row(f"flash-linear-attention {name}", [made[way] for way in WAYS], False)
    least = accelerators.fused("mesa", LENGTH, STREAMS, WIDTH)
    for label, kept in (("factors only", False), ("everything", True)):
        pair = [found["counts"].get(f"mesa, {way}, {LENGTH}") for way in WAYS]
        if None in pair:
            continue
        made = [
            accelerators.chunk_kernel(counts, least[way]["bytes"])
            if kept else accelerators.factor_kernel(counts)
            for counts, way in zip(pair, WAYS, strict=True)
        ]  # fmt: skip
        row(f"olsq mesa, {label} in one kernel", made, True)
    return "\n".join(lines)


def measured_table(stored: dict[str, Any]) -> str:
    """Table of measured milliseconds and errors."""
    lines = [
        f"| {stored['device']} | error | forward, ms | forward + backward, ms | compile, s |",
        "|---|---|---|---|---|",
    ]
    for key, row in stored["rows"].items():
        if "refused" in row:
            lines.append(f"| {key} | {row.get('error', float('nan')):.1e} | {row['refused']} | | |")
            continue
        times = " | ".join(number(1e3 * row[way]) for way in WAYS)
        compiling = number(row["compile"]) if "compile" in row else ""
        lines.append(f"| {key} | {row['error']:.1e} | {times} | {compiling} |")
    return "\n".join(lines)


def errors_list(stored: dict[str, Any]) -> str:
    """List of the rules by the size of their errors on the device, the longest group unnamed."""
    narrow = {f"{rule} (d 64)": e for rule, e in stored.get("narrow_errors", {}).items()}
    errors = stored["errors"] | narrow
    edges = (1e-5, 1e-3, 1.0)
    groups = [
        {rule: e for rule, e in errors.items() if low <= e < high}
        for low, high in zip((0.0, *edges), edges, strict=False)
    ]
    longest = max(groups, key=len)
    lines = []
    for inside in filter(None, groups):
        span = " to ".join(dict.fromkeys(f"{f(inside.values()):.0e}" for f in (min, max)))
        names = "the other rules" if inside is longest else ", ".join(inside)
        lines.append(f"* {span}: {names}")
    return "\n".join(lines)


def measured_blocks(stored: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Texts of the page about what was measured on a device."""
    return {
        ("measurements/accelerators.md", "accelerator measured"): measured_table(stored),
        ("measurements/accelerators.md", "accelerator errors"): errors_list(stored),
    }


def blocks(found: dict[str, Any]) -> dict[tuple[str, str], str]:
    """Texts of the page."""
    return {
        ("measurements/accelerators.md", "accelerator counts"): counts_table(found),
        ("measurements/accelerators.md", "accelerator prediction"): prediction_table(found),
    }

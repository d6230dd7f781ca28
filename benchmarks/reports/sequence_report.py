"""The Markdown of docs/sequence-tables.md, from the results of ``sequence_table.py``."""

from __future__ import annotations

from pathlib import Path

FLOOR = "gated linear attention"

ABOUT = """\
# Speed of sequence solvers

All methods take turns in one process in float32 with ridge 0.25; times are the best of several
rounds. The floor is gated linear attention, `olsq.attention.gla`, which solves nothing. Errors of
outputs are against a dense float64 solve per token. With gates of 1.0 the ratios are alike.

{date}: {cpu}, {cores} cores, {sgemm} GF/s in a large float32 product, JAX {jax}. [On a
GPU](how-far.md#on-an-accelerator). `python -m benchmarks.reports --only sequence` measures again.
"""
STEPS = """\
Steps are means over tokens. "Rounding" is the largest relative change of an output when all inputs
move by at most half a unit in the last place of float32: no float32 method can do better.
"""
# The iteration table shows one width, two of the seven gates and three of the four streams.
SHOWN_WIDTH, SHOWN_GATES, UNSHOWN = "64", ("0.9", "0.999"), "AR(1)"


def shares(row, peaks):
    """Shares of the machine's peak, forward and forward + backward, where flops are known."""
    return [
        f"{flops / (ms / 1e3) / peak:.0%}" if flops else ""
        for ms, flops, peak in zip(row[:2], row[4:], peaks, strict=True)
    ]


def pick(cache, kind):
    """(parts of the key, result) of every result of a kind."""
    return [(k.split("|")[1:], r) for k, r in cache.items() if k.split("|")[0] == kind]


def table(head, rows):
    """A Markdown table."""
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""]


def speed(cache):
    """Time, ratios, share of the machine's peak, and error of every method."""
    lines = []
    for (shape, gate), rows in pick(cache, "speed"):
        if gate == "1.0":
            continue  # the ratios are alike
        rows = {n: [*row, None, None][:6] for n, row in rows.items()}  # older ones have no flops
        peaks = rows.pop("peak", [1, 1])[:2]
        floor = rows[FLOOR]
        body = []
        for n, row in rows.items():
            (a, b, mid, top), of_peak = row[:4], shares(row, peaks)
            error = ("", "") if n == FLOOR else (f"{mid:.0e}", f"{top:.0e}")
            ahead = (f"{a:.0f}", f"{a / floor[0]:.2f}", of_peak[0])
            both = (f"{b:.0f}", f"{b / floor[1]:.2f}", of_peak[1])
            body.append((n, *ahead, *both, *error))
        lines += [f"## {shape}, gates {gate}, Zipf tokens", ""]
        columns = "x floor | of sgemm peak"
        head = f"| method | forward ms | {columns} | fwd+bwd ms | {columns} | error median | max |"
        lines += table(head, body)
    return lines


def growth(cache):
    """Time of a token against T, short streams, and memory."""
    lines = []
    for _, rows in pick(cache, "growth"):
        said = []
        for name in next(iter(rows.values())):
            each = [1e3 * row[name] / int(t) for t, row in rows.items()]
            said.append(f"{min(each):.1f} to {max(each):.1f} with {name}")
        first, *_, last = (f"{int(t):,}" for t in rows)
        lines += [
            "## Growth with T",
            "",
            "Microseconds a token of one head, d 64, gates 0.999, at "
            f"{first} to {last} tokens: {'; '.join(said)}.",
            "",
        ]
    for (shape,), rows in pick(cache, "small"):
        lines += [f"## Short streams, discounted ridge, {shape}: ms forward", ""]
        lines += table("| " + " | ".join(rows) + " |", [[f"{x:.1f}" for x in rows.values()]])
    found = pick(cache, "memory")
    if found:
        lines += ["## Peak memory: MiB of arguments, outputs and temporary arrays (x floor)", ""]
        body = []
        for (shape,), rows in found:
            for n, both in rows.items():
                cells = [
                    f"{x / 2**20:.0f} ({x / y:.2f})" for x, y in zip(both, rows[FLOOR], strict=True)
                ]
                body.append((shape, n, *cells))
        lines += table("| shape | method | forward | forward + backward |", body)
    return lines


def iterations(cache):
    """Steps and errors over streams and gates, and steps per decoded token."""
    lines = []
    found = [
        (parts, r)
        for parts, r in pick(cache, "iterations")
        if parts[1] == SHOWN_WIDTH and parts[3] in SHOWN_GATES and parts[0] != UNSHOWN
    ]
    if found:
        title = "Steps to a relative residual of 1e-6, and errors (median / max), d 64, T 8192"
        lines += [f"## {title}", ""]
        body = [
            (
                parts[0],
                parts[3],
                *(f"{r[n][0]:.1f}" for n in ("cg", "pcg", "default")),
                *(f"{r[n][1]:.0e} / {r[n][2]:.0e}" for n in ("cg30", "default")),
                f"{r['rounding']:.0e}",
            )
            for parts, r in found
        ]
        head = "| stream | gate | CG steps | preconditioned CG | default's steps "
        lines += table(head + "| CG-30 error | default error | rounding |", body)
        lines += [STEPS, ""]
    found = pick(cache, "decoding")
    if found:
        lines += ["## Steps per decoded token (carried factor, d 64, Zipf tokens)", ""]
        body = [(f"{a:.1f}", f"{b:.1f}") for _, (a, b) in found]
        gates = [gate for (gate,), _ in found]
        rows = zip(("to 1e-4", "to 1e-7"), zip(*body, strict=True), strict=True)
        lines += table(f"| gate | {' | '.join(gates)} |", [(name, *row) for name, row in rows])
    return lines


def text(cache):
    """All tables, in Markdown."""
    about = ABOUT.format(**cache["about"])
    return "\n".join([about, *speed(cache), *growth(cache), *iterations(cache)])


def write(cache, out):
    """Write the page."""
    Path(out).write_text(text(cache))

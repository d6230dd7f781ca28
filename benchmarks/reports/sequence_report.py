"""Tables of docs/measurements/sequences.md, from the results of ``sequence_table.py``."""

from __future__ import annotations

FLOOR = "gated linear attention"

ABOUT = "{date}: {cpu}, {cores} cores, {sgemm} GF/s in a large float32 product, JAX {jax}."
SHAPES = {"H8 T4096 d64": "sequence d64"}  # those of the page
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
    """Lines of a Markdown table."""
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]


def speed(cache):
    """Time, ratios, share of the machine's peak, and error of every method, a table per shape."""
    tables = {}
    for (shape, gate), rows in pick(cache, "speed"):
        if gate == "1.0" or shape not in SHAPES:
            continue  # the ratios of gates are alike
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
        columns = "x floor | of sgemm peak"
        head = f"| method | forward ms | {columns} | fwd+bwd ms | {columns} | error median | max |"
        tables[SHAPES[shape]] = table(head, body)
    return tables


def growth(cache):
    """Time of a token against T, short streams, and memory."""
    tables = {}
    for _, rows in pick(cache, "growth"):
        said = []
        for name in next(iter(rows.values())):
            each = [1e3 * row[name] / int(t) for t, row in rows.items()]
            said.append(f"{min(each):.1f} to {max(each):.1f} with {name}")
        first, *_, last = (f"{int(t):,}" for t in rows)
        tables["sequence growth"] = [
            "Microseconds per token of one head, d 64, gates 0.999, at "
            f"{first} to {last} tokens: {'; '.join(said)}."
        ]
    for _, rows in pick(cache, "small"):
        said = ", ".join(f"{ms:.1f} ms with {name}" for name, ms in rows.items())
        start = "The forward pass of a short stream (8 heads, 256 tokens, discounted ridge) takes"
        tables["sequence short"] = [f"{start} {said}."]
    found = pick(cache, "memory")
    if found:
        body = []
        for (shape,), rows in found:
            for n, both in rows.items():
                cells = [
                    f"{x / 2**20:.0f} ({x / y:.2f})" for x, y in zip(both, rows[FLOOR], strict=True)
                ]
                body.append((shape, n, *cells))
        head = "| shape | method | forward | forward + backward |"
        tables["sequence memory"] = table(head, body)
    return tables


def iterations(cache):
    """Steps and errors over streams and gates."""
    tables = {}
    found = [
        (parts, r)
        for parts, r in pick(cache, "iterations")
        if parts[1] == SHOWN_WIDTH and parts[3] in SHOWN_GATES and parts[0] != UNSHOWN
    ]
    if found:
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
        head += "| CG-30 error | default error | rounding |"
        tables["sequence steps"] = table(head, body)
    return tables


def tables(cache):
    """All tables, by the markers of the page."""
    lines = {"sequence machine": [ABOUT.format(**cache["about"])]}
    lines |= speed(cache) | growth(cache) | iterations(cache)
    return {marker: "\n".join(block) for marker, block in lines.items()}

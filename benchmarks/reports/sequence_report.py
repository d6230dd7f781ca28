"""The Markdown of docs/sequence-tables.md, from the results of ``sequence_table.py``."""

from __future__ import annotations

from pathlib import Path

FLOOR, CG = "gated linear attention", "CG, 30 steps"

ABOUT = """\
# Sequence solvers measured

Made by `python -m benchmarks.reports.sequence_table speed memory growth small decoding iterations`,
{date}: {cpu}, {cores} cores, {sgemm} GF/s in a large float32 product, JAX {jax}. float32, ridge
0.25, one process in which all methods take turns, best of several rounds; read ratios, not times.
Errors are of o against a dense float64 solve per token. The floor is gated linear attention,
`olsq.attention.gla`: no solve. No GPU has been measured;
`benchmarks/reports/sequence_gpu.py` is ready.
"""
STEPS = """\
Steps are means over tokens; the default's are Chebyshev steps where gates are mild and
preconditioned conjugate-gradient steps elsewhere, for an error of the outputs of 3e-6. `rounding`
is the largest relative change of an output when keys, values and queries move by at most half a
unit in the last place of float32, at random. Where keys repeat, some queries are nearly orthogonal
to all that was seen and their outputs nearly 0: no float32 method can hold the relative error of
1e-5 there that holds elsewhere.
"""


def products(name, d, chunk=64):
    """Thousands of multiply-adds per token (values as wide as keys), or None if not fixed."""
    moments, product = 2 * d * d, 2 * chunk * d + d * d
    inverse = d**3 * 2 / 3 / chunk * 2  # Cholesky and inverse of d, and R
    factors = inverse + chunk * chunk * 2 / 3 + 2 * chunk * d + d * d
    applies = {"ChunkExact, 1 correction": 2, "ChunkExact, 2 corrections": 3}
    if name == FLOOR:
        return (moments + product) / 1e3
    if name == CG:
        return (moments + 32 * product) / 1e3
    if name in applies:
        return (moments + factors + (applies[name] + 1) * product) / 1e3
    return None


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
        floor, cg = rows[FLOOR], rows[CG]
        heads, t, d = (int(word[1:]) for word in shape.split())
        body = []
        for n, (a, b, mid, top) in rows.items():
            work = products(n, d)
            peak = cache["about"]["sgemm"] * 1e9
            share = f"{work * 2e3 * heads * t / (a / 1e3) / peak:.0%}" if work else ""
            error = ("", "") if n == FLOOR else (f"{mid:.0e}", f"{top:.0e}")
            ahead = (f"{a:.0f}", f"{a / floor[0]:.2f}", f"{cg[0] / a:.1f}", share)
            both = (f"{b:.0f}", f"{b / floor[1]:.2f}", f"{cg[1] / b:.1f}")
            body.append((n, *ahead, *both, *error))
        lines += [f"## {shape}, gates {gate}, Zipf tokens", ""]
        head = "| method | forward ms | x floor | CG-30 / it | of sgemm peak | fwd+bwd ms "
        lines += table(head + "| x floor | CG-30 / it | error median | max |", body)
    return lines


def growth(cache):
    """Time against T, and memory."""
    lines = []
    for _, rows in pick(cache, "growth"):
        names = list(next(iter(rows.values())))
        body = [
            (t, *(f"{r[n]:.1f} ({1e3 * r[n] / int(t):.2f})" for n in names))
            for t, r in rows.items()
        ]
        lines += ["## Growth with T: ms (microseconds per token), one head, d 64, gates 0.999", ""]
        lines += table("| T | " + " | ".join(names) + " |", body)
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
    lines, found = [], pick(cache, "iterations")
    if found:
        lines += ["## Steps to a relative residual of 1e-6, and errors (median / max)", ""]
        body = [
            (
                *parts,
                *(f"{r[n][0]:.1f}" for n in ("cg", "pcg", "default")),
                *(f"{r[n][1]:.0e} / {r[n][2]:.0e}" for n in ("cg30", "default")),
                f"{r['rounding']:.0e}",
            )
            for parts, r in found
        ]
        head = "| stream | d | T | gate | CG steps | preconditioned CG | default's steps "
        lines += table(head + "| CG-30 error | default error | rounding |", body)
        lines += [STEPS, ""]
    found = pick(cache, "decoding")
    if found:
        lines += ["## Steps per decoded token (carried factor, d 64, Zipf tokens)", ""]
        body = [(gate, f"{a:.1f}", f"{b:.1f}") for (gate,), (a, b) in found]
        lines += table("| gate | to 1e-4 | to 1e-7 |", body)
    return lines


def text(cache):
    """All tables, in Markdown."""
    about = ABOUT.format(**cache["about"])
    return "\n".join([about, *speed(cache), *growth(cache), *iterations(cache)])


def write(cache, out):
    """Write the page."""
    Path(out).write_text(text(cache))

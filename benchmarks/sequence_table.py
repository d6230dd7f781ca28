"""Accuracy beside speed for whole sequences: writes docs/sequence-tables.md.

    python -m benchmarks.sequence_table speed iterations --out docs/sequence-tables.md

Times are the best of several rounds in which all methods take turns, in one process; read the
ratios.  Progress is kept in ``--cache`` (JSON), so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import olsq
from benchmarks.sequence_streams import STREAMS, errors, exact, make
from olsq.sequence import solve_query, start_decoding

RIDGE = 0.25
GATES = (0.7, 0.9, 0.97, 0.99, 0.999, 0.9999, 1.0)
SHAPES = {"H8 T4096 d64": (8, 4096, 64), "H4 T4096 d128": (4, 4096, 128)}
SOLVERS = {
    "gated linear attention": olsq.ConjugateGradient(max_steps=0, start="query"),
    "default": None,
    "ChunkExact, 1 correction": olsq.ChunkExact(corrections=1),
    "ChunkExact, 2 corrections": olsq.ChunkExact(corrections=2),
    "CG to 1e-4": olsq.ConjugateGradient(tol=1e-4, max_steps=100),
    "CG, 30 steps": olsq.ConjugateGradient(tol=0.0),
}


def forward(solver):
    """Jitted outputs; gates are traced, so that nothing is known about them when compiling."""

    def run(k, v, q, g):
        return olsq.online_lstsq(k, v, q, forget=g, ridge=RIDGE, solver=solver).value

    return run


def take_turns(functions, args, rounds):
    """Best seconds of each function, all of them running in turn."""
    best = dict.fromkeys(functions, np.inf)
    for f in functions.values():
        jax.block_until_ready(f(*args))
    for _ in range(rounds):
        for name, f in functions.items():
            begin = time.perf_counter()
            jax.block_until_ready(f(*args))
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def sgemm_peak():
    a = jnp.ones((2048, 2048), jnp.float32)
    f = jax.jit(lambda a: a @ a)
    return 2 * 2048**3 / take_turns({"": f}, (a,), 5)[""] / 1e9


def speed(shape, gate, rounds):
    """Rows of (method, forward ms, forward+backward ms, median error, max error)."""
    heads, t, d = SHAPES[shape]
    k, v, q = make("tokens", heads, t, d, d)
    args = tuple(map(jnp.asarray, (k, v, q, np.full((heads, t), gate, np.float32))))
    ahead = {n: jax.jit(forward(s)) for n, s in SOLVERS.items()}

    def gradient(f):
        return jax.jit(jax.grad(lambda *a: (f(*a) ** 2).sum(), argnums=(0, 1, 2, 3)))

    both = {n: gradient(f) for n, f in ahead.items()}
    one = take_turns(ahead, args, rounds)
    two = take_turns(both, args, max(rounds // 2, 2))
    want = exact(k[0], v[0], q[0], gate, RIDGE)
    found = {n: errors(np.asarray(f(*args)[0], np.float64), want) for n, f in ahead.items()}
    return {n: [one[n] * 1e3, two[n] * 1e3, *found[n]] for n in SOLVERS}


def iterations(stream, d, t, gate):
    """Mean steps to 1e-6 of CG and preconditioned CG, the default's corrections, and errors."""
    k, v, q = make(stream, 1, t, d, 16)
    gates = jnp.full((1, t), gate, jnp.float32)
    want = exact(k[0], v[0], q[0], gate, RIDGE)
    row = {}
    for name, solver in {
        "cg": olsq.ConjugateGradient(tol=1e-6, max_steps=4 * d),
        "pcg": olsq.ConjugateGradient(tol=1e-6, max_steps=4 * d, preconditioner="chunk"),
        "cg30": olsq.ConjugateGradient(tol=0.0),
        "default": olsq.ChunkExact(),
    }.items():
        sol = olsq.online_lstsq(k, v, q, forget=gates, ridge=RIDGE, solver=solver)
        row[name] = [float(sol.stats.steps.mean()), *errors(np.asarray(sol.value[0]), want)]
    return row


def decoding(gate, d=64, t=2000):
    """Mean steps per decoded token to 1e-4 and to 1e-7."""
    k, v, q = make("tokens", 1, t, d, 16)
    state = start_decoding(olsq.Moments(jnp.zeros((d, d)), jnp.zeros((16, d))), ridge=RIDGE)

    def step(state, token):
        k, v, q = token
        state = olsq.update(state, k, v, forget=gate)
        return state, (solve_query(state, q, 1e-4)[1], solve_query(state, q, 1e-7)[1])

    run = jax.jit(lambda s, x: jax.lax.scan(step, s, x)[1])
    return [float(s[t // 2 :].mean()) for s in run(state, (k[0], v[0], q[0]))]


def write(cache, out):
    """The tables, in Markdown."""
    lines = [
        "# Sequence solvers measured",
        "",
        "Made by `python -m benchmarks.sequence_table`; float32, ridge 0.25, one process in",
        "which all methods take turns (best of several rounds). Read ratios, not times: the",
        "machine was shared. Errors are of o against a dense float64 solve per token.",
        "",
    ]
    for key, rows in cache.items():
        if key.startswith("speed"):
            _, shape, gate = key.split("|")
            floor, cg = rows["gated linear attention"], rows["CG, 30 steps"]
            lines += [
                f"## {shape}, gates {gate}, Zipf tokens",
                "",
                "| method | forward ms | x floor | CG-30 / it | fwd+bwd ms | x floor | "
                "CG-30 / it | error median | max |",
                "|---|---|---|---|---|---|---|---|---|",
            ]
            for n, (a, b, mid, top) in rows.items():
                error = "- | -" if n == "gated linear attention" else f"{mid:.0e} | {top:.0e}"
                lines.append(
                    f"| {n} | {a:.0f} | {a / floor[0]:.2f} | {cg[0] / a:.1f} | {b:.0f} | "
                    f"{b / floor[1]:.2f} | {cg[1] / b:.1f} | {error} |"
                )
            lines.append("")
    table = [(k.split("|"), r) for k, r in cache.items() if k.startswith("iterations")]
    if table:
        lines += [
            "## Iterations to a relative residual of 1e-6, and errors (median / max)",
            "",
            "| stream | d | T | gate | CG steps | preconditioned CG steps | default's "
            "steps | CG-30 error | default error |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for (_, stream, d, t, gate), r in table:
            lines.append(
                f"| {stream} | {d} | {t} | {gate} | {r['cg'][0]:.1f} | {r['pcg'][0]:.1f} | "
                f"{r['default'][0]:.1f} | {r['cg30'][1]:.0e} / {r['cg30'][2]:.0e} | "
                f"{r['default'][1]:.0e} / {r['default'][2]:.0e} |"
            )
        lines.append("")
    table = [(k.split("|"), r) for k, r in cache.items() if k.startswith("decoding")]
    if table:
        lines += [
            "## Steps per decoded token (carried factor, d 64, Zipf tokens)",
            "",
            "| gate | to 1e-4 | to 1e-7 |",
            "|---|---|---|",
        ]
        lines += [f"| {gate} | {a:.1f} | {b:.1f} |" for (_, gate), (a, b) in table]
        lines.append("")
    Path(out).write_text("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="+", choices=["speed", "iterations", "decoding"])
    parser.add_argument("--out", default="docs/sequence-tables.md")
    parser.add_argument("--cache", default="sequence-tables.json")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="d 64 and T 2048 only")
    options = parser.parse_args()
    path = Path(options.cache)
    cache = json.loads(path.read_text()) if path.exists() else {}
    jobs = []
    if "speed" in options.what:
        shapes = list(SHAPES)[:1] if options.quick else list(SHAPES)
        jobs += [
            (f"speed|{s}|{g}", lambda s=s, g=g: speed(s, g, options.rounds))
            for s in shapes
            for g in (0.999, 1.0)
        ]
    if "decoding" in options.what:
        jobs += [(f"decoding|{g}", lambda g=g: decoding(g)) for g in GATES]
    if "iterations" in options.what:
        sizes = [(64, 2048)] if options.quick else [(64, 8192), (128, 4096)]
        jobs += [
            (f"iterations|{s}|{d}|{t}|{g}", lambda s=s, d=d, t=t, g=g: iterations(s, d, t, g))
            for d, t in sizes
            for s in STREAMS
            for g in GATES
        ]
    for key, job in jobs:
        if key not in cache:
            cache[key] = job()
            path.write_text(json.dumps(cache))
            print(key, cache[key], flush=True)
    write(cache, options.out)


if __name__ == "__main__":
    main()

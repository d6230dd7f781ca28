"""Accuracy beside speed for whole sequences: writes docs/measurements/sequences.md.

    python -m benchmarks.reports.sequence_table speed iterations

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
from benchmarks.reports.registry import write_blocks
from benchmarks.suites.sequence_streams import STREAMS, errors, exact, make
from benchmarks.support import machine
from benchmarks.support.flops import matrix_flops
from olsq.attention import gla
from olsq.sequence.jax import solve_query, start_decoding

RIDGE = 0.25
GATES = (0.7, 0.9, 0.97, 0.99, 0.999, 0.9999, 1.0)
SHAPES = {"H8 T4096 d64": (8, 4096, 64), "H4 T4096 d128": (4, 4096, 128)}
FIXED = {"CG, 30 steps": 30}  # steps of a loop that would end where a tolerance is met
FLOOR = "gated linear attention"
SOLVERS = {
    FLOOR: FLOOR,
    "default": None,
    "ChunkExact, 1 correction": olsq.ChunkExact(corrections=1),
    "ChunkExact, 2 corrections": olsq.ChunkExact(corrections=2),
    "CG to 1e-4": olsq.ConjugateGradient(tol=1e-4, max_steps=100),
    "CG, 30 steps": olsq.ConjugateGradient(tol=0.0),
}


def forward(solver):
    """Outputs as a function of arrays; gates are traced: nothing is known about them beforehand."""
    if solver == FLOOR:
        return lambda k, v, q, g: gla(*(x[:, :, None] for x in (q, k, v)), forget=g[..., None])[0][
            :, :, 0
        ]

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


def about():
    """Machine, versions and date of a set of results."""
    found = machine.describe()
    keep = {k: found[k] for k in ("cpu", "cores", "system", "python", "date")}
    return {**keep, "jax": jax.__version__, "sgemm": round(sgemm_peak())}


def sgemm_peak():
    return SGEMM_FLOPS / take_turns({"": sgemm()}, (), 5)[""] / 1e9


SGEMM_FLOPS = 2 * 2048**3


def sgemm():
    """A large product in float32, which says what the machine can do: a function of anything."""
    a = jnp.ones((2048, 2048), jnp.float32)
    product = jax.jit(lambda a: a @ a)
    return lambda *_: product(a)


def speed(shape, gate, rounds):
    """Times, errors and work of every method.

    Rows of (forward ms, forward+backward ms, median error, max error, flops forward, forward +
    backward), and under "peak" the flops a second of large products that took turns with them.
    """
    heads, t, d = SHAPES[shape]
    k, v, q = make("tokens", heads, t, d, d)
    args = tuple(map(jnp.asarray, (k, v, q, np.full((heads, t), gate, np.float32))))
    ahead = {n: jax.jit(forward(s)) for n, s in SOLVERS.items()}

    def gradient(f):
        return jax.jit(jax.grad(lambda *a: (f(*a) ** 2).sum(), argnums=(0, 1, 2, 3)))

    both = {n: gradient(f) for n, f in ahead.items()}
    one = take_turns({**ahead, "peak": sgemm()}, args, rounds)
    two = take_turns({**both, "peak": sgemm()}, args, max(rounds // 2, 2))
    work = {n: [matrix_flops(m[n], *args, steps=FIXED.get(n)) for m in (ahead, both)]
            for n in SOLVERS}  # fmt: skip
    want = exact(k[0], v[0], q[0], gate, RIDGE)
    found = {n: errors(np.asarray(f(*args)[0], np.float64), want) for n, f in ahead.items()}
    rows = {n: [one[n] * 1e3, two[n] * 1e3, *found[n], *work[n]] for n in SOLVERS}
    return {**rows, "peak": [SGEMM_FLOPS / x["peak"] for x in (one, two)]}


def memory(shape, gate=0.999):
    """Bytes of temporary arrays of (forward, forward+backward) of each method."""
    heads, t, d = SHAPES[shape]
    sizes = [(heads, t, d)] * 3 + [(heads, t)]
    args = tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in sizes)
    rows = {}
    for name in (FLOOR, "default", "CG, 30 steps"):
        f = forward(SOLVERS[name])
        g = jax.grad(lambda *a, f=f: (f(*a) ** 2).sum(), argnums=(0, 1, 2, 3))
        found = [jax.jit(h).lower(*args).compile().memory_analysis() for h in (f, g)]
        rows[name] = [
            m.temp_size_in_bytes + m.argument_size_in_bytes + m.output_size_in_bytes for m in found
        ]
    return rows


def growth(rounds, d=64):
    """Milliseconds of one head against T."""
    rows = {}
    for t in (512, 2048, 8192, 32768, 65536):
        k, v, q = make("tokens", 1, t, d, d)
        args = tuple(map(jnp.asarray, (k, v, q, np.full((1, t), 0.999, np.float32))))
        chosen = {n: jax.jit(forward(SOLVERS[n])) for n in (FLOOR, "default", "CG, 30 steps")}
        rows[t] = {n: s * 1e3 for n, s in take_turns(chosen, args, rounds).items()}
    return rows


def small(rounds, heads=8, t=256, d=64):
    """Milliseconds with the solvers that are not meant for long sequences (discounted ridge)."""
    k, v, q = make("tokens", heads, t, d, d)
    args = tuple(map(jnp.asarray, (k, v, q, np.full((heads, t), 0.999, np.float32))))

    def run(solver):
        return lambda k, v, q, g: (
            olsq.online_lstsq(
                k, v, q, forget=g, ridge=RIDGE, ridge_mode="discounted", solver=solver
            ).value
        )

    named = {"default": None, "Recursive": olsq.Recursive(), "Dense": olsq.Dense()}
    found = take_turns({n: jax.jit(run(s)) for n, s in named.items()}, args, rounds)
    return {n: s * 1e3 for n, s in found.items()}


def rounding(k, v, q, gate, want):
    """Largest relative change of an output when the inputs move by half a unit in the last place.

    No solver in that precision can promise less.
    """
    rng = np.random.default_rng(1)
    moved = [x.astype(float) * (1 + rng.uniform(-1, 1, x.shape) * 2.0**-24) for x in (k, v, q)]
    return errors(exact(*moved, gate, RIDGE), want)[1]


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
    row["rounding"] = rounding(k[0], v[0], q[0], gate, want)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "what", nargs="+", choices=["speed", "memory", "growth", "small", "iterations", "decoding"]
    )
    parser.add_argument("--cache", default="benchmarks/results/sequence.json")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="d 64 and T 2048 only")
    options = parser.parse_args()
    path = Path(options.cache)
    cache = json.loads(path.read_text()) if path.exists() else {}
    if "about" not in cache:
        cache["about"] = about()
    jobs = []
    if "speed" in options.what:
        shapes = list(SHAPES)[:1] if options.quick else list(SHAPES)
        jobs += [
            (f"speed|{s}|{g}", lambda s=s, g=g: speed(s, g, options.rounds))
            for s in shapes
            for g in (0.999, 1.0)
        ]
    if "memory" in options.what:
        jobs += [(f"memory|{s}", lambda s=s: memory(s)) for s in SHAPES]
    if "growth" in options.what:
        jobs.append(("growth|d64", lambda: growth(options.rounds)))
    if "small" in options.what:
        jobs.append(("small|H8 T256 d64", lambda: small(options.rounds)))
    if "decoding" in options.what:
        jobs += [(f"decoding|{g}", lambda g=g: decoding(g)) for g in GATES]
    if "iterations" in options.what:
        sizes = [(64, 2048)] if options.quick else [(64, 8192), (128, 2048)]
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
    write_blocks("sequence", cache)


if __name__ == "__main__":
    main()

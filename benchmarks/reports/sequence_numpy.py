"""NumPy arrays against JAX arrays in `online_lstsq`.

    python -m benchmarks.reports.sequence_numpy

Both sides take turns in one process, compiled beforehand; JAX's inputs are on its device already
and its function is jitted.  Read the ratios.  Errors are of head 0 against a dense float64 solve
per token.  Progress is kept in ``--cache``, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import olsq
from benchmarks.reports.sequence_table import forward
from benchmarks.suites.sequence_streams import exact, make

RIDGE = 0.25
SHAPES = [(8, 4096, 64, 64), (4, 4096, 128, 128), *((1, 5000, d, 1) for d in (2, 4, 8, 16, 32))]


def take_turns(functions, rounds):
    """Seconds (rounds,) of each function, all of them running in turn."""
    seconds = {name: [] for name in functions}
    for round_ in range(rounds + 1):
        for name, f in functions.items():
            begin = time.perf_counter()
            f()
            if round_ > 0:  # the first compiles
                seconds[name].append(time.perf_counter() - begin)
    return {name: np.array(s) for name, s in seconds.items()}


def row(shape, dtype, gate, rounds):
    """One line: best milliseconds, their ratio, its range over rounds, and the largest errors."""
    heads, t, d, m = shape
    k, v, q = (x.astype(dtype) for x in make("tokens", heads, t, d, m))
    g = np.full((heads, t), np.float32(gate), dtype)
    jitted, args = jax.jit(forward(None)), tuple(map(jnp.asarray, (k, v, q, g)))
    sides = {
        "numpy": lambda: olsq.online_lstsq(k, v, q, forget=g, ridge=RIDGE).value,
        "jax": lambda: jax.block_until_ready(jitted(*args)),
    }
    took = take_turns(sides, rounds)
    want = exact(k[0], v[0], q[0], gate, RIDGE)
    size = np.linalg.norm(want, axis=-1).max()
    gaps = [np.abs(np.asarray(f()[0], np.float64) - want).max() / size for f in sides.values()]
    ours, theirs = (took[n].min() * 1e3 for n in sides)
    each = np.quantile(took["jax"] / took["numpy"], (0.25, 0.75))
    times = f"{ours:.1f} ({gaps[0]:.0e})", f"{theirs:.1f} ({gaps[1]:.0e})"
    spread = f"{theirs / ours:.2f} ({each[0]:.2f} to {each[1]:.2f})"
    return f"H{heads} T{t} d{d} m{m}", np.dtype(dtype).name, gate, *times, spread


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", default="benchmarks/results/sequence_numpy.json")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    cache = Path(options.cache)
    rows = json.loads(cache.read_text()) if cache.exists() else []
    jobs = itertools.product(SHAPES, (np.float32, np.float64), (0.999, 1.0))
    for job in list(jobs)[len(rows) :]:
        rows.append(row(*job, options.rounds))
        cache.write_text(json.dumps(rows))
        print(*rows[-1], flush=True)


if __name__ == "__main__":
    main()

"""Chebyshev corrections beside conjugate gradient, for the cap ``MOST_CORRECTIONS``.

    python -m benchmarks.reports.corrections      # two minutes; prints

H8 T2048 d64, Zipf tokens, ridge .25, float64: the default as it is, and with no correction allowed.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

import olsq
from benchmarks.reports.numpy_solvers import alternate
from benchmarks.suites.sequence_streams import make
from benchmarks.support import machine
from olsq.sequence.jax import chunk_exact


def main() -> None:
    """Command line."""
    jax.config.update("jax_enable_x64", True)
    print(machine.describe()["cpu"])
    arrays = [jnp.asarray(x, jnp.float64) for x in make("tokens", 8, 2048, 64, 64)]
    for gate in (0.999, 0.995, 0.99, 0.98):
        gates, runs, told = jnp.full(arrays[0].shape[:2], gate), [], []
        for most in (40, 0):
            chunk_exact.MOST_CORRECTIONS = most
            jax.clear_caches()
            run = jax.jit(lambda k, v, q, g: olsq.online_lstsq(k, v, q, forget=g, ridge=0.25))
            compiled = run.lower(*arrays, gates).compile()
            stats = compiled(*arrays, gates).stats
            told.append(f"{int(stats.steps.max())} steps, residual {stats.residual.max():.0e}")
            runs.append(lambda run=compiled, g=gates: run(*arrays, g))
        times = alternate(*runs)
        parts = (f"{1e3 * t:.0f} ms, {s}" for t, s in zip(times, told, strict=True))
        print(f"gates {gate}: corrections {'; conjugate gradient '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()

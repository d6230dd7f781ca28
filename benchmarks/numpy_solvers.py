"""Every solver on NumPy arrays beside the same solver in JAX, jitted, in one process.

    python -m benchmarks.numpy_solvers         # some minutes; rewrites the table in the docs

8 heads, 4,096 tokens, d 64, ridge 0.25, Zipf tokens, gates .999, float32.  The sides take turns.
The error is that of an output against one dense float64 solve per token, relative to the largest.
The last line is the gradient of a sum of outputs, in float64 on both sides.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import olsq
from benchmarks import machine, marked
from benchmarks.sequence_streams import exact, make
from olsq.sequence import jax as in_jax

RESULTS = Path(__file__).parent / "results" / "numpy_solvers.json"
PAGE = Path(__file__).parents[1] / "docs" / "choosing-a-solver.md"
SOLVERS = {
    "`ChunkExact()`": olsq.ChunkExact(),
    "`ChunkExact(corrections=2)`": olsq.ChunkExact(corrections=2),
    "`ConjugateGradient(30, 0)`": olsq.ConjugateGradient(30, 0.0),
    "`ConjugateGradient(30, 1e-4)`": olsq.ConjugateGradient(30, 1e-4),
    "`Chebyshev(30)`": olsq.Chebyshev(30),
    "`Neumann(30)`": olsq.Neumann(30),
}
GATE, RIDGE, ROUNDS = 0.999, 0.25, 7


def alternate(one: Callable[[], Any], other: Callable[[], Any]) -> tuple[float, float]:
    """The best seconds of each, taken in turn."""
    best = [np.inf, np.inf]
    for _ in range(ROUNDS):
        for i, run in enumerate((one, other)):
            began = time.perf_counter()
            jax.block_until_ready(run())
            best[i] = min(best[i], time.perf_counter() - began)
    return best[0], best[1]


def main() -> None:
    """Command line."""
    jax.config.update("jax_enable_x64", True)
    k, v, q = make("tokens", 8, 4096, 64, 64)
    gates = np.full(k.shape[:2], GATE, np.float32)
    truth = exact(k[0], v[0], q[0], GATE, RIDGE)
    size = np.abs(truth).max()
    lines = ["| solver | NumPy ms | JAX ms | NumPy / JAX | error NumPy | error JAX |"]
    lines += ["|---|---|---|---|---|---|"]
    rows = []

    def add(name: str, numpy: float, jax_: float, errors: tuple[float, float]) -> None:
        rows.append([name, numpy, jax_, *errors])
        lines.append(
            f"| {name} | {1e3 * numpy:.0f} | {1e3 * jax_:.0f} | {numpy / jax_:.2f} "
            f"| {errors[0]:.0e} | {errors[1]:.0e} |"
        )
        print(lines[-1], flush=True)

    given = tuple(map(jnp.asarray, (k, v, q, gates)))
    for name, solver in SOLVERS.items():

        def ours(solver: Any = solver) -> Any:
            return olsq.online_lstsq(k, v, q, forget=gates, ridge=RIDGE, solver=solver).value

        @jax.jit
        def theirs(k: Any, v: Any, q: Any, g: Any, solver: Any = solver) -> Any:
            return in_jax.online_lstsq(k, v, q, forget=g, ridge=RIDGE, solver=solver).value

        found = ours(), np.asarray(theirs(*given))
        errors = [float(np.abs(x[0] - truth).max() / size) for x in found]
        add(name, *alternate(ours, lambda f=theirs: f(*given)), (errors[0], errors[1]))

    wide = [x.astype(np.float64) for x in (k, v, q, gates)]
    up = np.ones_like(wide[1])

    def slope() -> Any:
        return olsq.online_lstsq_vjp(*wide[:3], up, forget=wide[3], ridge=RIDGE)

    @jax.jit
    def gradient(k: Any, v: Any, q: Any, g: Any) -> Any:
        def loss(k: Any, v: Any, q: Any, g: Any) -> Any:
            return in_jax.online_lstsq(k, v, q, forget=g, ridge=RIDGE).value.sum()

        return jax.grad(loss, (0, 1, 2, 3))(k, v, q, g)

    given = tuple(map(jnp.asarray, wide))
    one, other = slope(), gradient(*given)
    apart = float(np.abs(one.keys - other[0]).max() / np.abs(one.keys).max())
    add("gradient, float64", *alternate(slope, lambda: gradient(*given)), (apart, apart))
    date = datetime.date.today().isoformat()
    RESULTS.write_text(json.dumps({"machine": machine.describe(), "rows": rows}, indent=1) + "\n")
    note = "The gradient's error is the distance between the sides."
    lines += ["", f"Best of {ROUNDS}, taken in turn, on two shared cores; {date}. {note}"]
    marked.replace_between(PAGE, "numpy solvers", "\n".join(lines))


if __name__ == "__main__":
    main()

"""Every solver on NumPy arrays beside the same solver in JAX, jitted, in one process.

    python -m benchmarks.reports.numpy_solvers  # some minutes; prints the table

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
from benchmarks.suites.sequence_streams import exact, make
from benchmarks.support import machine
from olsq.sequence import jax as in_jax

RESULTS = Path(__file__).parents[1] / "results" / "numpy_solvers.json"
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


def streams(dtype: Any = np.float32) -> tuple[Any, ...]:
    """Keys, values, queries (H, T, d) and gates (H, T)."""
    k, v, q = make("tokens", 8, 4096, 64, 64)
    return tuple(x.astype(dtype) for x in (k, v, q, np.full(k.shape[:2], GATE)))


def outputs(solver: Any, given: tuple[Any, ...]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The outputs in NumPy and in JAX, ready to run."""
    on_device = tuple(map(jnp.asarray, given))

    def ours() -> Any:
        k, v, q, gates = given
        return olsq.online_lstsq(k, v, q, forget=gates, ridge=RIDGE, solver=solver).value

    @jax.jit
    def theirs(k: Any, v: Any, q: Any, g: Any) -> Any:
        return in_jax.online_lstsq(k, v, q, forget=g, ridge=RIDGE, solver=solver).value

    return ours, lambda: theirs(*on_device)


def gradients(given: tuple[Any, ...]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The gradient of a sum of outputs by keys, values, queries and gates, on both sides."""
    k, v, q, gates = given
    on_device, up = tuple(map(jnp.asarray, given)), np.ones_like(v)

    def ours() -> Any:
        return olsq.online_lstsq_vjp(k, v, q, up, forget=gates, ridge=RIDGE)

    @jax.jit
    def theirs(k: Any, v: Any, q: Any, g: Any) -> Any:
        def loss(k: Any, v: Any, q: Any, g: Any) -> Any:
            return in_jax.online_lstsq(k, v, q, forget=g, ridge=RIDGE).value.sum()

        return jax.grad(loss, (0, 1, 2, 3))(k, v, q, g)

    return ours, lambda: theirs(*on_device)


def table(rows: list[list[Any]]) -> str:
    """Milliseconds, their ratio and errors of both sides."""
    lines = ["| solver | NumPy ms | JAX ms | NumPy / JAX | error NumPy | error JAX |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, ours, theirs, error, other in rows:
        lines.append(
            f"| {name} | {1e3 * ours:.0f} | {1e3 * theirs:.0f} | {ours / theirs:.2f} "
            f"| {error:.0e} | {other:.0e} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    jax.config.update("jax_enable_x64", True)
    given = streams()
    k, v, q, _ = given
    truth = exact(k[0], v[0], q[0], GATE, RIDGE)
    size = np.abs(truth).max()
    rows = []

    def add(name: str, times: tuple[float, float], errors: tuple[float, float]) -> None:
        rows.append([name, *times, *errors])
        print(*rows[-1], flush=True)

    for name, solver in SOLVERS.items():
        ours, theirs = outputs(solver, given)
        found = ours(), np.asarray(theirs())
        errors = [float(np.abs(x[0] - truth).max() / size) for x in found]
        add(name, alternate(ours, theirs), (errors[0], errors[1]))

    ours, theirs = gradients(streams(np.float64))
    one, other = ours(), theirs()
    apart = float(np.abs(one.keys - other[0]).max() / np.abs(one.keys).max())
    add("gradient, float64", alternate(ours, theirs), (apart, apart))
    date = datetime.date.today().isoformat()
    RESULTS.write_text(json.dumps({"machine": machine.describe(), "rows": rows}, indent=1) + "\n")
    note = "The gradient's error is the distance between the sides."
    print(f"{table(rows)}\n\nBest of {ROUNDS}, taken in turn; {date}. {note}")


if __name__ == "__main__":
    main()

"""How long a chunk should be: solves of whole sequences with chunks of 16 to 128 tokens.

    python -m benchmarks.reports.chunk_lengths --width 32 --streams 16 --tokens 512 --gradient

Prints milliseconds, the least of several rounds in which all take turns in one process, and the
largest error of an output against a float64 solve for each token, next to the largest output.
Ridge 1, unit keys, float32.  "layer" is what a new layer's gates are: a start in log-odds, plus a
standard normal for each token.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import olsq
from benchmarks.reports.sequence_table import take_turns
from benchmarks.support import machine
from olsq.reference import sequence as reference

CHUNKS = (16, 32, 64, 128)
GATES = ("0.5", "layer 0.5", "0.9", "layer 0.99", "0.99", "0.999", "1", "resets")


def gates_of(kind: str, shape: tuple[int, int]) -> np.ndarray:
    """Gates (B, T) by name."""
    rng = np.random.default_rng(1)
    if kind == "resets":
        return np.where(rng.random(shape) < 0.02, 0.0, 0.999)
    if kind.startswith("layer"):
        start = float(kind.split()[1])
        return 1 / (1 + np.exp(-(np.log(start / (1 - start)) + rng.standard_normal(shape))))
    return np.full(shape, float(kind))


def solved(chunk: int) -> Callable[..., Any]:
    """A compiled solve with chunks of this length."""
    solver = olsq.ChunkExact(chunk=chunk)

    def value(k: Any, v: Any, q: Any, g: Any) -> Any:
        return olsq.online_lstsq(k, v, q, forget=g, ridge=1.0, solver=solver).value

    return jax.jit(value)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--gates", nargs="+", default=GATES)
    parser.add_argument("--gradient", action="store_true", help="forward and backward")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    k, v, q = rng.standard_normal((3, given.streams, given.tokens, given.width))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    ahead = {f"{c}": solved(c) for c in CHUNKS}
    runs = {
        n: jax.jit(jax.grad(lambda *a, f=f: (f(*a) ** 2).sum(), argnums=(0, 1, 2, 3)))
        if given.gradient else f
        for n, f in ahead.items()
    }  # fmt: skip
    print(machine.sentence(machine.describe()))
    print("| gates | " + " | ".join(f"{c}: ms (error)" for c in CHUNKS) + " |")
    print("|---" * (len(CHUNKS) + 1) + "|")
    for kind in given.gates:
        gates = gates_of(kind, k.shape[:2]).astype(np.float32)
        args = tuple(jnp.asarray(x, jnp.float32) for x in (k, v, q, gates))
        first = [np.asarray(x[0], np.float64) for x in args]
        want = reference.solve(*first[:3], forget=first[3], ridge=np.ones(given.width)).value
        seconds = take_turns(runs, args, 5)
        cells = []
        for name, run in ahead.items():
            error = np.abs(np.asarray(run(*args))[0] - want).max() / np.abs(want).max()
            cells.append(f"{1e3 * seconds[name]:.1f} ({error:.0e})")
        print(f"| {kind} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

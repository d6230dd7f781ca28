"""Streams in which hard tokens stand beside mild ones: how wrong is each token?

    python -m benchmarks.reports.hard_tokens [--streams 1000]  # some minutes; rewrites the results

Keys, ridges and weights over up to twelve decades, repeats, subspaces, resets.  The error of every
token, |o - o*|, is put in units of what its own system allows, ``eps cond(M) |G| |x|``, and judged
where that leaves a digit.  Results: ``benchmarks/results/hard_tokens.json``;
docs/measurements/sequences.md shows them.
"""

from __future__ import annotations

import argparse
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

import olsq
from benchmarks.suites.sequence_streams import unit
from benchmarks.support import machine
from olsq.reference import sequence as reference
from olsq.sequence.jax import online_lstsq

RESULTS = Path(__file__).parents[1] / "results" / "hard_tokens.json"
T, D, M = 64, 8, 2
GATES = (1.0, 0.9999, 0.999, 0.99, 0.9, 0.5)


class Stream(NamedTuple):
    """keys (T, 8), values (T, 2), queries (T, 8), forget (T,), weight (T,), ridge (8,)."""

    keys: NDArray[Any]
    values: NDArray[Any]
    queries: NDArray[Any]
    forget: NDArray[Any]
    weight: NDArray[Any]
    ridge: NDArray[Any]


def draw(seed: int) -> Stream:
    """One stream; everything follows from the seed."""
    rng = np.random.default_rng([13, seed])
    half = rng.uniform(0, 6)
    keys = unit(rng.normal(size=(T, D)))
    kind = rng.integers(6)
    if kind == 0:  # tokens of any size
        keys *= 10.0 ** rng.uniform(-half, half, (T, 1))
    elif kind == 1:  # one token again and again
        keys[rng.integers(1, T) :] = keys[0]
    elif kind == 2:  # some huge ones
        keys[:: rng.integers(2, 30)] *= 10.0**half
    elif kind == 3:  # features of any size
        keys *= 10.0 ** rng.uniform(-half, half, D)
    elif kind == 4:  # three directions only
        keys = keys[rng.integers(0, 3, T)] * 10.0 ** rng.uniform(-half, half, (T, 1))
    else:  # a huge direction, and the others late
        keys[:, 0] *= 10.0**half
        keys[: rng.integers(1, T), 1:] = 0
    forget = np.full(T, rng.choice(GATES))
    if rng.random() < 0.2:
        forget[rng.integers(T)] = 0
    weight = 10.0 ** rng.uniform(-half, 0, T) if rng.random() < 0.2 else np.ones(T)
    ridge = np.full(D, 10.0 ** rng.uniform(-6, 1))
    values, queries = rng.normal(size=(T, M)), unit(rng.normal(size=(T, D)))
    return Stream(keys, values, queries, forget, weight, ridge)


def judge(stream: Stream, value: NDArray[Any], eps: float) -> tuple[bool, NDArray[np.float64]]:
    """Whether an output is not finite, and the errors of tokens whose system leaves a digit."""
    wide = Stream(*(x.astype(np.float64) for x in stream))
    path = reference.solve(*wide[:3], forget=wide.forget, weight=wide.weight, ridge=wide.ridge)
    eigenvalues = np.linalg.eigvalsh(path.systems)
    condition = eigenvalues[:, -1] / np.maximum(eigenvalues[:, 0], 1e-300)
    size = np.linalg.norm(path.crosses[-T:], axis=(1, 2)) * np.linalg.norm(path.solution, axis=1)
    wrong = np.linalg.norm(value.astype(np.float64) - path.value, axis=1)
    told = condition * eps < 0.1
    return not np.isfinite(value).all(), (wrong / (eps * condition * size))[told]


def in_jax(solver: Any) -> Callable[[Stream], NDArray[Any]]:
    """A solver of JAX, compiled once."""

    @jax.jit
    def solve(s: Stream) -> Any:
        return online_lstsq(
            s.keys, s.values, s.queries, forget=s.forget, weight=s.weight, ridge=s.ridge,
            solver=solver,
        ).value  # fmt: skip

    return lambda stream: np.asarray(solve(stream))


def in_numpy(stream: Stream) -> NDArray[Any]:
    """The NumPy side."""
    s = stream
    return olsq.online_lstsq(
        s.keys, s.values, s.queries, forget=s.forget, weight=s.weight, ridge=s.ridge
    ).value


def table(result: dict[str, Any]) -> str:
    """The page's table, out of the results."""
    lines = ["| solver, float32 | streams with NaN | error, median | 99 % | largest |"]
    lines += ["|---|---|---|---|---|"]
    for name, dtype, nan, low, high, most in result["rows"]:
        if dtype == "float32":
            lines.append(f"| {name} | {nan} | {low:.1g} | {high:.1g} | {most:.2g} |")
    lines += ["", f"{result['streams']} streams of {T} tokens, d = {D}; {result['date']}."]
    return "\n".join(lines)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="How wrong each token is beside hard ones.")
    parser.add_argument("--streams", type=int, default=1000)
    n = parser.parse_args().streams
    jax.config.update("jax_enable_x64", True)
    ways = {
        "default, JAX": in_jax(None),
        "default, NumPy": in_numpy,
        "one Cholesky per token (`Dense`)": in_jax(olsq.Dense()),
        "`ConjugateGradient(200, 1e-6)`": in_jax(olsq.ConjugateGradient(200, 1e-6)),
    }
    rows = []
    for name, solve in ways.items():
        for dtype in (np.float32, np.float64):
            if dtype == np.float64 and "Conjugate" in name:  # stops at 1e-6 by itself
                continue
            nan, errors = 0, []
            for seed in range(n):
                stream = Stream(*(x.astype(dtype) for x in draw(seed)))
                bad, ratio = judge(stream, solve(stream), float(np.finfo(dtype).eps))
                nan += bad
                errors.append(ratio[np.isfinite(ratio)])
            low, high, most = np.quantile(np.concatenate(errors), [0.5, 0.99, 1.0])
            row = [name, np.dtype(dtype).name, nan, float(low), float(high), float(most)]
            rows.append(row)
            print(*row, flush=True)
    date = datetime.date.today().isoformat()
    result = {"streams": n, "date": date, "machine": machine.describe(), "rows": rows}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


if __name__ == "__main__":
    main()

"""What mesa loses with a moment of limited rank, or of recent keys only, and what that would save.

    python -m benchmarks.reports.limited_moments  # some minutes; rewrites the results

Errors: outputs by ``G (H' + Lambda)^-1 q`` for other matrices H' against those by H, and how well
they predict, on keys whose covariance has eigenvalues ``i^-a``.  Times: a decoded token of mesa
with a carried factor, of gla, and of gla whose query first goes through factors of rank r, which is
less than a sketch costs: it is not kept up to date.  Results:
``benchmarks/results/limited_moments.json``; docs/measurements/sequences.md quotes them.
"""

from __future__ import annotations

import datetime
import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from benchmarks.suites.sequence_streams import unit
from benchmarks.support import machine
from olsq import attention
from olsq.problem import Moments
from olsq.sequence.jax import start_decoding

RESULTS = Path(__file__).parents[1] / "results" / "limited_moments.json"
Floats = NDArray[np.float64]
K, V, T, RIDGE, NOISE, FORGET = 64, 8, 2048, 0.25, 0.1, 0.999
DECAYS = (0.0, 1.0, 2.0)  # a
RANKS = (8, 16, 32)
FAST = 0.97  # gate of the moment of recent keys
STREAMS = 3
SKETCH, BEST = "sketch of rank {} (frequent directions)", "best of rank {}, found anew"
RECENT, DIAGONAL, NOTHING = "recent keys only, to scale", "its diagonal", "none (`gla`, to scale)"


class Sketch:
    """Frequent directions of 2 r rows: ``B^T B + share`` is H within ``share`` in any direction."""

    def __init__(self, rank: int) -> None:
        self.rank, self.filled, self.share = rank, 0, 0.0
        self.rows = np.zeros((2 * rank, K))

    def learn(self, k: Floats) -> None:
        """One more key, after forgetting."""
        self.rows *= np.sqrt(FORGET)
        self.share *= FORGET
        if self.filled == len(self.rows):
            _, s, directions = np.linalg.svd(self.rows, full_matrices=False)
            cut = s[self.rank] ** 2
            self.rows[:] = np.sqrt(np.maximum(s**2 - cut, 0))[:, None] * directions
            self.filled, self.share = self.rank, self.share + cut / 2
        self.rows[self.filled] = k
        self.filled += 1

    def matrix(self) -> Floats:
        """What stands for H: half of what was cut off is given back to all directions."""
        return self.rows.T @ self.rows + self.share * np.eye(K)


def best_of_rank(gram: Floats, rank: int) -> Floats:
    """The largest eigenvalues as they are, the others by their mean."""
    values, vectors = np.linalg.eigh(gram)
    values[: K - rank] = values[: K - rank].mean()
    return (vectors * values) @ vectors.T


def errors(decay: float, seed: int) -> dict[str, tuple[float, float]]:
    """By H': error of outputs relative to those by H, and of predictions over those by H."""
    rng = np.random.default_rng([11, seed])
    basis, _ = np.linalg.qr(rng.normal(size=(K, K)))
    keys = unit((rng.normal(size=(T, K)) * np.arange(1, K + 1) ** (-decay / 2)) @ basis)
    truth = rng.normal(size=(V, K))
    values = keys @ truth.T + NOISE * rng.normal(size=(T, V))
    gram, recent, cross = np.zeros((K, K)), np.zeros((K, K)), np.zeros((V, K))
    sketches = [Sketch(r) for r in RANKS]
    outputs: dict[str, list[Floats]] = {}
    wanted, exact = [], []
    for t in range(T):
        if t >= T // 2 and t % 16 == 0:  # the next key asks
            ours = {SKETCH.format(s.rank): s.matrix() for s in sketches}
            ours |= {BEST.format(r): best_of_rank(gram, r) for r in RANKS}
            ours[RECENT] = np.trace(gram) / np.trace(recent) * recent
            ours[DIAGONAL] = np.diag(np.diag(gram))
            ours[NOTHING] = np.trace(gram) / K * np.eye(K)
            q, floor = keys[t], RIDGE * np.eye(K)
            for name, matrix in ours.items():
                outputs.setdefault(name, []).append(cross @ np.linalg.solve(matrix + floor, q))
            exact.append(cross @ np.linalg.solve(gram + floor, q))
            wanted.append(truth @ q)
        k, v = keys[t], values[t]
        gram, recent = FORGET * gram + np.outer(k, k), FAST * recent + np.outer(k, k)
        cross = FORGET * cross + np.outer(v, k)
        for sketch in sketches:
            sketch.learn(k)
    best, target = np.array(exact), np.array(wanted)
    least = ((best - target) ** 2).mean()
    found = {}
    for name, x in outputs.items():
        off = np.linalg.norm(np.array(x) - best) / np.linalg.norm(best)
        found[name] = (float(off), float(((np.array(x) - target) ** 2).mean() / least))
    return found


def error_rows() -> list[list[Any]]:
    """Rows (H', a, error of outputs, error of predictions over that by H)."""
    rows = []
    for decay in DECAYS:
        found = [errors(decay, seed) for seed in range(STREAMS)]
        for name in found[0]:
            rows.append([name, decay, *np.mean([f[name] for f in found], 0)])
            print(*rows[-1], flush=True)
    return rows


def times(heads: int = 8, length: int = 256) -> dict[str, float]:
    """Processor time of a decoded token over gla's, heads of K = V = 64 in a scan."""
    rng = np.random.default_rng(0)
    q, k, v = (unit(rng.normal(size=(3, length, 1, heads, K)))).astype(np.float32)
    zero = jnp.zeros((1, heads, K, K), jnp.float32)
    decoding = start_decoding(Moments(zero, zero), ridge=1.0)

    def mesa(state: Any, x: Any) -> Any:
        o, state = attention.mesa_step(*x, forget=0.999, state=state)
        return state, o

    def gla(state: Any, x: Any) -> Any:
        o, state = attention.gla_step(*x, forget=0.999, state=state)
        return state, o

    def limited(factors: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            seen = jnp.einsum("hrk,bhk->bhr", factors, x[0])
            return gla(state, (x[0] - jnp.einsum("hrk,bhr->bhk", factors, seen), *x[1:]))

        return step

    plain = attention.Memory(zero)
    runs = {"mesa": (mesa, decoding), "gla": (gla, plain)}
    for rank in RANKS:
        factors = jnp.asarray(rng.normal(size=(heads, rank, K)) / K, jnp.float32)
        runs[f"rank {rank}"] = (limited(factors), plain)
    compiled = {
        name: (jax.jit(lambda s, x, f=f: jax.lax.scan(f, s, x)), state)
        for name, (f, state) in runs.items()
    }
    best = dict.fromkeys(runs, np.inf)
    for turn in range(15):  # the first compiles
        for name, (run, state) in compiled.items():
            begin = time.process_time()
            jax.block_until_ready(run(state, (q, k, v)))
            best[name] = min(best[name], time.process_time() - begin) if turn else np.inf
    return {name: used / best["gla"] for name, used in best.items()}


def main() -> None:
    """Measure and store."""
    found = {
        "date": datetime.date.today().isoformat(), "machine": machine.describe(),
        "errors": error_rows(), "times": times(),
    }  # fmt: skip
    print(found["times"])
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

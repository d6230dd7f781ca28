"""Mesa with a gate per key dimension: which form of it, how many steps, at what cost.

    python -m benchmarks.reports.channel_gates  # some minutes; rewrites the results

Forms: one-step-ahead errors of regressions whose first coefficients stay while the others drift, by
each way to give mesa a gate per key dimension; gates and ridge are the best of a grid on some
streams, errors are those on others.  Solves: steps of conjugate gradient, errors and times of
``mesa_channel`` by kind of gates.  Results: ``benchmarks/results/channel_gates.json``;
docs/measurements/sequences.md shows them.
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

from benchmarks.reports.registry import write_blocks
from benchmarks.suites.sequence_streams import unit
from benchmarks.support import machine
from olsq import attention
from olsq.attention.recurrences.vector_solve import Systems, fade_keys, solve_by_iteration
from olsq.reference import attention_solved

RESULTS = Path(__file__).parents[1] / "results" / "channel_gates.json"
Floats = NDArray[np.float64]

# Regressions that drift.
D, M, T, NOISE = 8, 2, 400, 0.1
DRIFTS = (0.003, 0.03, 0.2)  # share of a coefficient's variance that is new at every token
GRID = (1.0, 0.99, 0.97, 0.92, 0.85, 0.7, 0.5)
RIDGES = (0.01, 0.1, 1.0)
CHOOSE, JUDGE = 6, 6  # streams to choose gates and ridge on, and to judge them on

FORMS = {
    "moments": "`H = D H D + k k^T`, `G = G D^2 + v k^T`, `S = G (H + Lambda)^-1`",
    "faded keys": "the same, `G = G D + v k^T`: the regression on keys that fade",
    "kept": "`S = S + (v - S k) ((H + Lambda)^-1 k)^T` (`mesa_channel`)",
    "kda": "`S = S D^2`, then `S = S + (v - S k) k^T / Lambda` (`kda`)",
}


def drifting(seed: int, drift: float) -> tuple[Floats, Floats]:
    """Keys (T, D) and values (T, M) of one regression; the last half of its coefficients drifts."""
    rng = np.random.default_rng([5, seed])
    truth, values = rng.normal(size=(M, D)), []
    keys = unit(rng.normal(size=(T, D)) @ (np.eye(D) + 0.5 * rng.normal(size=(D, D))))
    for k in keys:
        values.append(truth @ k + NOISE * rng.normal(size=M))
        new = rng.normal(size=(M, D - D // 2))
        truth[:, D // 2 :] = np.sqrt(1 - drift) * truth[:, D // 2 :] + np.sqrt(drift) * new
    return keys, np.array(values)


def errors(form: str, keys: Floats, values: Floats, gates: Floats, ridge: Floats) -> Floats:
    """Mean squared one-step-ahead errors, of every gates (B, D) and ridge (B,) on one stream."""
    n = len(gates)
    root, floor = np.sqrt(gates), ridge[:, None, None] * np.eye(D)
    S, H, G, total = np.zeros((n, M, D)), np.zeros((n, D, D)), np.zeros((n, M, D)), np.zeros(n)
    for t, (k, v) in enumerate(zip(keys, values, strict=True)):
        H = root[:, :, None] * H * root[:, None, :]
        if form in ("moments", "faded keys"):
            G = G * (gates if form == "moments" else root)[:, None]
            S = np.linalg.solve(H + floor, G.swapaxes(1, 2)).swapaxes(1, 2)
        elif form == "kda":
            S = S * gates[:, None]
        error = v - S @ k
        total += (error**2).mean(-1) * (t >= T // 4)
        H, G = H + np.outer(k, k), G + np.outer(v, k)
        if form == "kept":
            step = np.linalg.solve(H + floor, np.broadcast_to(k[:, None], (n, D, 1)))[..., 0]
        else:
            step = k * np.minimum(1, 1 / ridge)[:, None]
        if form in ("kept", "kda"):
            S = S + error[:, :, None] * step[:, None]
    return total / (T - T // 4)


def forms() -> list[list[Any]]:
    """Rows (form, drift, error with one gate, error with two, the two)."""
    pairs = [(a, b) for a in GRID for b in GRID if b <= a]
    grid = [(r, *p) for r in RIDGES for p in pairs]
    ridge = np.array([r for r, *_ in grid])
    gates = np.array([[a] * (D // 2) + [b] * (D - D // 2) for _, a, b in grid])
    one = np.array([a == b for _, a, b in grid])
    rows = []
    for drift in DRIFTS:
        for form in FORMS:
            streams = [drifting(seed, drift) for seed in range(CHOOSE + JUDGE)]
            found = np.array([errors(form, *s, gates, ridge) for s in streams])
            chosen, judged = found[:CHOOSE].mean(0), found[CHOOSE:].mean(0)
            best, single = np.argmin(chosen), np.argmin(np.where(one, chosen, np.inf))
            rows.append([form, drift, judged[single], judged[best], list(grid[best][1:])])
            print(*rows[-1], flush=True)
    return rows


HEADS, WIDTH, LENGTH, CHUNK = 8, 64, 2048, 16
KINDS = ("all 1", "a rate per dimension, 0.98 to 1", "of a new layer", "half 0.999, half 0.7",
         "any, 0.3 to 1", "0 at one in 100, else 0.999")  # fmt: skip


def gates_of(kind: str, rng: np.random.Generator) -> Floats:
    """Gates (1, LENGTH, HEADS, WIDTH)."""
    fixed, full = (1, 1, HEADS, WIDTH), (1, LENGTH, HEADS, WIDTH)
    if kind == KINDS[0]:
        g = np.ones(fixed)
    elif kind == KINDS[1]:
        g = rng.uniform(0.98, 1, fixed)
    elif kind == KINDS[2]:  # as ChannelDecay starts
        step = np.exp(rng.uniform(np.log(0.001), np.log(0.1), fixed))
        g = np.exp(-rng.uniform(1, 16, (1, 1, HEADS, 1)) * step)
    elif kind == KINDS[3]:
        g = np.where(np.arange(WIDTH) < WIDTH // 2, 0.999, 0.7)
    elif kind == KINDS[4]:
        g = rng.uniform(0.3, 1, full)
    else:
        g = np.where(rng.uniform(size=full) < 0.01, 0, 0.999)
    return np.broadcast_to(g, full)


def steps_of(k: Floats, gates: Floats, ridge: float) -> NDArray[np.int32]:
    """Steps of every token (LENGTH - T0,) of one head (LENGTH, WIDTH) after its first half."""
    root, gram, before = np.sqrt(gates), np.zeros((WIDTH, WIDTH)), []
    for t in range(LENGTH):
        if t % CHUNK == 0:
            before.append(gram)
        gram = root[t][:, None] * gram * root[t] + np.outer(k[t], k[t])
    late = LENGTH // CHUNK // 2
    cut = [x.reshape(-1, CHUNK, WIDTH)[late:].astype(np.float32) for x in (k, root)]
    ones = jnp.ones(cut[0].shape[:2])
    start = jnp.asarray(np.array(before[late:], np.float32))
    systems = Systems(
        fade_keys(*map(jnp.asarray, cut))[0], ones, start, jnp.full((1, 1, WIDTH), ridge)
    )
    return np.asarray(jax.jit(solve_by_iteration)(systems, *cut, cut[0])[1])


def solves() -> list[list[Any]]:
    """Rows (gates, ridge, steps mean and most, error, time over kda's, over mesa's)."""
    rng = np.random.default_rng(1)
    q, k, v = rng.normal(size=(3, 1, LENGTH, HEADS, WIDTH))
    k[:, ::3] = k[:, :1]  # one token in three is the same
    q, k, v = (x.astype(np.float32) for x in (unit(q), unit(k), v))
    rules = {
        "mesa_channel": lambda g, r: attention.mesa_channel(q, k, v, forget=g, ridge=r)[0],
        "kda": lambda g, r: attention.kda(q, k, v, forget=g)[0],
        "mesa": lambda g, r: attention.mesa(q, k, v, forget=g[..., 0], ridge=r)[0],
    }
    compiled = {name: jax.jit(rule) for name, rule in rules.items()}
    rows = []
    for kind in KINDS:
        gates = gates_of(kind, rng)
        for ridge in (1.0, 0.01):
            args = jnp.asarray(gates, jnp.float32), jnp.full(WIDTH, ridge)
            best, out = dict.fromkeys(compiled, np.inf), None
            for turn in range(6):  # the first compiles
                for name, run in compiled.items():
                    begin = time.process_time()
                    got = jax.block_until_ready(run(*args))
                    used = time.process_time() - begin
                    best[name] = min(best[name], used) if turn else np.inf
                    out = got if name == "mesa_channel" else out
            head = (x[0, :, 0].astype(np.float64) for x in (q, k, v))
            want, _ = attention_solved.mesa_channel(*head, forget=gates[0, :, 0], ridge=ridge)
            off = np.abs(np.asarray(out)[0, :, 0] - want).max() / np.abs(want).max()
            steps = steps_of(k[0, :, 0], gates[0, :, 0], ridge)
            times = [best["mesa_channel"] / best[name] for name in ("kda", "mesa")]
            rows.append([kind, ridge, float(steps.mean()), int(steps.max()), float(off), *times])
            print(*rows[-1], flush=True)
    return rows


def form_table(rows: list[list[Any]]) -> str:
    """Table of forms of the rule."""
    lines = ["| form | " + " | ".join(f"new per token: {100 * d:g} %" for d in DRIFTS) + " |"]
    lines.append("|---|" + "---|" * len(DRIFTS))
    for form in ("kept", "kda"):  # what olsq has; the results have the others
        own = {drift: (one, two) for name, drift, one, two, _ in rows if name == form}
        cells = [f"{own[d][0]:.3f}, {own[d][1]:.3f}" for d in DRIFTS]
        lines.append(f"| {FORMS[form]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def solve_table(rows: list[list[Any]], date: str) -> str:
    """The page's table of solves."""
    lines = ["| gates | ridge | steps, mean | most | error | time / `kda` | / `mesa` |"]
    lines.append("|---|---|---|---|---|---|---|")
    for kind, ridge, mean, most, off, kda, mesa in rows:
        if kind in ("any, 0.3 to 1", "all 1"):
            continue  # the quickest; the results have them
        lines.append(
            f"| {kind} | {ridge:g} | {mean:.1f} | {most} | {off:.0e} | {kda:.1f} | {mesa:.1f} |"
        )
    lines += ["", f"{HEADS} heads, T = {LENGTH:,}, K = V = {WIDTH}, float32; {date}."]
    return "\n".join(lines)


def main() -> None:
    """Measure, store, write the page."""
    date = datetime.date.today().isoformat()
    found = {
        "date": date, "machine": machine.describe(), "forms": forms(), "solves": solves(),
    }  # fmt: skip
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(form_table(found["forms"]))
    write_blocks("channel_gates", found)


if __name__ == "__main__":
    main()

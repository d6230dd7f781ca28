"""A training step of layers that solve, compared with gated linear attention.

    python -m benchmarks.reports.training_step             # a few minutes; stores its results
    python -m benchmarks.reports.training_step --compile   # stores the seconds to compile alone,
                                                           # of all rows or of those named

Loss and gradient of 4 blocks, width 128, 4 heads of 32, on 4 sequences of 512 tokens in float32,
with the gates that new layers have, and with some nearer 1.  Models take turns in one process; the
least of several rounds counts.  The same again in a process whose allocator keeps what it has been
given (``KEEPING``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax

import olsq
from benchmarks.support import machine
from olsq import nn

RESULTS = Path(__file__).parents[1] / "results" / "training_step.json"
WIDTH, BLOCKS, HEADS, LENGTH, BATCH, VOCABULARY, ROUNDS = 128, 4, 4, 512, 4, 256, 7
KEEPING = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "10" + "0" * 10,
}
SHOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "gla": ("gla", {}),
    "mesa": ("mesa", {}),
    "mesa, CG to 1e-6": ("mesa", {"solver": olsq.ConjugateGradient(tol=1e-6)}),
    "mesa, CG, 30 steps": ("mesa", {"solver": olsq.ConjugateGradient(tol=0.0)}),
    "mesa, gates near .5": ("mesa", {"forget_bias": 0.0}),
    "mesa, gates near .9": ("mesa", {"forget_bias": float(np.log(9))}),
    "mesa, gates near .999": ("mesa", {"forget_bias": float(np.log(999))}),
}


def step(mixer: str, options: dict[str, Any]) -> tuple[Any, tuple[Any, Any]]:
    """The jitted loss and gradient of a model, and its arguments."""
    model = nn.LanguageModel(
        VOCABULARY, dim=WIDTH, blocks=BLOCKS, heads=HEADS, mixer=mixer,
        mixer_options={mixer: options}, key=jax.random.key(0),
    )  # fmt: skip
    weights, static = eqx.partition(model, eqx.is_inexact_array)
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, LENGTH + 1))

    def loss(weights: Any, tokens: Any) -> Any:
        logits = eqx.combine(weights, static)(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    return jax.jit(jax.value_and_grad(loss)), (weights, tokens)


def compiled(name: str) -> tuple[float, Any, tuple[Any, Any]]:
    """Processor seconds to trace and compile a step, its program, and the program's arguments."""
    jax.clear_caches()
    function, given = step(*SHOWN[name])
    start = time.process_time()
    program = function.lower(*given).compile()
    return time.process_time() - start, program, given


def measure() -> dict[str, dict[str, float]]:
    """Milliseconds per step, and processor seconds to compile it, by name."""
    found, runs = {}, {}
    for name in SHOWN:
        seconds, program, given = compiled(name)
        found[name] = {"compile_s": seconds, "ms": np.inf}
        runs[name] = (program, given)
        jax.block_until_ready(program(*given))
    for _ in range(ROUNDS):
        for name, (program, given) in runs.items():
            start = time.perf_counter()
            jax.block_until_ready(program(*given))
            found[name]["ms"] = min(found[name]["ms"], 1e3 * (time.perf_counter() - start))
    return found


def table(found: dict[str, Any]) -> str:
    """The page's table; that of docs/measurements/sequences.md shows what gates cost."""
    plain, keeping = found["plain"], found["keeping"]
    lines = [
        "| layers | ms per step | / gla | memory kept: ms per step | / gla "
        "| compiling, processor s |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in plain.items():
        if "gates near" in name:
            continue
        kept = keeping[name]["ms"]
        lines.append(
            f"| `{name}` | {row['ms']:.0f} | {row['ms'] / plain['gla']['ms']:.2f} | {kept:.0f} "
            f"| {kept / keeping['gla']['ms']:.2f} | {row['compile_s']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    if "--here" in sys.argv:
        print(json.dumps(measure()))
        return
    if "--compile" in sys.argv:
        stored = json.loads(RESULTS.read_text())
        shown = [name for name in SHOWN if "gates near" not in name]
        for name in sys.argv[sys.argv.index("--compile") + 1 :] or shown:
            stored["plain"][name]["compile_s"] = min(compiled(name)[0] for _ in range(2))
        stored["compiled"] = date.today().isoformat()
        RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
        print(table(stored))
        return
    found: dict[str, Any] = {"machine": machine.describe()}
    for way, more in (("plain", {}), ("keeping", KEEPING)):
        out = subprocess.run(
            [sys.executable, "-m", "benchmarks.reports.training_step", "--here"],
            env={**os.environ, **more}, check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        found[way] = json.loads(out.stdout.splitlines()[-1])
        print(way, found[way], flush=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()

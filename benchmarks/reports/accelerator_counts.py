"""What the rules' programs for an accelerator do, counted and never run.

    python -m benchmarks.reports.accelerator_counts --minutes 30
    python -m benchmarks.reports.accelerator_counts --again ttt_linear,ttt_mlp

B 4, H 8, d 128, T 8,192 for every rule, and T = 1,024 to 65,536 for a few.  Each count is stored as
soon as it is made; what is stored is not counted again, except for the rules after ``--again``.
"""

from __future__ import annotations

import argparse
import json
import time
from datetime import date
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import olsq
from benchmarks.suites import attention_inputs as inputs
from benchmarks.support.programs import count_program
from olsq.sequence.jax.platform import TILE_BYTES, Target, tuned_for

RESULTS = Path(__file__).parents[1] / "results" / "accelerator_counts.json"
BATCH, HEADS, WIDTH, LENGTH = 4, 8, 128, 8192
RULES = (
    "mesa", "gla", "gated_delta", "softmax", "mesa cg", "mamba2", "linear", "mlstm", "retention",
    "sliding_window", "delta", "hgrn2", "rg_lru", "forgetting", "kda", "mamba", "rwkv7", "gsa",
    "longhorn", "ttt_linear", "mesa_window", "comba", "rwkv6", "mamba3", "log_linear_mamba2",
    "gated_delta_product", "preconditioned_delta", "ttt_mlp", "kalman", "mesa_discounted",
    "mesa_channel", "intention", "local_linear", "parallax", "momentum_delta", "kalman_delta",
)  # fmt: skip
LENGTHS = (1024, 2048, 4096, 16384, 32768, 65536)
BY_LENGTH = ("mesa", "gla", "softmax")
STEPS = 30  # of conjugate gradient, as flash-linear-attention's mesa takes


def arguments(name: str, t: int) -> Any:
    """Return the shapes of a rule's arguments."""
    short = 16
    made = inputs.arguments(name.split()[0], short, HEADS, WIDTH)

    def shape(x: Any) -> Any:
        timed = x.shape[:2] == (1, short)
        return jax.ShapeDtypeStruct((BATCH, t, *x.shape[2:]) if timed else x.shape, jnp.float32)

    return jax.tree.map(shape, made)


def functions(name: str) -> dict[str, Any]:
    """Return a rule's forward pass, and its gradient by everything that varies with time."""
    run = inputs.runner(name.split()[0])
    if name == "mesa cg":
        solver = olsq.ConjugateGradient(max_steps=STEPS, tol=0.0)

        def run(arrays: Any, named: Any) -> Any:
            return olsq.attention.mesa(*arrays, **named, solver=solver)[0]

    def loss(arrays: Any, named: Any) -> Any:
        out = run(arrays, named)
        return (out * out).sum(), out

    return {"forward": run, "both": jax.grad(loss, argnums=(0, 1), has_aux=True)}


def cases() -> list[tuple[str, str, int]]:
    """List what is counted, the most wanted first."""
    first = [(n, way, LENGTH) for n in RULES[:5] for way in ("forward", "both")]
    longer = [(n, "forward", t) for n in BY_LENGTH[::-1] for t in LENGTHS]
    rest = [(n, way, LENGTH) for n in RULES[5:] for way in ("forward", "both")]
    return first + longer + rest


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--again", default="", help="rules to count again, and no others")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    again = given.again.split(",") if given.again else []
    stored: dict[str, Any] = {"sizes": [BATCH, HEADS, WIDTH], "tile_bytes": TILE_BYTES}
    stored["counts"] = {}
    if given.out.exists():
        stored = json.loads(given.out.read_text())
    end = time.monotonic() + 60 * given.minutes
    for name, way, t in cases():
        key = f"{name}, {way}, {t}"
        wanted = name in again if again else key not in stored["counts"]
        if not wanted or time.monotonic() > end:
            continue
        begin = time.monotonic()
        with tuned_for(Target(cpu=False)):
            found = count_program(functions(name)[way], *arguments(name, t), steps=STEPS)
        stored["counts"][key] = found | {"jax": jax.__version__, "date": str(date.today())}
        known = (", ".join(map(str, case)) for case in cases())
        stored["counts"] = {k: stored["counts"][k] for k in known if k in stored["counts"]}
        given.out.write_text(json.dumps(stored, indent=1) + "\n")
        jax.clear_caches()
        print(f"{key}: {time.monotonic() - begin:.0f} s, {found}", flush=True)


if __name__ == "__main__":
    main()

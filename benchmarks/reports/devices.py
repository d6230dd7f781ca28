"""One layer with its tokens over 1 to 8 virtual devices: bytes between them, memory, time.

    python -m benchmarks.reports.devices            # writes benchmarks/results/devices.json

Bytes are counted in the compiled program, what a device receives: of an all-gather all but its own
part, of an all-reduce twice that; those in a loop as often as it runs.  They are compared with a
formula for each family.  Time is processor time of all devices together, the least of several.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "devices.json"
SEED, LENGTH, DIM, HEADS, WINDOW, MINI_BATCH = 0, 2048, 64, 4, 64, 16
OPTIONS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "sliding_window": {"window": WINDOW},
    "gla": {},
    "ttt_linear": {"mini_batch": MINI_BATCH},
}
DEVICES = 1, 2, 4, 8
REPEATS = 3
KINDS = "all-gather|all-reduce|collective-permute|all-to-all|reduce-scatter"
SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "f64": 8, "s64": 8, "u64": 8}


def received(text: str, devices: int) -> dict[str, float]:
    """Bytes that a device receives in one run of a compiled program, by kind of collective."""
    parts = re.split(r"\n(?=(?:ENTRY )?%[\w.\-]+ )", text)
    bodies = {re.sub(r"^ENTRY ", "", p)[1:].split(" ", 1)[0]: p for p in parts if "{" in p}
    entry = next(n for n, p in bodies.items() if p.startswith("ENTRY"))
    total: dict[str, float] = {}

    def count(name: str, times: int) -> None:
        for line in bodies[name].splitlines()[1:]:
            if found := re.search(rf"= (.*?) ({KINDS})(?:-start)?\(", line):
                size = sum(
                    SIZES.get(kind, 4) * prod(shape)
                    for kind, shape in re.findall(r"\b([a-z]+[0-9]*)\[([0-9,]*)\]", found[1])
                )
                other = (devices - 1) / devices
                share = {"all-gather": other, "all-reduce": 2 * other}.get(found[2], 1.0)
                total[found[2]] = total.get(found[2], 0) + times * share * size
            trips = re.search(r"known_trip_count\D+(\d+)", line)
            for called in re.findall(r"(?:body|calls|to_apply|true_computation)=%([\w.\-]+)", line):
                if called in bodies:
                    count(called, times * (int(trips[1]) if trips and "body=" in line else 1))

    count(entry, 1)
    return total


def prod(shape: str) -> int:
    """Numbers in an array of that shape."""
    size = 1
    for n in shape.split(","):
        size *= int(n) if n else 1
    return size


def predicted(name: str, p: int, length: int = LENGTH) -> tuple[float, float]:
    """Bytes that a device receives, forward and with gradients, float32, one row.

    Softmax around the ring: queries, keys, values and the numbers of their segments in each of
    P / 2 steps, and what visitors read goes back, but not in the last step; backward all of it once
    more, with the log-sum-exp, and the slopes of queries, keys and values.  A window: once there,
    and its slopes back.  A memory: of all devices to all.  In turn: the learner of one head,
    H + P - 1 times.  The gradient of four matrices DIM x DIM is summed.
    """
    if p == 1:
        return 0.0, 0.0
    k = v = DIM // HEADS
    tokens = HEADS * length // p  # of all heads in a piece
    if name == "softmax":
        steps, back = p // 2, (p - 1) // 2
        there, home = 2 * k + v + 2, v + 1
        forward = tokens * (steps * there + back * home)
        backward = tokens * (steps * (there + 1 + there - 2) + back * home)
    elif name == "sliding_window":
        forward = HEADS * (WINDOW - 1) * (k + v)
        backward = forward
    elif name == "ttt_linear":
        state = 2 * v * (v + 1) + 1
        forward = (HEADS + p - 1) * state  # one head's learner a turn
        backward = forward
    else:
        forward = (p - 1) * HEADS * k * v
        backward = forward
    weights = 2 * (p - 1) / p * 4 * DIM**2
    return 4.0 * forward, 4.0 * (forward + backward + weights)


def one(devices: int) -> None:
    """Print what one number of devices does, as JSON; in a process of its own."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import numpy as np

    import olsq.nn

    mesh = jax.make_mesh((devices,), ("time",))
    x = np.random.default_rng(SEED).normal(size=(1, LENGTH, DIM)).astype(np.float32)
    x = olsq.nn.shard_batch(x, mesh, None, "time")
    found: dict[str, Any] = {}
    for name, options in OPTIONS.items():
        layer = olsq.nn.mixer(name, DIM, heads=HEADS, key=jax.random.key(SEED), **options)
        layer = olsq.nn.shard(layer, mesh, sequence="time")
        weights, rest = eqx.partition(layer, eqx.is_array)

        def loss(given: Any, rest: Any = rest) -> Any:
            return jnp.sin(eqx.combine(given[0], rest)(given[1])).sum()

        row: dict[str, Any] = {}
        for kind, f in (("forward", loss), ("gradient", jax.value_and_grad(loss))):
            program = jax.jit(f).lower((weights, x)).compile()
            took = []
            for _ in range(REPEATS):
                begin = time.process_time()
                jax.block_until_ready(program((weights, x)))
                took.append(time.process_time() - begin)
            counted = received(program.as_text(), devices)
            row[kind] = {
                "bytes": round(sum(counted.values())),
                "by_kind": {k: round(b) for k, b in counted.items()},
                "temporary_bytes": program.memory_analysis().temp_size_in_bytes,
                "cpu_seconds": min(took),
            }
        found[name] = row
        print(devices, name, row, file=sys.stderr, flush=True)
    print(json.dumps(found))


def main() -> None:
    """Every number of devices in turn."""
    if len(sys.argv) > 1:
        one(int(sys.argv[1]))
        return
    from ..support import machine

    measured = {}
    for devices in DEVICES:
        flags = f"--xla_force_host_platform_device_count={devices}"
        env = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-m", "benchmarks.reports.devices", str(devices)]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
        measured[devices] = json.loads(done.stdout)
        for name, row in measured[devices].items():
            row["predicted_bytes"] = dict(
                zip(("forward", "gradient"), predicted(name, devices), strict=True)
            )
    sizes = {"tokens": LENGTH, "dim": DIM, "heads": HEADS, "window": WINDOW, "rows": 1}
    facts = {
        "command": "python -m benchmarks.reports.devices",
        "seed": SEED, "machine": machine.describe(),
        "sizes": {**sizes, "mini_batch": MINI_BATCH, "dtype": "float32"}, "devices": measured,
    }  # fmt: skip
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()

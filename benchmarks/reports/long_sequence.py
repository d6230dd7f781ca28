"""Time, memory and error of the default solver by length: one head, d 64, gates .999, float32.

    python -m benchmarks.reports.long_sequence             # to 2^20: minutes, 4 GiB; stores results
    python -m benchmarks.reports.long_sequence 65536       # prints only

Every length in a process of its own: processor time of the least of a few runs, what the compiled
program keeps beside arguments and results, and by how much the process grew at its peak, results
included (Linux; None elsewhere).  The error is that of the middle and the last output against a
dense float64 solve, relative to them.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import olsq
from benchmarks.support import machine

WIDTH, GATE, RIDGE, WORDS = 64, 0.999, 0.25, 2000
REACH = 40_000  # tokens of memory: .999 to this power is below float64's rounding
LENGTHS = tuple(2**n for n in range(14, 21, 2))
RESULTS = Path(__file__).parents[1] / "results" / "long_sequence.json"
MIB = 2**20


def stream(length: int) -> tuple[Any, ...]:
    """Keys of Zipf words with some noise, values, queries and gates."""
    rng = np.random.default_rng(0)
    words = rng.standard_normal((WORDS, WIDTH))
    words /= np.linalg.norm(words, axis=1, keepdims=True)
    often = 1 / np.arange(1, WORDS + 1)
    ids = rng.choice(WORDS, length, p=often / often.sum())
    k = words[ids] + 0.1 * rng.standard_normal((length, WIDTH))
    v, q = rng.standard_normal((2, length, WIDTH))
    return tuple(jnp.asarray(x[None], jnp.float32) for x in (k, v, q, np.full(length, GATE)))


def forward(k: Any, v: Any, q: Any, gates: Any) -> Any:
    return olsq.online_lstsq(k, v, q, forget=gates, ridge=RIDGE).value


def with_backward(*given: Any) -> Any:
    value, pull = jax.vjp(forward, *given)
    return value, pull(given[1])


def error(given: tuple[Any, ...], value: Any) -> float:
    """The larger of two outputs' relative errors."""
    k, v, q = (np.asarray(x[0], np.float64) for x in given[:3])
    found = []
    for t in (len(k) // 2, len(k) - 1):
        part = slice(max(0, t - REACH), t + 1)
        weighted = k[part] * (GATE ** np.arange(len(k[part]) - 1, -1, -1.0))[:, None]
        gram = weighted.T @ k[part] + RIDGE * np.eye(WIDTH)
        wanted = v[part].T @ weighted @ np.linalg.solve(gram, q[t])
        gone = np.linalg.norm(np.asarray(value[0, t]) - wanted) / np.linalg.norm(wanted)
        found.append(float(gone))
    return max(found)


def resident(field: str) -> float | None:
    """MiB of this process: VmRSS now, VmHWM at its peak; None where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(x for x in status.read_text().splitlines() if x.startswith(field))
    return int(line.split()[1]) / 1024


def reset_peak() -> float | None:
    """MiB of this process now, from where its peak is counted on."""
    gc.collect()
    if resident("VmRSS") is not None:
        Path("/proc/self/clear_refs").write_text("5")
    return resident("VmRSS")


def measure(length: int) -> dict[str, Any]:
    """Both passes over ``length`` tokens, in this process."""
    given, found = stream(length), {"tokens": length}
    for name, function in (("forward", forward), ("gradient", with_backward)):
        program = jax.jit(function).lower(*given).compile()
        before, seconds, out = reset_peak(), [], None
        for _ in range(3):
            out = None
            start = time.process_time()
            out = jax.block_until_ready(program(*given))
            seconds.append(time.process_time() - start)
        peak = resident("VmHWM")
        found[name] = {
            "seconds": min(seconds),
            "kept_mib": program.memory_analysis().temp_size_in_bytes / MIB,
            "results_mib": sum(x.nbytes for x in jax.tree.leaves(out)) / MIB,
            "peak_mib": None if before is None or peak is None else peak - before,
            "error": error(given, out if name == "forward" else out[0]),
        }
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """The page's table."""
    lines = [
        "| tokens | forward | with gradients | kept, forward | kept, with gradients "
        "| results | process grew by |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [f"{row['tokens']:,}"]
        for name in ("forward", "gradient"):
            s = row[name]["seconds"]
            cells.append(f"{s:.2f} s, {1e6 * s / row['tokens']:.1f} µs per token")
        cells += [f"{row[n]['kept_mib']:.0f} MiB" for n in ("forward", "gradient")]
        cells += [f"{row['gradient'][n]:.0f} MiB" for n in ("results_mib", "peak_mib")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    lengths = [int(x) for x in sys.argv[1:] if x != "--here"]
    if "--here" in sys.argv:
        print(json.dumps(measure(lengths[0])))
        return
    rows = []
    for length in lengths or LENGTHS:
        command = [sys.executable, "-m", "benchmarks.reports.long_sequence", str(length), "--here"]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        rows.append(json.loads(out.splitlines()[-1]))
        print(rows[-1], flush=True)
        if not lengths:
            found = {"rows": rows, "machine": machine.describe()}
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()

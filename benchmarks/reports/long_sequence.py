"""Time, memory and error of the default solver by length: one head, d 64, gates .999, float32.

    python -m benchmarks.reports.long_sequence 65536 1048576    # prints; minutes, 7 GiB at 2^20

Processor time of the least of a few runs, and what the compiled program keeps.  The error is that
of the middle and the last output against a dense float64 solve, relative to them.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import olsq

WIDTH, GATE, RIDGE, WORDS = 64, 0.999, 0.25, 2000
REACH = 40_000  # tokens of memory: .999 to this power is below float64's rounding


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


def main() -> None:
    for length in map(int, sys.argv[1:] or ["65536"]):
        given = stream(length)
        for name, function in (("forward", forward), ("with backward", with_backward)):
            program = jax.jit(function).lower(*given).compile()
            kept = program.memory_analysis().temp_size_in_bytes / 2**20
            seconds = []
            for _ in range(3):
                start = time.process_time()
                out = jax.block_until_ready(program(*given))
                seconds.append(time.process_time() - start)
            least = min(seconds)
            said = f"{name} {length}: {least:.2f} s, {1e6 * least / length:.1f} us a token"
            value = out if name == "forward" else out[0]
            print(f"{said}, {kept:.0f} MiB, error {error(given, value):.1e}", flush=True)


if __name__ == "__main__":
    main()

"""Microseconds of one decoded token on NumPy states, beside the error of its output.

    python -m benchmarks.reports.numpy_decoding      # ten seconds; prints

The error is that of a query after 100 tokens against one dense float64 solve.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

import olsq
from benchmarks.support import machine
from olsq.sequence import start_decoding

GATE, RIDGE = 0.99, 1.0
SIZES = ((4, 1, np.float64), (16, 16, np.float64), (64, 64, np.float32))


def microseconds(run: Callable[[], Any], number: int = 2000) -> float:
    """The best of five rounds."""
    return 1e6 * min(timeit.repeat(run, number=number, repeat=5)) / number


def main() -> None:
    """Command line."""
    print(machine.describe()["cpu"])
    rng = np.random.default_rng(0)
    for d, m, dtype in SIZES:
        empty = olsq.Moments(np.zeros((d, d), dtype), np.zeros((m, d), dtype))
        state = start_decoding(empty, ridge=RIDGE)
        for _ in range(100):
            k, v, q = (rng.normal(size=n).astype(dtype) for n in (d, m, d))
            state = olsq.update(state, k, v, forget=GATE)
        gram, cross = (x.astype(np.float64) for x in state.moments)
        want = cross @ np.linalg.solve(gram + RIDGE * np.eye(d), q.astype(np.float64))
        error = np.abs(olsq.query(state, q) - want).max() / np.abs(want).max()
        update = microseconds(lambda s=state, k=k, v=v: olsq.update(s, k, v, forget=GATE))
        query = microseconds(lambda s=state, q=q: olsq.query(s, q))
        print(f"d {d}, m {m}, {np.dtype(dtype)}: update {update:.1f} us, query {query:.1f} us, "
              f"error {error:.0e}")  # fmt: skip


if __name__ == "__main__":
    main()

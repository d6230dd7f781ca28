"""For every test, those in docstrings too: compiled programs are dropped before they are too many.

JAX maps some tens of pieces of memory for a compiled program and keeps them while it remembers the
program.  Linux lets a process have 65,530; a worker that runs thousands of tests gets there, and
dies inside the compiler.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

MAPS = Path("/proc/self/maps")
EVERY, MOST = 10, 25_000

_finished = 0


def pytest_runtest_logfinish(nodeid, location):
    global _finished
    _finished += 1
    if _finished % EVERY or "jax" not in sys.modules or not MAPS.exists():
        return
    if MAPS.read_bytes().count(b"\n") > MOST:
        sys.modules["jax"].clear_caches()
        gc.collect()

"""For every test, those in docstrings too: which run, and how their programs are compiled.

`pytest` alone leaves out the tests marked `slow`, and five of six cases of those marked `sparse`;
`pytest --slow` runs all of them, and so does naming a folder, a file or a test.

Compiling is most of the tests' time.  Most of XLA's optimisations are off, which saves more than
half of it, also in the programs that tests start: they inherit the environment.  JAX's older way
of compiling fusions gives programs of the same meaning in two thirds of the time; jaxlib 0.11 no
longer has it.  XLA cuts a program into up to 32 pieces to compile them in parallel: with a worker
for every core that only adds a fifth to the work, and gives each piece mappings of its own.

Tracing and compiling make millions of objects, and whenever Python looks for garbage JAX looks for
its own too: every 700 objects, a fifth of the time of tests under JAX and a tenth of those that
compile kernels; every 100,000, a twelfth and less.

JAX makes a context of MLIR for every program and keeps it with the program: a quarter of the time
of the thousands of programs of one operation, and two thirds of the memory that programs take.  A
worker has one context, until it forgets its programs.

JAX maps several pieces of memory for a compiled program and keeps them while it remembers the
program.  Linux lets a process have 65,530; a worker that runs thousands of tests gets there, and
dies inside the compiler.  Programs take memory too: a worker forgets them well before.

A BLAS waits actively for its other threads, and with a worker for every core these have none: thin
products then take several times the processor time.  Each worker, and what it starts, has one.
"""

from __future__ import annotations

import functools
import gc
import os
import re
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.tiers import row_of, thin_out

MAPS = Path("/proc/self/maps")
EVERY, MOST = 25, 30_000
GARBAGE = 100_000, 50, 50  # after how many objects, and how many looks at the younger ones

ONE_PIECE = "--xla_cpu_parallel_codegen_split_count=1"
QUICK_FUSIONS = "--xla_cpu_use_fusion_emitters=false"

for library in ("OPENBLAS", "MKL", "BLIS"):  # read when NumPy and SciPy are imported
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_PIECE}".strip()
if (0, 5, 3) <= tuple(map(int, re.findall(r"\d+", version("jaxlib"))[:3])) < (0, 11):
    os.environ["XLA_FLAGS"] += f" {QUICK_FUSIONS}"

gc.set_threshold(*GARBAGE)

# Docstrings are collected by importing modules, and these need a large package of their own.
collect_ignore = [] if find_spec("torch") else ["olsq/torch", "tests/torch/torch_cases.py"]

PLACE = pytest.StashKey[int]()
_finished = 0


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config):
    if config.args_source is not config.ArgsSource.TESTPATHS:  # somebody asked for these
        config.option.slow = True


def pytest_collection_modifyitems(config, items):
    by_row(items)
    if config.option.slow:
        return
    taken = thin_out([item for item in items if not item.get_closest_marker("slow")])
    left_out = set(items) - set(taken)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = taken


def by_row(items):
    """Put a module's tests of one ``row`` of a table next to each other.

    They share compiled programs, which would else be forgotten, or be another worker's.
    """
    first = {}
    for at, item in enumerate(items):
        row = row_of(item)
        key = at if row is None else (item.path, row)
        item.stash[PLACE] = first.setdefault(key, at)
    items.sort(key=lambda item: item.stash[PLACE])


@functools.cache
def share_context():
    """Have JAX make one context; return what forgets it."""
    mlir = sys.modules["jax._src.interpreters.mlir"]
    mlir.make_ir_context = functools.cache(mlir.make_ir_context)
    return mlir.make_ir_context.cache_clear


def pytest_runtest_setup():
    if "jax" in sys.modules:
        share_context()


def pytest_runtest_logfinish(nodeid, location):
    global _finished
    _finished += 1
    if _finished % EVERY or "jax" not in sys.modules or not MAPS.exists():
        return
    if MAPS.read_bytes().count(b"\n") > MOST:
        sys.modules["jax"].clear_caches()
        share_context()()
        gc.collect()

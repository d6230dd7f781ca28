"""For every test, those in docstrings too: which run, and how their programs are compiled.

`pytest` alone is the quick run, `pytest --all` takes the tests marked `full` too, and `pytest
--slow` those marked `slow`: tests/tiers.py.  Naming a folder, a file or a test runs all it has.
`pytest --rest` is `--all` without what a quick run takes.

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

Programs that take longer than a fifth of a second to compile are kept in pytest's own cache, for
the other workers and the next run: tests of models then take two fifths of the processor time, and
tests of single rules three quarters.  JAX finds a program by its text, its options and the version
of JAX, and the folder is named after the processor.  Processes that tests start do not use it:
tests kill them also while they write.  `pytest --cache-clear` empties it.

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
from zlib import crc32

import pytest

from tests import tiers

MAPS = Path("/proc/self/maps")
EVERY, MOST = 25, 30_000
SECONDS_TO_KEEP = 0.2  # programs that compile for longer are kept for the next run
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
    parser.addoption("--all", action="store_true", help="also run the tests marked full")
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")
    parser.addoption("--rest", action="store_true", help="leave out what a quick run takes")


def pytest_configure(config):
    if config.option.slow or config.args_source is not config.ArgsSource.TESTPATHS:
        tiers.current = "slow"  # somebody asked for these, or for all
    else:
        tiers.current = "full" if config.option.all or config.option.rest else "quick"


def pytest_collection_modifyitems(config, items):
    by_row(items)
    taken = set(tiers.thin_out(items, tiers.current))
    if config.option.rest:
        taken -= set(tiers.thin_out(items, "quick"))
    config.hook.pytest_deselected(items=[item for item in items if item not in taken])
    items[:] = [item for item in items if item in taken]


def by_row(items):
    """Put a module's tests of one ``row`` of a table next to each other.

    They share compiled programs, which would else be forgotten, or be another worker's.
    """
    first = {}
    for at, item in enumerate(items):
        row = tiers.row_of(item)
        key = at if row is None else (item.path, row)
        item.stash[PLACE] = first.setdefault(key, at)
    items.sort(key=lambda item: item.stash[PLACE])


@functools.cache
def share_context():
    """Have JAX make one context; return what forgets it."""
    mlir = sys.modules["jax._src.interpreters.mlir"]
    mlir.make_ir_context = functools.cache(mlir.make_ir_context)
    return mlir.make_ir_context.cache_clear


@functools.cache
def keep_programs(session):
    """Have JAX keep what it compiles for long in a folder of pytest's cache."""
    from llvmlite import binding

    processor = f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
    folder = session.cache.mkdir(f"programs-{crc32(processor.encode()):08x}")
    config = sys.modules["jax"].config
    config.update("jax_compilation_cache_dir", str(folder))
    config.update("jax_persistent_cache_min_compile_time_secs", SECONDS_TO_KEEP)
    config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_runtest_setup(item):
    if "jax" in sys.modules:
        share_context()
        if hasattr(item.config, "cache"):
            keep_programs(item.config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Trace the programs of docstrings for this device alone: see ``one_target``."""
    platform = sys.modules.get("olsq.sequence.jax.platform")
    if platform is None or not isinstance(item, pytest.DoctestItem):
        return (yield)
    with platform.tuned_for(platform.target()):
        return (yield)


def pytest_runtest_logfinish(nodeid, location):
    global _finished
    _finished += 1
    if _finished % EVERY or "jax" not in sys.modules or not MAPS.exists():
        return
    if MAPS.read_bytes().count(b"\n") > MOST:
        sys.modules["jax"].clear_caches()
        share_context()()
        gc.collect()

"""No compiled kernel reads or writes outside of its arrays.

Numba does not check: a kernel that does corrupts memory, and what breaks is something else, later.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest


def run_program(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "tests.bounds_program", *arguments],
        cwd=Path(__file__).parents[1], capture_output=True, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


@pytest.mark.full
def test_no_kernel_of_streams_leaves_its_arrays():
    run_program("streams", NUMBA_DISABLE_JIT="1")


@pytest.mark.slow
def test_no_kernel_leaves_its_arrays(tmp_path):
    # A cache of its own: Numba would take compiled kernels without checks for the same.
    run_program(NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))

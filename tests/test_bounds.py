"""No compiled kernel reads or writes outside of its arrays.

Numba does not check: a kernel that does corrupts memory, and what breaks is something else, later.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_no_kernel_leaves_its_arrays(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.bounds_program"],
        cwd=Path(__file__).parents[1], capture_output=True, text=True,
        # A cache of its own: Numba would take compiled kernels without checks for the same.
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"

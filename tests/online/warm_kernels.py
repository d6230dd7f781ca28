"""Import what kernels need and compile one: for the process that others are forked from."""

import sys

from numba import njit

import olsq.kernels  # noqa: F401

if "pytest" not in sys.modules:  # which imports all modules, to collect their doctests
    njit(lambda x: f"{x + 1}")(1)

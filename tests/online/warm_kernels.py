"""Import what kernels need and compile one: for the process that others are forked from."""

from numba import njit

import olsq.kernels  # noqa: F401

njit(lambda x: f"{x + 1}")(1)

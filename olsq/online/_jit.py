"""The one way kernels are compiled."""

from __future__ import annotations

from functools import partial

from numba import njit

# fastmath without "nnan"/"ninf": a test for finiteness must mean what it says.  Division follows
# NumPy (no exception half-way through an update).
kernel = partial(
    njit,
    cache=True,
    nogil=True,
    error_model="numpy",
    fastmath={"reassoc", "contract", "nsz", "arcp"},
)

"""Givens rotations of arrays of numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olsq.kernels.kernel import kernel
from olsq.linalg.numpy.rotations import givens


@kernel()
def givens_all(a, b, out):
    """Compute :func:`givens` of every a (n,), b (n,), into out (3, n)."""
    for i in range(a.shape[0]):
        out[0, i], out[1, i], out[2, i] = givens(a[i], b[i])


def plane_rotation(a: NDArray, b: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Compute c, s, r for numbers that are finite and of one dtype; shapes broadcast."""
    dtype = a.dtype
    a, b = np.broadcast_arrays(a, b)
    out = np.empty((3, a.size))
    givens_all(a.astype(np.float64).ravel(), b.astype(np.float64).ravel(), out)
    c, s, r = out.astype(dtype, copy=False).reshape(3, *a.shape)
    return c, s, r

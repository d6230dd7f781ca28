"""Update large symmetric matrices by BLAS, half the arithmetic of a product."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from olsq.kernels.kernel import kernel

TILE = 32  # rows and columns mirrored together: two tiles fit the first cache


@kernel()
def mirror_upper(H):
    """Copy what is above the diagonal to below it, a tile at a time so that both stay in cache."""
    d = H.shape[0]
    if H.shape != (d, d):
        raise ValueError("H does not have the shape of a square")
    for i in range(0, d, TILE):
        for j in range(i, d, TILE):
            for row in range(j, min(j + TILE, d)):
                for k in range(i, min(i + TILE, row)):
                    H[row, k] = H[k, row]


def add_gram(
    H: NDArray[np.float64], X: NDArray[np.float64], alpha: float, beta: float
) -> None:  # fmt: skip
    """``H = beta H + alpha X^T X`` in place, for H (d, d) symmetric and X (n, d).

    Both must be C-contiguous.  H stays bitwise symmetric: one triangle is computed and mirrored.
    """
    if not (H.flags.c_contiguous and X.flags.c_contiguous):
        raise ValueError("H and X must be C-contiguous")
    # Column major, BLAS sees both transposed: the lower triangle of H^T is the upper one of H.
    dsyrk(alpha, X.T, beta=beta, c=H.T, lower=True, overwrite_c=True)
    mirror_upper(H)

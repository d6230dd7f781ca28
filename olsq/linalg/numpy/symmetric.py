"""Update large symmetric matrices by BLAS, half the arithmetic of a product."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs

from olsq.kernels.kernel import kernel

(dsyrk,) = get_blas_funcs(("syrk",), dtype=np.float64)
TILE = 32  # rows and columns mirrored together: a tile fits the first cache


@kernel()
def mirror_upper(H):
    """Copy what is above the diagonal to below it.

    By tiles, through a buffer: rows of a large matrix lie a power of two apart more often than not,
    and a column of a tile would then fill one set of the cache.
    """
    d = H.shape[0]
    if H.shape != (d, d):
        raise ValueError("H does not have the shape of a square")
    tile = np.empty((TILE, TILE))
    for i in range(0, d, TILE):
        height = min(TILE, d - i)
        for j in range(i, d, TILE):
            width = min(TILE, d - j)
            for row in range(height):
                for k in range(width):
                    tile[k, row] = H[i + row, j + k]
            for row in range(width):
                for k in range(height if j > i else row):
                    H[j + row, i + k] = tile[row, k]


def add_gram(
    H: NDArray[np.float64], X: NDArray[np.float64], alpha: float, beta: float
) -> None:  # fmt: skip
    """Compute ``H = beta H + alpha X^T X`` in place, for H (d, d) symmetric and X (n, d).

    Both must be C-contiguous.  H stays bitwise symmetric: one triangle is computed and mirrored.
    """
    if not (H.flags.c_contiguous and X.flags.c_contiguous):
        raise ValueError("H and X must be C-contiguous")
    # Column major, BLAS sees both transposed: the lower triangle of H^T is the upper one of H.
    dsyrk(alpha, X.T, beta=beta, c=H.T, lower=True, overwrite_c=True)
    mirror_upper(H)

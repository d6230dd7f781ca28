"""Numba kernel that embeds complex rows in pairs of real ones."""

from __future__ import annotations

from olsq.kernels import kernel


@kernel()
def embed(parts, rows):
    """Fill rows (2n, 2k) with the pairs ``[Re x, -Im x]``, ``[Im x, Re x]`` of n complex rows,
    given as their parts (n, 2k): real, imaginary, real, ...
    """
    n, k = parts.shape[0], parts.shape[1] // 2
    if parts.shape[1] % 2 or rows.shape != (2 * n, 2 * k):
        raise ValueError("the shapes of rows and their parts do not fit together")
    for t in range(n):
        for j in range(k):
            real, imag = parts[t, 2 * j], parts[t, 2 * j + 1]
            rows[2 * t, j], rows[2 * t, k + j] = real, -imag
            rows[2 * t + 1, j], rows[2 * t + 1, k + j] = imag, real

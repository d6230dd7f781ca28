"""The covariance form of large models: a block of rows by matrix products.

The recursion of ``covariance_blocks`` for as many rows as make the products fast.  With rows K~ and
targets times ``sqrt(w_t / zeta_t)``, zeta_t the product of the block's gates up to row t:

    S = I + K~ P K~^T = L L^T,   N = L^-1 K~ P,   eps = L^-1 e~,
    e_t = L_tt eps_t / sqrt(w_t / zeta_t),
    theta' = theta + eps^T N,    P' = (P - N^T N) / zeta

P' is computed as one triangle and mirrored, so it stays bitwise symmetric.  The bounds within which
the form keeps its digits are those of single rows: :mod:`olsq.online.forms.limits`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from olsq.linalg.numpy.lapack import add_gram
from olsq.online.forms.covariance_kernels import trusted
from olsq.online.forms.rows import Rows
from olsq.online.forms.square_root_blocks import bring_counters_forward

dgemm, dtrsm = get_blas_funcs(("gemm", "trsm"), dtype=np.float64)
dpotrf, dtrtrs = get_lapack_funcs(("potrf", "trtrs"), dtype=np.float64)

# Coefficients from which products are faster than eight rows at a time, which keep up while P fits
# a core's second cache (1.3 times their time at 384, 0.75 times at 512, on one thread).
BLOCKED_FROM = 448
BLOCK = 128  # rows at most; 256 from LARGE on
LARGE = 1024
FEWEST = 32  # rows for which products are worth their overhead
# Leverage before the block, above which S loses digits that eight rows keep: with bounds of 1e3,
# 1e4 and 1e6 errors of coefficients were 1.0, 1.3 and 130 times those of eight rows (d = 130).
LARGEST_LEVERAGE = 1e3


def absorb_block(
    P: NDArray,
    theta: NDArray,
    columns: NDArray,
    tally: NDArray,
    loss: NDArray,
    rows: Rows,
    limits: tuple[float, float, float],
    residual: NDArray,
) -> bool:
    """Absorb all rows, as one block; False, with nothing changed, where fewer at a time have to.

    ``limits`` as in ``covariance_kernels.update``; ``residual`` (n, m) receives a-priori errors.
    """
    X, Y, gates, weights = rows
    decay = np.cumprod(gates)
    left = float(decay[-1])  # P may have grown by its inverse at the block's end
    if not trusted(P, columns, (limits[0], limits[1] * left, limits[2] * left)):
        return False
    root = np.sqrt(weights / decay)
    K = root[:, None] * X
    # SciPy's BLAS is column major: it sees the transposes of C-contiguous arrays as they are.
    gain = dgemm(1.0, P.T, K.T)  # (d, n): P K~^T
    S = dgemm(1.0, K.T, gain, trans_a=True)
    leverage = np.diagonal(S).copy()
    if not (leverage.min() >= 0 and leverage.max() <= min(limits[0], LARGEST_LEVERAGE)):
        return False
    np.einsum("ii->i", S)[:] += 1.0
    L, info = dpotrf(S, lower=True, clean=True, overwrite_a=True)
    diagonal = np.diagonal(L)
    if info != 0 or not (diagonal**2 >= 1.0 - 1e-9 * (1.0 + leverage)).all():
        return False
    N = dtrsm(1.0, L, gain, side=1, lower=True, trans_a=True, overwrite_b=True)  # (d, n)
    errors = root[:, None] * Y - dgemm(1.0, K.T, theta.T, trans_a=True)
    eps = dtrtrs(L, errors, lower=True)[0]
    residual[:] = eps * (diagonal / root)[:, None]
    theta += dgemm(1.0, eps, N, trans_a=True, trans_b=True)
    loss += np.einsum("ij,ij->j", eps, eps)
    loss *= left
    add_gram(P, N.T, -1.0 / left, 1.0 / left)
    bring_counters_forward(columns, tally, X, gates, weights, 0, len(X))
    return True

"""Update factorisations when rows or columns are added or removed, without starting afresh.

NumPy arrays go to Numba kernels, without importing JAX, JAX arrays and tracers to functions that
jit, vmap and differentiate.
"""

from olsq.linalg.cholesky import cholesky_downdate, cholesky_update
from olsq.linalg.orthogonal import Givens, givens, qr_delete, qr_insert

__all__ = ["Givens", "cholesky_downdate", "cholesky_update", "givens", "qr_delete", "qr_insert"]

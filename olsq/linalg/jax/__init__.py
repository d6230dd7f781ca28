"""JAX backend: scans over rows, which jit, vmap and differentiate."""

from olsq.linalg.jax.cholesky import cholesky_downdate, cholesky_update
from olsq.linalg.jax.orthogonal import qr_delete, qr_insert
from olsq.linalg.jax.rotations import plane_rotation

__all__ = ["cholesky_downdate", "cholesky_update", "plane_rotation", "qr_delete", "qr_insert"]

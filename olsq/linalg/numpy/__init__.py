"""NumPy backend: Numba kernels in float64, one loop over the batch."""

from olsq.linalg.numpy.cholesky import cholesky_downdate, cholesky_update
from olsq.linalg.numpy.orthogonal import qr_delete, qr_insert
from olsq.linalg.numpy.rotations import plane_rotation

__all__ = ["cholesky_downdate", "cholesky_update", "plane_rotation", "qr_delete", "qr_insert"]

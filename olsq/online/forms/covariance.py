"""States in files of earlier versions that hold the inverse information P and the coefficients."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms import schema
from olsq.online.forms.square_root import SquareRootForm

COVARIANCE = 1  # how files before the factor name the form of a filter


class CovarianceState:
    """The arrays P (d, d) and theta (m, d) of a file, which become a triangular factor."""

    name: ClassVar[str] = "covariance"

    @classmethod
    def restore(cls, arguments: dict[str, Any], arrays: dict[str, NDArray]) -> SquareRootForm:
        """Return the state in square-root form."""
        own = {name: arrays[name] for name in schema.COVARIANCE}
        R, z = square_root_of(own.pop("P"), own.pop("theta"))
        return SquareRootForm.restore(arguments, own | {"R": R, "z": z})


def square_root_of(P: NDArray, theta: NDArray) -> tuple[NDArray, NDArray]:
    """Compute R (..., d, d) upper triangular with ``R^T R = P^-1``, and ``z = R theta``.

    By the spectral decomposition of P, scaled to a unit diagonal: rounding errors in P cannot make
    it fail.
    """
    scale = np.sqrt(np.diagonal(P, axis1=-2, axis2=-1))
    values, vectors = np.linalg.eigh(P / scale[..., None, :] / scale[..., :, None])
    eps = np.finfo(np.float64).eps
    root = np.sqrt(np.maximum(values, values[..., -1:] * eps))
    # P = D V L V^T D (D the scale): the rows L^(-1/2) V^T D^(-1) have the product P^(-1)
    rows = np.swapaxes(vectors, -1, -2) / root[..., :, None] / scale[..., None, :]
    R: NDArray = np.linalg.qr(rows)[1]
    R *= np.where(np.diagonal(R, axis1=-2, axis2=-1) < 0, -1.0, 1.0)[..., :, None]
    # A column that no row has excited is correlated with none: rounding must not say that it is.
    alone = np.count_nonzero(P, axis=-1) == 1
    R[alone[..., :, None] | alone[..., None, :]] = 0.0
    diagonal = np.arange(P.shape[-1])
    R[..., diagonal, diagonal] += np.where(alone, 1.0 / scale, 0.0)
    return np.ascontiguousarray(R), theta @ np.swapaxes(R, -1, -2)

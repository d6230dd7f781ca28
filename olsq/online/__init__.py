"""Streaming least squares: one sample at a time, NumPy in and out, Numba inside."""

from olsq.online.estimator import RecursiveLeastSquares
from olsq.online.files import StateFileError
from olsq.online.loading import load
from olsq.online.many.bank import FilterBank
from olsq.online.many.grouped import GroupedLeastSquares
from olsq.online.merging import merge
from olsq.online.path import CoefficientPath, coefficient_path
from olsq.online.rolling import RollingLeastSquares

__all__ = [
    "CoefficientPath",
    "FilterBank",
    "GroupedLeastSquares",
    "RecursiveLeastSquares",
    "RollingLeastSquares",
    "StateFileError",
    "coefficient_path",
    "load",
    "merge",
]

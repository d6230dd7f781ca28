"""Streaming least squares: one sample at a time, NumPy in and out, Numba inside."""

from olsq.online.delayed_targets import DelayedTargets
from olsq.online.estimators.recursive import RecursiveLeastSquares
from olsq.online.estimators.rolling import RollingLeastSquares
from olsq.online.files.format import StateFileError
from olsq.online.horizon import Forecasts, score_forecasts
from olsq.online.loading import load
from olsq.online.many.bank import FilterBank
from olsq.online.many.fama_macbeth import fama_macbeth
from olsq.online.many.grouped import GroupedLeastSquares
from olsq.online.many.panel_fit import PanelFit
from olsq.online.many.rolling_groups import GroupedRollingLeastSquares
from olsq.online.paths.path import CoefficientPath
from olsq.online.pieces.merging import merge
from olsq.online.variants.constrained import ConstrainedLeastSquares
from olsq.online.variants.elastic_net import OnlineElasticNet
from olsq.online.variants.kernel_regression import KernelLeastSquares
from olsq.online.variants.robust import RobustLeastSquares
from olsq.online.variants.total import NotGenericError, TotalLeastSquares
from olsq.online.whole_array import coefficient_path

__all__ = [
    "CoefficientPath",
    "ConstrainedLeastSquares",
    "DelayedTargets",
    "FilterBank",
    "Forecasts",
    "GroupedLeastSquares",
    "GroupedRollingLeastSquares",
    "KernelLeastSquares",
    "NotGenericError",
    "OnlineElasticNet",
    "PanelFit",
    "RecursiveLeastSquares",
    "RobustLeastSquares",
    "RollingLeastSquares",
    "StateFileError",
    "TotalLeastSquares",
    "coefficient_path",
    "fama_macbeth",
    "load",
    "merge",
    "score_forecasts",
]

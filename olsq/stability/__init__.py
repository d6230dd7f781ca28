"""Tests of stable coefficients: recursive residuals, CUSUM, breaks, drift, one-step scores."""

from olsq.stability.breaks import BreakTest, ChowTest, break_test, chow_test
from olsq.stability.hansen import Nyblom, nyblom
from olsq.stability.ols_residuals import OLSCusum, ols_cusum
from olsq.stability.recursive import (
    Cusum,
    CusumSquares,
    HarveyCollier,
    cusum,
    cusum_squares,
    harvey_collier,
    recursive_residuals,
)
from olsq.stability.scores import Scores, one_step_scores

__all__ = [
    "BreakTest",
    "ChowTest",
    "Cusum",
    "CusumSquares",
    "HarveyCollier",
    "Nyblom",
    "OLSCusum",
    "Scores",
    "break_test",
    "chow_test",
    "cusum",
    "cusum_squares",
    "harvey_collier",
    "nyblom",
    "ols_cusum",
    "one_step_scores",
    "recursive_residuals",
]

"""Figures of time-varying regressions: coefficient paths, one-step-ahead residuals, CUSUM.

matplotlib is imported inside the functions that draw, so importing this module (or olsq) does not
load it.  It comes with the extra ``plot``; ``cusum`` needs NumPy only.
"""

from olsq.plot.breaks import plot_break_test, plot_cusum_squares
from olsq.plot.figures import plot_cusum, plot_fit, plot_path, plot_residuals
from olsq.stability.recursive import Cusum, cusum

__all__ = [
    "Cusum",
    "cusum",
    "plot_break_test",
    "plot_cusum",
    "plot_cusum_squares",
    "plot_fit",
    "plot_path",
    "plot_residuals",
]

"""Pictures of a regression that moves: coefficient paths, one-step-ahead residuals, CUSUM.

matplotlib is imported inside the functions that draw, so importing this module (or olsq) does not
load it; install it with ``pip install "olsq[cli]"``.  ``cusum`` needs NumPy only.
"""

from olsq.plot._cusum import Cusum, cusum
from olsq.plot._figures import plot_cusum, plot_fit, plot_path, plot_residuals

__all__ = ["Cusum", "cusum", "plot_cusum", "plot_fit", "plot_path", "plot_residuals"]

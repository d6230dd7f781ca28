"""Judge an estimate against the dense oracle.

Two questions, each with a tolerance that comes from the dtype alone or from dtype and condition:

* optimality: no estimate may raise the objective above its minimum by more than rounding.  This
  holds at any conditioning, and where coefficients are undetermined;
* accuracy: where the scaled condition number kappa leaves digits, coefficients agree to
  ``eps (kappa + kappa^2 rho)`` with rho the relative size of the residual (square-root form: what
  the problem itself allows, Golub & Van Loan 5.3.7), or ``eps kappa^2`` (the forms that square).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from olsq.reference import regression as oracle

SLACK = 300.0  # rounding errors of some hundred operations in a row, all in one direction


def objective(X, Y, weights, ridge, coef, intercept):
    """Weighted squares plus penalty (m,), in float64 and in the data's own terms."""
    error = Y - X @ coef.T - intercept
    return weights @ error**2 + (ridge * coef**2).sum(1)


def check_optimal(X, Y, weights, ridge, fit_intercept, coef, intercept, eps):
    """The objective at (coef, intercept) is its minimum, to rounding of the terms it sums."""
    best, bias, _, _, _ = oracle.solve(X, Y, weights, ridge, fit_intercept)
    least = objective(X, Y, weights, ridge, best, bias)
    found = objective(X, Y, weights, ridge, coef, intercept)
    # Rounding y and x.coef to eps changes the objective by about eps times these squares.
    size = np.abs(Y) + np.abs(X) @ np.abs(coef).T + np.abs(intercept)
    rounding = weights @ size**2 + (ridge * coef**2).sum(1)
    assert (found - least <= SLACK * eps * rounding).all(), (found - least) / rounding


def coefficient_error(coef: NDArray, truth: NDArray, X: NDArray, Y: NDArray) -> float:
    """Largest error of a term coef_j x_j, over the largest such term or target."""
    size = np.abs(X).max(0)
    scale = max(np.abs(truth * size).max(), np.abs(Y).max())
    return float(np.abs((coef - truth) * size).max() / scale) if scale > 0 else 0.0


def tolerance(method: str, eps: float, condition: float, relative_residual: float) -> float:
    """Relative error that rounding may cause in the coefficients; inf where undetermined."""
    if not np.isfinite(condition):
        return np.inf
    rho = relative_residual if method == "sqrt" else 1.0
    return SLACK * eps * (condition + condition**2 * rho)

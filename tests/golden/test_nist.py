"""NIST's certified regressions, fed one row at a time.

Digits of agreement are ``-log10`` of the relative error, the measure NIST recommends. Float64 and a
backward stable method leave about ``16 - log10(condition number)`` of them: Longley's regressors
with an intercept have condition number 4.9e9 as given.
"""

from __future__ import annotations

import numpy as np
import pytest

import olsq

METHODS = ["covariance", "sqrt", "information"]

# The least number of digits each method must give: what was measured, less about one digit.
# "information" accumulates moments, which hold the square of the condition number.
DIGITS = {
    # y goes to 1e3 and is known to eps, which leaves the intercept of -.26 about 12 digits; batch
    # QR gives 12.3.
    "norris": {"covariance": 11, "sqrt": 11, "information": 11},
    "longley": {"covariance": 10, "sqrt": 10, "information": 7},
    "wampler1": {"covariance": 8, "sqrt": 8, "information": 5},
    "wampler2": {"covariance": 12, "sqrt": 12, "information": 8},
}


def digits(value, certified) -> float:
    """Digits of agreement of the worst entry."""
    error = np.max(np.abs(np.asarray(value) / certified - 1))
    return float(-np.log10(max(error, 1e-16)))


def estimate(est) -> np.ndarray:
    return np.append(est.intercept_, est.coef_)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", DIGITS)
def test_certified_coefficients(nist, name, method):
    data = nist[name]
    est = olsq.RecursiveLeastSquares(ridge=0.0, method=method)
    for row, target in zip(data.X, data.y, strict=True):
        est.partial_fit(row[None], [target])
    assert digits(estimate(est), data.coef) >= DIGITS[name][method]


@pytest.mark.parametrize("name", ["longley", "norris"])
def test_certified_standard_errors(nist, name):
    data = nist[name]
    est = olsq.RecursiveLeastSquares(ridge=0.0, method="sqrt").partial_fit(data.X, data.y)
    assert digits(est.coef_stderr_, data.stderr[1:]) >= 8
    assert digits(np.sqrt(est.sigma2_), data.residual_sd) >= 8


@pytest.mark.parametrize("name", ["longley", "norris"])
def test_last_row_of_the_coefficient_path_is_the_certified_fit(nist, name):
    data = nist[name]
    path = olsq.coefficient_path(data.X, data.y, fit_intercept=True)
    last = np.append(path.intercept[-1], path.coef[-1])
    assert digits(last, data.coef) >= 9
    assert digits(path.stderr[-1], data.stderr[1:]) >= 8

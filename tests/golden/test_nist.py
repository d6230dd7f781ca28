"""NIST's certified regressions and Wilkinson's columns through every front door.

Digits of agreement are ``-log10`` of the relative error, the measure NIST recommends.  Float64 and
a backward stable method leave about ``16 - log10(condition number)`` of them.
"""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from benchmarks.reports import nist

DATA = nist.read_data()
# Rounding differs between backward stable algorithms: by two digits at most where the residuals
# are as large as the targets, as in Wampler5.  Half a digit for LAPACK's memory-dependent sums.
STABLE = 2.5


def required(name: str) -> float:
    """Return the digits that a backward stable algorithm leaves on a data set."""
    data = DATA[name]
    bound = 16 - np.log10(data.condition)
    return min(nist.digits(nist.TEXTBOOK["batch QR"](data), data), bound) - STABLE


@pytest.mark.full
@pytest.mark.parametrize("door", nist.DOORS)
@pytest.mark.parametrize("name", DATA)
def test_certified_coefficients(name, door):
    data = DATA[name]
    assert nist.digits(nist.DOORS[door](data), data) >= required(name)


@pytest.mark.parametrize("name", ["filip", "nasty big", "nasty little"])
def test_every_method_and_ridge_has_the_digits_that_moments_lose(name):
    """Condition numbers above 1e8."""
    data = DATA[name]
    root = olsq.RecursiveLeastSquares(ridge=0.0, method="sqrt").fit(data.X, data.y)
    for options in (
        {"method": "information"}, {"method": "information", "ridge": 1e-300},
        {"ridge_mode": "fixed", "ridge": 1e-300},
    ):  # fmt: skip
        est = olsq.RecursiveLeastSquares(**options).fit(data.X, data.y)
        assert est.determined_.all()
        np.testing.assert_allclose(est.coef_, root.coef_, rtol=1e-7)  # to 4e-8 of the certified
        assert np.isfinite(est.coef_stderr_).all()


@pytest.mark.parametrize("name", [name for name in DATA if DATA[name].stderr.any()])
def test_certified_standard_errors(name):
    data = DATA[name]
    options = {"ridge": 0.0, "fit_intercept": data.fit_intercept}
    est = olsq.RecursiveLeastSquares(method="sqrt", **options).fit(data.X, data.y)
    path = olsq.coefficient_path(data.X, data.y, fit_intercept=data.fit_intercept)
    slopes = data.stderr[int(data.fit_intercept) :]
    least = 16 - np.log10(data.condition) - STABLE
    for stderr in (est.coef_stderr_, path.stderr[-1]):
        assert -np.log10(np.abs(stderr / slopes - 1).max()) >= min(least, 11)
    # The residuals of Longley and NoInt are a hundredth to a thousandth of the targets.
    assert np.sqrt(est.sigma2_) == pytest.approx(data.residual_sd, rel=10 ** -min(least, 11))


def test_wilkinsons_singular_and_constant_columns():
    """BIG and LITTLE are the same line of X: the fit is exact, no coefficient is determined."""
    x, zero = np.arange(1.0, 10.0), np.zeros((9, 1))
    big, tiny = 99999990 + x, 1e-12 * x
    both = olsq.RecursiveLeastSquares(ridge=0.0).fit(np.column_stack([2 * x, x]), x)
    assert both.rank_ == 2
    assert not both.determined_.any()
    np.testing.assert_allclose(both.predict(np.column_stack([2 * x, x])), x, rtol=1e-13)
    for column in (big, tiny):
        nothing = olsq.RecursiveLeastSquares(ridge=0.0).fit(column[:, None], zero[:, 0])
        assert nothing.coef_ == 0
        assert nothing.intercept_ == 0
    on_zero = olsq.RecursiveLeastSquares(ridge=0.0).fit(zero, x)
    assert on_zero.coef_ == 0
    assert on_zero.intercept_ == pytest.approx(5, rel=1e-15)
    assert not on_zero.determined_.any()

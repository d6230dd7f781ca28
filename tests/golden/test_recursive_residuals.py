"""R's and Stata's recursive regressions of US prices on money, from the statsmodels wheel.

``cpi ~ 1 + m1``, quarterly, 1959-2009. The files were made by ``lm.fit.recursive`` (R, quantreg),
``recresid`` and ``efp(type="Rec-CUSUM")`` (R, strucchange) and ``cusum6`` (Stata).

The three programs divide the cumulated recursive residuals ``w`` of n rows and k coefficients by
different things, all with the same ``sd(w)`` (mean removed, ``n - k - 1`` in the denominator):

* statsmodels, after Brown, Durbin and Evans: ``cumsum(w) / sd(w)``;
* R: ``cumsum(w) / (sd(w) sqrt(n - k))``, so that the process tends to a Brownian motion on [0, 1];
* Stata's ``cusum6``: as statsmodels, but without the first residual, in the sum and in ``sd``.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.datasets
import statsmodels.regression

import olsq

K = 2


@pytest.fixture(scope="module")
def results():
    folder = Path(statsmodels.regression.__file__).parent / "tests" / "results"
    return (
        pd.read_csv(folder / "results_rls_R.csv"),
        pd.read_csv(folder / "results_rls_stata.csv").iloc[K + 1 :],
    )


@pytest.fixture(scope="module")
def macro():
    data = statsmodels.datasets.macrodata.load_pandas().data
    return data[["m1"]].to_numpy(), data["cpi"].to_numpy()


@pytest.fixture(scope="module")
def path(macro):
    return olsq.coefficient_path(*macro, fit_intercept=True)


@pytest.fixture(scope="module")
def recursive_residuals(macro, path):
    """``w_t = e_t / sqrt(1 + x_t' P x_t)``, as the geometric mean of the errors on both sides."""
    X, y = macro
    before = path.residual[K:]
    after = (y - path.intercept - np.sum(path.coef * X, axis=1))[K:]
    return np.sign(before) * np.sqrt(before * after)


def test_recursive_coefficients_of_r(results, path):
    r, _ = results
    np.testing.assert_allclose(path.intercept[K:], r["beta1"], rtol=1e-9)
    np.testing.assert_allclose(path.coef[K:, 0], r["beta2"], rtol=1e-9)


def test_one_row_at_a_time_gives_the_same_path(results, macro):
    r, _ = results
    est = olsq.RecursiveLeastSquares(ridge=0.0)
    trace = []
    for row, target in zip(*macro, strict=True):
        est.partial_fit(row[None], [target])
        trace.append((est.intercept_, est.coef_[0]))
    np.testing.assert_allclose(trace[K:], r[["beta1", "beta2"]], rtol=1e-9)


def test_recursive_residuals_of_r(results, recursive_residuals):
    r, _ = results
    np.testing.assert_allclose(recursive_residuals, r["rec_resid"], rtol=1e-7, atol=1e-9)


def test_recursive_residuals_of_stata(results, recursive_residuals):
    _, stata = results
    # Stata computes in single precision here: prices near 200, residuals to 1e-5.
    np.testing.assert_allclose(recursive_residuals[1:], stata["rr"], rtol=1e-5, atol=1e-5)


def test_cusum_of_r(results, recursive_residuals):
    r, _ = results
    w = recursive_residuals
    cusum = np.cumsum(w) / (np.std(w, ddof=1) * np.sqrt(len(w)))
    np.testing.assert_allclose(cusum, r["cusum"], rtol=1e-7, atol=1e-10)


def test_cusum_and_cusum_of_squares_of_stata(results, recursive_residuals):
    _, stata = results
    w = recursive_residuals[1:]
    np.testing.assert_allclose(
        np.cumsum(w) / np.std(w, ddof=1), stata["cusum"], rtol=1e-5, atol=1e-5
    )
    np.testing.assert_allclose(
        np.cumsum(w**2) / np.sum(w**2), stata["cusum2"], rtol=1e-5, atol=1e-6
    )

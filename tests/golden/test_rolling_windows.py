"""Rolling regressions against pandas and statsmodels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.datasets
from statsmodels.regression.rolling import RollingOLS

import olsq

WINDOW = 40


@pytest.fixture(scope="module")
def macro():
    data = statsmodels.datasets.macrodata.load_pandas().data
    return data[["m1", "unemp"]].to_numpy(), data["cpi"].to_numpy()


@pytest.fixture(scope="module")
def theirs(macro):
    X, y = macro
    return RollingOLS(y, np.column_stack([np.ones(len(y)), X]), window=WINDOW).fit()


def test_path_equals_rolling_ols(macro, theirs):
    path = olsq.coefficient_path(*macro, window=WINDOW, min_samples=WINDOW, fit_intercept=True)
    full = slice(WINDOW - 1, None)
    np.testing.assert_allclose(path.intercept[full], theirs.params[full, 0], rtol=1e-8)
    np.testing.assert_allclose(path.coef[full], theirs.params[full, 1:], rtol=1e-8)
    np.testing.assert_allclose(path.stderr[full], theirs.bse[full, 1:], rtol=1e-8)
    np.testing.assert_allclose(path.sigma2[full], theirs.mse_resid[full], rtol=1e-8)


def test_estimator_equals_rolling_ols(macro, theirs):
    X, y = macro
    est = olsq.RollingLeastSquares(window=WINDOW, ridge=0.0)
    for i, (row, target) in enumerate(zip(X, y, strict=True)):
        est.partial_fit(row[None], [target])
        if i + 1 >= WINDOW:
            ours = np.append(est.intercept_, est.coef_)
            np.testing.assert_allclose(ours, theirs.params[i], rtol=1e-8)


def test_one_regressor_equals_pandas_rolling_covariance(macro):
    X, y = macro
    x, target = pd.Series(X[:, 0]), pd.Series(y)
    slope = x.rolling(WINDOW).cov(target) / x.rolling(WINDOW).var()
    path = olsq.coefficient_path(X[:, :1], y, window=WINDOW, min_samples=WINDOW, fit_intercept=True)
    np.testing.assert_allclose(path.coef[WINDOW - 1 :, 0], slope[WINDOW - 1 :], rtol=1e-8)


def test_exponential_mean_equals_pandas_ewm(macro):
    _, y = macro
    expected = pd.Series(y).ewm(alpha=0.1, adjust=True).mean()
    path = olsq.coefficient_path(np.ones((len(y), 1)), y, forget=0.9)
    np.testing.assert_allclose(path.coef[:, 0], expected, rtol=1e-12)

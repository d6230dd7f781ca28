"""Sparse columns of pandas are learned and predicted block by block."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest

import olsq


def levels(n=40_000, d=30):
    rng = np.random.default_rng(0)
    X = pd.get_dummies(pd.Series(rng.integers(0, d, n)), sparse=True)
    X.columns = [f"level {j}" for j in range(d)]
    return X, X.to_numpy(float) @ np.arange(d) + rng.standard_normal(n)


KINDS = {
    "recursive": lambda: olsq.RecursiveLeastSquares(fit_intercept=False),
    "sqrt": lambda: olsq.RecursiveLeastSquares(forget=0.999, method="sqrt"),
    "rolling": lambda: olsq.RollingLeastSquares(500, fit_intercept=False, ridge=1.0),
    "elastic net": lambda: olsq.OnlineElasticNet(1.0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "dtype",
    [pd.SparseDtype(bool), pd.SparseDtype(np.float32, 0), pd.SparseDtype(float, np.nan)],
    ids=str,
)
def test_results_are_those_of_dense_columns(kind, dtype):
    X, y = levels(4000, 20)
    X, y = X.astype(dtype), np.where(np.arange(4000) % 7 == 0, np.nan, y[:4000])
    dense = X.sparse.to_dense().astype(np.float32 if "32" in str(dtype) else float)
    ours, theirs = KINDS[kind]().fit(X, y), KINDS[kind]().fit(dense, y)
    np.testing.assert_array_equal(ours.coef_, theirs.coef_)
    if kind != "elastic net":  # which has none
        np.testing.assert_array_equal(ours.residual_, theirs.residual_)
    assert ours.coef_.dtype == theirs.coef_.dtype
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(dense))
    if kind in ("recursive", "rolling"):
        std = ours.predict(X, return_std=True)[1]
        np.testing.assert_array_equal(std, theirs.predict(dense, return_std=True)[1])
        path = KINDS[kind]().partial_fit_path(X, y)
        np.testing.assert_array_equal(path.coef[-1], ours.coef_)


def test_a_missing_entry_is_a_missing_value():
    X, y = levels(4000, 20)
    X = X.sparse.to_dense().astype(float)
    X.iloc[5, 3] = np.nan
    X = X.astype(pd.SparseDtype(float, 0))
    est = olsq.RecursiveLeastSquares(fit_intercept=False).fit(X, y[:4000])
    assert est.n_samples_seen_ == 3999
    assert np.flatnonzero(np.isnan(est.predict(X))).tolist() == [5]
    with pytest.raises(ValueError, match=r"Input X contains .* row 5"):
        olsq.RecursiveLeastSquares(missing="raise").fit(X, y[:4000])


def test_memory_stays_at_a_block():
    X, y = levels()
    est = olsq.RecursiveLeastSquares(fit_intercept=False).fit(X.iloc[:3000], y[:3000])
    tracemalloc.start()
    est.partial_fit(X, y)
    est.predict(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * X.size * 8

"""Panels beside linearmodels' PooledOLS, PanelOLS and FamaMacBeth, and pyfixest's feols.

``panels.json`` was written by ``benchmarks/support/panels_golden.py``, which has the options.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import olsq
from olsq.datasets import grunfeld

VALUES = json.loads((Path(__file__).parent / "panels.json").read_text(encoding="utf-8"))


def rows(name):
    """Regressors, target, groups, years and weights of a panel."""
    if name == "grunfeld":
        data = grunfeld()
        X = np.column_stack([data["value"], data["capital"]])
        return X, data["invest"], data["firm"], data["year"], np.ones(len(X))
    data = {key: np.array(column) for key, column in VALUES["random rows"].items()}
    X = np.column_stack([data["a"], data["b"], data["c"]])
    return X, data["y"], data["group"], data["year"], data["weight"]


def agrees(fit, wanted, first):
    """Hold coefficients, covariance and R-squared against linearmodels' to 1e-9."""
    theta = np.r_[fit.intercept, fit.coef] if first else fit.coef
    np.testing.assert_allclose(theta, wanted["params"], rtol=1e-9)
    stderr = np.sqrt(np.diag(wanted["cov"]))
    scale = np.outer(stderr, stderr)
    np.testing.assert_allclose(fit.cov_params / scale, wanted["cov"] / scale, atol=1e-9)
    np.testing.assert_allclose(fit.stderr, stderr[first:], rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("cov", ["nonrobust", "cluster"])
@pytest.mark.parametrize("name", ["grunfeld", "random"])
def test_pooled_and_within_are_those_of_linearmodels(name, cov, weighted):
    X, y, group, _, weight = rows(name)
    suffix = " weighted" if weighted else ""
    groups = olsq.GroupedLeastSquares()
    groups.fit(X, y, weight if weighted else None, by=group)
    pooled, within = groups.pooled(cov), groups.within(cov)
    agrees(pooled, VALUES[name][f"pooled {cov}{suffix}"], 1)
    agrees(within, VALUES[name][f"within {cov}{suffix}"], 0)
    np.testing.assert_allclose(within.effects, VALUES[name]["effects" + suffix], rtol=1e-9)
    for fit, kind in ((pooled, "pooled"), (within, "within")):
        wanted = VALUES[name][f"{kind} nonrobust{suffix}"]
        np.testing.assert_allclose(fit.r_squared, wanted["rsquared"], rtol=1e-9)
        assert fit.freedom == (wanted["df_resid"] if cov == "nonrobust" else len(groups) - 1)
        assert (fit.n_rows, fit.n_groups) == (y.size, len(groups))


@pytest.mark.parametrize("lags", [0, 3])
@pytest.mark.parametrize("name", ["grunfeld", "random"])
def test_fama_macbeth_is_that_of_linearmodels(name, lags):
    X, y, _, year, _ = rows(name)
    fit = olsq.fama_macbeth(X, y, by=year, lags=lags)
    wanted = VALUES[name]["fama_macbeth" + (f" {lags} lags" if lags else "")]
    agrees(fit, wanted, 1)
    assert fit.freedom == wanted["df_resid"]


@pytest.mark.parametrize("name", ["grunfeld", "random"])
def test_fixest_counts_one_coefficient_more_for_the_effects(name):
    X, y, group, _, _ = rows(name)
    fit = olsq.GroupedLeastSquares().fit(X, y, by=group).within("cluster")
    wanted, left = VALUES[name]["fixest within cluster"], fit.n_rows - fit.coef.size
    np.testing.assert_allclose(fit.coef, wanted["params"], rtol=1e-8)  # fixest's iterations
    np.testing.assert_allclose(fit.stderr * np.sqrt(left / (left - 1)), wanted["stderr"], rtol=1e-8)

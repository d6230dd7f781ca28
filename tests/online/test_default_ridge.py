"""Without a ridge given, every front door fits ordinary least squares, in any unit."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import olsq
import olsq.polars
import olsq.river
from olsq.online.rows.options import check_ridge

RNG = np.random.default_rng(0)
RETURNS = 0.01 * RNG.standard_normal((60, 2))  # daily returns: their squares add up to 0.006
Y = RETURNS @ [1.2, -0.4] + 0.002 * RNG.standard_normal(60)
EXACT = np.linalg.lstsq(np.column_stack([np.ones(60), RETURNS]), Y, rcond=None)[0][1:]


def by_river(X, y):
    model = olsq.river.RecursiveLeastSquares()
    for row, target in zip(X, y, strict=True):
        model.learn_one(dict(enumerate(row.tolist())), float(target))
    return np.array([model.weights[0], model.weights[1]])


DOORS = {
    **{
        f"recursive, {method}": lambda X, y, method=method: (
            olsq.RecursiveLeastSquares(method=method).fit(X, y).coef_
        )
        for method in ("auto", "covariance", "sqrt", "information")
    },
    "rolling": lambda X, y: olsq.RollingLeastSquares(window=60).fit(X, y).coef_,
    "bank": lambda X, y: olsq.FilterBank(1).partial_fit(X[None], y[None]).coef_[0],
    "groups": lambda X, y: olsq.GroupedLeastSquares().partial_fit(X, y, by=["a"] * 60).coef_[0],
    "constrained": lambda X, y: olsq.ConstrainedLeastSquares(bounds=(-1e9, 1e9)).fit(X, y).coef_,
    "robust": lambda X, y: olsq.RobustLeastSquares(threshold=1e9).fit(X, y).coef_,
    "river": by_river,
}


@pytest.mark.parametrize("unit", [1.0, 1e-4, 1e6])
@pytest.mark.parametrize("door", DOORS)
def test_the_default_is_ordinary_least_squares_in_any_unit(door, unit):
    np.testing.assert_allclose(DOORS[door](RETURNS * unit, Y), EXACT / unit, rtol=1e-9)


@pytest.mark.parametrize("door", DOORS)
def test_the_default_is_of_minimum_norm_until_rows_determine_it(door):
    """As :func:`olsq.coefficient_path`: the slopes alone are in the norm."""
    X, y = RNG.standard_normal((2, 3)), RNG.standard_normal(2)
    shortest = np.linalg.lstsq(X - X.mean(axis=0), y - y.mean(), rcond=None)[0]
    makers = {
        "rolling": olsq.RollingLeastSquares, "constrained": olsq.ConstrainedLeastSquares,
        "robust": olsq.RobustLeastSquares,
    }  # fmt: skip
    if door in makers or door.startswith("recursive"):
        method = door.removeprefix("recursive, ")
        options = {"method": method} if door.startswith("recursive") else {}
        est = makers.get(door, olsq.RecursiveLeastSquares)(**options).fit(X, y)
        np.testing.assert_allclose(est.coef_, shortest, rtol=0, atol=1e-12)
        if door not in ("constrained", "robust"):
            assert np.isinf(est.coef_stderr_).all()
            assert np.isinf(est.sigma2_)
            assert not est.determined_.any()


def test_every_default_is_0_but_where_another_unit_or_contract_says_otherwise():
    estimators = [
        olsq.RecursiveLeastSquares, olsq.RollingLeastSquares, olsq.FilterBank,
        olsq.GroupedLeastSquares, olsq.RobustLeastSquares, olsq.ConstrainedLeastSquares,
        olsq.river.RecursiveLeastSquares, olsq.coefficient_path,
    ]  # fmt: skip
    for estimator in estimators:
        assert inspect.signature(estimator).parameters["ridge"].default == 0.0
    # In units of the kernel, whose values have none: 0 would interpolate the noise.
    assert inspect.signature(olsq.KernelLeastSquares).parameters["ridge"].default == 1e-3


RIDGES = 1e-3, 1e-5
CONSTRAINTS = {
    "nonnegative": {"bounds": "nonnegative"},
    "box": {"bounds": (-0.3, 0.5)},
    "wide box": {"bounds": (-30.0, 30.0)},
    "sum in a box": {"equality": (1.0, 1.0), "bounds": (-0.5, 1.0)},
    "sum": {"equality": (1.0, 1.0)},
}


@pytest.mark.full
@pytest.mark.parametrize("constraints", CONSTRAINTS)
def test_constrained_coefficients_do_not_depend_on_when_they_were_read(constraints):
    """Few rows, equal columns and columns of zeros: the minimiser of least norm, at every row."""
    rng = np.random.default_rng(7)
    for trial in range(60):
        d = int(rng.integers(2, 7))
        X, y = rng.standard_normal((int(rng.integers(1, d + 2)), d)), 3 * rng.standard_normal(d + 1)
        y = y[: len(X)]
        X = np.round(X) if trial % 3 == 0 else X
        X[:, 0] = X[:, -1] if trial % 5 == 0 else X[:, 0]
        options = dict(CONSTRAINTS[constraints])
        if "equality" in options:
            options["equality"] = (np.ones(d), 1.0)
        whole = olsq.ConstrainedLeastSquares(**options).fit(X, y).coef_
        read = olsq.ConstrainedLeastSquares(**options)
        for row, target in zip(X, y, strict=True):
            read.partial_fit(row[None], [target])
            assert np.isfinite(read.coef_).all()
        np.testing.assert_allclose(read.coef_, whole, rtol=0, atol=1e-10 * (1 + abs(whole).max()))
        # With a ridge that goes to 0 the solution goes there, at the speed of the condition number.
        near = [olsq.ConstrainedLeastSquares(ridge=r, **options).fit(X, y).coef_ for r in RIDGES]
        far, close = (np.abs(c - whole).max() for c in near)
        assert close <= max(0.2 * far, 1e-9)


@pytest.mark.parametrize("ridge", [0.5, [0.5], np.array([0.5]), np.broadcast_to(0.5, (1,))])
def test_ridges_passed_in_any_way_reach_kernels_as_one_kind_of_array(ridge):
    """A copy that can be written: arrays that can and cannot are two types, each compiled for."""
    vector = check_ridge(ridge, 1)
    assert vector.flags.writeable
    assert not np.shares_memory(vector, ridge)

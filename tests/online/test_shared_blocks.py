"""Rows that share a block give what they give one at a time, whatever the stream."""

import numpy as np
import pytest

import olsq
from olsq.online.forms import information
from olsq.online.forms.information import InformationForm

STREAMS = ["plain", "zeros", "repeats", "scales", "collinear", "missing"]


def stream(kind, d, m, n=137):
    rng = np.random.default_rng(d)
    X = rng.standard_normal((n, d))
    weight = rng.uniform(0.1, 2.0, n)
    weight[60], weight[90:] = 0.0, 1.0
    if kind == "zeros":
        X[20:70] = 0
    if kind == "repeats":
        X[20:70] = X[0]
    if kind == "scales":
        X *= 10.0 ** rng.uniform(-8, 8, d)
    if kind == "collinear":
        X[:, -1] = X[:, 0] * (1 + 1e-9)
    scale = np.abs(X).max(0)
    y = (X / scale) @ rng.standard_normal((d, m) if m else d)
    y = y + 0.1 * rng.standard_normal(y.shape)
    if kind == "missing":
        X[30, 0], y[40:43] = np.nan, np.inf
    return X, y, weight, scale


def assert_same(one, other, scale, rtol=1e-7):
    coef, want = one.coef_ * scale, other.coef_ * scale
    level = np.abs(want).max()
    # A coefficient that is held moves by its share of the rounding of what is determined: a factor
    # with 14 digits less than the rows' own holds it, and those rows come in another order here.
    error = np.where(other.determined_, rtol, 100 * rtol)
    assert (np.abs(coef - want) <= error * (level + np.abs(want))).all()
    np.testing.assert_allclose(one.sigma2_, other.sigma2_, rtol=1e-6)
    np.testing.assert_allclose(one.coef_stderr_, other.coef_stderr_, rtol=1e-5)


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize(("d", "m"), [(24, 0), (25, 2)])
@pytest.mark.parametrize("forget", [1.0, 0.9, 0.5])
def test_blocks_of_the_covariance_form_are_its_single_rows(kind, d, m, forget):
    X, y, weight, scale = stream(kind, d, m)
    blocks, rows = (
        olsq.RecursiveLeastSquares(
            forget=forget, ridge=1e-3 * scale**2 if np.isfinite(scale).all() else 1e-3,
            fit_intercept=False,
        )
        for _ in range(2)
    )  # fmt: skip
    path = blocks.partial_fit_path(X, y, weight)
    residual = []
    for t in range(len(X)):
        rows.partial_fit(X[t : t + 1], y[t : t + 1], weight[t : t + 1])
        residual.append(rows.residual_[0])
    size = np.abs(y[np.isfinite(y)]).max()
    np.testing.assert_allclose(path.residual, residual, rtol=1e-6, atol=1e-8 * size)
    assert_same(blocks, rows, np.where(np.isfinite(scale), scale, 1.0))


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize(
    "options",
    [
        {}, {"forget": 0.97}, {"forget": 0.5}, {"ridge": 0.0, "forget": 0.98},
        {"ridge_mode": "fixed"}, {"ridge_mode": "fixed", "forget": 0.97},
        {"cov": "sandwich", "forget": 0.99},
    ],
    ids=str,
)  # fmt: skip
def test_residuals_by_one_factor_are_those_of_a_solve_for_each_row(kind, options):
    X, y, weight, _ = stream(kind, 5, 2)
    blocks, rows = (
        olsq.RecursiveLeastSquares(method="information", fit_intercept=False, **options)
        for _ in range(2)
    )
    blocks.partial_fit(X, y, weight)
    path = rows.partial_fit_path(X, y, weight)  # a solve for each row
    size = np.abs(y[np.isfinite(y)]).max()
    hard = kind in ("scales", "collinear")  # what squaring the condition number leaves
    np.testing.assert_allclose(
        blocks.residual_, path.residual, rtol=1e-3 if hard else 1e-8,
        atol=size * (1e-5 if hard else 1e-10),
    )  # fmt: skip
    assert blocks.n_samples_seen_ == rows.n_samples_seen_
    np.testing.assert_allclose(blocks._engine.form.H, rows._engine.form.H, rtol=1e-9, atol=0)
    np.testing.assert_allclose(blocks._engine.form.tally, rows._engine.form.tally, rtol=1e-12)


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("options", [{"forget": 0.995}, {"forget": 0.9, "fit_intercept": True}])
def test_a_fixed_ridge_that_rows_outgrow_costs_no_factor_a_row(kind, options, monkeypatch):
    X, y, weight, _ = stream(kind, 40, 2, n=400)
    options = {"fit_intercept": False, "ridge_mode": "fixed", "ridge": 1.0} | options
    blocks, rows = (olsq.RecursiveLeastSquares(method="information", **options) for _ in range(2))
    singles = []
    solve_rows = InformationForm._solve_rows

    def counted(self, rows, start, stop, *others):
        singles.append(stop - start)
        return solve_rows(self, rows, start, stop, *others)

    monkeypatch.setattr(InformationForm, "_solve_rows", counted)
    monkeypatch.setattr(information, "SINGLE_ROWS", 17)
    blocks.partial_fit(X, y, weight)
    if kind == "plain" and options["forget"] == 0.995:
        assert sum(singles) < 250  # first rows, and after one of weight 0
    path = rows.partial_fit_path(X, y, weight)
    size = np.abs(y[np.isfinite(y)]).max()
    hard = kind in ("scales", "collinear")  # what squaring the condition number leaves
    np.testing.assert_allclose(
        blocks.residual_, path.residual, rtol=1e-3 if hard else 1e-7,
        atol=size * (1e-4 if hard else 1e-9),
    )  # fmt: skip
    np.testing.assert_allclose(blocks._engine.form.H, rows._engine.form.H, rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    "options", [{"forget": 0.98}, {"window": 20}, {"method": "information"}, {"cov": "sandwich"}],
    ids=str,
)  # fmt: skip
def test_a_path_without_statistics_is_the_same_path(options):
    X, y, _, _ = stream("missing", 3, 0)
    full = olsq.coefficient_path(X, y, fit_intercept=True, **options)
    bare = olsq.coefficient_path(X, y, fit_intercept=True, statistics=False, **options)
    for name in ("coef", "intercept", "residual", "recursive_residual"):
        np.testing.assert_allclose(getattr(bare, name), getattr(full, name), rtol=1e-9, atol=1e-12)
    for name in ("sigma2", "stderr", "intercept_stderr"):
        assert getattr(bare, name).shape == getattr(full, name).shape
        assert np.isnan(getattr(bare, name)).all()
    assert list(bare.to_frame(kind="pandas")) == [
        "intercept", "x0", "x1", "x2", "residual", "recursive_residual",
    ]  # fmt: skip
    by = np.arange(len(X)) % 2
    groups = olsq.coefficient_path(X, y, by=by, statistics=False)
    # Rows that determine some coefficients have theirs from two ways to the minimum norm.
    full = olsq.coefficient_path(X, y, by=by)
    np.testing.assert_allclose(groups.coef, full.coef, rtol=1e-9, atol=1e-12)
    assert np.isnan(groups.stderr).all()


def test_one_row_of_several_targets_goes_the_short_way():
    X, y, _, _ = stream("plain", 3, 2)
    short, general = (olsq.RecursiveLeastSquares(forget=0.98).fit(X[:20], y[:20]) for _ in range(2))
    from olsq.online.calls import one_row

    assert one_row.learn(short, X[20:21], y[20:21].astype(np.float32)) is None
    assert one_row.learn(short, X[20:21], y[20:21, :1]) is None
    assert one_row.learn(short, X[20:21], np.array([[np.nan, 1.0]])) is None
    assert one_row.learn(short, X[20:21], y[20:21]) is not None
    general.partial_fit(X[20:21], y[20:21], np.ones(1))
    for t in range(21, 60):
        expected = general.predict(X[t : t + 1].tolist())[0]
        general.partial_fit(X[t : t + 1], y[t : t + 1], np.ones(1))
        prediction, residual = short.step(X[t], y[t])
        np.testing.assert_allclose(prediction, expected, rtol=1e-10)
        np.testing.assert_allclose(residual, y[t] - expected, rtol=1e-10, atol=1e-12)
        residual[:] = np.nan  # it is the caller's own
    np.testing.assert_allclose(short.coef_, general.coef_, rtol=1e-10)
    assert np.isfinite(short.residual_).all()
    predicted = short.predict(X[60:61])
    np.testing.assert_allclose(predicted, general.predict(X[60:62])[:1], rtol=1e-10)
    assert short.predict(np.full((1, 3), np.nan)).shape == (1, 2)

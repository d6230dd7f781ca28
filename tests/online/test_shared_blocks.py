"""Rows that share a block give what they give one at a time, whatever the stream."""

import numpy as np
import pytest

import olsq

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


@pytest.mark.full
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
        {"ridge_mode": "fixed", "ridge": 1.0}, {"ridge_mode": "fixed", "forget": 0.97},
        {"ridge_mode": "fixed", "ridge": 1.0, "forget": 0.97},
        {"ridge_mode": "fixed", "ridge": [0.0, 1.0, 0.0, 0.1, 0.0], "forget": 0.97},
        {"cov": "sandwich", "forget": 0.99},
    ],
    ids=str,
)  # fmt: skip
def test_residuals_of_a_call_are_those_of_a_path(kind, options):
    X, y, weight, _ = stream(kind, 5, 2)
    fed, walked = (olsq.RecursiveLeastSquares(fit_intercept=False, **options) for _ in range(2))
    fed.partial_fit(X, y, weight)
    path = walked.partial_fit_path(X, y, weight)
    np.testing.assert_array_equal(fed.residual_, path.residual)
    assert fed.n_samples_seen_ == walked.n_samples_seen_
    for array, want in zip(
        fed._engine.arrays().values(), walked._engine.arrays().values(), strict=True
    ):
        np.testing.assert_array_equal(array, want)


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

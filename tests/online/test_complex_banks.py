"""Banks of complex filters: each is the estimator of its own rows."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import olsq

N, T, D = 4, 30, 3


def normal(rng, *shape):
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / np.sqrt(2)


def data(m=0, seed=0):
    rng = np.random.default_rng(seed)
    X, noise = normal(rng, N, T, D), normal(rng, N, T, max(m, 1))
    y = np.einsum("ntd,ndm->ntm", X, normal(rng, N, D, max(m, 1))) + (1 - 2j) + 0.3 * noise
    y[1, 4], X[2, 7, 1] = complex(0, np.nan), np.inf
    return X, y if m else y[:, :, 0]


OPTIONS = [
    {}, {"fit_intercept": False, "ridge": 0.0}, {"method": "sqrt", "forget": 0.9},
    {"forget": np.linspace(0.8, 1.0, N)}, {"cov": "sandwich", "half_life": 5.0},
    {"ridge": np.arange(N * D).reshape(N, D) / 5},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: ", ".join(o) or "defaults")
@pytest.mark.parametrize("m", [0, 2])
def test_each_filter_is_an_estimator(m, options):
    X, y = data(m)
    bank = olsq.FilterBank(N, **options).partial_fit(X, y)
    rows, steps = olsq.FilterBank(N, **options), []
    for t in range(T):
        before, error = rows.step(X[:, t], y[:, t])
        steps.append(error)
        known = np.isfinite(error)
        np.testing.assert_allclose((before + error)[known], y[:, t][known])
    halves = (
        olsq.FilterBank(N, **options).partial_fit(X[:, part], y[:, part])
        for part in (slice(13), slice(13, T))
    )
    banks = [bank, rows, copy.copy(bank), olsq.loads(bank.to_bytes()), olsq.merge(*halves)]
    assert bank.coef_.dtype == bank.predict(X).dtype == np.complex128
    for i in range(N):
        own = {k: v[i] if np.shape(v)[:1] == (N,) else v for k, v in options.items()}
        est = olsq.RecursiveLeastSquares(**own).fit(X[i], y[i])
        for found in banks:
            for name in ("coef_", "intercept_", "sigma2_", "coef_stderr_", "intercept_stderr_"):
                want = getattr(est, name)
                np.testing.assert_allclose(getattr(found, name)[i], want, rtol=1e-8, err_msg=name)
            assert found.n_samples_seen_[i] == est.n_samples_seen_
            assert found.rank_[i] == est.rank_
            assert found.determined_[i].all()
            np.testing.assert_allclose(found.predict(X)[i], est.predict(X[i]), rtol=1e-8)
            np.testing.assert_allclose(found.leverage(X)[i], est.leverage(X[i]), rtol=1e-8)
            V = est.cov_params()
            np.testing.assert_allclose(found[i].cov_params(), V, atol=1e-9 * np.abs(V).max())
        np.testing.assert_allclose(bank.residual_[i], est.residual_, rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(np.stack(steps, 1)[i], est.residual_, rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(
            bank.predict(X[i], which=i), est.predict(X[i]), rtol=1e-8
        )  # an int leaves the axis of filters out
    draws = bank.sample_coef(0, 2000, sigma2=1.0)[:, 0]
    draws = draws if m == 0 else draws[:, 0]
    off = draws - bank.coef_[0].reshape(-1, D)[0]
    first = int(bank.fit_intercept)
    V = bank[0].cov_params()
    V = (V if m == 0 else V[0])[first:, first:] / np.ravel(bank.sigma2_[0])[0]
    np.testing.assert_allclose(off.T @ off.conj() / 2000, V, atol=0.15 * np.abs(V).max())


def test_resets_and_chosen_filters():
    """A residual is that of the coefficients before the row, also where the row forgets all."""
    X, y = data()
    gates = np.ones((N, T))
    gates[:, [5, 12]] = 0.0
    bank = olsq.FilterBank(N).partial_fit(X, y, forget=gates)
    for i in range(N):
        est = olsq.RecursiveLeastSquares().partial_fit(X[i], y[i], forget=gates[i])
        np.testing.assert_allclose(bank.residual_[i], est.residual_, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(bank.coef_[i], est.coef_, rtol=1e-8)
    bank.partial_fit(X[[3, 0, 3], 0], y[[3, 0, 3], 0], which=[3, 0, 3])
    est = olsq.RecursiveLeastSquares().partial_fit(X[3], y[3], forget=gates[3])
    est.partial_fit(X[[3, 3], 0], y[[3, 3], 0])
    np.testing.assert_allclose(bank.coef_[3], est.coef_, rtol=1e-8)
    np.testing.assert_allclose(bank.residual_[[0, 2]], est.residual_, rtol=1e-7)
    assert bank.n_samples_seen_.tolist() == [T + 1, T - 1, T - 1, T + 2]


def test_before_the_first_row():
    X, y = data()
    bank = olsq.FilterBank(N, n_features=D)
    assert bank.coef_.dtype == np.float64  # nothing is known yet
    assert not bank.predict(X[:, 0]).any()
    assert bank.partial_fit(X, y).coef_.dtype == np.complex128
    mean, C = np.array([1j, 2.0, 1.0]), np.eye(3, dtype=complex)
    C[0, 1], C[1, 0] = 0.5j, -0.5j
    bank = olsq.FilterBank(N, prior=(mean, C), fit_intercept=False)
    np.testing.assert_allclose(bank.predict(X[0, 0]), np.full(N, X[0, 0] @ mean))
    bank.partial_fit(X, y)
    est = olsq.RecursiveLeastSquares(prior=(mean, C), fit_intercept=False).fit(X[0], y[0])
    np.testing.assert_allclose(bank.coef_[0], est.coef_, rtol=1e-9)
    again = olsq.loads(bank.to_bytes())
    assert again.partial_fit(X, y).to_bytes() == bank.partial_fit(X, y).to_bytes()
    assert bank.grow(2).coef_.shape == (N + 2, D)
    np.testing.assert_allclose(bank.coef_[-1], mean)


def test_refusals():
    X, y = data()
    real = (np.nan_to_num(part.real, posinf=0.0) for part in (X, y))
    bank = olsq.FilterBank(N).partial_fit(*real)
    before = bank.to_bytes()
    for call in (
        lambda: bank.partial_fit(X, y.real), lambda: bank.partial_fit(X.real, y),
        lambda: bank.predict(X), lambda: bank.step(X[:, 0], y[:, 0].real),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"^[Xy] must be real\. Complex data not supported"):
            call()
    assert bank.to_bytes() == before
    complex_bank = olsq.FilterBank(N).partial_fit(X, y)
    with pytest.raises(ValueError, match="one has learned complex rows, the other real ones"):
        olsq.merge(bank, complex_bank)
    with pytest.raises(ValueError, match="first in row 34"):
        olsq.FilterBank(N, missing="raise").partial_fit(X, y)
    row = np.ones(D)
    assert np.iscomplexobj(complex_bank.partial_fit(row, 1.0, which=0).residual_)

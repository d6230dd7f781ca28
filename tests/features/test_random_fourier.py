"""Random Fourier features against the kernels that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.kernel_approximation import RBFSampler
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.pipeline import make_pipeline

import olsq
from olsq.features import RandomFourier

X = np.random.default_rng(0).standard_normal((60, 3))


def error(phi, K):
    return np.sqrt(np.mean((phi @ phi.T - K) ** 2))


def test_products_approximate_the_kernel_as_scikit_learns_do():
    n = 4000
    K = rbf_kernel(X, gamma=0.4)
    ours = error(RandomFourier(n, gamma=0.4).fit_transform(X), K)
    theirs = error(RBFSampler(gamma=0.4, n_components=n, random_state=0).fit_transform(X), K)
    assert ours == pytest.approx(theirs, rel=0.5)
    assert ours < np.sqrt(2 / n)
    rough = [error(RandomFourier(n // 16, gamma=0.4, seed=s).fit_transform(X), K) for s in range(5)]
    assert np.mean(rough) == pytest.approx(4 * ours, rel=0.5)  # 1 / sqrt(n)
    L = laplacian_kernel(X, gamma=0.3)
    assert error(RandomFourier(n, gamma=0.3, kernel="laplacian").fit_transform(X), L) < 0.02


def test_a_pipeline_is_nearly_kernel_ridge_and_merges(tmp_path):
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (400, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1]
    pipe = make_pipeline(
        RandomFourier(150, gamma=0.5), olsq.RecursiveLeastSquares(ridge=0.1, fit_intercept=False)
    ).fit(X, y)
    theirs = KernelRidge(kernel="rbf", gamma=0.5, alpha=0.1).fit(X, y)
    Z = rng.uniform(-2, 2, (50, 2))
    assert np.sqrt(np.mean((pipe.predict(Z) - theirs.predict(Z)) ** 2)) < 0.15
    phi = RandomFourier(150, gamma=0.5).fit(X)
    parts = [
        olsq.RecursiveLeastSquares(ridge=0.1, fit_intercept=False).fit(phi.transform(A), b)
        for A, b in zip(np.split(X, 2), np.split(y, 2), strict=True)
    ]
    both = olsq.merge(*parts)
    np.testing.assert_allclose(both.predict(phi.transform(Z)), pipe.predict(Z), atol=1e-8)
    phi.save(tmp_path / "phi.olsq")
    np.testing.assert_array_equal(olsq.load(tmp_path / "phi.olsq").transform(Z), phi.transform(Z))


def test_seeds_columns_and_missing_values():
    first = RandomFourier(20, seed=1).fit_transform(X)
    np.testing.assert_array_equal(first, RandomFourier(20, seed=1).fit_transform(X))
    assert np.abs(first - RandomFourier(20, seed=2).fit_transform(X)).max() > 0.1
    np.testing.assert_array_equal(
        RandomFourier(20, of=[0, 2]).fit_transform(X), RandomFourier(20).fit_transform(X[:, [0, 2]])
    )
    holes = X.copy()
    holes[3, 1] = np.nan
    assert np.isnan(RandomFourier(5).fit_transform(holes)).any(axis=1).nonzero()[0].tolist() == [3]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_components": 0}, "n_components must be an integer >= 1"),
        ({"gamma": 0.0}, "gamma must be a finite number > 0"),
        ({"kernel": "cosine"}, "kernel must be one of"),
        ({"seed": -1}, "seed must be an integer >= 0"),
    ],
)
def test_refusals(options, match):
    with pytest.raises(ValueError, match=match):
        RandomFourier(**options).fit(X)

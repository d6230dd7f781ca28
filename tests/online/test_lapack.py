"""LAPACK's factors equal the compiled loops', whichever the number of coefficients chooses."""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq.online.forms import lapack


def gram(d: int, n: int, seed: int = 0) -> np.ndarray:
    X = np.random.default_rng(seed).standard_normal((n, d))
    return X.T @ X


@pytest.mark.parametrize("least", [1, 10**9])
@pytest.mark.parametrize("d", [1, 2, 7, 40])
def test_the_inverse_of_a_factor(d, least, monkeypatch):
    monkeypatch.setattr(lapack, "LEAST", least)
    A = gram(d, 3 * d)
    R = np.linalg.cholesky(A).T
    inverse, diagonal = lapack.inverse_of_triangle(R)
    np.testing.assert_array_equal(inverse, np.triu(inverse))
    np.testing.assert_allclose(inverse @ R, np.eye(d), atol=1e-13)
    np.testing.assert_allclose(diagonal, np.diagonal(np.linalg.inv(A)), rtol=1e-11)


@pytest.mark.parametrize("d", range(1, lapack.FEW_COEFFICIENTS + 1))
def test_one_factor_and_a_stack_are_solved_with_the_same_bits(d):
    """However BLAS divides by a pivot on this processor, which near dependence magnifies."""
    rng = np.random.default_rng(d)
    R = np.triu(rng.standard_normal((5, d, d))) + 2 * np.eye(d)
    R[:, d - 1, d - 1] *= [1.0, 1e-7, 1e-14, 1e-20, 1e-200]
    X = rng.standard_normal((5, 100, d))
    for n in (0, 1, 3, 100):
        each = [lapack.solve_transposed(R[i], X[i, :n]) for i in range(5)]
        np.testing.assert_array_equal(lapack.solve_transposed(R, X[:, :n]), each)
    np.testing.assert_allclose(np.einsum("nj,jk->nk", each[0], R[0]), X[0], atol=1e-12)


def test_hundreds_of_coefficients():
    d = lapack.LEAST + 4
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2 * d, d)), rng.standard_normal((2 * d, 3))
    est = olsq.RecursiveLeastSquares(
        method="information", residuals=False, ridge=0.0, fit_intercept=False
    )
    for start in range(0, 2 * d, 100):
        est.partial_fit(X[start : start + 100], Y[start : start + 100])
        if start < d - 100:  # fewer rows than coefficients: of least norm
            wanted = np.linalg.lstsq(X[: start + 100], Y[: start + 100], rcond=None)[0].T
            np.testing.assert_allclose(est.coef_, wanted, atol=1e-10)
    wanted = np.linalg.lstsq(X, Y, rcond=None)[0].T
    np.testing.assert_allclose(est.coef_, wanted, atol=1e-12)
    P = np.linalg.inv(X.T @ X)
    np.testing.assert_allclose(est.leverage(X[:5]), ((X[:5] @ P) * X[:5]).sum(1), rtol=1e-11)
    _, std = est.predict(X[:5], return_std=True)
    spread = 1 + ((X[:5] @ P) * X[:5]).sum(1)
    np.testing.assert_allclose(std, np.sqrt(np.outer(spread, est.sigma2_)), rtol=1e-10)

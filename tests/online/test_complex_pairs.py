"""Complex rows as pairs of real ones."""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq.online.forms import pair_kernels
from olsq.online.rows import complex_rows


def circular(rng, *shape):
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / np.sqrt(2)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_embedding_of_a_block(dtype):
    X = circular(np.random.default_rng(0), 7, 3).astype(dtype)
    found = np.empty((14, 6))
    pair_kernels.embed(complex_rows.real_parts(X), found)
    np.testing.assert_array_equal(found[0::2], np.hstack([X.real, -X.imag]))
    np.testing.assert_array_equal(found[1::2], np.hstack([X.imag, X.real]))
    for n, k in ((13, 6), (14, 5), (16, 6)):
        with pytest.raises(ValueError, match="shape"):
            pair_kernels.embed(complex_rows.real_parts(X), np.empty((n, k)))
    with pytest.raises(ValueError, match="shape"):
        pair_kernels.embed(np.empty((7, 5)), np.empty((14, 4)))


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("spoiled", ["nothing", "silent", "collinear", "loud", "reset"])
def test_errors_of_both_rows_are_those_before_the_pair(spoiled, ridge):
    """A fit takes them from the recursion where the pair's rows stay orthogonal."""
    rng = np.random.default_rng(0)
    X, gates = circular(rng, 600, 3), np.full(600, 0.95)
    y = X @ circular(rng, 3) + 0.3 * circular(rng, 600)
    some = slice(200, 401)
    if spoiled == "silent":
        X[some, 1] = 0.0
    elif spoiled == "collinear":
        X[some, 1] = (1 + 1j) * X[some, 0]
    elif spoiled == "loud":
        X[some] *= 1e5
        y[some] *= 1e5
    elif spoiled == "reset":
        gates[400] = 0.0
    est = olsq.RecursiveLeastSquares(fit_intercept=False, ridge=ridge)
    est.partial_fit(X, y, forget=gates)
    path = olsq.RecursiveLeastSquares(fit_intercept=False, ridge=ridge)
    path = path.partial_fit_path(X, y, forget=gates)
    before = np.vstack([np.zeros(3), path.coef[:-1]])
    errors = y - (X * before).sum(1)
    settled = np.r_[10:200, 460:600]
    for found in (est.residual_, path.residual):
        np.testing.assert_allclose(found[settled], errors[settled], rtol=1e-6, atol=1e-8)

"""Cholesky updates and downdates against exact arithmetic, SciPy and what they refuse."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from olsq.linalg import cholesky_downdate, cholesky_update

from .hard_factors import D, K, cases, diagonal, error, exact_gram

EPS = float(np.finfo(float).eps)
SIDES = {"numpy": np.asarray, "jax": jnp.asarray}
# XLA flushes numbers below 2e-308 to zero.
CASES = {"numpy": cases(1e-300), "jax": cases(1e-290)}


def is_factor(R) -> bool:
    return not np.tril(R, -1).any() and bool((np.diagonal(R, 0, -2, -1) >= 0).all())


@pytest.mark.full
@pytest.mark.parametrize("kind", SIDES)
def test_update_and_downdate_are_backward_stable_on_hard_factors(kind):
    convert, worst = SIDES[kind], {}
    for name, (R, X) in CASES[kind].items():
        gram = exact_gram(R, X)
        updated = np.asarray(cholesky_update(convert(R), convert(X.T)))
        assert is_factor(updated), name
        worst[name] = [error(exact_gram(updated), gram, diagonal(gram)) / EPS]
        if name in ("nothing yet", "rows far larger", "zero pivot"):  # nothing definite is left
            continue
        before = exact_gram(updated)
        again = np.asarray(cholesky_downdate(convert(updated), convert(X.T)))
        assert is_factor(again), name
        worst[name].append(error(exact_gram(again, X), before, diagonal(before)) / EPS)
    print(worst)
    assert max(max(v) for v in worst.values()) < 8, worst


@pytest.mark.full
@pytest.mark.parametrize("kind", SIDES)
@pytest.mark.parametrize("k", [0, 1, 2 * D])
def test_any_number_of_columns(kind, k):
    R, _ = CASES[kind]["ill-conditioned"]
    X = np.random.default_rng(k).standard_normal((D, k))
    new = cholesky_update(SIDES[kind](R), SIDES[kind](X))
    assert isinstance(new, np.ndarray if kind == "numpy" else jax.Array)
    gram = exact_gram(R, X.T)
    assert error(exact_gram(new), gram, diagonal(gram)) < 8 * EPS
    if k == 1:
        assert np.array_equal(cholesky_update(SIDES[kind](R), SIDES[kind](X[:, 0])), new)


@pytest.mark.parametrize("kind", SIDES)
def test_many_updates_are_one_and_agree_with_scipy(kind):
    R, X = CASES["numpy"]["random"]
    one_by_one = first = SIDES[kind](R)
    for x in X:
        one_by_one = cholesky_update(one_by_one, SIDES[kind](x))
    fresh = scipy.linalg.cholesky(R.T @ R + X.T @ X)
    at_once = cholesky_update(first, SIDES[kind](X.T))
    back = cholesky_downdate(cholesky_update(at_once, at_once.T), at_once.T)
    lower = cholesky_update(first.T, SIDES[kind](X.T), lower=True)
    for found in (one_by_one, at_once, back, lower.T):
        np.testing.assert_allclose(found, fresh, rtol=0, atol=20 * EPS)
    # scipy.linalg.qr_insert knows the same sum
    _, other = scipy.linalg.qr_insert(np.eye(D), R, X, 0)
    np.testing.assert_allclose(abs(other[:D]), abs(at_once), rtol=0, atol=20 * EPS)


def test_a_window_of_rows_stays_stable():
    """Stewart (1995): the errors of a sequence add up, those of one downdate do not grow."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((400, D)) * np.logspace(0, -6, D) @ np.triu(np.ones((D, D)))
    R = cholesky_update(np.zeros((D, D)), rows[:20].T)
    for t in range(20, 400, 4):
        R = cholesky_downdate(cholesky_update(R, rows[t : t + 4].T), rows[t - 20 : t - 16].T)
    wanted = exact_gram(rows[-20:])
    assert error(exact_gram(R), wanted, diagonal(wanted)) < 380 * EPS


def test_the_downdated_factor_is_as_accurate_as_its_conditioning():
    """``cond(A) / rho^2`` of the docstring: ever nearer to taking all that is known."""
    rng = np.random.default_rng(5)
    R = np.linalg.qr(rng.standard_normal((9, D)))[1]
    R *= np.sign(np.diag(R))[:, None]
    x = rng.standard_normal(D)
    for size in (1.0, 1e3, 1e6):
        updated = cholesky_update(R, size * x)
        p = scipy.linalg.solve_triangular(R, size * x, trans=1)
        bound = np.linalg.cond(updated) ** 2 * (1 + p @ p)  # rho^2 = 1 / (1 + |p|^2)
        off = np.linalg.norm(cholesky_downdate(updated, size * x) - R) / np.linalg.norm(R)
        assert off < EPS * bound


def test_lost_definiteness_is_an_error_in_numpy_and_nan_in_jax():
    R, X = CASES["numpy"]["random"]
    too_much = 1.01 * R.T @ np.array([0, 0, 1.0, 0, 0, 0])
    batch = np.stack([R, R, R])
    xs = np.stack([0.1 * X[0], too_much, 0.1 * X[1]])
    before = batch.copy()
    with pytest.raises(np.linalg.LinAlgError, match=r"in 1 of 3 matrices, the first at \[1\]"):
        cholesky_downdate(batch, xs)
    assert np.array_equal(batch, before)
    with pytest.raises(np.linalg.LinAlgError, match="pivot 2 is lost"):
        cholesky_downdate(R, too_much)
    with pytest.raises(np.linalg.LinAlgError, match="pivot 0"):  # exactly all that is known
        cholesky_downdate(2 * np.eye(2), [2.0, 0.0])
    with pytest.raises(np.linalg.LinAlgError, match="pivot 2"):  # where nothing is known
        cholesky_downdate(CASES["numpy"]["zero column"][0], np.eye(D)[2])

    found = np.asarray(cholesky_downdate(jnp.asarray(batch), jnp.asarray(xs)))
    assert np.isnan(found[1]).all()
    for i in (0, 2):
        np.testing.assert_allclose(found[i], cholesky_downdate(R, xs[i]), atol=20 * EPS)


def test_a_singular_factor_of_any_form_loses_a_row():
    """A zero pivot with a row beside it is not what kernels expect, but is a factor of A."""
    R = np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    x = np.array([0.0, 0.5, 0.1])
    found = cholesky_downdate(R, x)
    np.testing.assert_allclose(found.T @ found, R.T @ R - np.outer(x, x), atol=8 * EPS)
    assert is_factor(found)


@pytest.mark.full
def test_batches_broadcast_and_jit_and_vmap():
    rng = np.random.default_rng(1)
    R = np.triu(rng.standard_normal((2, 1, D, D)))
    X = rng.standard_normal((3, D, K))
    new = cholesky_update(R, X[None])
    assert new.shape == (2, 3, D, D)
    for i in range(2):
        for j in range(3):
            assert np.array_equal(new[i, j], cholesky_update(R[i, 0], X[j]))
    lower = cholesky_update(R.swapaxes(-1, -2), X[None], lower=True)
    assert np.array_equal(lower, new.swapaxes(-1, -2))
    mapped = jax.jit(jax.vmap(jax.vmap(cholesky_update, (None, 0)), (0, None)))(R[:, 0], X)
    np.testing.assert_allclose(mapped, new, atol=50 * EPS)
    vectors = cholesky_update(R[:, 0], X[:2, :, 0])  # one axis fewer: one vector each
    np.testing.assert_allclose(vectors[1], cholesky_update(R[1, 0], X[1, :, :1]), atol=50 * EPS)
    assert cholesky_update(np.empty((0, 3, 3)), np.empty((0, 3))).shape == (0, 3, 3)
    assert cholesky_update(np.empty((0, 0)), np.empty(0)).shape == (0, 0)
    assert cholesky_downdate(jnp.empty((0, 0)), jnp.empty(0)).shape == (0, 0)


@pytest.mark.full
def test_dtypes_and_the_triangle_that_is_not_read():
    R, X = CASES["numpy"]["random"]
    full = cholesky_update(R, X.T)
    single = cholesky_update(R.astype(np.float32), X.T.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, full, atol=1e-6)
    single = cholesky_update(jnp.asarray(R, jnp.float32), jnp.asarray(X.T, jnp.bfloat16))
    assert single.dtype == jnp.float32
    assert cholesky_update(np.eye(2, dtype=int), [1, 2]).dtype == np.float64
    filled = R + np.tril(np.full((D, D), 9.0), -1)
    assert np.array_equal(cholesky_update(filled, X.T), full)
    assert np.array_equal(cholesky_update(filled.T, X.T, lower=True), full.T)


@pytest.mark.parametrize("change", [cholesky_update, cholesky_downdate])
def test_bad_arguments_are_named(change):
    eye = np.eye(3)
    with pytest.raises(ValueError, match=r"factor must be square.*\(3, 2\)"):
        change(np.ones((3, 2)), np.ones(3))
    with pytest.raises(ValueError, match=r"x must have shape \(..., 3\).*got \(4,\)"):
        change(eye, np.ones(4))
    with pytest.raises(ValueError, match=r"x must have shape"):
        change(eye, np.ones((1, 3, 1)))
    with pytest.raises(ValueError, match="leading axes of factor and x do not broadcast"):
        change(np.stack([eye, eye]), np.ones((3, 3)))
    with pytest.raises(ValueError, match=r"x must be finite; got nan at \[1\]"):
        change(eye, [0.0, np.nan, 0.0])
    with pytest.raises(TypeError, match="x must be real"):
        change(eye, np.ones(3, complex))


@pytest.mark.full
def test_numpy_does_not_import_jax():
    code = """
import sys, numpy as np
from olsq.linalg import cholesky_update, givens
cholesky_update(np.eye(2), np.ones(2)), givens(1.0, 2.0)
print("jax" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"

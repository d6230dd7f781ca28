"""Derivatives of JAX's forms against those of the dense definitions, and Givens rotations."""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from olsq.linalg import cholesky_downdate, cholesky_update, givens, qr_delete, qr_insert

EPS = float(np.finfo(float).eps)


def derivatives(f, args, tangents):
    """First and second derivative along ``tangents``, and the gradient of a fixed functional."""

    def value(*args):
        return jnp.concatenate([x.ravel() for x in jax.tree.leaves(f(*args))])

    def along(*args):
        return jax.jvp(value, args, tangents)[1]

    def all_of_them(*args):
        first, second = jax.jvp(along, args, tangents)
        probe = jnp.sin(1.0 + jnp.arange(first.size))
        return first, second, jax.grad(lambda *a: value(*a) @ probe, tuple(range(len(args))))(*args)

    return jax.jit(all_of_them)(*args)


def agree(f, dense, args, seed=0, rtol=1e-10):
    rng = np.random.default_rng(seed)
    args = tuple(map(jnp.asarray, args))
    tangents = tuple(jnp.asarray(rng.standard_normal(x.shape)) for x in args)
    found, wanted = derivatives(f, args, tangents), derivatives(dense, args, tangents)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=rtol * (1 + np.abs(y).max()))


def positive_qr(A):
    Q, R = jnp.linalg.qr(A)
    sign = jnp.where(jnp.diagonal(R) < 0, -1.0, 1.0)
    return Q * sign, sign[:, None] * R


R4 = np.triu(np.random.default_rng(0).standard_normal((4, 4))) + 3 * np.eye(4)
X4 = np.random.default_rng(1).standard_normal((4, 2))


@pytest.mark.full
@pytest.mark.parametrize("zero", [False, True])
def test_cholesky_update(zero):
    """Also where x = 0: nothing turns there, and the second derivative is not zero."""

    def dense(R, x):
        R = jnp.triu(R)
        return jnp.linalg.cholesky(R.T @ R + x @ x.T).T

    agree(cholesky_update, dense, (R4, 0 * X4 if zero else X4))


def test_cholesky_downdate():
    def dense(R, x):
        R = jnp.triu(R)
        return jnp.linalg.cholesky(R.T @ R - x @ x.T).T

    agree(cholesky_downdate, dense, (R4, 0.5 * X4))


A53 = np.random.default_rng(2).standard_normal((5, 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "dense"),
    [
        (lambda Q, R, u: qr_insert(Q, R, u[:3], 1), lambda A, u: jnp.insert(A, 1, u[:3], 0)),
        (
            lambda Q, R, u: qr_insert(Q, R, u, 1, which="col"),
            lambda A, u: jnp.concatenate([A[:, :1], u[:, None], A[:, 1:]], 1),
        ),
        (lambda Q, R, u: qr_delete(Q, R, 2), lambda A, u: jnp.delete(A, 2, 0)),
        (
            lambda Q, R, u: qr_delete(Q, R, 0, 2, which="col"),
            lambda A, u: jnp.delete(A, np.array([0, 1]), 1),
        ),
    ],
    ids=["insert row", "insert column", "delete row", "delete columns"],
)
def test_qr(change, dense):
    """Q and R follow A, so that they stay a factorisation along the tangent."""
    u = np.random.default_rng(3).standard_normal(5)
    agree(
        lambda A, u: change(*positive_qr(A), u),
        lambda A, u: positive_qr(dense(A, u)),
        (A53, u),
        rtol=1e-8,
    )


def test_givens_derivatives():
    def dense(a, b):
        r = jnp.sqrt(a**2 + b**2)
        return a / r, b / r, r

    a = np.array([1.0, -2.0, 0.0, 1e-3])
    agree(lambda a, b: tuple(givens(a, b)), dense, (a, np.array([0.0, 1.0, -3.0, 1e3])))
    there_are_none = jax.jacobian(lambda a: givens(a, jnp.zeros(())).c)(jnp.zeros(()))
    assert there_are_none == 0


@pytest.mark.full
def test_a_gradient_is_finite_where_a_pivot_is_zero():
    gradient = jax.grad(lambda R, x: cholesky_update(R, x).sum(), (0, 1))
    for g in gradient(jnp.zeros((3, 3)), jnp.zeros((3, 1))):
        assert bool(jnp.isfinite(g).all())


@pytest.mark.parametrize("kind", ["numpy", "jax"])
def test_givens_at_all_scales(kind):
    """Against integers: ``r^2 = a^2 + b^2`` and ``c r = a``, relative errors of some units."""
    sizes = [1e300, 1.0, 1e-300, 1e-154, 1e154, 1e8]
    rng = np.random.default_rng(0)
    a, b = (x.ravel() for x in np.meshgrid(sizes, sizes))
    a, b = a * rng.standard_normal(a.size), b * rng.standard_normal(a.size)
    convert = np.asarray if kind == "numpy" else jnp.asarray
    c, s, r = (np.asarray(x) for x in givens(convert(a), convert(b)))
    assert (r >= 0).all()
    for i in range(len(a)):
        A, B, C, S, length = (Fraction(float(x[i])) for x in (a, b, c, s, r))
        square = A**2 + B**2
        assert abs(float(length**2 / square - 1)) < 8 * EPS
        assert abs(float(C * length / A - 1)) < 8 * EPS or abs(C) < 1e-300
        assert abs(float(S * length / B - 1)) < 8 * EPS or abs(S) < 1e-300
        assert abs(float(C**2 + S**2 - 1)) < 8 * EPS


def test_givens_of_zeros_signs_and_bad_arguments():
    c, s, r = givens([0.0, 3.0, -3.0, 0.0], [0.0, 0.0, 0.0, -2.0])
    assert c.tolist() == [1, 1, -1, 0]
    assert s.tolist() == [0, 0, 0, -1]
    assert r.tolist() == [0, 3, 3, 2]
    again = givens(jnp.array([0.0, 3.0, -3.0, 0.0]), jnp.array([0.0, 0.0, 0.0, -2.0]))
    assert [x.tolist() for x in again] == [c.tolist(), s.tolist(), r.tolist()]
    assert givens(5e-324, -5e-324).c == pytest.approx(0.5**0.5, abs=EPS)  # subnormal
    assert givens(np.ones((2, 1)), np.ones(3)).r.shape == (2, 3)
    assert givens(np.float32(1), np.float32(2)).r.dtype == np.float32
    with pytest.raises(ValueError, match=r"a and b do not broadcast: \(2,\) and \(3,\)"):
        givens(np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match="b must be finite; got inf"):
        givens(1.0, np.inf)
    with pytest.raises(TypeError, match="a must be real"):
        givens(1j, 1.0)

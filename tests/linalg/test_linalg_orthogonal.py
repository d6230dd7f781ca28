"""QR factorisations with rows and columns in and out, against the matrix itself and SciPy."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from olsq.linalg import qr_delete, qr_insert

EPS = float(np.finfo(float).eps)
SIDES = {"numpy": np.asarray, "jax": jnp.asarray}
M, N = 7, 4


def matrices(tiny: float) -> dict[str, np.ndarray]:
    """Hard matrices (M, N) by name."""
    rng = np.random.default_rng(2)
    A = rng.standard_normal((M, N))
    zero, twice, rows = A.copy(), A.copy(), A.copy()
    zero[:, 1] = 0
    twice[:, 2] = twice[:, 0]
    rows[1:] = rows[0]
    # Singular values from 1 to 1e-14, and the last row knows the smallest alone.
    last = np.vstack([A[:-1] @ np.diag([1, 1, 1, 0.0]), [0, 0, 0, 1e-14]])
    return {
        "random": A,
        "ill-conditioned": A @ np.diag(np.logspace(0, -14, N)) @ A[:N],
        "zero column": zero,
        "the same column twice": twice,
        "the same row": rows,
        "one row knows": last,
        "zero": np.zeros((M, N)),
        "huge": 1e300 * A,
        "tiny": tiny * A,
        "huge and tiny": A * np.array([1e300, tiny, 1.0, 1e-8]),
    }


def check(name, Q, R, A, tolerance=30 * EPS):
    """``Q R = A`` column by column, Q orthonormal, R upper with a diagonal >= 0."""
    Q, R = np.asarray(Q), np.asarray(R)
    assert Q.shape[1] == R.shape[0], name
    scale = np.abs(A).max(0, initial=0)
    scale = np.where(scale > 0, 2.0 ** np.frexp(scale)[1], 1.0)
    gap = np.abs(Q @ (R / scale) - A / scale).max(initial=0)
    assert gap < tolerance, (name, gap / EPS)
    off = np.abs(Q.T @ Q - np.eye(Q.shape[1])).max(initial=0)
    assert off < tolerance, (name, off / EPS)
    assert not np.tril(R, -1).any(), name
    assert (np.diag(R) >= 0).all(), name


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["complete", "reduced"])
@pytest.mark.parametrize("kind", SIDES)
def test_hard_matrices_in_and_out(kind, mode):
    convert, rng = SIDES[kind], np.random.default_rng(0)
    for name, A in matrices(1e-300 if kind == "numpy" else 1e-290).items():
        Q, R = (convert(x) for x in np.linalg.qr(A, mode=mode))
        size = np.abs(A).max(0)
        rows = rng.standard_normal((2, N)) * size
        rows[1] = A[0]  # a row that is there already
        columns = rng.standard_normal((M, 2)) * max(size.max(), 1e-20)
        columns[:, 1] = A[:, 0]  # a column that is there already: nothing is left of it
        check(name, *qr_insert(Q, R, convert(rows), 2), np.insert(A, [2, 2], rows, 0))
        check(name, *qr_insert(Q, R, convert(columns), 1, which="col"),
              np.insert(A, [1, 1], columns, 1))  # fmt: skip
        check(name, *qr_delete(Q, R, 5, 2), A[:5])
        check(name, *qr_delete(Q, R, 1, 2, which="col"), np.delete(A, [1, 2], 1))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["complete", "reduced"])
def test_one_row_or_column_of_hard_matrices(mode):
    rng = np.random.default_rng(10)
    for name, A in matrices(1e-300).items():
        Q, R = np.linalg.qr(A, mode=mode)
        size = np.abs(A).max(0)
        row, column = rng.standard_normal(N) * size, rng.standard_normal(M) * max(size.max(), 1e-20)
        for new in (row, A[3]):
            check(name, *qr_insert(Q, R, new, 2), np.insert(A, 2, new, 0))
        for new in (column, A[:, 0], 2 * A[:, 3]):
            check(name, *qr_insert(Q, R, new, 1, which="col"), np.insert(A, 1, new, 1))
        for k in (0, -1):
            check(name, *qr_delete(Q, R, k), np.delete(A, k, 0))
            check(name, *qr_delete(Q, R, k, which="col"), np.delete(A, k, 1))
    for other in (Q.astype(np.float32), np.asfortranarray(Q), Q[:, ::-1][:, ::-1]):
        check("layout", *qr_insert(other, R, row, 0), np.insert(A, 0, row, 0), 1e-6)
    with pytest.raises(ValueError, match="u must be finite"):
        qr_insert(Q, R, np.full(N, np.nan), 0)
    with pytest.raises(ValueError, match="R must be finite"):
        qr_delete(Q, np.full_like(R, np.inf), 0)


@pytest.mark.parametrize("kind", SIDES)
def test_every_place_agrees_with_scipy_up_to_signs(kind):
    rng = np.random.default_rng(4)
    shapes = ((6, 3), "complete"), ((6, 3), "reduced"), ((3, 5), "complete")
    for (m, n), mode in shapes if kind == "numpy" else shapes[1:2]:  # each compiles four programs
        A = rng.standard_normal((m, n))
        Q, R = map(SIDES[kind], np.linalg.qr(A, mode=mode))
        for which, size, other in (("row", m, n), ("col", n, m)):
            axis = 0 if which == "row" else 1
            u = rng.standard_normal(other)
            for k in (*range(-size, size + 1),):
                ours = qr_insert(Q, R, u, k, which=which)
                if k < size:
                    theirs = scipy.linalg.qr_insert(Q, R, u, k, which)
                    np.testing.assert_allclose(abs(ours[1]), abs(theirs[1]), atol=40 * EPS)
                check((which, k), *ours, np.insert(A, k, u, axis))
                if k < size:
                    check((which, k), *qr_delete(Q, R, k, which=which), np.delete(A, k, axis))


@pytest.mark.full
def test_from_nothing_and_back_to_nothing():
    A = np.random.default_rng(6).standard_normal((5, 3))
    Q, R = np.empty((0, 0)), np.empty((0, 3))
    for i, row in enumerate(A):  # grows full, wide first
        Q, R = qr_insert(Q, R, row, i)
        check(i, Q, R, A[: i + 1])
    while len(Q):
        Q, R = qr_delete(Q, R, -1)
        check(len(Q), Q, R, A[: len(Q)])
    Q, R = np.empty((5, 0)), np.empty((0, 0))  # grows economic, until it is square
    B = np.random.default_rng(7).standard_normal((5, 7))
    for j in range(7):
        Q, R = qr_insert(Q, R, B[:, j], j, which="col")
        assert Q.shape == (5, min(j + 1, 5))
        check(j, Q, R, B[:, : j + 1])
    Q, R = qr_delete(Q, R, 0, 7, which="col")
    assert Q.shape == (5, 5)
    assert R.shape == (5, 0)
    Q, R = np.linalg.qr(A)
    for m in (4, 3, 2):  # an economic one becomes square, and then wide
        Q, R = qr_delete(Q, R, 0)
        check(m, Q, R, A[5 - m :])


def test_a_window_of_rows_stays_orthogonal():
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((220, 3)) @ np.diag([1, 1e-4, 1e-8])
    Q, R = np.linalg.qr(rows[:10])
    for t in range(10, 220):
        Q, R = qr_delete(*qr_insert(Q, R, rows[t], 10), 0)
    check("window", Q, R, rows[-10:], 400 * EPS)


@pytest.mark.full
def test_batches_jit_and_a_traced_place():
    rng = np.random.default_rng(9)
    A, u = rng.standard_normal((2, 3, 5, 3)), rng.standard_normal((3, 5))
    Q, R = np.linalg.qr(A)
    Q1, R1 = qr_insert(Q, R, u[None, :, :, None], 1, which="col")
    assert Q1.shape == (2, 3, 5, 4)
    alone = qr_insert(Q[1, 2], R[1, 2], u[2], 1, which="col")[1]  # which goes another way
    np.testing.assert_allclose(R1[1, 2], alone, rtol=0, atol=30 * EPS)
    alone = qr_delete(Q[1, 2], R[1, 2], 1)[1]
    np.testing.assert_allclose(qr_delete(Q, R, 1)[1][1, 2], alone, rtol=0, atol=30 * EPS)
    assert qr_delete(Q.astype(np.float32), R.astype(np.float32), 1)[0].dtype == np.float32

    insert = jax.jit(functools.partial(qr_insert, which="col"))
    delete = jax.jit(functools.partial(qr_delete, p=1))
    for k in (1, 3, -1):
        np.testing.assert_allclose(
            insert(Q[0], R[0], u, k)[1], qr_insert(Q[0], R[0], u, k, which="col")[1], atol=40 * EPS
        )
        for found, wanted in zip(delete(Q[0], R[0], k), qr_delete(Q[0], R[0], k), strict=True):
            np.testing.assert_allclose(found, wanted, atol=40 * EPS)
    over_places = jax.vmap(lambda k: qr_delete(jnp.asarray(Q[0, 0]), R[0, 0], k)[1])
    np.testing.assert_allclose(over_places(jnp.arange(2))[1], qr_delete(Q[0, 0], R[0, 0], 1)[1],
                               atol=40 * EPS)  # fmt: skip


@pytest.mark.parametrize("kind", SIDES)
@pytest.mark.parametrize("mode", ["complete", "reduced"])
def test_without_rows_or_columns_only_signs_change(kind, mode):
    A = matrices(1e-300)["random"]
    Q, R = (SIDES[kind](x) for x in np.linalg.qr(A, mode=mode))
    assert (np.diag(np.asarray(R)) < 0).any()
    for which, shape in (("row", (0, N)), ("col", (M, 0))):
        check(which, *qr_delete(Q, R, 0, 0, which=which), A)
        check(which, *qr_insert(Q, R, SIDES[kind](np.zeros(shape)), 0, which=which), A)


def test_bad_arguments_are_named():
    Q, R = np.linalg.qr(np.arange(12.0).reshape(4, 3))
    with pytest.raises(ValueError, match=r"Q and R must be full.*got \(4, 3\) and \(2, 3\)"):
        qr_insert(Q, R[:2], np.ones(3), 0)
    with pytest.raises(ValueError, match=r"u must have shape \(..., 3\).*got \(4,\)"):
        qr_insert(Q, R, np.ones(4), 0)
    with pytest.raises(ValueError, match=r"u must have shape .* \(..., 4, p\)"):
        qr_insert(Q, R, np.ones((3, 1)), 0, which="col")
    with pytest.raises(ValueError, match="k must lie from -4 to 4 for 4 rows, got 5"):
        qr_insert(Q, R, np.ones(3), 5)
    with pytest.raises(ValueError, match="k must lie from -3 to 1 for 3 columns, got 2"):
        qr_delete(Q, R, 2, 2, which="col")
    with pytest.raises(ValueError, match="p must be at most the 4 rows, got 5"):
        qr_delete(Q, R, 0, 5)
    with pytest.raises(ValueError, match="which must be one of 'row', 'col', got 'rows'"):
        qr_delete(Q, R, 0, which="rows")
    with pytest.raises(ValueError, match="p must be >= 0, got -1"):
        qr_delete(Q, R, 0, -1)
    with pytest.raises(TypeError, match=r"k must be an integer, got 1\.5"):
        qr_delete(Q, R, 1.5)
    with pytest.raises(ValueError, match=r"Q must be finite; got inf at \[0, 1\]"):
        qr_delete(np.where(np.eye(4, 3, 1) > 0, np.inf, Q), R, 1)

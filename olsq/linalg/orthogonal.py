"""QR factorisations with rows and columns inserted or deleted, and Givens rotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import broadcast_shapes
from olsq.linalg.inputs import (
    as_rows,
    backend_of,
    check_count,
    check_pair,
    check_place,
    check_which,
    flatten_batch,
    prepare,
)
from olsq.problem import AnArray

if TYPE_CHECKING:
    from jax import Array

    Plain = NDArray[Any] | np.number | float | Sequence[Any]  # what stays in NumPy
    Place = int | np.integer | Array
    Which = Literal["row", "col"]


@overload
def qr_insert(
    Q: Plain, R: Plain, u: Plain, k: int | np.integer, *, which: Which = "row"
) -> tuple[NDArray[Any], NDArray[Any]]: ...
@overload
def qr_insert(
    Q: Array | ArrayLike,
    R: Array | ArrayLike,
    u: Array | ArrayLike,
    k: Place,
    *,
    which: Which = "row",
) -> tuple[Array, Array]: ...
def qr_insert(Q: Any, R: Any, u: Any, k: Any, *, which: Which = "row") -> tuple[Any, Any]:
    """Insert rows or columns into a QR factorisation.

    Parameters
    ----------
    Q, R : array (..., m, m) and (..., m, n), or (..., m, n) and (..., n, n)
        ``A = Q R`` (..., m, n), full or (m > n) economic.  R is triangular, of any signs; Q has
        orthonormal columns, which is taken on trust.
    u : array
        Rows: (..., n), or p of them, (..., p, n).  Columns: (..., m), or (..., m, p).  One axis
        fewer than R, one row or column for each matrix; or as many.  Leading axes broadcast.
    k : int
        Put them before row (column) k; negative counts from the end, as in SciPy.  The same for
        the whole batch.  JAX: may be traced, and is not checked then.
    which : {"row", "col"}

    Returns
    -------
    Q1, R1 : array
        Of A with u in it, the diagonal of R1 >= 0; full if Q was square, else economic, until it
        becomes square.  float32 or float64; JAX if an argument is a JAX array or is traced.

    Raises
    ------
    TypeError
        If an argument is not real, or k not an integer.
    ValueError
        If shapes do not fit, k is out of range, or (NumPy) a number is not finite.

    See Also
    --------
    cholesky_update : R alone, for rows.
    scipy.linalg.qr_insert : in this order of arguments, for one matrix, in NumPy.

    Notes
    -----
    Backward stable: ``Q1 R1`` differs from the matrix by ``c (m + n) p u`` times its norm, column
    by column, and ``|Q1^T Q1 - 1|`` grows by as much at each call (Higham 2002, section 19.6).  A
    column into an economic factorisation is orthogonalised twice (Daniel, Gragg, Kaufman & Stewart
    1976), so that Q1 stays orthonormal however near u is to the columns that are there.  If u
    lies in their span to rounding, R1 has a 0 on its diagonal, and Q1 another unit vector.

    Cost: rows ``O(p n (n + m))``; columns ``O(p m (n + m))``, economic ``O(p n m)``.  JAX: jit,
    vmap, and derivatives in both modes, of any order, where R1 is not singular.

    References: Golub & Van Loan 2013, 6.5.2 and 6.5.3.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.linalg import qr_insert
    >>> A = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
    >>> Q, R = qr_insert(*np.linalg.qr(A), np.array([0.0, 1.0]), 1)
    >>> (Q @ R).round(12)
    array([[1., 2.],
           [0., 1.],
           [3., 4.],
           [5., 7.]])
    """
    if short := _fast_path("qr_insert", (Q, R, u), k, which):
        return short
    Q, R, u = prepare(Q=Q, R=R, u=u)
    check_which(which)
    m, n = check_pair(Q, R)
    new = as_rows("u", u, R, n if which == "row" else m, columns=which == "col")
    k = check_place(k, m if which == "row" else n, 0, "row" if which == "row" else "column")
    return _call_backend("Q, R and u", "qr_insert", (Q, R, new), k, which)


@overload
def qr_delete(
    Q: Plain, R: Plain, k: int | np.integer, p: int = 1, *, which: Which = "row"
) -> tuple[NDArray[Any], NDArray[Any]]: ...
@overload
def qr_delete(
    Q: Array | ArrayLike, R: Array | ArrayLike, k: Place, p: int = 1, *, which: Which = "row"
) -> tuple[Array, Array]: ...
def qr_delete(Q: Any, R: Any, k: Any, p: int = 1, *, which: Which = "row") -> tuple[Any, Any]:
    """Delete rows or columns from a QR factorisation.

    Parameters
    ----------
    Q, R : array
        As for :func:`qr_insert`.
    k : int
        The first row (column) to go; negative counts from the end.  JAX: may be traced.
    p : int, default 1
        How many go: k, ..., k + p - 1.
    which : {"row", "col"}

    Returns
    -------
    Q1, R1 : array
        As from :func:`qr_insert`; without a row an economic factorisation stays economic until Q
        is square.

    Raises
    ------
    TypeError
        If an argument is not real, or k or p not an integer.
    ValueError
        If shapes do not fit, there are no such rows or columns, or (NumPy) a number is not finite.

    See Also
    --------
    cholesky_downdate : R alone, without a row; it loses digits where this does not.

    Notes
    -----
    Backward stable as :func:`qr_insert`, also where what is left is singular: nothing is
    subtracted, since Q knows the row.  (An economic Q is first completed by the vector in which
    the row differs from the span of Q, orthogonalised twice.)

    Cost: columns ``O(p n (n + m))``; rows ``O(p m (n + m))``, economic ``O(p n m)``.  JAX: jit,
    vmap, and derivatives in both modes, of any order, where R1 is not singular.

    References: Golub & Van Loan 2013, 6.5.2 and 6.5.3; Daniel, Gragg, Kaufman & Stewart 1976.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.linalg import qr_delete
    >>> A = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
    >>> Q, R = qr_delete(*np.linalg.qr(A), 0)
    >>> (Q @ R).round(12)
    array([[3., 4.],
           [5., 7.]])
    """
    if type(p) is int and p == 1 and (short := _fast_path("qr_delete", (Q, R), k, which)):
        return short
    Q, R = prepare(Q=Q, R=R)
    check_which(which)
    m, n = check_pair(Q, R)
    p = check_count(p)
    k = check_place(k, m if which == "row" else n, p, "row" if which == "row" else "column")
    return _call_backend("Q and R", "qr_delete", (Q, R), k, p, which)


def _fast_path(function: str, arrays: tuple[Any, ...], *options: Any) -> tuple[Any, Any] | None:
    """Insert or delete one row or column of one float64 factorisation, with checks in the kernel.

    None where anything is unusual, which the general functions then handle or refuse.
    """
    for x in arrays:
        if type(x) is not np.ndarray or x.dtype != np.float64:
            return None
    from olsq.linalg.numpy import single

    return getattr(single, function)(*arrays, *options)


def _call_backend(
    names: str, function: str, arrays: tuple[Any, ...], *options: Any
) -> tuple[Any, Any]:
    """Call the backend's function on a flat batch, and restore the batch axes."""
    flattened, batch = flatten_batch(names, *arrays)
    results = getattr(backend_of(*flattened, options[0]), function)(*flattened, *options)
    Q, R = (x.astype(arrays[0].dtype).reshape(*batch, *x.shape[1:]) for x in results)
    return Q, R


class Givens(NamedTuple, Generic[AnArray]):
    """Rotations ``[[c, s], [-s, c]]`` that take (a, b) to (r, 0).

    Attributes
    ----------
    c, s : array (...)
        Cosine and sine.
    r : array (...)
        ``sqrt(a^2 + b^2)``, not negative.
    """

    c: AnArray
    s: AnArray
    r: AnArray


@overload
def givens(a: Plain, b: Plain) -> Givens[NDArray[Any]]: ...
@overload
def givens(a: Array | ArrayLike, b: Array | ArrayLike) -> Givens[Array]: ...
def givens(a: Any, b: Any) -> Givens:
    """Compute Givens rotations of pairs of numbers: ``c a + s b = r >= 0`` and ``c b - s a = 0``.

    Parameters
    ----------
    a, b : array (...)
        Real, any shapes that broadcast.

    Returns
    -------
    Givens
        ``c``, ``s``, ``r``, NumPy or JAX arrays in the dtype of the arguments: float32, else
        float64 (JAX: its widest).  (1, 0, 0) for a = b = 0.

    Raises
    ------
    TypeError
        If a or b is not real.
    ValueError
        If their shapes do not broadcast, or (NumPy) a number is not finite.

    Notes
    -----
    Each of c, s, r has a relative error of a few units of rounding, and ``c^2 + s^2 = 1`` to as
    many, from 1e-307 to 1e307: squares are taken of scaled numbers where they would overflow or
    underflow (LAPACK's ``dlartg`` since 3.10; Anderson 2017, "Algorithm 978: Safe scaling in the
    level 1 BLAS").  Other than there, r is never negative, so that a diagonal made of them is
    positive, and c may be.

    JAX: derivatives of any order; those at a = b = 0, where there are none, read 0 for c and s.

    Examples
    --------
    >>> from olsq.linalg import givens
    >>> c, s, r = givens(3.0, -4.0)
    >>> round(float(c), 15), round(float(s), 15), round(float(r), 15)
    (0.6, -0.8, 5.0)
    """
    a, b = prepare(a=a, b=b)
    try:
        broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise ValueError(f"a and b do not broadcast: {a.shape} and {b.shape}") from None
    return Givens(*backend_of(a, b).plane_rotation(a, b))

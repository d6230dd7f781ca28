"""Updates and downdates of Cholesky factors: the public functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_flag
from olsq.linalg.inputs import as_rows, backend_of, check_square, flatten_batch, prepare

if TYPE_CHECKING:
    from jax import Array

    Plain = NDArray[Any] | np.number | float | Sequence[Any]  # what stays in NumPy


@overload
def cholesky_update(factor: Plain, x: Plain, *, lower: bool = False) -> NDArray[Any]: ...
@overload
def cholesky_update(
    factor: Array | ArrayLike, x: Array | ArrayLike, *, lower: bool = False
) -> Array: ...
def cholesky_update(factor: Any, x: Any, *, lower: bool = False) -> Any:
    """Update a Cholesky factor from A to ``A + x x^T``, in O(d^2) for each column of x.

    Parameters
    ----------
    factor : array (..., d, d)
        R, upper triangular, with ``A = R^T R``; with ``lower`` L, with ``A = L L^T``.  The other
        triangle is not read.  Any triangular matrix will do: entries of the diagonal may be
        negative (a QR factorisation's) or 0 (A singular).
    x : array (..., d) or (..., d, k)
        One vector for each factor, with one axis fewer than ``factor``; or k columns, with as many
        axes.  k may be 0, or larger than d.  Leading axes broadcast.
    lower : bool, default False
        Which triangle, given and returned; the default is SciPy's.

    Returns
    -------
    array (..., d, d)
        The factor, its diagonal >= 0, the other triangle 0, in the dtype of the arguments:
        float32, or float64.  JAX if an argument is a JAX array or is traced, else NumPy.

    Raises
    ------
    TypeError
        If an argument is not real.
    ValueError
        If shapes do not fit, or (NumPy) a number is not finite.

    See Also
    --------
    cholesky_downdate, qr_insert

    Notes
    -----
    d block rotations (for one column Givens rotations), each of a pivot and the k entries under it.
    Backward stable column by column: there is an orthogonal Q with
    ``[R + E; x^T + F] = Q [R'; 0]`` and ``|(E_j, F_j)| <= c d k u |(R_j, x_j)|`` for every column
    j, with u the unit roundoff and c a small constant (Higham 2002, section 19.6).  So the errors
    of ``R'^T R'`` are of that size next to ``sqrt(A'_ii A'_jj)``, whatever the condition of A and
    the units of its columns; measured, they are a few u.  Nothing overflows or underflows that the
    result does not.

    Cost: ``4 k d^2`` flops (one column: ``3 d^2``); the dense way takes ``k d^2 + d^3 / 3`` and
    squares the condition.  NumPy computes in float64 also for float32.  JAX: jit, vmap,
    derivatives in both modes, of any order; a pivot that stays 0 has none, and reads 0.

    References: Golub & Van Loan 2013, 6.5.4; Gill, Golub, Murray & Saunders 1974.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.linalg import cholesky_update
    >>> L = np.linalg.cholesky([[4.0, 2.0], [2.0, 3.0]])
    >>> L1 = cholesky_update(L, np.array([1.0, 2.0]), lower=True)
    >>> (L1 @ L1.T).round(12)
    array([[5., 4.],
           [4., 7.]])
    """
    return _call_backend("cholesky_update", factor, x, lower)


@overload
def cholesky_downdate(factor: Plain, x: Plain, *, lower: bool = False) -> NDArray[Any]: ...
@overload
def cholesky_downdate(
    factor: Array | ArrayLike, x: Array | ArrayLike, *, lower: bool = False
) -> Array: ...
def cholesky_downdate(factor: Any, x: Any, *, lower: bool = False) -> Any:
    """Downdate a Cholesky factor from A to ``A - x x^T``, in O(d^2) for each column of x.

    Parameters
    ----------
    factor, x, lower
        Those of :func:`cholesky_update`.

    Returns
    -------
    array (..., d, d)
        As from :func:`cholesky_update`.  JAX: all NaN where ``A - x x^T`` is not positive definite
        to rounding, as ``jnp.linalg.cholesky``, so that one entry is the flag; other matrices of
        the batch are not touched.

    Raises
    ------
    numpy.linalg.LinAlgError
        NumPy: if ``A - x x^T`` is not positive definite to rounding, for any matrix of the batch;
        the message says which.  It is a ValueError.
    TypeError
        If an argument is not real.
    ValueError
        If shapes do not fit, or (NumPy) a number is not finite.

    See Also
    --------
    qr_delete : with Q at hand, which loses nothing.

    Notes
    -----
    The mixed form of hyperbolic rotations, for k columns at once: each row of the new factor is
    solved from the rotation that would put x back, and x goes on through that same orthogonal
    rotation.  It is relationally stable: there is an orthogonal Q with
    ``[R + E; 0] = Q [R'; x^T + F]`` and ``|(E_j, F_j)| <= c d k u |R_j|`` (Bojanczyk, Brent, Van
    Dooren & de Hoog 1987), and stays so over a sequence of updates and downdates (Stewart 1995).
    LINPACK's ``dchdd``, which is orthogonal (Stewart 1979), has a bound of the same kind; plain
    hyperbolic rotations, applied to both rows, have none.

    The problem itself may be ill-conditioned.  With ``rho^2`` the least eigenvalue of
    ``1 - x^T A^-1 x`` (for a column: 1 - its leverage), ``|A'^-1| <= |A^-1| / rho^2``, and R'
    differs from the exact factor by up to about ``c d k u cond(A) / rho^2``, relative to its norm:
    no method that knows only R and x does better.  R and x determine ``rho^2`` to within
    ``c d u cond(R)``: below that, definite and indefinite cannot be told apart, and either answer
    may come.  Where the rows are still at hand, factorise them afresh then.

    A pivot of 0 (A singular) stays 0: x has to be exactly 0 there, else it is refused.  In NumPy
    the rest of its row may be nonzero; in JAX such a row must be 0, else NaN.

    Cost: ``4 k d^2`` flops.  NumPy computes in float64 also for float32.  JAX: jit, vmap, and
    derivatives in both modes, of any order, where the result is definite.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.linalg import cholesky_downdate, cholesky_update
    >>> R, x = np.array([[2.0, 1.0], [0.0, 1.0]]), np.array([1.0, 3.0])
    >>> bool(np.allclose(cholesky_downdate(cholesky_update(R, x), x), R, atol=1e-14))
    True
    >>> cholesky_downdate(R, np.array([2.0, 0.0]))
    Traceback (most recent call last):
        ...
    numpy.linalg.LinAlgError: the downdated matrix is not positive definite to rounding: ...
    """
    return _call_backend("cholesky_downdate", factor, x, lower)


def _call_backend(function: str, factor: Any, x: Any, lower: bool) -> Any:
    """Check and lay out arguments as upper factors and rows, call the backend, undo the layout."""
    check_flag("lower", lower)
    factor, x = prepare(factor=factor, x=x)
    rows = as_rows("x", x, factor, check_square(factor), columns=True)
    R = factor.swapaxes(-1, -2) if lower else factor
    (R, rows), batch = flatten_batch("factor and x", R, rows)
    new = getattr(backend_of(R), function)(R, rows).astype(factor.dtype)
    new = new.reshape(*batch, *new.shape[1:])
    return new.swapaxes(-1, -2) if lower else new

"""Givens rotations: the public function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import broadcast_shapes
from olsq.linalg.inputs import backend_of, prepare
from olsq.problem import AnArray

if TYPE_CHECKING:
    from jax import Array

    Plain = NDArray[Any] | np.number | float | Sequence[Any]  # what stays in NumPy


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

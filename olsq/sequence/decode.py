"""Decode one token at a time: public functions that choose NumPy or JAX by their arguments."""

from __future__ import annotations

from typing import Any, TypeVar

from numpy.typing import ArrayLike

from olsq.arrays.checks import check_tolerance, holds_jax
from olsq.arrays.masked import takes_masked
from olsq.problem import AnArray, DecodeState, Moments

AnyState = TypeVar("AnyState", bound=Moments | DecodeState)


def _side(*arguments: Any) -> Any:
    """Return the decoding module for these arguments: JAX's if any of them is a JAX array."""
    if holds_jax(*arguments):
        from olsq.sequence.jax import decode
    else:
        from olsq.sequence.numpy import decode
    return decode


@takes_masked
def start_decoding(
    state: Moments[AnArray], *, ridge: ArrayLike | None = None
) -> DecodeState[AnArray]:
    """Factorise ``state`` once, so that :func:`update` and :func:`query` do not have to.

    Parameters
    ----------
    state : Moments
        JAX or NumPy, e.g. ``Solution.state`` of a prefill.
    ridge : number or array (..., d), optional
        The ridge of the fixed problem.  None: the gram holds it (the discounted problem).

    Returns
    -------
    DecodeState

    Notes
    -----
    Cost O(d^3).  Values and gradients of later queries do not depend on the carried inverse
    beyond the tolerance of the solve, so it carries no gradient.
    """
    return _side(state, ridge).start_decoding(state, ridge=ridge)


@takes_masked
def update(
    state: AnyState,
    key: ArrayLike,
    value: ArrayLike,
    *,
    forget: ArrayLike = 1.0,
    weight: ArrayLike = 1.0,
) -> AnyState:
    """Absorb one token: ``H <- forget H + weight k k^T``, ``G <- forget G + weight v k^T``.

    Parameters
    ----------
    state : Moments or DecodeState
    key, value : array (..., d) and (..., m)
    forget, weight : number or array (...)
        Gate in [0, 1] (0 drops the past, even a non-finite one) and sample weight >= 0 (0 leaves
        the sample out, even a non-finite one).

    Returns
    -------
    Moments or DecodeState, as given

    Raises
    ------
    ValueError
        If an untraced ``forget`` or ``weight`` is out of range, or shapes differ.
    TypeError
        If an argument is not an array of real numbers.

    Notes
    -----
    O(d^2), and O(d^3) every 32 tokens for a DecodeState.  In JAX differentiable to any order.
    NumPy states give NumPy states; nothing given is changed.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> state = olsq.Moments(np.zeros((2, 2)), np.zeros((1, 2)))
    >>> state = olsq.update(state, np.array([1.0, 0.0]), np.array([3.0]))
    >>> round(float(olsq.query(state, np.array([1.0, 1.0]), ridge=0.5)[0]), 3)
    2.0
    """
    if forget is None or weight is None:
        raise TypeError("forget and weight must be numbers or arrays, got None: leave it out for 1")
    side = _side(state, key, value, forget, weight)
    return side.update(state, key, value, forget=forget, weight=weight)


@takes_masked
def query(
    state: Moments[AnArray] | DecodeState[AnArray],
    query: ArrayLike,
    *,
    ridge: ArrayLike | None = None,
    tol: float | None = None,
) -> AnArray:
    """Evaluate the fit at one query: ``o = G (H + Lambda)^{-1} q``.

    Parameters
    ----------
    state : Moments or DecodeState
    query : array (..., d)
    ridge : number or array (..., d), optional
        The ridge of the fixed problem, for Moments.  A DecodeState has its own.
    tol : float, optional
        Relative residual of a DecodeState's solve; None: 1e-7 in float32, 1e-14 in float64.

    Returns
    -------
    array (..., m)

    Raises
    ------
    ValueError
        If ``ridge`` is given with a DecodeState, widths differ, or ``tol`` is not in [0, 1).
    TypeError
        If an argument is not an array of real numbers.

    Notes
    -----
    From Moments: a Cholesky factorisation, O(d^3).  From a DecodeState: one to three O(d^2) steps
    of conjugate gradient preconditioned by the carried inverse.  In JAX differentiable to any
    order.  In NumPy a singular system (no ridge, few samples) gives the fit of smallest norm.
    """
    if tol is not None:
        check_tolerance(tol)
    return _side(state, query, ridge).query(state, query, ridge=ridge, tol=tol)


@takes_masked
def merge_moments(
    first: Moments[AnArray], second: Moments[AnArray], *, forget: ArrayLike = 1.0
) -> Moments[AnArray]:
    """Merge the moments of two consecutive pieces of a stream: ``forget * first + second``.

    Parameters
    ----------
    first, second : Moments
        ``second`` started from zero, after ``first``; only ``first`` may hold a ridge.
    forget : number or array (...)
        Product of all gates of the second piece.

    Returns
    -------
    Moments

    Examples
    --------
    >>> import numpy as np, olsq
    >>> one = olsq.Moments(np.eye(2), np.ones((1, 2)))
    >>> olsq.sequence.merge_moments(one, one, forget=0.5).cross
    array([[1.5, 1.5]])
    """
    if forget is None:
        raise TypeError("forget must be a number or an array, got None: leave it out for 1")
    return _side(first, second, forget).merge_moments(first, second, forget=forget)

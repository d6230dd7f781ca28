"""The problem every solver of this package solves, with its states and solutions.

A stream of keys ``k_t`` (regressors, shape (d,)) and values ``v_t`` (targets, shape (m,)), a
forgetting factor ``gamma_t`` in [0, 1], a sample weight ``beta_t >= 0`` and a diagonal ridge
``Lambda >= 0``.  With ``zeta_ti = gamma_{i+1} ... gamma_t``, for every t::

    Phi_t = argmin_Phi  1/2 sum_{i<=t} zeta_ti beta_i |v_i - Phi k_i|^2
                        + 1/2 tr(Phi Lambda_t Phi^T)

Two problems share that sentence and differ in the ridge only:

* ``ridge_mode="discounted"``: ``Lambda_t = zeta_t0 Lambda``; the ridge is forgotten with the data
  (classical recursive least squares);
* ``ridge_mode="fixed"``: ``Lambda_t = Lambda`` at every t (regularised RLS, the Mesa layer).

They agree if and only if every gamma is 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.brief import brief_repr

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # the checker's own: one with a default, before 3.13

    # NDArray[...] or jax.Array, the same for all arrays of a state: those of NumPy and of JAX do
    # not mix.  A plain ``Moments`` is either.
    AnArray = TypeVar("AnArray", default=Any, covariant=True)
else:
    from typing import TypeVar

    AnArray = TypeVar("AnArray", covariant=True)

RidgeMode = Literal["discounted", "fixed"]
RIDGE_MODES: tuple[str, ...] = ("discounted", "fixed")

# Largest magnitude whose square, summed over 1e4 rows, is still finite.  Larger entries are
# refused: they would overflow inside any method that squares a regressor.
LARGEST = {np.dtype(np.float64): 1e152, np.dtype(np.float32): 1e17}


class Moments(NamedTuple, Generic[AnArray]):
    """The whole state of the problem: the sums that a stream is reduced to.

    Attributes
    ----------
    gram : array (..., d, d)
        ``H_t = gamma_t H_{t-1} + beta_t k_t k_t^T``, the information matrix of the data.
    cross : array (..., m, d)
        ``G_t = gamma_t G_{t-1} + beta_t v_t k_t^T``.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq import Moments
    >>> state = Moments(gram=np.eye(2), cross=np.ones((1, 2)))
    >>> state.cross @ np.linalg.inv(state.gram)
    array([[1., 1.]])
    """

    gram: AnArray
    cross: AnArray

    __repr__ = brief_repr


class DecodeState(NamedTuple, Generic[AnArray]):
    """Moments with a carried inverse, for decoding one token after another.

    Attributes
    ----------
    moments : Moments
        The state proper: gram (..., d, d), cross (..., m, d).
    ridge : array (..., d)
        The fixed problem's ridge; zeros in the discounted problem, whose gram holds it.
    inverse : array (..., d, d)
        Preconditioner: the inverse system at the last refresh, updated by rank one since.
    gate_product : array (...)
        Product of the gates since the last refresh.
    age : int32 array ()
        Tokens since the last refresh.
    """

    moments: Moments[AnArray]
    ridge: AnArray
    inverse: AnArray
    gate_product: AnArray
    age: AnArray | np.int32

    __repr__ = brief_repr


class AccuracyError(ArithmeticError):
    """An output is not known to be as accurate as :meth:`Solution.check` requires.

    Examples
    --------
    >>> import olsq
    >>> issubclass(olsq.AccuracyError, ArithmeticError)
    True
    """


class Stats(NamedTuple, Generic[AnArray]):
    """Steps, residual and error bounds of every token of a solution.

    With ``M = H + Lambda`` and x the solution for a token's query q, the error of x is
    ``M^{-1} (q - M x)``, and no eigenvalue of M is below the smallest ridge. So the residual bounds
    the error, whatever the solver did. The residual is computed in the working precision from
    moments that are rounded themselves; the bound includes the error that this can hide.

    Attributes
    ----------
    steps : int32 array (..., T)
        Iterations or corrections spent on the token; 0 for a direct solve.
    residual : array (..., T)
        ``|q - M x| / |q|``, 0 for a zero query; of no meaning where the output is NaN.
    bound : array (..., T)
        ``|x - M^{-1} q|`` is at most this.  Infinite where nothing is known: a ridge of 0, a
        discounted ridge after a gate of 0, an output that is NaN.
    value_bound : array (..., T)
        The same for ``|o - G M^{-1} q|``, the error of the output: the bound times the norm of G,
        and what the read-out itself can round.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> keys = np.array([[1.0], [1.0], [1.0]])
    >>> stats = olsq.online_lstsq(keys, keys, keys, ridge=1.0).stats
    >>> bool((stats.bound < 1e-13).all() and (stats.value_bound < 1e-12).all())
    True
    """

    steps: AnArray
    residual: AnArray
    bound: AnArray
    value_bound: AnArray

    __repr__ = brief_repr


class Gradients(NamedTuple):
    """Result of :func:`olsq.online_lstsq_vjp`: the gradient of ``sum(cotangent * value)``.

    Attributes
    ----------
    keys, values, queries : array (..., T, d), (..., T, m), (..., T, d)
        In the shapes that the three broadcast to.
    forget, weight : array (..., T)
        Of every gate (as a factor, also where logs were given) and every weight.
    ridge : array (..., T, d) or (..., d)
        Of each token's ridge in the fixed problem: sum over the tokens that share one.  Of the
        ridge at the start in the discounted problem.
    gram, cross : array (..., d, d) and (..., m, d)
        Of the state before the first token (of zeros, if none was given).
    """

    keys: NDArray[np.float64]
    values: NDArray[np.float64]
    queries: NDArray[np.float64]
    forget: NDArray[np.float64]
    weight: NDArray[np.float64]
    ridge: NDArray[np.float64]
    gram: NDArray[np.float64]
    cross: NDArray[np.float64]

    __repr__ = brief_repr


class Sizes(NamedTuple):
    """Norms from which the certificate of a token is computed, arrays of one shape each."""

    query: Any  # |q|
    solution: Any  # |x|
    left: Any  # |q - M x|
    trace: Any  # of H, at least its norm
    ridge: Any  # largest entry of Lambda
    cross: Any  # at least the norm of G
    value: Any  # |o|


def error_bounds(sizes: Sizes, floor: Any, length: int, eps: float, out_eps: float) -> Any:
    """Bound the errors of x and of o; ``floor`` is a lower bound of M's eigenvalues.

    A sum of n products in any order is wrong by about ``sqrt(n) eps`` of the sum of their sizes
    (Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019). M, G and
    their products are sums over the ``length`` tokens, in pieces: ``8 + 2 sqrt(length)`` covers the
    gates' products too.  Outputs that are wider than what they were computed in, with an
    ``out_eps`` of at most ``eps``, are not rounded again.
    """
    rounded = (8 + 2 * length**0.5) * eps
    size = (sizes.trace + sizes.ridge) * sizes.solution + sizes.query
    # |M^{-1} r| <= |r| / lambda_min(M), plus the rounding of r itself
    bound = (sizes.left + rounded * size) / floor
    readout = sizes.cross * (bound + rounded * (sizes.solution + bound))
    return bound, readout + (out_eps if out_eps > eps else 0.0) * sizes.value


def certificate(left: Any, right: Any, bounds: Any, known: Any, xp: Any = np) -> tuple[Any, ...]:
    """Return the relative residual ``left / right`` and the bounds, infinite unless ``known``.

    ``xp`` is the library of the arrays, numpy or jax.numpy.
    """
    residual = xp.where(right > 0, left / xp.where(right > 0, right, 1), 0)
    return residual, *(xp.where(known & ~xp.isnan(x), x, xp.inf) for x in bounds)


class Solution(NamedTuple, Generic[AnArray]):
    """Result of :func:`olsq.online_lstsq`.

    Attributes
    ----------
    value : array (..., T, m)
        ``o_t = Phi_t q_t``; NaN from a non-finite sample on, until a gate of 0.
    state : Moments
        Moments after the last token; give them as ``state=`` to go on, with JAX or NumPy arrays.
    stats : Stats
        Steps, residuals and error bounds per token.  Inside ``jax.jit`` they cost nothing if not
        used.
    """

    value: AnArray
    state: Moments[AnArray]
    stats: Stats[AnArray]

    __repr__ = brief_repr

    def check(self, tol: float = 1e-3) -> Solution[AnArray]:
        """Return the solution, or raise if any output may be wrong by more than ``tol``.

        Parameters
        ----------
        tol : float
            Largest error allowed, relative to the largest output of the same stream.

        Returns
        -------
        Solution
            This one.

        Raises
        ------
        AccuracyError
            If ``stats.value_bound`` cannot show it, or an output is not finite.  The message
            names the worst token and what to try.  The bound is safe, not sharp: it exceeds
            the error by up to the condition number of the token's system, so that failing means
            "not shown to be right".
        TypeError
            If the arrays are traced by JAX: call it outside ``jit``, or use ``stats``.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> keys = np.random.default_rng(0).standard_normal((50, 3))
        >>> fit = olsq.online_lstsq(keys, keys, keys, ridge=0.1).check(1e-9)
        >>> few = olsq.online_lstsq(keys, keys, keys, ridge=1e-30)
        >>> try:
        ...     few.check(1e-9)
        ... except olsq.AccuracyError as error:
        ...     print(str(error)[:13])
        the output of
        """
        check_accuracy(
            self.value,
            self.stats,
            tol,
            lost="its query, or a sample at or before it, is not finite or too large to square, "
            "or (discounted problem) a gate of 0 took the ridge away",
            stopped="the solver stopped early there (allow more steps, or use ChunkExact()), or "
            "the system is too ill-conditioned for the dtype (use float64 or a larger ridge)",
        )
        return self


def check_accuracy(outputs: Any, stats: Stats, tol: float, *, lost: str, stopped: str) -> None:
    """Raise :class:`AccuracyError` unless every output's bound is within ``tol``.

    ``tol`` is relative to the largest output of the stream.  ``lost`` says in the message why an
    output may not be finite, ``stopped`` what to do where the residual is not at rounding.
    """
    from olsq.arrays.checks import check_scalar, refuse  # which imports this module

    refuse("tol", tol, lambda most: ~(most >= 0), "be >= 0")
    check_scalar("tol", tol)
    try:
        value = np.asarray(outputs, np.float64)
        bound, residual = (np.asarray(x, np.float64) for x in (stats.value_bound, stats.residual))
    except TypeError as error:
        raise TypeError(
            "check() needs numbers, and these arrays are only traced: call it outside "
            "jax.jit, or use stats.value_bound inside"
        ) from error
    if value.size == 0:
        return

    def where(index: Any) -> str:
        stream = f" of stream {tuple(map(int, index[:-1]))}" if len(index) > 1 else ""
        return f"token {int(index[-1])}{stream}"

    unknown = ~np.isfinite(value).all(-1)
    if unknown.any():
        first = np.unravel_index(np.argmax(unknown), unknown.shape)
        raise AccuracyError(f"the output of {where(first)} is not finite: {lost}")
    largest = np.linalg.norm(value, axis=-1).max(-1, keepdims=True)
    relative = bound / np.where(largest > 0, largest, 1)
    worst = np.unravel_index(np.argmax(relative), relative.shape)
    if relative[worst] <= tol:
        return
    eps = float(np.finfo(np.asarray(stats.residual).dtype).eps)
    if residual[worst] > 100 * eps:
        advice = stopped
    else:
        advice = (
            "the solver is done there, and rounding is what remains: use float64 or a larger ridge"
        )
    raise AccuracyError(
        f"the output of {where(worst)} is only known to within {relative[worst]:.2g} of the "
        f"stream's largest, not {tol:.2g}; relative residual {residual[worst]:.2g}; {advice}"
    )

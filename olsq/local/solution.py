"""The solution of a local least-squares problem and its certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from olsq.arrays.brief import brief_repr
from olsq.problem import Stats, check_accuracy

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    AnArray = TypeVar("AnArray", default=Any, covariant=True)
else:
    from typing import TypeVar

    AnArray = TypeVar("AnArray", covariant=True)


class LocalSolution(NamedTuple, Generic[AnArray]):
    """Result of :func:`olsq.local_lstsq`: the outputs, and a bound of the error of each.

    Attributes
    ----------
    value : array (..., T, m)
        The fit of each query at the query.
    stats : Stats
        Per query (..., T): ``steps`` of conjugate gradient; ``residual``, ``|b - M x| / |b|`` of
        the system ``M x = b`` with ``M = S + ridge I`` and ``b = q - kbar``; ``bound``, which
        ``|x - M^{-1} b|`` does not exceed; ``value_bound``, which the error of the output does not
        exceed.  Bounds are infinite where the ridge is 0 or the output is NaN.  Inside ``jax.jit``
        they cost nothing if not used.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> x = np.linspace(0.0, 1.0, 50)[:, None]
    >>> fit = olsq.local_lstsq(x, x**2, x, ridge=1e-6, causal=False)
    >>> bool((fit.stats.value_bound < 1e-6).all())
    True
    """

    value: AnArray
    stats: Stats[AnArray]

    __repr__ = brief_repr

    def check(self, tol: float = 1e-3) -> LocalSolution[AnArray]:
        """Return the solution, or raise if any output may be wrong by more than ``tol``.

        Parameters
        ----------
        tol : float
            Largest error allowed, relative to the largest output of the same stream.

        Returns
        -------
        LocalSolution
            This one.

        Raises
        ------
        AccuracyError
            If ``stats.value_bound`` cannot show it, or an output is not finite; see
            :meth:`olsq.Solution.check`.
        TypeError
            If the arrays are traced by JAX.

        Examples
        --------
        >>> import numpy as np, olsq
        >>> x = np.random.default_rng(0).standard_normal((50, 3))
        >>> fit = olsq.local_lstsq(x, x, x, ridge=0.1).check(1e-9)
        """
        check_accuracy(
            self.value,
            self.stats,
            tol,
            lost="its query, or a key or value that it sees, is not finite or too large to square, "
            "or it sees no key of positive weight",
            stopped="the solver stopped early there (allow more steps, or leave tol out), or the "
            "system is too ill-conditioned for the dtype (use float64 or a larger ridge)",
        )
        return self


class LocalSizes(NamedTuple):
    """The sizes from which a query's error bounds are computed, arrays (B, T)."""

    query: Any  # |q|
    scaled: Any  # |scale q|
    key: Any  # at least the norm of every key that the query sees
    exponent: Any  # at least the size of every finite log weight that the query sees
    spread: Any  # E|k - kbar|^2
    value_spread: Any  # E|v - vbar|^2
    value: Any  # at least the norm of every value that the query sees
    right: Any  # |b| = |q - kbar|
    solution: Any  # |x|
    along: Any  # sqrt(x.Sx), at least
    left: Any  # |b - (S + ridge) x|
    output: Any  # |o|


def exponent_error(sizes: LocalSizes, d: int, eps: float) -> Any:
    """Bound the rounding errors of the exponents: the relative errors of weights, while below 1.

    From there on the weights that were computed say nothing of the right ones, and no bound holds.
    """
    return eps * (4 + (4 + 2 * d**0.5) * sizes.scaled * sizes.key + 2 * sizes.exponent)


def local_error_bounds(
    sizes: LocalSizes, ridge: Any, d: int, count: Any, eps: float, out_eps: float
) -> Any:
    """Bound the errors of x and of o, with the ridge as the least eigenvalue that M can have.

    With C the weighted covariance of values and keys, the singular values of ``C M^{-1}`` are at
    most ``sqrt(E|v - vbar|^2)`` times ``sigma / (sigma^2 + ridge) <= 1 / (2 sqrt(ridge))``, sigma^2
    being an eigenvalue of S, and ``sigma <= sqrt(E|k - kbar|^2)``.

    Two kinds of rounding are counted in addition to the residual.  Sums over ``count`` numbers,
    keys or d, whichever are more: a sum of n products is wrong by about ``sqrt(n) eps`` of the sum
    of their sizes (Higham and Mary, 2019). And exponents: an error of delta in an exponent is a
    relative error of delta in a weight, which moves kbar by at most ``delta sqrt(E|k - kbar|^2)``,
    S by ``2 delta E|k - kbar|^2``, and C and vbar likewise.  Where :func:`exponent_error` is not
    below 1 the bounds do not hold.
    """
    rounded = (8 + 2 * count**0.5) * eps
    delta = exponent_error(sizes, d, eps)
    delta = delta / (1 - delta * (delta < 1))  # at least exp(delta) - 1
    # the spreads are differences themselves
    key_spread = (sizes.spread + rounded * sizes.key**2) ** 0.5
    value_spread = (sizes.value_spread + rounded * sizes.value**2) ** 0.5
    # sum p |(k - kbar).x|, with what x.Sx itself is wrong by
    along = sizes.along + rounded * sizes.key * sizes.solution
    system = (rounded * sizes.key + 2 * delta * key_spread) * along
    right = rounded * (sizes.query + sizes.key) + delta * key_spread
    residual = sizes.left + system + rounded * ridge * sizes.solution + right
    bound = residual / ridge
    # the harmonic mean of the two bounds of |C M^-1|, at most twice the smaller
    slope = key_spread / (ridge / 2 + ridge**0.5 * key_spread)
    readout = value_spread * slope * residual
    # what is wrong with the C x that was computed, and with vbar
    cross = (rounded * sizes.value + 2 * delta * value_spread) * along
    cross = cross + rounded * sizes.key * sizes.solution * value_spread
    mean = rounded * sizes.value + delta * value_spread
    rounding = (out_eps if out_eps > eps else 0.0) * sizes.output
    return bound, readout + cross + mean + rounding

"""The public function `local_lstsq`: NumPy arrays are solved by BLAS, everything else by JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import holds_jax
from olsq.arrays.masked import takes_masked
from olsq.local.solution import LocalSolution

if TYPE_CHECKING:
    from jax import Array

    from olsq.sequence.api import Plain


@overload
def local_lstsq(
    keys: Plain,
    values: Plain,
    queries: Plain,
    *,
    ridge: Plain,
    scale: Plain | None = None,
    window: int | None = None,
    tol: float | None = None,
    max_steps: int | None = None,
    causal: bool = True,
    forget: Plain | None = None,
    log_forget: Plain | None = None,
    log_weight: Plain | None = None,
    segment_ids: Plain | None = None,
) -> LocalSolution[NDArray[Any]]: ...
@overload
def local_lstsq(
    keys: Array,
    values: ArrayLike,
    queries: ArrayLike,
    *,
    ridge: ArrayLike,
    scale: ArrayLike | None = None,
    window: int | None = None,
    tol: float | None = None,
    max_steps: int | None = None,
    causal: bool = True,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    log_weight: ArrayLike | None = None,
    segment_ids: ArrayLike | None = None,
) -> LocalSolution[Array]: ...
@overload
def local_lstsq(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    *,
    ridge: ArrayLike,
    scale: ArrayLike | None = None,
    window: int | None = None,
    tol: float | None = None,
    max_steps: int | None = None,
    causal: bool = True,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    log_weight: ArrayLike | None = None,
    segment_ids: ArrayLike | None = None,
) -> LocalSolution: ...
@takes_masked
def local_lstsq(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    *,
    ridge: ArrayLike,
    scale: ArrayLike | None = None,
    window: int | None = None,
    tol: float | None = None,
    max_steps: int | None = None,
    causal: bool = True,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    log_weight: ArrayLike | None = None,
    segment_ids: ArrayLike | None = None,
) -> LocalSolution:
    """Fit a weighted linear regression of values on keys at every query, and evaluate it there.

    The weights are those of softmax attention, ``p_ti`` proportional to
    ``exp(scale_t q_t . k_i + log weights)``.  For every query t::

        min over a, B of   sum_i p_ti |v_i - a - B (k_i - q_t)|^2 + ridge_t |B|^2

    and the output is ``a``.  This is local linear attention where queries follow the keys of a
    stream, and local linear regression (LOESS) where every query sees all keys.  A large ridge
    gives softmax attention, the weighted mean; a scale of 0 gives ridge regression with an
    intercept.

    Parameters
    ----------
    keys : array (..., N, d)
        Regressors.
    values : array (..., N, m)
        Targets.
    queries : array (..., T, d)
        Where the fits are wanted; T = N with ``causal``.  Leading axes of the three broadcast.
    ridge : array
        Penalty of the slopes, >= 0, in units of a squared key: a number, or what broadcasts to
        (..., T).  Per head of (heads, T, d) arrays it has shape (heads, 1).
    scale : array, optional
        Sharpness of the weights: a number, or what broadcasts to (..., T).  ``d**-0.5`` if None.
    window : int, optional
        Each query sees the last so many keys only, its own included.
    tol : float, optional
        Stop at residuals of ``tol`` times the right-hand side.  None goes on to rounding.
    max_steps : int, optional
        Most steps of conjugate gradient; ``10 d + 50`` if None.  0 gives softmax attention.
    causal : bool
        Query t sees keys 0 to t.  If False, every query sees every key.
    forget, log_forget : array, optional
        Gates in [0, 1] of a stream, or their logs, broadcast to (..., T): the weight of key i at
        query t is multiplied by the gates i + 1 to t.  A gate of 0 forgets all keys before its own.
    log_weight : array, optional
        Added to the exponents of each key, broadcast to (..., N).  -inf leaves a key out, even one
        that is not finite.  ``-scale / 2 * |k_i|^2`` makes the weights a Gaussian kernel of the
        distance between query and key, of bandwidth ``scale**-0.5``.
    segment_ids : int array, optional
        Sequences packed into one, broadcast to (..., T): non-decreasing along time; a query sees
        keys of its own segment only.

    Returns
    -------
    LocalSolution
        ``value`` (..., T, m) in the dtype of the inputs, and ``stats`` per query with a bound of
        the error.

    Raises
    ------
    ValueError
        If shapes do not fit, an untraced ridge, gate or weight is out of range, both ``forget`` and
        ``log_forget`` are given, or an option of streams is given with ``causal=False``.
    TypeError
        If any argument is not an array of real numbers.

    Notes
    -----
    NumPy arrays are solved on the CPU by BLAS without importing JAX.  JAX takes the call if any
    argument is a JAX array or traced; there it works under ``jit``, ``vmap``, ``grad`` and ``jvp``,
    and has derivatives of any order for every array that goes in, ``scale``, ``ridge``, gates
    and ``log_weight`` included.  They are implicit: one more solve, whatever number of steps
    the first took; they are those of the exact solution, so use them with solves that converge.

    With ``kbar``, ``vbar`` the weighted means and ``S``, ``C`` the weighted covariances of keys,
    and of values with keys, ``(S + ridge I) x = q - kbar`` and ``o = vbar + C x``.  Conjugate
    gradient needs products of S with vectors only.  Cost: one softmax attention, and about one more
    for every step.  S itself is formed, for one block of queries at a time, up to 12 features and
    for blocks that are not done after d steps, which bounds the cost at about twice d steps.
    Memory O(T (d + m)), the scores of at most 256 queries and, where formed, their S; also for
    derivatives.

    float64 if any array is (and JAX has it enabled), else float32; half precision is rounded once,
    at the end.  A key or value that is not finite makes the outputs that see it NaN, and no others;
    so does a key too large to square.  A query that sees no key of positive weight is NaN.
    With ``ridge=0`` outputs exist where the keys seen determine the slopes, and bounds are
    infinite.

    References
    ----------
    Zuo et al., "Local Linear Attention" (2025), arXiv 2510.01450.  Cleveland, "Robust Locally
    Weighted Regression and Smoothing Scatterplots", Journal of the American Statistical
    Association 74 (1979).  "Local least squares" in the documentation has the derivation.

    Examples
    --------
    A regression of a noisy curve, with a Gaussian kernel of bandwidth 0.1:

    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> x = np.sort(rng.uniform(0, 1, 400))[:, None]
    >>> y = np.sin(6 * x) + 0.2 * rng.standard_normal((400, 1))
    >>> grid, sharp = np.array([[0.0], [0.5], [1.0]]), 0.1**-2
    >>> kernel = {"scale": sharp, "log_weight": -sharp / 2 * x[:, 0] ** 2}
    >>> fit = olsq.local_lstsq(x, y, grid, ridge=1e-6, causal=False, **kernel)
    >>> bool((abs(fit.value - np.sin(6 * grid)) < 0.1).all())
    True

    The layer's form in JAX, with derivatives:

    >>> import jax, jax.numpy as jnp
    >>> k, v, q = jax.random.normal(jax.random.key(0), (3, 16, 4))
    >>> slope = jax.grad(lambda ridge: olsq.local_lstsq(k, v, q, ridge=ridge).value.sum())(0.1)
    >>> slope.shape
    ()
    """
    options: dict[str, Any] = {
        "ridge": ridge,
        "scale": scale,
        "window": window,
        "forget": forget,
        "log_forget": log_forget,
        "log_weight": log_weight,
        "segment_ids": segment_ids,
        "causal": causal,
        "tol": tol,
        "max_steps": max_steps,
    }
    arrays = (ridge, scale, forget, log_forget, log_weight, segment_ids)
    if holds_jax(keys, values, queries, *arrays):
        from olsq.local.jax.solve import local_lstsq as solve
    else:
        from olsq.local.numpy.solve import local_lstsq as solve
    return solve(keys, values, queries, **options)

"""Public function for whole sequences: sends NumPy arrays to Numba kernels and everything else to
JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_choice, holds_jax
from olsq.arrays.masked import takes_masked
from olsq.problem import Gradients, Moments, Solution

if TYPE_CHECKING:
    from jax import Array

    from olsq.solvers import Solver

    Plain = NDArray[Any] | np.number | float | Sequence[Any]  # what stays in NumPy


@overload
def online_lstsq(
    keys: Plain,
    values: Plain,
    queries: Plain,
    *,
    forget: Plain | None = None,
    log_forget: Plain | None = None,
    weight: Plain | None = None,
    ridge: Plain | None = None,
    ridge_mode: Literal["fixed", "discounted"] = "fixed",
    state: Moments[NDArray[Any]] | None = None,
    solver: Solver | None = None,
    adjoint: Literal["implicit", "unrolled"] = "implicit",
) -> Solution[NDArray[Any]]: ...
@overload
def online_lstsq(
    keys: Array,
    values: ArrayLike,
    queries: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    ridge: ArrayLike | None = None,
    ridge_mode: Literal["fixed", "discounted"] = "fixed",
    state: Moments | None = None,
    solver: Solver | None = None,
    adjoint: Literal["implicit", "unrolled"] = "implicit",
) -> Solution[Array]: ...
@overload
def online_lstsq(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    ridge: ArrayLike | None = None,
    ridge_mode: Literal["fixed", "discounted"] = "fixed",
    state: Moments | None = None,
    solver: Solver | None = None,
    adjoint: Literal["implicit", "unrolled"] = "implicit",
) -> Solution: ...
@takes_masked
def online_lstsq(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    ridge: ArrayLike | None = None,
    ridge_mode: Literal["fixed", "discounted"] = "fixed",
    state: Moments | None = None,
    solver: Solver | None = None,
    adjoint: Literal["implicit", "unrolled"] = "implicit",
) -> Solution:
    """Regress values on keys again after every token, and evaluate each fit at its query.

    With ``H_t = forget_t H_{t-1} + weight_t k_t k_t^T`` and
    ``G_t = forget_t G_{t-1} + weight_t v_t k_t^T``, the output is
    ``o_t = G_t (H_t + Lambda_t)^{-1} q_t``, where ``Lambda_t`` is the ridge: the same at every
    token ("fixed", the Mesa layer) or forgotten with the data ("discounted", classical recursive
    least squares).

    NumPy arrays and numbers are solved on the CPU, by Numba kernels and BLAS, with any solver and
    without importing JAX, and give NumPy arrays.  JAX takes the call, and returns JAX arrays, if
    any argument is one or is traced; ``olsq.sequence.jax.online_lstsq`` always uses JAX, whatever
    its arguments are.

    Parameters
    ----------
    keys : array (..., T, d)
        Regressors.
    values : array (..., T, m)
        Targets.
    queries : array (..., T, d)
        Where each fit is evaluated.  Leading axes of the three broadcast.
    forget : array, optional
        Forgetting factors in [0, 1], broadcast to (..., T).  Default 1.  A gate of exactly 0
        forgets everything before its token.
    log_forget : array, optional
        Their logs instead, for gates closer to 1 than the dtype resolves.
    weight : array, optional
        Sample weights >= 0, broadcast to (..., T).  Default 1.  A sample of weight 0 is left
        out even if it is not finite.
    ridge : array
        ``Lambda``'s diagonal: a number, (d,), or batch axes and d; with "fixed" also one per
        token: batch axes, T and d, where each axis except d may be 1.  With "discounted" it is the
        ridge before the first token, and must be left out when a ``state`` is given, which holds
        it.
    ridge_mode : {"fixed", "discounted"}
        Which of the two problems.
    state : Moments, optional
        Moments of what came before, gram (..., d, d) and cross (..., m, d), JAX or NumPy.
    solver : optional
        ``ChunkExact()`` if None; see "Choosing a solver" in the documentation.
    adjoint : {"implicit", "unrolled"}
        "implicit" differentiates the equation that is solved: reverse and forward mode, any
        order, one more solve with the same factors.  "unrolled" differentiates the iterations,
        which is right for a truncated solver whose error is part of the model.  A solver that goes
        on to rounding (the default) has no other derivative than the implicit one; one that
        starts from a factorisation and stops early is refused.  Values do not depend on it, and
        NumPy arrays have :func:`olsq.online_lstsq_vjp` instead.

    Returns
    -------
    Solution
        ``value`` (..., T, m) in the dtype of the inputs; ``state`` and ``stats`` in the working
        dtype: float64 if any input is, else float32 (half precision is never factorised).

    Raises
    ------
    ValueError
        If shapes do not fit, an untraced gate, weight or ridge is out of range, both ``forget``
        and ``log_forget`` are given, or the solver does not solve the problem asked for.
    TypeError
        If any argument is not an array of real numbers: complex, text, dates, records, objects.
    NotImplementedError
        If a ``solver`` of your own has no form for these arrays.

    Notes
    -----
    Pure; in JAX it works under ``jit``, ``vmap``, ``grad``, ``jvp``, ``lax.scan``, and values are
    checked only where they are not traced.  Non-finite samples make outputs NaN from their token
    on and never before; a key too large to square counts as one of them in JAX.  The error of a
    token is a small multiple of its own condition number times eps, whatever its neighbours are,
    and ``stats.bound`` says how large it can be.  With "discounted", a gate of 0 takes the ridge
    away too: outputs are NaN until d samples came, where the estimators, if their ridge is 0, give
    the fit of smallest norm.  Memory O(T (d + m)), in JAX also one pair of
    moments per chunk, forward and backward.

    The NumPy side keeps gates and moments in float64, and solves in float64 where float32 would
    lose digits. Later samples, weights and queries change no bit of an earlier output there; later
    gates and ridges, which lay out the chunks, may change its rounding. A system that is singular
    otherwise (``ridge=0`` and few samples) gives the fit of smallest norm there; in JAX its output
    means nothing. Derivatives: :func:`olsq.online_lstsq_vjp`. Compiled once per dtype on a machine.
    In float64 it was faster than jitted JAX on every shape measured; in float32 about as fast, on
    some shapes slower ("Choosing a solver" has the table).

    References
    ----------
    von Oswald et al., "MesaNet" (2025), equations 4 to 6; the derivation of the default solver is
    in the documentation, "Chunk-exact least squares".

    Examples
    --------
    >>> import numpy as np, olsq
    >>> keys = np.array([[1.0], [1.0], [1.0]])
    >>> values = np.array([[2.0], [4.0], [6.0]])
    >>> fit = olsq.online_lstsq(keys, values, keys, ridge=1.0)
    >>> [round(float(x), 3) for x in fit.value[:, 0]]
    [1.0, 2.0, 3.0]
    >>> fit.state.gram
    array([[3.]])

    The same in JAX:

    >>> import jax.numpy as jnp
    >>> olsq.online_lstsq(*map(jnp.asarray, (keys, values, keys)), ridge=1.0).state.gram
    Array([[3.]], dtype=float32)
    """
    arguments = keys, values, queries, forget, log_forget, weight, ridge, *(state or ())
    common: dict[str, Any] = {
        "forget": forget,
        "log_forget": log_forget,
        "weight": weight,
        "ridge": ridge,
        "ridge_mode": ridge_mode,
        "state": state,
    }
    check_choice(adjoint, "adjoint", ("implicit", "unrolled"))
    if holds_jax(*arguments):
        from olsq.sequence.jax import online_lstsq as solve_in_jax

        return solve_in_jax(keys, values, queries, **common, solver=solver, adjoint=adjoint)
    if adjoint == "unrolled" and solver is not None and solver.truncates:
        solver.check_unrolled()
    from olsq.sequence.numpy.solve import solve_whole

    return solve_whole(keys, values, queries, solver=solver, **common)


@takes_masked
def online_lstsq_vjp(
    keys: ArrayLike,
    values: ArrayLike,
    queries: ArrayLike,
    cotangent: ArrayLike,
    *,
    forget: ArrayLike | None = None,
    log_forget: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    ridge: ArrayLike | None = None,
    ridge_mode: Literal["fixed", "discounted"] = "fixed",
    state: Moments | None = None,
    solver: Solver | None = None,
) -> Gradients:
    """Compute the gradient of ``sum(cotangent * online_lstsq(...).value)`` by every input.

    Parameters
    ----------
    keys, values, queries, forget, log_forget, weight, ridge, ridge_mode, state, solver
        As for :func:`olsq.online_lstsq`.
    cotangent : array (..., T, m)
        The gradient that arrives at each output.  Where it is 0 nothing is asked of an output,
        not even that it is finite.

    Returns
    -------
    Gradients
        float64 arrays.

    Raises
    ------
    ValueError, TypeError
        As :func:`olsq.online_lstsq`; if ``cotangent`` does not broadcast to the outputs.

    Notes
    -----
    The gradient of the exact solution (implicit differentiation), as exact as ``solver`` solves:
    use it with solvers that converge.  Inputs are converted to float64.  The default solver
    computes in float64, except for its last corrections, which change a solution by about 1e-8 of
    itself and are taken in float32.  Its errors are those of dense float64 solves: measured at d 16
    to 128 and conditions of 10 to 1e4, 3e-15 to 1e-12 of a gradient's largest entry, at most 3
    times those of ``Dense``.  Cost: two solves for each token with one factorisation.  Memory
    O(T (d + m)) and one pair of moments for each chunk.  Samples that are not finite get a gradient
    of 0; so do outputs that are NaN.  JAX arrays: ``jax.grad``.

    References
    ----------
    von Oswald et al., "MesaNet" (2025), appendix B; the derivation is in this module.

    Examples
    --------
    How fast should a regression forget, and how large should its ridge be?  The gradient of the
    mean squared one-step-ahead error, by the forgetting factor and by the ridge:

    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((400, 2))
    >>> truth = np.stack([np.sin(np.arange(400) / 40), np.ones(400)], 1)    # one of them moves
    >>> y = (X * truth).sum(1) + 0.1 * rng.standard_normal(400)
    >>> def loss(forget, ridge):
    ...     before = X[:-1], y[:-1, None], X[1:]             # predict a row from those before it
    ...     problem = dict(forget=np.full(399, forget), ridge=ridge)
    ...     error = olsq.online_lstsq(*before, **problem).value - y[1:, None]
    ...     slope = olsq.online_lstsq_vjp(*before, 2 * error / 399, **problem)
    ...     return (error**2).mean(), slope.forget.sum(), slope.ridge.sum()
    >>> [round(float(x), 3) for x in loss(0.99, 1.0)]
    [0.354, 9.396, 0.003]
    >>> round(float(loss(0.99 + 1e-6, 1.0)[0] - loss(0.99 - 1e-6, 1.0)[0]) / 2e-6, 3)
    9.396

    It forgets too slowly: the loss falls with the factor.
    """
    from olsq.sequence.numpy.adjoint import solve_vjp

    return solve_vjp(
        keys,
        values,
        queries,
        cotangent,
        forget=forget,
        log_forget=log_forget,
        weight=weight,
        ridge=ridge,
        ridge_mode=ridge_mode,
        state=state,
        solver=solver,
    )

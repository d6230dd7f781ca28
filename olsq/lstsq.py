"""The public function for whole sequences: NumPy arrays go to kernels, everything else to JAX."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from olsq.problem import Moments, Solution

if TYPE_CHECKING:
    from olsq.sequence import Solver


def given_to_jax(solver: Any, adjoint: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a call is JAX's: an array or tracer of JAX in it, or a choice only JAX offers."""
    if solver is None and adjoint == "implicit" and "jax" not in sys.modules:
        return False  # nothing can be JAX's before JAX is imported, which takes a second
    from jax import Array

    from olsq.sequence import ChunkExact

    if adjoint != "implicit" or solver not in (None, ChunkExact()):
        return True
    return any(isinstance(x, Array) for x in arguments)


def online_lstsq(
    keys: Any,
    values: Any,
    queries: Any,
    *,
    forget: Any = None,
    log_forget: Any = None,
    weight: Any = None,
    ridge: Any = None,
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

    NumPy arrays and numbers are solved by Numba kernels and BLAS on the CPU, without importing
    JAX, and give NumPy arrays.  The call is JAX's, and gives JAX arrays, if any argument is one
    or is traced, or if a ``solver`` other than the default or an ``adjoint`` is asked for;
    :func:`olsq.sequence.online_lstsq` is JAX's whatever its arguments are.

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
        token: batch axes, T and d, where any but d may be 1.  With "discounted" it is the ridge
        before the first token, and must be left out when a ``state`` is given, which holds it.
    ridge_mode : {"fixed", "discounted"}
        Which of the two problems.
    state : Moments, optional
        Moments of what came before, gram (..., d, d) and cross (..., m, d), JAX or NumPy.
    solver : optional
        ``ChunkExact()`` if None; see "Choosing a solver" in the documentation.  Any other is
        JAX's.
    adjoint : {"implicit", "unrolled"}
        "implicit" differentiates the equation that is solved: reverse and forward mode, any
        order, one more solve with the same factors.  "unrolled" differentiates the iterations,
        which is right for a truncated solver whose error is part of the model.

    Returns
    -------
    Solution
        ``value`` (..., T, m) in the dtype of the inputs; ``state`` and ``stats`` in the working
        dtype: float64 if any input is, else float32 (half precision is never factorised).

    Raises
    ------
    ValueError
        If shapes do not fit, a visible gate, weight or ridge is out of range, both ``forget``
        and ``log_forget`` are given, or the solver does not solve the problem asked for.
    TypeError
        If the inputs are complex.

    Notes
    -----
    Pure; in JAX it works under ``jit``, ``vmap``, ``grad``, ``jvp``, ``lax.scan``, and values are
    checked only where they are not traced.  Non-finite samples make outputs NaN from their token
    on and never before.  With "discounted", a gate of 0 takes the ridge away too: outputs are NaN
    until d samples came.  Memory O(T (d + m)), in JAX also one pair of moments per chunk, forward
    and backward.

    The NumPy side keeps gates and moments in float64, and solves in float64 where float32 would
    lose digits.  A system that is singular otherwise (``ridge=0`` and few samples) gives the fit
    of smallest norm there; in JAX its output means nothing.  No derivatives.  Compiled once per
    dtype on a machine.  In float64 it was faster than jitted JAX on every shape measured; in
    float32 about as fast, on some shapes slower ("Choosing a solver" has the table).

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
    if given_to_jax(solver, adjoint, arguments):
        from olsq import sequence

        return sequence.online_lstsq(
            keys, values, queries, **common, solver=solver, adjoint=adjoint
        )
    from olsq.online.whole import solve_whole

    return solve_whole(keys, values, queries, **common)

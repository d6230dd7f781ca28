"""Description of the default solver, which is exact chunk by chunk."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_integer, check_tolerance
from olsq.solvers.base import Solver

if TYPE_CHECKING:
    from olsq.sequence.jax.solver import JaxSolver
    from olsq.sequence.numpy.solver import NumpySolver

# Of both forms: the gates that a chunk's factors cover, and the number of corrections.
FLOOR = -80.0  # log of the smallest gate a reference sees; smaller ones only precondition
MAX_LOG_SCALE = 3.5  # |log f| up to which a token uses its factor; beyond, plain CG is as good
MILD_LOG_SCALE = 0.7  # |log f| up to which one reference and Chebyshev steps serve a whole stream
REGULAR = 10.0  # growth up to which P is exact to rounding; beyond, it preconditions
ROUNDED = 25.0  # eps of the default tolerance: 3e-6 in float32, 6e-15 in float64
# Corrections beyond which conjugate gradient (or, in NumPy's kernels, one factorisation per token)
# takes over.  A correction is one apply: measured, a quarter of a step of conjugate gradient, which
# needs about as many (float64, d 64, gates 0.98: 18 corrections in 0.37 of the time of 19 steps).
MOST_CORRECTIONS = 40
TOO_FEW = 0.01  # relative error that fixed corrections may leave without a warning


@dataclass(frozen=True)
class ChunkExact(Solver):
    """Exact solves for every token at the cost of a few products per chunk.  The default solver.

    Exact in the discounted problem and wherever nothing is forgotten.  In the fixed problem with
    forgetting, the chunk's inverse differs from the wanted one by a ridge known from the gates,
    and is corrected: by a few Chebyshev steps while the gates of every chunk stay mild.  Where they
    do not, conjugate gradient goes to ``tol`` without that inverse if it soon can, else
    preconditioned by two of them per chunk, so that a reset (a gate of 0) inside a chunk costs no
    accuracy.

    Parameters
    ----------
    chunk : int, optional
        Tokens per chunk.  None: what is fastest for keys of this width on this device, 16 to 64.
    corrections : int, optional
        Number of Chebyshev steps in the fixed problem, whatever the gates are.  None chooses
        from the gates for an error of ``tol``.
    tol : float, optional
        Relative error wanted; None is 25 eps: 3e-6 in float32 and 6e-15 in float64.
    max_steps : int
        Most conjugate-gradient steps of a token where gates are harsh, in JAX; 8 d more where it
        is first tried without the chunk's factors.  NumPy's kernels factorise such tokens one by
        one.
    shards : int
        Pieces of the time axis whose boundary moments are computed independently and then
        merged; set it to the number of devices the time axis is sharded over.

    Notes
    -----
    Solves both problems.  After a gate of 0 the discounted one has no ridge left: outputs are NaN
    until d samples came, and exact from the d-th independent one on.
    Cost per token with C = d = m = 64: 49k multiply-adds, 12k more per correction; gated linear
    attention 20k.  Memory: two arrays (d, d) per chunk, and (T, d).
    The gradients are implicit, of any order, forward and reverse.  A solve that goes on to
    rounding has no iterations with a derivative of their own, so ``adjoint="unrolled"`` is the
    same there, and refused with ``corrections`` given.
    In NumPy they are those of the exact solution, whatever ``corrections`` says.
    The relative error of a token is a small multiple of the condition number of its own system
    times eps, whatever its neighbours are: where a chunk's factors would lose digits (keys of
    very different sizes, long repeats at a tiny ridge), they precondition conjugate gradient.
    Given ``corrections`` it is what they leave: there is a RuntimeWarning where gates that can be
    seen need more, and ``stats.bound`` everywhere.

    Examples
    --------
    >>> import olsq
    >>> olsq.ChunkExact(chunk=32)
    ChunkExact(chunk=32, corrections=None, tol=None, max_steps=200, shards=1)
    """

    chunk: int | None = None
    corrections: int | None = None
    tol: float | None = None
    max_steps: int = 200
    shards: int = 1

    def __post_init__(self) -> None:
        check_integer("chunk", self.chunk, 1, optional=True)
        check_integer("corrections", self.corrections, 0, optional=True)
        check_integer("max_steps", self.max_steps, 1)
        check_integer("shards", self.shards, 1)
        if self.tol is not None:
            check_tolerance(self.tol)

    @property
    def truncates(self) -> bool:
        """True with a fixed number of corrections; otherwise the solution is exact to rounding."""
        return self.corrections is not None

    def check_unrolled(self) -> None:
        """Raise for fixed corrections: a derivative through the factors is wrong at a weight or
        gate of 0.
        """
        if self.corrections is not None:
            raise ValueError(
                f"ChunkExact(corrections={self.corrections}) starts from a factorisation, through "
                'which there is no derivative at weights and gates of 0; use adjoint="implicit", '
                "corrections=None, or a solver that only iterates (ConjugateGradient, Chebyshev)"
            )

    def review(self, log_forget: NDArray[Any] | None, forget: NDArray[Any] | None) -> None:
        """Warn where fixed corrections may miss more than ``TOO_FEW`` of the solution at these
        gates.
        """
        if self.corrections is None or log_forget is None or forget is None:
            return
        sums = np.where(forget == 0, FLOOR, np.maximum(np.nan_to_num(log_forget), FLOOR))
        c = min(self.chunk or sums.shape[1], sums.shape[1])
        starts = np.arange(0, sums.shape[1], c)
        spans = np.add.reduceat(sums, starts, axis=1) - sums[:, starts]
        left = correction_error(float(np.exp(-spans.min())), self.corrections)
        if left > TOO_FEW:
            warnings.warn(
                f"ChunkExact(corrections={self.corrections}) may miss {min(left, 1):.0%} of the "
                f"answer where gates fall to {np.exp(spans.min()):.2g} within a chunk of {c}: use "
                "corrections=None (the default), which chooses, or a shorter chunk",
                RuntimeWarning,
                stacklevel=4,
            )

    def numpy(self) -> NumpySolver:
        from olsq.sequence.numpy.chunk_exact import NumpyChunkExact

        return NumpyChunkExact(self)

    def jax(self) -> JaxSolver:
        from olsq.sequence.jax.chunk_exact import JaxChunkExact

        return JaxChunkExact(self)


def correction_error(kappa: Any, steps: Any) -> Any:
    """Bound the relative error after ``steps`` Chebyshev steps, on a spectrum of condition
    ``kappa``.

    A step shrinks the error by ``rho = (sqrt(kappa) - 1) / (sqrt(kappa) + 1)``: in the norm of
    ``P^{-1}`` it is ``2 rho^(steps + 1)``, in any between that and the one of M ``kappa`` times as
    much.  Arithmetic only: NumPy's kernels and JAX's tracers use it too.
    """
    return 2 * kappa * ((kappa**0.5 - 1) / (kappa**0.5 + 1)) ** (steps + 1)

"""Description of conjugate gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from olsq.arrays.checks import check_integer, check_tolerance
from olsq.solvers.base import Solver

if TYPE_CHECKING:
    from olsq.sequence.jax.solver import JaxSolver
    from olsq.sequence.numpy.solver import NumpySolver


@dataclass(frozen=True)
class ConjugateGradient(Solver):
    """Conjugate gradient with a tolerance per token.

    Parameters
    ----------
    max_steps : int
        Most steps of a token; 0 with ``start="query"`` is gated linear attention.
    tol : float
        A token stops at ``|q - M x| <= tol |q|``.
    chunk : int, optional
        Tokens per chunk of the matrix products; changes the iterates by rounding only.  None: what
        is fastest for keys of this width on this device, 16 to 64.
    preconditioner : {None, "chunk"}
        "chunk" uses the factors of :class:`ChunkExact`: two to four steps where the gates are
        mild, no better than None where a chunk forgets nearly everything.
    start : {"jacobi", "query"}
        First iterate: ``q / diag(M)``, or q itself as in MesaNet's equation for k = 0 steps.  With
        a preconditioner P it is not used: the first iterate is 0, and the result of 0 steps P q.

    Notes
    -----
    Solves both problems.  Each step costs one causal linear attention, 12k multiply-adds per
    token at C = d = 64.  Exact after d steps up to rounding.  30 steps at tol 1e-4 is the
    published setting: its error in float32 is 1e-4 on easy streams and can exceed 0.1 on long
    runs of equal keys.  Implicit gradients solve once more with the same settings and are as
    accurate as the solve; ``adjoint="unrolled"`` differentiates exactly ``max_steps`` steps, whose
    derivative comes later than they do: its error is about the square root of ``tol``.

    References
    ----------
    von Oswald et al., "MesaNet: sequence modeling by locally optimal test-time training" (2025),
    appendices B and C.

    Examples
    --------
    >>> import olsq
    >>> olsq.ConjugateGradient(tol=1e-6, preconditioner="chunk").max_steps
    30
    """

    max_steps: int = 30
    tol: float = 1e-4
    chunk: int | None = None
    preconditioner: Literal["chunk"] | None = None
    start: Literal["jacobi", "query"] = "jacobi"

    def __post_init__(self) -> None:
        check_integer("max_steps", self.max_steps, 0)
        check_tolerance(self.tol)
        check_integer("chunk", self.chunk, 1, optional=True)
        if self.preconditioner not in (None, "chunk"):
            raise ValueError(f"preconditioner must be None or 'chunk', got {self.preconditioner!r}")
        if self.start not in ("jacobi", "query"):
            raise ValueError(f"start must be 'jacobi' or 'query', got {self.start!r}")

    def check_unrolled(self) -> None:
        """Raise with a preconditioner: a derivative through its factors is wrong at a weight or
        gate of 0.
        """
        if self.preconditioner is not None:
            raise ValueError(
                'ConjugateGradient(preconditioner="chunk") starts from a factorisation, through '
                'which there is no derivative at weights and gates of 0; use adjoint="implicit" '
                "or preconditioner=None"
            )

    def numpy(self) -> NumpySolver:
        from olsq.sequence.numpy.conjugate_gradient import NumpyConjugateGradient

        return NumpyConjugateGradient(self)

    def jax(self) -> JaxSolver:
        from olsq.sequence.jax.conjugate_gradient import JaxConjugateGradient

        return JaxConjugateGradient(self)

"""Description of the truncated Neumann series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from olsq.arrays.checks import check_integer
from olsq.solvers.base import Solver

if TYPE_CHECKING:
    from olsq.sequence.jax.solver import JaxSolver
    from olsq.sequence.numpy.solver import NumpySolver


@dataclass(frozen=True)
class Neumann(Solver):
    """The first ``terms`` terms of ``M^{-1} = 1/c sum_j (I - M/c)^j`` with c the trace of M.

    Parameters
    ----------
    terms : int
        Terms of the series; 1 is ``q / c``, gated linear attention up to a scale.
    chunk : int, optional
        Tokens per chunk of the matrix products.  None: what is fastest for keys of this width
        on this device, 16 to 64.

    Notes
    -----
    Solves both problems, slowly: the error falls by ``1 - lambda_min / c`` per term.  It is what
    a stack of linear attention layers can compute (the thesis, section 3.7.2.3), which is why it
    is here; as a solver every other one is better.

    Examples
    --------
    >>> import olsq
    >>> olsq.Neumann(terms=10).terms
    10
    """

    terms: int = 30
    chunk: int | None = None

    def __post_init__(self) -> None:
        check_integer("terms", self.terms, 1)
        check_integer("chunk", self.chunk, 1, optional=True)

    def numpy(self) -> NumpySolver:
        from olsq.sequence.numpy.neumann import NumpyNeumann

        return NumpyNeumann(self)

    def jax(self) -> JaxSolver:
        from olsq.sequence.jax.neumann import JaxNeumann

        return JaxNeumann(self)

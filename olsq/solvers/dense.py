"""Description of dense solves: one factorisation per token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from olsq.arrays.checks import check_integer
from olsq.solvers.base import Solver

if TYPE_CHECKING:
    from olsq.sequence.jax.solver import JaxSolver
    from olsq.sequence.numpy.solver import NumpySolver


@dataclass(frozen=True)
class Dense(Solver):
    """One Cholesky factorisation of size d per token.

    Parameters
    ----------
    chunk : int
        Tokens whose systems are in memory at once.

    Notes
    -----
    Solves both problems with any gates.  Cost O(d^3) per token; memory O(chunk d^2) per stream,
    because chunks are solved one after another.  Backward error of a Cholesky solve: relative
    error of q* about kappa times the unit roundoff of the dtype, where kappa is the condition
    number of the system scaled to a diagonal of ones, which does not depend on the units of the
    keys.  Where kappa is beyond the dtype (1e7 in float32) and the ridge is positive, the diagonal
    grows by ``4 d`` times the roundoff: an answer as good as the dtype has, whose ``stats.bound``
    holds.  Without a ridge such an answer is NaN.

    Examples
    --------
    >>> import olsq
    >>> olsq.Dense().ridge_modes
    ('fixed', 'discounted')
    """

    chunk: int = 32

    def __post_init__(self) -> None:
        check_integer("chunk", self.chunk, 1)

    @property
    def truncates(self) -> bool:
        """False: every system is solved to rounding, and differentiated as a linear system."""
        return False

    def numpy(self) -> NumpySolver:
        from olsq.sequence.numpy.dense import NumpyDense

        return NumpyDense(self)

    def jax(self) -> JaxSolver:
        from olsq.sequence.jax.dense import JaxDense

        return JaxDense(self)

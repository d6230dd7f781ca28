"""Description of Chebyshev iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from olsq.arrays.checks import check_integer, check_number
from olsq.solvers.base import Solver

if TYPE_CHECKING:
    from olsq.sequence.jax.solver import JaxSolver
    from olsq.sequence.numpy.solver import NumpySolver


@dataclass(frozen=True)
class Chebyshev(Solver):
    """A fixed number of Chebyshev steps; no inner products, no stopping test.

    Parameters
    ----------
    steps : int
        Steps after the first iterate ``q / middle``.
    chunk : int, optional
        Tokens per chunk of the matrix products.  None: what is fastest for keys of this width
        on this device, 16 to 64.
    eigenvalue_ratio : float, optional
        Largest eigenvalue of H_t in units of the token's largest ridge, where it is known: for a
        ridge of ``ratio`` times a norm of H_t it is ``1 / ratio``.  Too small a number diverges.
        None bounds it by the trace of H_t.

    Notes
    -----
    Solves ``ridge_mode="fixed"`` only: its lower bound of the spectrum is the smallest ridge,
    which the discounted problem forgets.  The upper bound is that of H_t plus the largest ridge.
    Error at most ``2 rho^(steps+1)``, ``rho = (sqrt(k)-1)/(sqrt(k)+1)``, k the ratio of the
    bounds: good where the ridge grows with H, as in Gated KalmaNet; otherwise
    :class:`ChunkExact` needs 1 to 3 such steps where this needs sqrt(k).

    References
    ----------
    Golub and Varga, "Chebyshev semi-iterative methods" (1961); Gated KalmaNet, arXiv 2511.21016.

    Examples
    --------
    >>> import olsq
    >>> olsq.Chebyshev(steps=40).steps
    40
    """

    steps: int = 30
    chunk: int | None = None
    eigenvalue_ratio: float | None = None

    ridge_modes: ClassVar[tuple[str, ...]] = ("fixed",)

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, 0)
        check_integer("chunk", self.chunk, 1, optional=True)
        if self.eigenvalue_ratio is not None:
            check_number("eigenvalue_ratio", self.eigenvalue_ratio, above=0)

    def numpy(self) -> NumpySolver:
        from olsq.sequence.numpy.chebyshev import NumpyChebyshev

        return NumpyChebyshev(self)

    def jax(self) -> JaxSolver:
        from olsq.sequence.jax.chebyshev import JaxChebyshev

        return JaxChebyshev(self)

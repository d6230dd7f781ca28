"""Description of recursive least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from olsq.arrays.checks import check_flag, check_integer
from olsq.solvers.base import Solver

if TYPE_CHECKING:
    from olsq.sequence.jax.solver import JaxSolver
    from olsq.sequence.numpy.solver import NumpySolver


@dataclass(frozen=True)
class Recursive(Solver):
    """Classical recursive least squares in covariance form.

    Parameters
    ----------
    reverse : bool
        Walk the reverse-mode gradient's solve backwards in time from the last covariance, by
        the thesis' reverse Sherman-Morrison formula, instead of forwards again from the first.
        Both take memory independent of T; the reverse walk divides by ``1 - weight k R k`` and
        loses accuracy where one sample carries most of what is known in its direction.
    chunk : int
        Tokens per chunk of the read-out, and in NumPy from one factorisation to the next.

    Notes
    -----
    Solves ``ridge_mode="discounted"``; "fixed" too where nothing is forgotten (the problems then
    agree) and the ridge is the same for all tokens.  T sequential steps of O(d^2): right for few
    tokens, or as the classical baseline.  The update subtracts ``h h^T``, which is symmetric bit
    by bit; float32 holds about kappa 1e2 (forget 0.99, 1e5 samples), float64 1e6.  In JAX one
    covariance is carried through the stream; in NumPy it is factorised afresh before every chunk,
    O(d^3) for ``chunk`` tokens, so that rounding does not outlive a chunk.
    A gate of exactly 0 leaves the discounted problem without a ridge: its outputs are NaN.

    References
    ----------
    von Oswald, thesis, section 3.7.1; Sherman and Morrison (1950).

    Examples
    --------
    >>> import olsq
    >>> olsq.Recursive().ridge_modes
    ('discounted',)
    """

    reverse: bool = False
    chunk: int = 64

    ridge_modes: ClassVar[tuple[str, ...]] = ("discounted",)

    def ridge_modes_without_forgetting(self) -> tuple[str, ...]:
        """Return both problems, which are equal where nothing is forgotten."""
        return ("discounted", "fixed")

    def __post_init__(self) -> None:
        check_integer("chunk", self.chunk, 1)
        check_flag("reverse", self.reverse)

    def numpy(self) -> NumpySolver:
        from olsq.sequence.numpy.recursive import NumpyRecursive

        return NumpyRecursive(self)

    def jax(self) -> JaxSolver:
        from olsq.sequence.jax.recursive import JaxRecursive

        return JaxRecursive(self)

"""Base class of the solvers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import NDArray

if TYPE_CHECKING:
    from olsq.sequence.jax.solver import JaxSolver
    from olsq.sequence.numpy.solver import NumpySolver


class Solver:
    """Base class of a solver: a frozen dataclass of its options.

    Override :meth:`numpy`, :meth:`jax` or both, and what the defaults below do not say.
    "Adding a solver" in the documentation builds one outside the package.

    Attributes
    ----------
    ridge_modes : tuple of str
        The problems it solves.
    chunk : int or None
        Tokens per chunk; None: what is fastest for the width of the keys and the device.
    shards : int
        Pieces of the time axis that are summarised independently (JAX).

    Examples
    --------
    >>> import olsq
    >>> isinstance(olsq.ConjugateGradient(), olsq.sequence.Solver)
    True
    """

    ridge_modes: ClassVar[tuple[str, ...]] = ("fixed", "discounted")
    chunk: int | None
    shards: int = 1

    def sized(self, chunk: int) -> Self:
        """Return this solver with chunks of ``chunk`` tokens, unless it has a chunk length of its
        own.
        """
        solver: Any = self  # a dataclass, which this base is not
        return self if self.chunk is not None else replace(solver, chunk=chunk)

    def ridge_modes_without_forgetting(self) -> tuple[str, ...]:
        """Return the problems it solves where every gate is 1, so that the two are equal."""
        return self.ridge_modes

    def check_ridge_mode(self, ridge_mode: str, forgets: bool) -> None:
        """Raise ValueError unless it solves this problem."""
        served = self.ridge_modes if forgets else self.ridge_modes_without_forgetting()
        if ridge_mode not in served:
            raise ValueError(
                f"solver {type(self).__name__} does not solve ridge_mode={ridge_mode!r} here, "
                f"only {', '.join(map(repr, self.ridge_modes))} if anything is forgotten; "
                "use ChunkExact (the default)"
            )

    @property
    def truncates(self) -> bool:
        """True if it stops before the exact solution, so that its steps have a derivative of their
        own.

        Otherwise ``adjoint="unrolled"`` equals the implicit derivative.
        """
        return True

    def check_unrolled(self) -> None:
        """Raise ValueError if its steps cannot be differentiated (``adjoint="unrolled"``)."""

    def review(self, log_forget: NDArray[Any] | None, forget: NDArray[Any] | None) -> None:
        """Warn, or raise, where concrete gates (B, T) are outside the range it is accurate for."""

    def numpy(self) -> NumpySolver:
        """Return the form that solves NumPy arrays, without JAX."""
        raise NotImplementedError(f"solver {type(self).__name__} has no NumPy form")

    def jax(self) -> JaxSolver:
        """Return the form that solves JAX arrays."""
        raise NotImplementedError(f"solver {type(self).__name__} has no JAX form")

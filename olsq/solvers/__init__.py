"""Solvers of whole sequences, as descriptions: the problems each one solves and what it guarantees.

A solver is a frozen description. Making one imports no backend: :meth:`Solver.numpy` and
:meth:`Solver.jax` do, and return the form that computes. Both forms of a solver take the same
steps, which the loops of ``olsq.reference`` define.
"""

from olsq.solvers.base import Solver
from olsq.solvers.chebyshev import Chebyshev
from olsq.solvers.chunk_exact import ChunkExact
from olsq.solvers.conjugate_gradient import ConjugateGradient
from olsq.solvers.dense import Dense
from olsq.solvers.neumann import Neumann
from olsq.solvers.recursive import Recursive

__all__ = [
    "SOLVERS",
    "Chebyshev",
    "ChunkExact",
    "ConjugateGradient",
    "Dense",
    "Neumann",
    "Recursive",
    "Solver",
]

SOLVERS: dict[str, type[Solver]] = {
    kind.__name__: kind
    for kind in (ChunkExact, ConjugateGradient, Chebyshev, Neumann, Recursive, Dense)
}

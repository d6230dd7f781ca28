"""A whole sequence at once, in JAX: six solvers for one problem, and decoding one token.

:func:`online_lstsq` solves the regression of :mod:`olsq.problem` again after every token, in JAX
whatever its arrays are; :func:`olsq.online_lstsq` gives NumPy arrays to kernels instead.
"""

from olsq.problem import Solution, Stats
from olsq.sequence._api import Solver, online_lstsq
from olsq.sequence.chebyshev import Chebyshev
from olsq.sequence.chunk_exact import ChunkExact
from olsq.sequence.conjugate_gradient import ConjugateGradient
from olsq.sequence.decode import (
    DecodeState,
    merge_moments,
    query,
    solve_query,
    start_decoding,
    update,
)
from olsq.sequence.dense import Dense
from olsq.sequence.neumann import Neumann
from olsq.sequence.recursive import Recursive

__all__ = [
    "Chebyshev",
    "ChunkExact",
    "ConjugateGradient",
    "DecodeState",
    "Dense",
    "Neumann",
    "Recursive",
    "Solution",
    "Solver",
    "Stats",
    "merge_moments",
    "online_lstsq",
    "query",
    "solve_query",
    "start_decoding",
    "update",
]

"""Least squares over whole sequences and one token at a time: six solvers for one problem.

NumPy arrays are solved by :mod:`olsq.sequence.numpy`, without importing JAX, JAX arrays by
:mod:`olsq.sequence.jax`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from olsq.problem import DecodeState, Solution, Stats
from olsq.sequence.api import online_lstsq, online_lstsq_vjp
from olsq.sequence.decode import merge_moments, query, start_decoding, update
from olsq.solvers import (
    Chebyshev,
    ChunkExact,
    ConjugateGradient,
    Dense,
    Neumann,
    Recursive,
    Solver,
)

if TYPE_CHECKING:
    from olsq.sequence import jax as jax
    from olsq.sequence import numpy as numpy

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
    "online_lstsq_vjp",
    "query",
    "start_decoding",
    "update",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in ("jax", "numpy"):  # each imports what it is named after
            return importlib.import_module(f"olsq.sequence.{name}")
        raise AttributeError(f"module 'olsq.sequence' has no attribute {name!r}")

"""olsq: online least squares.

Solve a regularised least-squares problem again after every sample of a stream.
Everything public is importable from here and loaded on first use, so that ``import olsq``
costs nothing and a user of the NumPy side never pays for JAX (or the other way round).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from olsq.lstsq import online_lstsq
    from olsq.online import (
        CoefficientPath,
        RecursiveLeastSquares,
        RollingLeastSquares,
        StateFileError,
        coefficient_path,
        load,
        merge,
    )
    from olsq.problem import Moments, Solution
    from olsq.sequence import (
        Chebyshev,
        ChunkExact,
        ConjugateGradient,
        Dense,
        Neumann,
        Recursive,
        query,
        update,
    )

# public name -> module that defines it
_HOME = {
    "Moments": "olsq.problem",
    "CoefficientPath": "olsq.online",
    "RecursiveLeastSquares": "olsq.online",
    "RollingLeastSquares": "olsq.online",
    "StateFileError": "olsq.online",
    "coefficient_path": "olsq.online",
    "load": "olsq.online",
    "merge": "olsq.online",
    "Chebyshev": "olsq.sequence",
    "ChunkExact": "olsq.sequence",
    "ConjugateGradient": "olsq.sequence",
    "Dense": "olsq.sequence",
    "Neumann": "olsq.sequence",
    "Recursive": "olsq.sequence",
    "Solution": "olsq.problem",
    "online_lstsq": "olsq.lstsq",
    "query": "olsq.sequence",
    "update": "olsq.sequence",
}

__all__ = [
    "Chebyshev",
    "ChunkExact",
    "CoefficientPath",
    "ConjugateGradient",
    "Dense",
    "Moments",
    "Neumann",
    "Recursive",
    "RecursiveLeastSquares",
    "RollingLeastSquares",
    "Solution",
    "StateFileError",
    "coefficient_path",
    "load",
    "merge",
    "online_lstsq",
    "query",
    "update",
]

_SUBMODULES = frozenset(
    (
        "attention",
        "datasets",
        "icl",
        "nn",
        "online",
        "plot",
        "problem",
        "reference",
        "sequence",
        "tasks",
        "train",
    )
)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return importlib.import_module(f"olsq.{name}")
    raise AttributeError(f"module 'olsq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})

"""olsq: online least squares.

Solve a regularised least-squares problem again after every sample of a stream.
Everything public is importable from here and loaded on first use, so that ``import olsq``
costs nothing and a user of the NumPy side never pays for JAX (or the other way round).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from olsq import former_names

__version__ = "0.2.0"

if TYPE_CHECKING:
    from olsq import attention as attention
    from olsq import compiled as compiled
    from olsq import compiling as compiling
    from olsq import datasets as datasets
    from olsq import distributed as distributed
    from olsq import drift as drift
    from olsq import features as features
    from olsq import forgetting as forgetting
    from olsq import icl as icl
    from olsq import linalg as linalg
    from olsq import local as local
    from olsq import nn as nn
    from olsq import online as online
    from olsq import plot as plot
    from olsq import problem as problem
    from olsq import reference as reference
    from olsq import river as river
    from olsq import sequence as sequence
    from olsq import stability as stability
    from olsq import tasks as tasks
    from olsq import testing as testing
    from olsq import train as train
    from olsq import tuning as tuning
    from olsq.compiling import compile_kernels
    from olsq.drift import time_varying
    from olsq.files.loading import load, loads
    from olsq.local import LocalSolution, local_lstsq
    from olsq.online import (
        CoefficientPath,
        ConstrainedLeastSquares,
        FilterBank,
        GroupedLeastSquares,
        GroupedRollingLeastSquares,
        KernelLeastSquares,
        NotGenericError,
        OnlineElasticNet,
        PanelFit,
        RecursiveLeastSquares,
        RobustLeastSquares,
        RollingLeastSquares,
        StateFileError,
        TotalLeastSquares,
        coefficient_path,
        fama_macbeth,
        merge,
    )
    from olsq.problem import AccuracyError, Moments, Solution
    from olsq.sequence import online_lstsq, online_lstsq_vjp, query, update
    from olsq.solvers import (
        Chebyshev,
        ChunkExact,
        ConjugateGradient,
        Dense,
        Neumann,
        Recursive,
    )
    from olsq.tuning import tune

# public name -> module that defines it
_HOME = {
    "AccuracyError": "olsq.problem",
    "Moments": "olsq.problem",
    "CoefficientPath": "olsq.online",
    "ConstrainedLeastSquares": "olsq.online",
    "FilterBank": "olsq.online",
    "GroupedLeastSquares": "olsq.online",
    "GroupedRollingLeastSquares": "olsq.online",
    "KernelLeastSquares": "olsq.online",
    "NotGenericError": "olsq.online",
    "OnlineElasticNet": "olsq.online",
    "PanelFit": "olsq.online",
    "RecursiveLeastSquares": "olsq.online",
    "RobustLeastSquares": "olsq.online",
    "RollingLeastSquares": "olsq.online",
    "StateFileError": "olsq.online",
    "TotalLeastSquares": "olsq.online",
    "coefficient_path": "olsq.online",
    "compile_kernels": "olsq.compiling",
    "fama_macbeth": "olsq.online",
    "load": "olsq.files.loading",
    "loads": "olsq.files.loading",
    "LocalSolution": "olsq.local",
    "local_lstsq": "olsq.local.api",
    "merge": "olsq.online",
    "Chebyshev": "olsq.solvers",
    "ChunkExact": "olsq.solvers",
    "ConjugateGradient": "olsq.solvers",
    "Dense": "olsq.solvers",
    "Neumann": "olsq.solvers",
    "Recursive": "olsq.solvers",
    "Solution": "olsq.problem",
    "online_lstsq": "olsq.sequence.api",
    "online_lstsq_vjp": "olsq.sequence.api",
    "query": "olsq.sequence.decode",
    "time_varying": "olsq.drift",
    "tune": "olsq.tuning",
    "update": "olsq.sequence.decode",
}

__all__ = [
    "AccuracyError",
    "Chebyshev",
    "ChunkExact",
    "CoefficientPath",
    "ConjugateGradient",
    "ConstrainedLeastSquares",
    "Dense",
    "FilterBank",
    "GroupedLeastSquares",
    "GroupedRollingLeastSquares",
    "KernelLeastSquares",
    "LocalSolution",
    "Moments",
    "Neumann",
    "NotGenericError",
    "OnlineElasticNet",
    "PanelFit",
    "Recursive",
    "RecursiveLeastSquares",
    "RobustLeastSquares",
    "RollingLeastSquares",
    "Solution",
    "StateFileError",
    "TotalLeastSquares",
    "coefficient_path",
    "compile_kernels",
    "fama_macbeth",
    "load",
    "loads",
    "local_lstsq",
    "merge",
    "online_lstsq",
    "online_lstsq_vjp",
    "query",
    "time_varying",
    "tune",
    "update",
]

_SUBMODULES = frozenset(
    (
        "attention",
        "compiled",
        "compiling",
        "datasets",
        "distributed",
        "drift",
        "features",
        "forgetting",
        "icl",
        "linalg",
        "local",
        "nn",
        "online",
        "plot",
        "problem",
        "reference",
        "river",
        "sequence",
        "stability",
        "tasks",
        "testing",
        "train",
        "tuning",
    )
)


if not TYPE_CHECKING:  # which would take any name for one that is here

    def __getattr__(name: str) -> Any:
        if name in _HOME:
            value = getattr(importlib.import_module(_HOME[name]), name)
            globals()[name] = value
            return value
        if name in _SUBMODULES:
            return importlib.import_module(f"olsq.{name}")
        raise AttributeError(f"module 'olsq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_SUBMODULES, "__version__"})


former_names.install()

"""Conjugate gradient for every token of a chunk, with a tolerance for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.sequence.numpy.chunks import Chunk, system_diagonal, system_product
from olsq.sequence.numpy.factor import chunk_preconditioner
from olsq.sequence.numpy.iterations import (
    balanced,
    divide,
    plain_conjugate_gradient,
    preconditioned_conjugate_gradient,
    scaled,
)
from olsq.sequence.numpy.solver import NumpySolver
from olsq.solvers import ConjugateGradient


@dataclass(frozen=True)
class NumpyConjugateGradient(NumpySolver):
    """NumPy form of :class:`olsq.ConjugateGradient`."""

    options: ConjugateGradient

    def prepare(self, chunk: Chunk) -> Any:
        """Compute the preconditioner, or each system's diagonal for the first iterate."""
        if self.options.preconditioner == "chunk":
            return chunk_preconditioner(chunk)
        return system_diagonal(chunk) if self.options.start == "jacobi" else None

    def solve(self, chunk: Chunk, prepared: Any, b: NDArray) -> tuple[NDArray, NDArray]:
        """Solve (H_t + Lambda_t) x_t = b_t for every token; also return the steps of each."""
        options = self.options
        stop = {"tol": options.tol, "max_steps": options.max_steps}

        def product(x: NDArray) -> NDArray:
            return system_product(chunk, x)

        def run(b: NDArray) -> tuple[NDArray, NDArray]:
            start = divide(b, prepared) if options.start == "jacobi" else b
            if options.max_steps == 0:
                return start, np.zeros(b.shape[:-1], np.int32)
            return plain_conjugate_gradient(product, b, start, **stop)

        def run_preconditioned(b: NDArray) -> tuple[NDArray, NDArray]:
            if options.max_steps == 0:
                return prepared(b), np.zeros(b.shape[:-1], np.int32)
            # from 0, not from P b: a P that is far too large there would cost the start's digits
            return preconditioned_conjugate_gradient(product, balanced(prepared, b), b, **stop)

        return scaled(b, run if options.preconditioner is None else run_preconditioned)

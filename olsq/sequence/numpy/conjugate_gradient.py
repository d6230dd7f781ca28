"""Conjugate gradient for every token of a chunk, with a tolerance for each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.sequence.numpy.factor import chunk_preconditioner
from olsq.sequence.numpy.iterations import balanced, conjugate_gradient, divide
from olsq.sequence.numpy.solver import Chunk, NumpySolver, system_diagonal, system_product
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
        options, start, inner = self.options, None, None
        stop = {"tol": options.tol, "max_steps": options.max_steps}
        if options.preconditioner is None:
            start = divide(b, prepared) if options.start == "jacobi" else b
        else:
            # from 0, not from P b: a P that is far too large there would cost the start's digits
            if options.max_steps == 0:
                return prepared(b), np.zeros(b.shape[:-1], np.int32)
            inner = balanced(prepared, b)
        product = partial(system_product, chunk)
        return conjugate_gradient(product, b, start=start, precondition=inner, **stop)

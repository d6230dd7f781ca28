"""Kernel functions of pairs of vectors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KERNELS = ("rbf", "laplacian", "polynomial", "linear")


class KernelFunction(NamedTuple):
    """A kernel k(a, b) with its parameters, as scikit-learn's ``pairwise_kernels`` has them."""

    name: str
    gamma: float
    degree: int
    coef0: float

    def between(self, A: NDArray[np.float64], B: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute k of each row of A (a, d) with each of B (b, d): (a, b)."""
        if self.name == "rbf":
            # Not |a|^2 + |b|^2 - 2 a.b, which cancels where points are close.
            square = np.zeros((len(A), len(B)))
            for j in range(A.shape[1]):
                square += np.subtract.outer(A[:, j], B[:, j]) ** 2
            return np.exp(-self.gamma * square)
        if self.name == "laplacian":
            distance = np.zeros((len(A), len(B)))
            for j in range(A.shape[1]):
                distance += np.abs(np.subtract.outer(A[:, j], B[:, j]))
            return np.exp(-self.gamma * distance)
        if self.name == "linear":
            return A @ B.T
        return (self.gamma * (A @ B.T) + self.coef0) ** self.degree

    def diagonal(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute k(x, x) of each row of X (n, d)."""
        if self.name in ("rbf", "laplacian"):
            return np.ones(len(X))
        square = (X**2).sum(1)
        return (
            square if self.name == "linear" else (self.gamma * square + self.coef0) ** self.degree
        )

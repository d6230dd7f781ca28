"""The state of kernel least squares: a dictionary, and least squares in the span of its points.

With K the kernel matrix of the dictionary and ``K = L L^T``, the features ``phi(x) = L^-1 k(x)``
are coordinates in an orthonormal basis of that span.  A point that joins the dictionary adds one
coordinate and leaves the others as they were, as L's new row does; rows before it are taken for
their projections (that is the approximation of Engel, Mannor & Meir), so that they are 0 along it.
So the recursion is plain recursive least squares whose regressors grow in number, and is as exact.

Forgetting leaves little of what is known along coordinates of a region that inputs have left, and
a ridge that decays with it leaves them free: the tails of their functions then fit the noise of the
region that inputs are in now, and explode where they are large.  A ridge that stays prevents it.
It is topped up, coordinate by coordinate, by the observation "0, with the weight that is missing".

The kernel functions themselves are here too.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from olsq.online.estimators.growing import widened
from olsq.online.forms.counting import DECAY
from olsq.online.forms.rows import Rows, Trace
from olsq.online.variants.engine import VariantSwitch

KERNELS = ("rbf", "laplacian", "polynomial", "linear")
LEAST_SHARE = 0.5  # of a fixed ridge; 1 would cost a rotation for each coordinate and row
CHUNK = 256  # rows whose features are made together: those after a new point are made again


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
            with np.errstate(over="ignore"):
                return np.exp(-self.gamma * square)
        if self.name == "laplacian":
            distance = np.zeros((len(A), len(B)))
            for j in range(A.shape[1]):
                distance += np.abs(np.subtract.outer(A[:, j], B[:, j]))
            with np.errstate(over="ignore"):
                return np.exp(-self.gamma * distance)
        if self.name == "linear":
            return A @ B.T
        return (self.gamma * (A @ B.T) + self.coef0) ** self.degree

    def diagonal(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute k(x, x) of each row of X (n, d)."""
        if self.name in ("rbf", "laplacian"):
            return np.ones(len(X))
        square = (X**2).sum(1)
        if self.name == "linear":
            return square
        with np.errstate(over="ignore"):
            norms = (self.gamma * square + self.coef0) ** self.degree
        if not np.isfinite(norms).all():
            raise ValueError(
                "the kernel of a row with itself overflows: give a smaller gamma, degree or coef0, "
                "or rescale X"
            )
        return norms


class Novelty(NamedTuple):
    """The rule by which a point joins the dictionary, and the penalty on its coordinate."""

    threshold: float  # share of k(x, x) that the dictionary must miss
    budget: int
    ridge: float
    fixed: bool  # whether the ridge stays under forgetting


class DictionarySwitch(VariantSwitch):
    """A state in the coordinates of a dictionary.

    ``points`` (b, d), ``root`` (b, b) lower triangular; ``left`` (b,) is the share of a fixed ridge
    that is there, 1 if it is not fixed; ``kernel`` and ``novelty`` are the estimator's.
    """

    points: NDArray[np.float64]
    root: NDArray[np.float64]
    left: NDArray[np.float64]
    kernel: KernelFunction
    novelty: Novelty

    def features(self, X: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return phi (n, b) of rows X (n, d), and what the span misses of k(x, x) (n,)."""
        norms = self.kernel.diagonal(X)
        if not len(self.points):
            return np.zeros((len(X), 0)), norms
        between = self.kernel.between(self.points, X)
        phi = solve_triangular(self.root, between, lower=True, check_finite=False).T
        return phi, norms - (phi**2).sum(1)

    def update(
        self, rows: Rows, residual: NDArray, trace: Trace, times: NDArray | None = None
    ) -> None:
        self.fresh = False
        first, t, n = int(self.form.intercept), 0, rows.X.shape[0]
        X = np.ascontiguousarray(rows.X[:, first:])
        while t < n:
            some = X[t : t + CHUNK]
            phi, missed = self.features(some)
            new = np.flatnonzero(missed > self.novelty.threshold * self.kernel.diagonal(some))
            if len(self.points) >= self.novelty.budget:
                new = new[:0]
            count = int(new[0]) if new.size else len(some)
            self._absorb(rows, t, phi[:count], residual)
            t += count
            if new.size:
                phi = self._join(some[count], phi[count], float(missed[count]))
                self._absorb(rows, t, phi[None], residual)
                t += 1

    def _absorb(self, rows: Rows, t: int, phi: NDArray, residual: NDArray) -> None:
        """Learn rows t, t + 1, .. by their features (r, b), and keep a fixed ridge."""
        start = 0
        while start < len(phi):
            decay = np.cumprod(rows.gates[t + start : t + len(phi)])
            stop, fixed = len(phi), self.novelty.fixed and len(self.left) > 0
            if fixed:  # up to the row that leaves too little
                stop = start + int((self.left.min() * decay >= LEAST_SHARE).sum()) + 1
                stop = min(stop, len(phi))
            part = slice(t + start, t + stop)
            ones = rows.X[part, : int(self.form.intercept)]
            wide = Rows.of(np.hstack([ones, phi[start:stop]]), *(a[part] for a in rows[1:]))
            errors = np.empty((stop - start, residual.shape[1]))
            self.form.absorb(wide, errors, Trace.none(residual.shape[1], wide.X.shape[1]))
            residual[part] = errors
            if fixed:
                self.left = self.left * decay[stop - start - 1]
                self._top_up()
            start = stop

    def _top_up(self) -> None:
        """Restore the ridge of coordinates that have lost too much of it."""
        form, first = self.form, int(self.form.intercept)
        form.tally[DECAY] = 1.0  # the ridge of a point that joins
        low = np.flatnonzero(self.left < LEAST_SHARE)
        if not low.size:
            return
        X = np.zeros((low.size, form.columns.shape[1]))
        X[np.arange(low.size), first + low] = np.sqrt(self.novelty.ridge * (1 - self.left[low]))
        tally, ones = form.tally.copy(), np.ones(low.size)
        Y = np.zeros((low.size, form.loss.size))
        form.absorb(Rows.of(X, Y, ones, ones), np.empty(Y.shape), Trace.none(Y.shape[1], len(X[0])))
        form.tally[:] = tally  # they are no samples
        self.left[low] = 1.0

    def _join(self, x: NDArray, phi: NDArray, missed: float) -> NDArray[np.float64]:
        """Add a point x to the dictionary; return its features, one more than before."""
        phi, b = np.append(phi, np.sqrt(missed)), len(self.points)
        root = np.zeros((b + 1, b + 1))
        root[:b, :b], root[b] = self.root, phi
        self.points, self.root = np.vstack([self.points, x]), root
        self.left = np.append(self.left, 1.0)
        self.form = widened(self, np.array([self.novelty.ridge])).form
        return phi

    def dual(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert coefficients of features (m, b) to weights (m, b) of the dictionary's points."""
        return solve_triangular(self.root, theta.T, lower=True, trans=1, check_finite=False).T

    # -- saving, merging --------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray]:
        dictionary = {"points": self.points, "root": self.root}
        return super().arrays() | dictionary | ({"left": self.left} if self.novelty.fixed else {})

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"points": len(self.points)}

    @classmethod
    def restore(cls, description: dict[str, Any], arrays: dict[str, NDArray]) -> DictionarySwitch:
        switch = super().restore(description, arrays)
        assert isinstance(switch, DictionarySwitch)
        switch.points, switch.root = arrays["points"], arrays["root"]
        switch.left = arrays.get("left", np.ones(len(switch.points)))
        return switch

    def merged(self, other: Self, ridge: NDArray, half_life: float | None) -> Self:
        raise ValueError(
            "cannot merge: two kernel states are in the coordinates of different dictionaries, and "
            "what a row is along the other's points is forgotten; learn both streams with one "
            "estimator, or with RecursiveLeastSquares on features.RandomFourier, which merges"
        )

"""Random Fourier features, which turn kernel regression into linear regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_choice, shown
from olsq.arrays.reals import real_array
from olsq.features.base import FeatureBuilder, State
from olsq.features.files import check_columns, check_keys
from olsq.features.parameters import bounded_integer
from olsq.features.table import Table

KERNELS = ("rbf", "laplacian")
MOST_GAMMA = 1e200  # with which frequencies are finite


class RandomFourier(FeatureBuilder):
    """Random features ``sqrt(2 / n) cos(w_k^T x + b_k)``, whose products approximate a kernel.

    With frequencies w drawn from the kernel's Fourier transform and b uniform, the mean of
    ``phi(a) . phi(b)`` is ``k(a, b)``, and its standard deviation at most ``sqrt(2 / n)``.  A
    linear regression on these features is one in a space of the kernel's functions: with olsq's
    exact engine behind, a nonlinear one that forgets, merges, is saved, and has standard errors.

    Parameters
    ----------
    n_components : int, default 100
        Features.
    gamma : float, default 1.0
        Of the kernel: ``exp(-gamma |a - b|^2)`` or ``exp(-gamma |a - b|_1)``.
    kernel : {"rbf", "laplacian"}
        "laplacian" draws Cauchy frequencies.
    seed : int, default 0
        Of NumPy's ``default_rng``; the frequencies are part of the file.
    of : column or sequence of columns, optional
        By name or position; default: all of X.

    Notes
    -----
    O(n d) per row.  Scale the columns first: one gamma serves all.  A missing value makes the row
    NaN, and olsq's regressions skip it.  Rows do not depend on each other.

    References
    ----------
    Rahimi & Recht, "Random features for large-scale kernel machines" (2007), algorithm 1.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> from olsq.features import RandomFourier
    >>> X = np.random.default_rng(0).uniform(-3, 3, (2000, 1))
    >>> phi = RandomFourier(60, gamma=0.5).fit(X)
    >>> est = olsq.RecursiveLeastSquares(ridge=1e-3).fit(phi.transform(X), np.sin(2 * X[:, 0]))
    >>> bool(abs(est.predict(phi.transform([[0.5]]))[0] - np.sin(1.0)) < 0.01)
    True
    """

    carry = False

    def __init__(
        self,
        n_components: int = 100,
        *,
        gamma: float = 1.0,
        kernel: str = "rbf",
        seed: int = 0,
        of: Any = None,
    ) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.kernel = kernel
        self.seed = seed
        self.of = of

    def _check_parameters(self) -> None:
        bounded_integer("n_components", self.n_components, 1)
        bounded_integer("seed", self.seed, 0, None)
        check_choice(self.kernel, "kernel", KERNELS)
        gamma = real_array(self.gamma, "gamma").astype(np.float64)
        if gamma.ndim or not 0 < gamma <= MOST_GAMMA:
            raise ValueError(
                f"gamma must be a finite number > 0, at most {MOST_GAMMA:g}, got "
                f"{shown(self.gamma)}"
            )

    def _open(self, table: Table) -> State:
        if table.X is None:
            raise ValueError("RandomFourier requires X: its features are made of it")
        columns = table.find(self.of, self)
        frequencies, phases = self._draw(len(columns))
        return {"columns": columns, "frequencies": frequencies, "phases": phases}

    def _draw(self, d: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw the frequencies (d, n) and phases (n,) from the seed."""
        rng, n = np.random.default_rng(int(self.seed)), int(self.n_components)
        phases = rng.uniform(0.0, 2 * np.pi, n)
        if self.kernel == "laplacian":
            return float(self.gamma) * rng.standard_cauchy((d, n)), phases
        return np.sqrt(2.0 * float(self.gamma)) * rng.standard_normal((d, n)), phases

    def _restart(self, state: State, table: Table) -> State:
        return state

    def _build(self, state: State, table: Table, learn: bool) -> tuple[NDArray[np.float64], State]:
        X = table.numbers(state["columns"])
        with np.errstate(invalid="ignore", over="ignore"):
            features = np.cos(X @ state["frequencies"] + state["phases"])
        return features * np.sqrt(2.0 / int(self.n_components)), state

    def _names(self, state: State, labels: list[str], targets: int) -> list[str]:
        return [f"randomfourier{k}" for k in range(int(self.n_components))]

    def _check_state(self, state: State, width: int, targets: int) -> None:
        check_keys(state, {"columns", "frequencies", "phases"})
        check_columns(state["columns"], width)
        n = int(self.n_components)
        shapes = {"frequencies": (len(state["columns"]), n), "phases": (n,)}
        for name, shape in shapes.items():
            array = state[name]
            fits = isinstance(array, np.ndarray) and array.dtype == np.float64
            if not fits or array.shape != shape or not np.isfinite(array).all():
                raise ValueError(f"{name} must be finite numbers of shape {shape}")

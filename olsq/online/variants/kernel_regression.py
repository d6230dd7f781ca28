"""The estimator KernelLeastSquares: a bounded dictionary by approximate linear dependence."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_choice, check_integer
from olsq.arrays.reals import real_array
from olsq.online.calls.call import Origin
from olsq.online.estimators.prediction import BLOCK_ROWS
from olsq.online.forms.rows import clip_to
from olsq.online.forms.schema import Field, Fields
from olsq.online.rows.inputs import check_ridge_size
from olsq.online.rows.options import check_ridge
from olsq.online.variants.base import LACKS, Variant
from olsq.online.variants.dictionary import KERNELS, DictionarySwitch, KernelFunction, Novelty
from olsq.threads import one_blas_thread

LEAST_MISSED = 1e-12  # share of a point that a dictionary can miss, which is not rounding


@dataclass(eq=False, repr=False, match_args=False)
class KernelLeastSquares(Variant):
    """Kernel recursive least squares: a function of x, learned row by row, on a bounded dictionary.

    A row whose image in feature space is not (approximately) a combination of the dictionary's
    joins it, up to ``budget`` points (approximate linear dependence; Engel, Mannor & Meir 2004).
    The function is ``f(x) = sum_j dual_coef_j k(x, dictionary_j)``, plus an intercept, and
    minimises ``sum_i zeta_ti w_i (y_i - f(x_i))^2 + lambda_t |f|^2`` (the norm of the kernel's
    space) among those functions: at forget 1 **exactly** kernel ridge regression with the
    dictionary (the "subset of regressors") for all rows that passed after it was complete.  A row
    from before a point joined is taken for its projection on the dictionary of that time, which
    misses at most ``threshold`` of its squared length.

    Parameters
    ----------
    kernel : {"rbf", "laplacian", "polynomial", "linear"}
        As scikit-learn's: ``exp(-gamma |a - b|^2)``, ``exp(-gamma |a - b|_1)``,
        ``(gamma a.b + coef0)^degree``, ``a.b``.
    gamma : float, optional
        Default 1 / d.
    degree, coef0 : int, float
        Of the polynomial; 3 and 1.
    threshold : float in (0, 1), default 1e-2
        Share of ``k(x, x)`` that the dictionary must miss for a row to join it (the paper's nu).
        Less than 1e-12 is 1e-12: below, what is missed is rounding.
    budget : int, default 200
        Most points; once there, rows are learned by their projections and none joins.
    forget, half_life : float, default 1
        See :class:`RecursiveLeastSquares`.
    ridge : float, default 1e-3
        Penalty on the squared norm of the function; not on the intercept.  In units of the kernel,
        not of the regressors; 0 would interpolate the noise as soon as the budget allows it.
    ridge_mode : {"fixed", "discounted"}
        Under forgetting: "fixed" keeps the ridge of each coordinate between half and the whole of
        ``ridge``, so that the function returns to 0 where rows have not been for long.
        "discounted" forgets it with the rows, which is the classical recursion, and unsafe: where
        rows have not been, the function fits the noise of where they are now, and grows without
        bound (1e8 after some thousand rows).
    fit_intercept : bool, default False
    missing : {"skip", "raise"}

    Attributes
    ----------
    dictionary_ : array (b, d)
    dual_coef_ : array (b,) or (b, m)
    intercept_ : float or array (m,)
    residual_ : array (n,) or (n, m)
        A-priori residuals of the last call.
    n_samples_seen_, n_features_in_, feature_names_in_, metadata_

    Notes
    -----
    The state is that of least squares in the coordinates ``L^-1 k(x)`` of an orthonormal basis of
    the dictionary's span, ``L L^T`` its kernel matrix: well conditioned where the kernel matrix is
    not, and a new point is one more coordinate.  O(b (b + d)) per row and a prediction, O(b^2 + b
    d) memory; a fixed ridge under forgetting costs O(b^3) more per half-life.  The budget does not
    follow inputs that drift away: its points stay.

    Two states have different dictionaries and are not merged.  No standard errors, no derivatives.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, (1000, 1))
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(1000)
    >>> est = olsq.KernelLeastSquares(gamma=1.0, threshold=1e-3).fit(X, y)
    >>> len(est.dictionary_) < 20
    True
    >>> bool(np.abs(est.predict([[0.5], [-1.0]]) - np.sin([1.0, -2.0])).max() < 0.05)
    True
    """

    ENGINE: ClassVar[Any] = DictionarySwitch
    BEFORE: ClassVar[dict[str, Any]] = {"ridge_mode": "discounted"}  # in files without it
    RESIDUALS = True
    LACKS = LACKS | {
        "coef_": "its function is a sum over dictionary_; see dual_coef_",
        "moments": "its state is in coordinates of the dictionary",
    }

    kernel: str = "rbf"
    _: KW_ONLY
    gamma: float | None = None
    degree: int = 3
    coef0: float = 1.0
    threshold: float = 0.01
    budget: int = 200
    ridge: Any = 0.001
    ridge_mode: str = "fixed"
    fit_intercept: bool = False

    @property
    def _state(self) -> Any:
        return self._engine.engine

    @property
    def dictionary_(self) -> NDArray[np.float64]:
        """Points of the dictionary (b, d)."""
        self._engine_or_raise()
        with self._locked():
            return self._state.points.copy()

    @property
    def dual_coef_(self) -> NDArray[np.floating]:
        """Weights of the points, (b,) or (b, m)."""
        with self._locked():
            theta = self._theta()[:, self._first :]
            dual = clip_to(self._state.dual(theta), self._origin.dtype)
        return dual[0] if self._origin.n_targets == 0 else dual.T

    def _columns(self) -> int:
        return int(self.budget)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self.kernel, "kernel", KERNELS)
        check_choice(self.ridge_mode, "ridge_mode", ("fixed", "discounted"))
        check_ridge(self.ridge, 1)
        if np.ndim(self.ridge):
            raise ValueError("ridge must be one number: it is of the norm of the function")
        for name in ("degree", "budget"):
            check_integer(name, getattr(self, name), 1)
        numbers = {"coef0": (0.0, np.inf), "threshold": (0.0, 1.0)}
        if self.gamma is not None:
            numbers["gamma"] = (0.0, np.inf)
        for name, (low, high) in numbers.items():
            number = real_array(getattr(self, name), name)
            fits = number.ndim == 0 and np.isfinite(number) and low <= number < high
            if not fits or (number == 0 and name != "coef0"):
                rule = "> 0 and below 1" if name == "threshold" else "a finite number > 0"
                raise ValueError(f"{name} must be {rule}, got {getattr(self, name)!r}")

    def _function(self, d: int) -> tuple[KernelFunction, Novelty]:
        gamma = 1.0 / d if self.gamma is None else float(self.gamma)
        function = KernelFunction(self.kernel, gamma, int(self.degree), float(self.coef0))
        novelty = Novelty(
            max(float(self.threshold), LEAST_MISSED),
            int(self.budget),
            float(self.ridge),
            self.ridge_mode == "fixed",
        )
        return function, novelty

    def _start_ridge(self, n_features: int) -> NDArray[np.float64]:
        check_ridge_size(check_ridge(self.ridge, 1))
        return np.zeros(n_features + int(bool(self.fit_intercept)))

    def _start(self, origin: Origin) -> Any:
        switch = self._start_of_size(origin, np.zeros(self._width(origin, 0)))
        switch.points = np.zeros((0, origin.n_features))
        switch.root, switch.left = np.zeros((0, 0)), np.zeros(0)
        switch.kernel, switch.novelty = self._function(origin.n_features)
        return switch

    @staticmethod
    def _width(origin: Origin, b: int) -> int:
        """Return the number of columns of the state for b points."""
        return b + int(origin.intercept)

    def _solve(self, engine: Any) -> NDArray[np.float64]:
        return engine.form.coefficients()

    @one_blas_thread
    def _mean(self, rows: NDArray) -> NDArray[np.float64]:
        theta, first, engine = self._theta(), self._first, self._state
        out = np.full((len(rows), len(theta)), np.nan)
        complete = np.flatnonzero(np.isfinite(rows).all(axis=1))
        for start in range(0, complete.size, BLOCK_ROWS):
            block = complete[start : start + BLOCK_ROWS]
            phi, _ = engine.features(rows[block].astype(np.float64))
            out[block] = phi @ theta[:, first:].T + (theta[:, 0] if first else 0.0)
        return out

    # -- files ------------------------------------------------------------------------------------

    def _restore(self, header: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        super()._restore(header, arrays)
        engine = self._state
        engine.kernel, engine.novelty = self._function(header["n_features"])

    def _file_sizes(self, engine: dict[str, Any], header: dict[str, Any], d: int) -> dict[str, int]:
        b = engine.get("points")
        if type(b) is not int or not 0 <= b <= self.budget:
            raise ValueError(f"points cannot be {b!r}")
        return {"d": b + int(bool(self.fit_intercept)), "b": b, "x": header["n_features"]}

    def _file_arrays(self) -> Fields:
        fixed = {"left": Field(("b",))} if self.ridge_mode == "fixed" else {}
        return {"points": Field(("b", "x")), "root": Field(("b", "b"))} | fixed

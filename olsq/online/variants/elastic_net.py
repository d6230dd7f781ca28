"""The estimator OnlineElasticNet: the elastic net along a stream."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_flag, check_integer
from olsq.arrays.reals import real_array
from olsq.online.estimators.base import StreamingRegressor
from olsq.online.estimators.coefficients import Coefficients
from olsq.online.forms.counting import WEIGHT
from olsq.online.forms.rows import Rows
from olsq.online.variants.base import Variant, centred, with_intercept
from olsq.online.variants.support_kernels import EPS, settle, walk


@dataclass(eq=False, repr=False, match_args=False)
class OnlineElasticNet(Variant, Coefficients):
    """The elastic net solved along a stream, with forgetting, from its moments.

    After every row t minimises ``sum_i zeta_ti w_i (y_i - x_i . coef - intercept)^2 / (2 W_t) +
    alpha l1_ratio |coef|_1 + alpha (1 - l1_ratio) |coef|^2 / 2`` with ``W_t = sum_i zeta_ti w_i``:
    at forget = 1 the objective of scikit-learn's ``ElasticNet``.  The state is that of least
    squares without a penalty, so ``alpha`` and ``l1_ratio`` may change between rows.

    Parameters
    ----------
    alpha : float, default 1.0
    l1_ratio : float in [0, 1], default 0.5
        1 is the lasso, 0 ridge regression.
    standardize : bool, default False
        Whether the penalty is on the coefficients of regressors divided by their (forgotten)
        standard deviations (without an intercept, by their root mean squares); ``coef_`` is in
        the units of X either way.  A column that does not vary has a coefficient of 0 if there is
        an intercept.
    forget, half_life : float, default 1
        See :class:`RecursiveLeastSquares`.
    fit_intercept : bool, default True
        The intercept is not penalised.
    tol : float, default 1e-10
        Duality gap, in units of the targets' (centred) mean square, above which there is a warning
        that ``max_iter`` was not enough.
    max_iter : int, default 1000
        Sweeps of coordinate descent at most.
    missing : {"skip", "raise", "skip_target"}

    Attributes
    ----------
    coef_ : array (d,) or (m, d)
        Exactly 0 where the penalty wins.
    intercept_ : float or array (m,)
    dual_gap_ : float or array (m,)
        A bound on how much lower the objective could be.
    n_iter_ : int or array (m,)
        Sweeps of the last solution; 0 where the last support was right still.
    n_samples_seen_, n_features_in_, feature_names_in_, metadata_

    Notes
    -----
    Coordinate descent on the moments (Friedman, Hastie & Tibshirani 2010) finds which coefficients
    are 0 and the signs of the others; these are then solved for by an orthogonal factorisation of
    the state's factor, so that the condition number of the answer is not squared, and held to the
    optimality conditions.  While the support stays what it was for the row before, no sweep is
    needed.  O(d^2 + m d) per row; O(k^3 + d k) per solution of k nonzero coefficients, and O(d^2) a
    sweep.  Merging is exact.  No standard errors, no derivatives.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 4))
    >>> y = X @ [2.0, 0.0, 0.0, -1.0] + 0.1 * rng.standard_normal(500)
    >>> est = olsq.OnlineElasticNet(alpha=0.1, l1_ratio=0.9).fit(X, y)
    >>> est.coef_.round(1) + 0.0
    array([ 1.9,  0. ,  0. , -0.9])
    """

    CHANGEABLE: ClassVar[frozenset[str]] = Variant.CHANGEABLE | {
        "alpha",
        "l1_ratio",
        "standardize",
        "tol",
        "max_iter",
    }
    MISSING = StreamingRegressor.MISSING
    ROW_BY_ROW: ClassVar[bool] = True

    alpha: float = 1.0
    _: KW_ONLY
    l1_ratio: float = 0.5
    standardize: bool = False
    tol: float = 1e-10
    max_iter: int = 1000

    @property
    def dual_gap_(self) -> Any:
        """A bound on how much lower the objective could be, a number or (m,)."""
        return self._shaped(self._report()[:, 0])

    @property
    def n_iter_(self) -> Any:
        """Sweeps of coordinate descent that the last solution took, a number or (m,)."""
        return self._shaped(self._report()[:, 1].astype(np.int64))

    def _report(self) -> NDArray[np.float64]:
        with self._locked():
            self._theta()
            groups: Any = self._engine.groups
            order = np.argsort(np.concatenate([group.targets for group in groups]))
            return np.concatenate([group.engine.report for group in groups])[order]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name, largest in (("alpha", np.inf), ("l1_ratio", 1.0), ("tol", 1.0)):
            number = real_array(getattr(self, name), name)
            if number.ndim or not (np.isfinite(number) and 0 <= number <= largest):
                rule = "finite and >= 0" if largest == np.inf else "in [0, 1]"
                raise ValueError(f"{name} must be {rule}, got {getattr(self, name)!r}")
        check_flag("standardize", self.standardize)
        check_integer("max_iter", self.max_iter, 1)

    def _asked(self) -> Any:
        return self.alpha, self.l1_ratio, self.standardize, self.tol, self.max_iter

    def _solve(self, engine: Any) -> NDArray[np.float64]:
        form, intercept = engine.form, self._origin.intercept
        R, z = centred(form, intercept)
        weight = float(form.tally[WEIGHT])
        spread = np.linalg.norm(R, axis=0) / np.sqrt(weight) if weight > 0 else np.zeros(len(R))
        unit = spread if self.standardize else np.ones(len(R))
        alpha, share = float(self.alpha), float(self.l1_ratio)  # in double precision
        l1 = weight * alpha * share * unit
        l2 = weight * alpha * (1.0 - share) * unit**2
        last = None if engine.solution is None else engine.solution[1][:, self._first :]
        if last is None or last.shape != z.shape:
            last = np.zeros_like(z)
        slopes, report = np.zeros_like(z), np.zeros((len(z), 2))
        for k, target in enumerate(z):
            if weight == 0 or not target.any():  # nothing to be fitted
                continue
            scale = float(target @ target + form.loss[k])
            slopes[k] = last[k]
            gap, sweeps = settle(R, target, l1, l2, slopes[k], int(self.max_iter))
            report[k] = gap / weight, sweeps
            if gap > max(self.tol, 64 * len(R) * EPS) * scale:
                warnings.warn(
                    f"the duality gap is {gap / weight:.3g} after max_iter={self.max_iter} sweeps, "
                    f"above tol={self.tol} of the targets' mean square: raise max_iter or alpha",
                    RuntimeWarning,
                    stacklevel=4,
                )
        engine.report = report
        return with_intercept(form, slopes, intercept)

    def _walk(
        self, engine: Any, rows: Rows, start: int, residual: NDArray, out: NDArray
    ) -> tuple[int, int]:
        _, m, k = out.shape
        slopes = np.zeros((m, k - self._first))
        if engine.solution is not None and engine.solution[1].shape == (m, k):
            slopes[:] = engine.solution[1][:, self._first :]
        alpha, share = float(self.alpha), float(self.l1_ratio)
        penalties = alpha * share, alpha * (1.0 - share), bool(self.standardize)
        search = float(self.tol), int(self.max_iter)
        return self._walked(
            walk,
            engine,
            rows,
            start,
            residual,
            (*penalties, *search, self._first, slopes),
            out,
        )

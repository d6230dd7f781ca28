"""Recursive total least squares: errors in the regressors too."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr, solve_triangular, svd

from olsq.checks import check_choice
from olsq.online.forms.rows import Rows, Trace
from olsq.online.learning import Origin
from olsq.online.variants import total_kernels
from olsq.online.variants.base import NotHere, Variant
from olsq.online.variants.engine import VariantSwitch
from olsq.online.variants.steps import WAITING
from olsq.reals import real_array


class NotGenericError(ArithmeticError):
    """Total least squares has no solution, or several, for the rows so far."""


class TotalSwitch(VariantSwitch):
    """The factor of the columns of X and y together: targets are columns, and there is none."""

    def update(
        self, rows: Rows, residual: NDArray, trace: Trace, times: NDArray | None = None
    ) -> None:
        wide = np.hstack([rows.X, rows.Y])
        columns = rows._replace(X=wide, Y=np.zeros_like(rows.Y))
        super().update(columns, residual, Trace.none(rows.Y.shape[1], wide.shape[1]), times)


class TotalLeastSquares(Variant):
    """Total least squares solved again after every row: regressors and targets have errors.

    Minimises ``sum_i zeta_ti w_i (|dx_i|^2 + |dy_i|^2)`` over corrections and coefficients with
    ``y_i - dy_i = coef . (x_i - dx_i) + intercept``: least squares with errors at right angles.
    Where X is measured with error, ordinary least squares is biased towards 0 however many rows
    there are; this is not, if the errors' ratio is right.

    Parameters
    ----------
    noise_ratio : float or array (d,), default 1.0
        Standard deviation of each regressor's error in units of that of the targets'.  0: the
        column is exact (the intercept's always is); all 0 is ordinary least squares.
    nongeneric : {"nan", "raise"}
        What coefficients are where there is no unique solution (fewer rows than coefficients, a
        singular value with several vectors, or one with no part in y): NaN, or an error when they
        are read.  A path (:meth:`partial_fit_path`) has NaN there either way.
    forget, half_life : float, default 1
        See :class:`RecursiveLeastSquares`.
    fit_intercept : bool, default True
    missing : {"skip", "raise"}
    state_dtype : {"float64", "float32"}

    Attributes
    ----------
    coef_ : array (d,) or (m, d)
    intercept_ : float or array (m,)
    gap_ : float
        The distance between the two singular values whose difference makes the solution unique,
        in units of the largest: errors in the data are amplified by its inverse.
    n_samples_seen_, n_features_in_, feature_names_in_, metadata_

    Notes
    -----
    Exact at every query: the state is the triangular factor of the columns ``[1 X y]`` together,
    rotated row by row, and the solution is read from the singular vectors of its last rows, so no
    moments are formed.  Exact columns are eliminated first (Golub & Van Loan 2013, 6.3; Van Huffel
    & Vandewalle 1991, ch. 3).  O((d + m)^2) a row, O((d + m)^3) a solution.  Merging is exact;
    ``noise_ratio`` may change between rows.  No ridge: one would shrink what total least squares
    is there to unshrink.  Several targets have one joint correction of X.  No standard errors, no
    derivatives.

    Raises
    ------
    NotGenericError
        An ArithmeticError, when coefficients are read under ``nongeneric="raise"``.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((20_000, 2))
    >>> y = truth @ [1.0, -2.0] + 0.5 * rng.standard_normal(20_000)
    >>> X = truth + 0.5 * rng.standard_normal(truth.shape)
    >>> olsq.TotalLeastSquares().fit(X, y).coef_.round(1)
    array([ 1., -2.])
    >>> olsq.RecursiveLeastSquares().fit(X, y).coef_.round(1)
    array([ 0.8, -1.6])
    """

    ENGINE: ClassVar[Any] = TotalSwitch
    CHANGEABLE: ClassVar[frozenset[str]] = Variant.CHANGEABLE | {"noise_ratio", "nongeneric"}
    moments: Any = NotHere("its state is of the columns of X and y together")

    def __init__(
        self,
        noise_ratio: Any = 1.0,
        *,
        nongeneric: str = "nan",
        forget: Any = 1.0,
        half_life: Any = None,
        fit_intercept: bool = True,
        missing: str = "skip",
        state_dtype: Any = "float64",
    ) -> None:
        self.noise_ratio = noise_ratio
        self.nongeneric = nongeneric
        self.forget = forget
        self.half_life = half_life
        self.fit_intercept = fit_intercept
        self.missing = missing
        self.state_dtype = state_dtype

    @property
    def gap_(self) -> float:
        """How far apart the two singular values are between which the solution lies."""
        with self._locked():
            engine = self._engine_or_raise().engine
            super()._solution(engine)
            return engine.gap

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self.nongeneric, "nongeneric", ("nan", "raise"))
        ratio = real_array(self.noise_ratio, "noise_ratio")
        if ratio.ndim > 1 or not (np.isfinite(ratio).all() and (ratio >= 0).all()):
            raise ValueError(
                "noise_ratio must be a number or one number per feature, finite and >= 0, got "
                f"{self.noise_ratio!r}"
            )

    def _check_call(self, X: Any, *args: Any) -> Any:
        call = super()._check_call(X, *args)
        self._ratio(call.X.shape[1])
        return call

    def _ratio(self, d: int) -> NDArray[np.float64]:
        ratio = real_array(self.noise_ratio, "noise_ratio").astype(np.float64)
        if ratio.shape not in ((), (d,)):
            raise ValueError(
                f"noise_ratio must be a number or one number per feature ({d}), got shape "
                f"{ratio.shape}"
            )
        return np.broadcast_to(ratio, (d,))

    def _asked(self) -> Any:
        return self._ratio(self._origin.n_features).tolist()

    def _start(self, origin: Origin) -> Any:
        return self._start_of_size(origin, np.zeros(origin.ridge.size + origin.columns))

    def _file_sizes(self, engine: dict[str, Any], header: dict[str, Any], d: int) -> dict[str, int]:
        return {"d": d + max(header["n_targets"], 1)}

    def _solve(self, engine: Any) -> NDArray[np.float64]:
        form, m = engine.form, self._origin.columns
        first, noise = self._first, form._noise
        exact = np.concatenate([np.zeros(first), self._ratio(self._origin.n_features)])
        S = form.R.astype(np.float64)
        if m == 1:
            theta = np.empty((1, exact.size))
            usual, engine.gap = total_kernels.solve(S, exact, noise, theta[0])
            if usual:
                return theta
        theta, engine.gap = total_least_squares(S, exact, m, noise)
        return theta

    def _walk(
        self, engine: Any, rows: Rows, start: int, residual: NDArray, out: NDArray
    ) -> tuple[int, int]:
        if out.shape[1] > 1:  # several targets: no kernel learns a row
            return WAITING, start
        exact = np.concatenate([np.zeros(self._first), self._ratio(self._origin.n_features)])
        return self._walked(total_kernels.walk, engine, rows, start, residual, exact, out=out)

    def _solution(self, engine: Any) -> NDArray[np.float64]:
        theta = super()._solution(engine)
        if self.nongeneric == "raise" and not np.isfinite(theta).all():
            raise NotGenericError(
                f"{self.n_samples_seen_} rows do not determine the total least squares solution: "
                "learn more rows, drop dependent columns, or take nongeneric='nan'"
            )
        return theta


def total_least_squares(
    S: NDArray[np.float64], ratio: NDArray[np.float64], m: int, noise: float
) -> tuple[NDArray[np.float64], float]:
    """Coefficients (m, k) from a factor S (k + m, k + m) of the columns ``[X Y]``, and the gap.

    ``ratio`` (k,) is each column's error in units of Y's, 0 for exact ones; ``noise`` the relative
    rounding error of S.  NaN where the solution is not unique or does not exist.
    """
    k = ratio.size
    theta = np.full((m, k), np.nan)
    order = np.concatenate([np.flatnonzero(ratio == 0), np.flatnonzero(ratio > 0)])
    q = int(np.count_nonzero(ratio == 0))
    if q and (np.diff(order) != 1).any():  # exact columns first
        S = np.asarray(qr(S[:, [*order, *range(k, k + m)]], mode="r", check_finite=False)[0])
    length = np.linalg.norm(S[:, :q], axis=0)
    if (np.abs(np.diagonal(S)[:q]) <= 8 * noise * length).any():
        return theta, 0.0
    errors = ratio[order[q:]]
    rest = S[q:, q:] / np.concatenate([errors, np.ones(m)])
    p = k - q
    if p:
        values, Vt = svd(rest, check_finite=False)[1:]
        alone = svd(rest[:, :p], compute_uv=False, check_finite=False)
        gap = float(alone[-1] - values[p]) / values[0] if values[0] > 0 else 0.0
        V = Vt[p:].T  # the m smallest
        part, size = V[p:], svd(V[p:], compute_uv=False, check_finite=False)
        if gap <= 8 * (noise + p * np.finfo(np.float64).eps) or size[-1] <= 1e-12:
            return theta, max(gap, 0.0)
        slopes = -np.linalg.solve(part.T, V[:p].T) / errors
    else:
        slopes, gap = np.zeros((m, 0)), 1.0
    theta[:, order[q:]] = slopes
    if q:
        known = S[:q, k:] - S[:q, q:k] @ slopes.T
        theta[:, order[:q]] = solve_triangular(S[:q, :q], known, check_finite=False).T
    return theta, gap

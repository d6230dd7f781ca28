"""The estimator TotalLeastSquares: regressors and targets have errors."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_choice
from olsq.arrays.reals import real_array
from olsq.online.calls.call import Origin
from olsq.online.forms.rows import Rows, Trace, read_only
from olsq.online.variants import total_kernels
from olsq.online.variants.base import LACKS, Variant
from olsq.online.variants.engine import VariantSwitch
from olsq.online.variants.steps import WAITING


class NotGenericError(ArithmeticError):
    """Total least squares has no solution, or several, for the rows so far."""


class TotalSwitch(VariantSwitch):
    """The factor of the columns of X and y together, with the targets as columns."""

    def update(
        self, rows: Rows, residual: NDArray, trace: Trace, times: NDArray | None = None
    ) -> None:
        wide = np.hstack([rows.X, rows.Y])
        columns = rows._replace(X=read_only(wide), Y=read_only(np.zeros_like(rows.Y)))
        super().update(columns, residual, Trace.none(rows.Y.shape[1], wide.shape[1]), times)


@dataclass(eq=False, repr=False, match_args=False)
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
        What coefficients are where there is no unique solution: NaN, or an error that says why when
        they are read.  That is where several fit equally well (fewer rows than coefficients,
        dependent columns: more rows help) and where none exists (a combination of the regressors
        that varies less than its errors and has nothing to do with the targets: more rows do not
        help).  A path (:meth:`partial_fit_path`) has NaN there either way.
    forget, half_life : float, default 1
        See :class:`RecursiveLeastSquares`.
    fit_intercept : bool, default True
    missing : {"skip", "raise"}

    Attributes
    ----------
    coef_ : array (d,) or (m, d)
    intercept_ : float or array (m,)
    gap_ : float
        How well conditioned the solution is: relative errors of size e in the data change the
        coefficients by a relative error of up to about ``e / gap_``.  It is the distance of the two
        singular values of ``[X Y]`` between which the solution lies, in units of the largest,
        times the smallest singular value of the last block of singular vectors; coefficients are
        NaN where it does not stand out from rounding errors.  1 where all columns are exact.
    n_samples_seen_, n_features_in_, feature_names_in_, metadata_

    Notes
    -----
    Exact at every query: the state is the triangular factor of the columns ``[1 X y]`` together,
    rotated row by row, and the solution is read from the singular vectors of its last rows, so no
    moments are formed.  Exact columns are eliminated first (Golub & Van Loan 2013, 6.3; Van Huffel
    & Vandewalle 1991, ch. 3).  O((d + m)^2) per row, O((d + m)^3) per solution.  Merging is exact;
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
    ROW_BY_ROW: ClassVar[bool] = True
    CHANGEABLE: ClassVar[frozenset[str]] = Variant.CHANGEABLE | {"noise_ratio", "nongeneric"}
    LACKS = LACKS | {"moments": "its state is of the columns of X and y together"}

    noise_ratio: Any = 1.0
    _: KW_ONLY
    nongeneric: str = "nan"

    @property
    def coef_(self) -> NDArray[np.floating]:
        """Coefficients (d,) or (m, d); NaN where there is no unique solution."""
        return self._slopes()

    @property
    def gap_(self) -> float:
        """Conditioning of the solution: data errors of size e change it by about ``e / gap_``."""
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
        form, exact = engine.form, self._exact()
        theta = np.empty((self._origin.columns, exact.size))
        engine.gap, engine.reason = total_kernels.solve(form.R, exact, form._noise, theta)
        return theta

    def _walk(
        self, engine: Any, rows: Rows, start: int, residual: NDArray, out: NDArray
    ) -> tuple[int, int]:
        if out.shape[1] > 1:  # several targets: no kernel learns a row
            return WAITING, start
        walk = total_kernels.walk
        return self._walked(walk, engine, rows, start, residual, self._exact(), out)

    def _solution(self, engine: Any) -> NDArray[np.float64]:
        theta = super()._solution(engine)
        if self.nongeneric == "raise" and not np.isfinite(theta).all():
            self._solve(engine)  # a walk leaves no reason
            message = REASONS[engine.reason].format(rows=self.n_samples_seen_)
            raise NotGenericError(f"{message}; nongeneric='nan' gives NaN instead of this error")
        return theta

    def _exact(self) -> NDArray[np.float64]:
        """Return the columns' errors (k,) in units of the targets', 0 for the intercept's."""
        return np.concatenate([np.zeros(self._first), self._ratio(self._origin.n_features)])


REASONS = {
    total_kernels.EXACT_DEPEND: (
        "the exact columns (noise_ratio 0, and the intercept) depend on each other: drop one, or "
        "learn rows that tell them apart"
    ),
    total_kernels.SEVERAL: (
        "{rows} rows do not determine the total least squares solution, several fit equally well: "
        "learn more rows, or drop columns that depend on others"
    ),
    total_kernels.NONE: (
        "total least squares has no solution here, and more rows of this kind will not give it "
        "one: a combination of the regressors varies less than its errors (or not at all), and "
        "independently of the targets.  Drop a regressor, or set noise_ratio to what the errors are"
    ),
}

"""The estimator ConstrainedLeastSquares: linear equations and bounds along a stream."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.reals import real_array
from olsq.online.calls.call import Call
from olsq.online.calls.checked import Checked
from olsq.online.estimators.base import StreamingRegressor
from olsq.online.estimators.coefficients import Coefficients
from olsq.online.files.frozen import fingerprint
from olsq.online.forms.rows import Rows
from olsq.online.rows.options import plain
from olsq.online.variants import active_set_kernels
from olsq.online.variants.active_set import Constraints, solve
from olsq.online.variants.base import Variant, centred, with_intercept


@dataclass(eq=False, repr=False, match_args=False)
class ConstrainedLeastSquares(Variant, Coefficients):
    """Recursive least squares whose coefficients satisfy linear equations and bounds.

    After every row t the exact minimiser of ``sum_i zeta_ti w_i (y_i - x_i . coef - intercept)^2 +
    coef . Lambda_t coef`` subject to ``A coef = b`` and ``lower <= coef <= upper``.  The state is
    that of :class:`RecursiveLeastSquares` and knows nothing of the constraints: they act when
    coefficients are read, and may change between rows.

    Parameters
    ----------
    equality : tuple (A, b), optional
        A (q, d) and b (q,), or a row (d,) and a number: what ``A coef`` is.  Not of the intercept.
    bounds : "nonnegative" or tuple (lower, upper), optional
        Numbers or arrays (d,), -inf and inf where there is none; None for a side without bounds.
    forget, half_life : float, default 1
        See :class:`RecursiveLeastSquares`.
    ridge : float or array (d,), default 0
        Penalty on the squared coefficients, never on the intercept, forgotten with the data.
    fit_intercept : bool, default True
        The intercept is free.
    missing : {"skip", "raise", "skip_target"}

    Attributes
    ----------
    coef_ : array (d,) or (m, d)
        Within the bounds exactly; the equations hold to rounding.
    intercept_ : float or array (m,)
    active_ : array (d,) or (m, d) of int
        -1 and 1 where a coefficient is on its lower or upper bound, else 0.
    n_samples_seen_, n_features_in_, feature_names_in_, metadata_

    Notes
    -----
    Exact at every query, by a primal active-set method on the factor R of the state (Lawson &
    Hanson 1974; Nocedal & Wright 2006, 16.5): the condition number is that of X, not its square.
    It starts from the last solution, which files hold; a face costs O(d^3), a row O(d^2 + m d).
    Where rows and ridge leave coefficients undetermined it is the minimiser of least norm (one of
    the minimisers, where the units of the regressors are some ten orders of magnitude apart).
    Constraints that nothing satisfies are refused before a row is learned.

    Merging is exact, as the state is that of the unconstrained problem; ``equality`` and ``bounds``
    are second's.  No standard errors: on an active constraint none of the usual ones is right.  No
    derivatives.  Several threads may use one estimator.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> y = X @ [0.7, 0.5, -0.2] + 0.01 * rng.standard_normal(200)
    >>> est = olsq.ConstrainedLeastSquares(equality=(np.ones(3), 1.0), bounds="nonnegative")
    >>> est.fit(X, y).coef_.round(2)
    array([0.61, 0.39, 0.  ])
    >>> est.active_
    array([ 0,  0, -1])
    """

    CHANGEABLE: ClassVar[frozenset[str]] = Variant.CHANGEABLE | {"equality", "bounds"}
    ROW_BY_ROW: ClassVar[bool] = True
    WALK_SOLVES: ClassVar[bool] = True
    KEEPS_SOLUTION: ClassVar[bool] = True  # in its files
    MISSING = StreamingRegressor.MISSING

    _: KW_ONLY
    equality: Any = None
    bounds: Any = None
    ridge: Any = 0.0

    @property
    def active_(self) -> NDArray[np.int_]:
        """Bounds that coefficients lie on: -1 the lower, 1 the upper, else 0; (d,) or (m, d)."""
        slopes = self._theta()[:, self._first :]
        limits = self._constraints(self.n_features_in_)
        at = np.where(slopes == limits.lower, -1, np.where(slopes == limits.upper, 1, 0))
        return self._shaped(at)

    def _check_call(
        self, X: Any, y: Any, sample_weight: Any, forget: Any, checked: Checked | None
    ) -> Call:
        call = super()._check_call(X, y, sample_weight, forget, checked)
        if checked is None or self._asked() != self._kept[0]:
            limits = self._constraints(call.X.shape[1])
            start = limits.feasible()
            if start is None:
                raise ValueError(
                    "equality and bounds contradict each other: no coefficients satisfy both"
                )
            self._kept = self._asked(), start
        return call

    # The constraints that were found to be satisfiable, and what satisfies them.
    _kept = None, None

    def _asked(self) -> Any:
        if self._unchanged is not None:
            return self._unchanged
        # Arrays are lists once they were saved.
        return tuple(fingerprint(plain(value, "")) for value in (self.equality, self.bounds))

    def _written(
        self, metadata: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return header and arrays of the file, with the present solution.

        Where rounding decides between faces, as with columns that are nearly equal, the solution
        depends on the one before, which a loaded state has to know.
        """
        header, arrays = super()._written(metadata)
        if self._kept[0] == self._asked():  # constraints that something satisfies
            arrays = arrays | {"solution": self._theta()}
        return header, arrays

    def _restore(self, header: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        super()._restore(header, arrays)
        if "solution" in arrays:
            self._kept = self._asked(), arrays["solution"][0, self._first :]
            for targets, engine in self._engine.groups:
                state: Any = engine
                state.solution, state.fresh = (self._asked(), arrays["solution"][targets]), True

    def _constraints(self, d: int) -> Constraints:
        """Return the constraints on d coefficients; ValueError if they are invalid."""
        asked = d, self._asked()
        if self._read is None or self._read[0] != asked:
            self._read = asked, self._read_constraints(d)
        return self._read[1]

    _read = None  # the constraints, and what they were read from

    def _read_constraints(self, d: int) -> Constraints:
        A, b = np.zeros((0, d)), np.zeros(0)
        if self.equality is not None:
            matrix, value = _pair(self.equality, "equality", "(A, b)")
            A = np.atleast_2d(real_array(matrix, "equality[0]").astype(np.float64))
            b = np.atleast_1d(real_array(value, "equality[1]").astype(np.float64))
            if A.shape != (b.size, d) or b.ndim != 1:
                raise ValueError(
                    f"equality must be (A, b) of shapes (q, {d}) and (q,), got {A.shape} and "
                    f"{b.shape}"
                )
            if not (np.isfinite(A).all() and np.isfinite(b).all()):
                raise ValueError("equality must be finite")
        lower, upper = np.full(d, -np.inf), np.full(d, np.inf)
        if isinstance(self.bounds, str):
            if self.bounds != "nonnegative":
                raise ValueError(f"bounds must be 'nonnegative' or a pair, got {self.bounds!r}")
            lower = np.zeros(d)
        elif self.bounds is not None:
            pair = _pair(self.bounds, "bounds", "(lower, upper)")
            for i, side in enumerate((lower, upper)):
                if pair[i] is None:
                    continue
                bound = real_array(pair[i], f"bounds[{i}]").astype(np.float64)
                if bound.shape not in ((), (d,)):
                    raise ValueError(
                        f"bounds[{i}] must be a number or of shape ({d},), got {bound.shape}"
                    )
                side[:] = bound
            if not ((lower <= upper) & (lower < np.inf) & (upper > -np.inf)).all():
                raise ValueError(
                    "bounds must be lower <= upper, none of them missing: give None for a whole "
                    "side without bounds, -inf or inf for single coefficients"
                )
        return Constraints(A, b, lower, upper)

    def _solve(self, engine: Any) -> NDArray[np.float64]:
        form, intercept = engine.form, self._origin.intercept
        R, z = centred(form, intercept)
        limits = self._constraints(R.shape[0])
        if not (limits.b.size or np.diagonal(R).all()):  # a search for the least norm takes long
            free = form.coefficients()
            slopes = free[:, self._first :]
            if ((limits.lower <= slopes) & (slopes <= limits.upper)).all():
                return free
        starts = self._starts(engine, limits, len(z))[:, self._first :]
        slopes = np.array(
            [solve(R, target, limits, x) for target, x in zip(z, starts, strict=True)]
        )
        return with_intercept(form, slopes, intercept)

    def _learn_row(
        self, rows: Rows, errors: NDArray, *, predicts: bool
    ) -> tuple[Any, NDArray] | None:
        # One fast path is for one set of parameters: no need to compare them again.
        checked = self.__dict__.get("_checked_parameters")
        if checked is None or self._stepped[0] is not checked:
            if self._kept[0] != self._asked():  # which the general way checks first
                return None
            self._stepped = checked, self._kept[0]
        self._unchanged = self._stepped[1]
        try:
            return super()._learn_row(rows, errors, predicts=predicts)
        finally:
            self._unchanged = None

    _unchanged = None  # what is asked, while a row is learned: reading it takes microseconds
    _stepped = None, None  # the last row's fast path, and what was asked then

    def _walk(
        self, engine: Any, rows: Rows, start: int, residual: NDArray, out: NDArray
    ) -> tuple[int, int]:
        (_, m, k), first = out.shape, self._first
        limits = self._constraints(k - first)
        problem = (*limits, first, self._starts(engine, limits, m))
        return self._walked(active_set_kernels.walk, engine, rows, start, residual, problem, out)

    def _starts(self, engine: Any, limits: Constraints, m: int) -> NDArray[np.float64]:
        """Return coefficients (m, k) within the constraints: the last solution if it is."""
        asked, last = engine.solution or (None, None)
        if asked == self._asked() and last is not None and len(last) == m:
            return last
        start = self._kept[1] if self._kept[0] == self._asked() else limits.feasible()
        if start is None:
            raise ValueError(
                "equality and bounds contradict each other: no coefficients satisfy both"
            )
        return np.tile(np.append(np.zeros(self._first), start), (m, 1))


def _pair(value: Any, name: str, what: str) -> tuple[Any, Any]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(f"{name} must be a pair {what}, got {type(value).__name__}")
    return value[0], value[1]

"""The estimator RobustLeastSquares: rows far off the fit are weighted down as they pass."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from olsq.arrays.checks import check_choice, check_integer, check_rows_held, is_integer, shown
from olsq.arrays.reals import real_array
from olsq.online.calls.call import Origin
from olsq.online.estimators.coefficients import Coefficients
from olsq.online.forms.rows import Rows
from olsq.online.forms.schema import Field, Fields
from olsq.online.variants.base import Variant
from olsq.online.variants.robust_engine import RobustSwitch, Rule
from olsq.online.variants.robust_kernels import HUBER, STUDENT

LOSSES = ("huber", "student")
LEAST_DOF = 0.01  # of fewer the quartile of Student's t is beyond 1e30
NORMAL_QUARTILE = 0.6744897501960817


@dataclass(eq=False, repr=False, match_args=False)
class RobustLeastSquares(Variant, Coefficients):
    """Recursive least squares in which a row that is far off counts for little.

    A row whose weight is below 0.25 (more than four or five scales off) is rejected.  At most
    ``max_run`` rows in succession are rejected: after that, such rows count as usual and are
    learned, as is a fault that lasts longer.  (A row that is not rejected takes back one that was.)

    Row t is weighted by its a-priori residual in units of a running robust scale, once, when it
    passes.  Given these weights the estimate after every row is the **exact** solution of the
    weighted least-squares problem, forgetting and ridge included.  The weights are **not** those of
    the M-estimate of all rows at once, which would be judged again by every new estimate: a row
    that passed while the coefficients were poor keeps the weight that it got.  Only the first
    ``warm_up`` rows are weighted together, as their M-estimate, when they are all there.

    Parameters
    ----------
    loss : {"huber", "student"}, default "huber"
        "huber": weight 1 up to ``threshold``, beyond it ``threshold / |u|``: an outlier's pull is
        bounded.  "student": ``(dof + 1) / (dof + u^2)``, the weights of maximum likelihood for
        Student's t: the pull of a gross outlier goes to 0.
    threshold : float, default 1.345
        Of "huber", in scales; 1.345 has 95 % of least squares' efficiency under normal noise.
    dof : float, default 4.0
        Degrees of freedom of "student", at least 0.01.
    scale_window : int, default 100
        How many of the last residuals the scale is made of.
    max_run : int, optional
        How many rows in a row may be rejected; then the scale starts again, and the next rows count
        in full until there are 8 residuals.  None: half of ``scale_window``.  More, where faults
        last longer than that; less, where a jump has to be followed sooner.
    warm_up : int, optional
        How many first rows are held, and weighted together once they are all there; until then
        they count as they pass, in full while there is no scale.  Rows that repeat the one before
        them are one row here, so that a silent start is held too.  Default 3 k + 20 for k
        coefficients; 0: none.
    forget, half_life : float, default 1
        See :class:`RecursiveLeastSquares`.
    ridge : float or array (d,), default 0
    fit_intercept : bool, default True
    missing : {"skip", "raise"}

    Attributes
    ----------
    coef_ : array (d,) or (m, d)
    intercept_ : float or array (m,)
    weights_ : array (n,)
        Weights of the rows of the last call, in addition to ``sample_weight``; NaN in skipped rows.
        Near 0: an outlier.  Weights of first rows that are held are preliminary, and final in the
        call in which they are weighted together.
    scale_ : float or array (m,)
        The noise's scale now; NaN while there are fewer than 8 residuals that say something of it,
        when rows count in full.  0: at least half of them are 0 to rounding, and rows that do not
        fit exactly hardly count, up to ``max_run`` in a row.
    determined_ : array (d,)
        Which coefficients the weighted rows and the ridge determine.
    rank_ : int
        Number of directions that they determine, the intercept's among them.
    residual_ : array (n,) or (n, m)
        A-priori residuals of the last call.
    n_samples_seen_, n_features_in_, feature_names_in_, metadata_

    Notes
    -----
    The scale is the median of the last absolute residuals, each divided by
    ``sqrt(1 + w x . P x)``, over the quartile of the noise assumed (normal, or t of ``dof``): up to
    half of them may be outliers, and it follows noise that changes within about ``scale_window``
    rows.  Rejected rows raise it to four times what it was at most, and not at all where
    ``max_run`` is more than half of ``scale_window``: then it follows noise more slowly.  ``w`` is
    the row's ``sample_weight``, or the mean weight so far if that is larger: multiplying all
    weights and the ridge by a constant changes nothing.  After a jump of
    the coefficients every row looks like an outlier until the scale has followed.  Several targets
    have one weight a row, by the mean square of their residuals in scales (Student: the
    multivariate t with independent scales).  A large residual is what it goes by: a row with
    regressors so far out that it pulls the fit onto itself is not seen.

    Residuals below their own rounding errors are 0.  Where half of them are, the fit is exact, and
    all other rows are outliers.  Rows of zeros, and rows that only repeat what the intercept knows,
    do not count for the scale when they fit exactly: after a silent start rows count in full at
    once, after a noise-free one within ``max_run`` rows.  Where most rows are idle and the others
    are noisy, the idle ones' small residuals are the scale, and the others count for little.

    Rows along a direction that only the ridge knows count in full: their residuals are the
    coefficients' own size, which no scale of noise judges.  They do not count for the scale, nor
    do other rows that are mostly a new direction (``x . P x > 1``) and count at least half.

    Merging is exact for the weights that the rows got in their own streams; these are not what one
    estimator over both would have given (and first rows still held are not weighted together any
    more).  O(d^2 + m d + m scale_window) per row.  No standard
    errors (the weights depend on the data), no derivatives.

    References: Huber & Ronchetti 2009, ch. 7; Lange, Little & Taylor 1989 (t weights); Zou, Chan
    & Ng 2000 (recursive M-estimation).

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((2000, 2))
    >>> y = X @ [1.0, -2.0] + 0.1 * rng.standard_normal(2000)
    >>> y[::10] += 50.0
    >>> est = olsq.RobustLeastSquares(loss="student").fit(X, y)
    >>> est.coef_.round(1), round(float(est.intercept_), 1)
    (array([ 1., -2.]), 0.0)
    >>> bool((est.weights_[100::10] < 0.01).all())
    True
    """

    ENGINE: ClassVar[Any] = RobustSwitch
    CHANGEABLE: ClassVar[frozenset[str]] = Variant.CHANGEABLE | {
        "loss",
        "threshold",
        "dof",
        "max_run",
    }
    RESIDUALS = True
    ROW_BY_ROW: ClassVar[bool] = True

    _: KW_ONLY
    loss: str = "huber"
    threshold: float = 1.345
    dof: float = 4.0
    scale_window: int = 100
    max_run: int | None = None
    warm_up: int | None = None
    ridge: Any = 0.0

    @property
    def determined_(self) -> NDArray[np.bool_]:
        """Mask (d,) of the coefficients that the weighted rows and the ridge determine."""
        return self._per_target(lambda form: form.determined())[self._first :]

    @property
    def rank_(self) -> int:
        """Number of directions that they determine, the intercept's among them."""
        return self._per_target(lambda form: int(form.rank))

    @property
    def weights_(self) -> NDArray[np.float64]:
        """Weights of the rows (n,) of the last call; NaN in skipped rows."""
        self._engine_or_raise()
        with self._locked():
            if self._passed is None:
                raise AttributeError("weights_ are not kept in files: learn a row first")
            assert self._residual is not None
            out = np.full(len(self._residual), np.nan)
            out[~np.isnan(self._residual[:, 0])] = self._passed
            return out

    @property
    def scale_(self) -> Any:
        """The noise's scale now, a number or (m,); NaN while there are too few residuals."""
        with self._locked():
            engine = self._engine_or_raise().engine
            engine.rule = self._rule()
            return self._shaped(engine.scales())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self.loss, "loss", LOSSES)
        for name in ("threshold", "dof"):
            number = real_array(getattr(self, name), name)
            if number.ndim or not (np.isfinite(number) and number > 0):
                raise ValueError(f"{name} must be a number > 0, got {getattr(self, name)!r}")
        if self.dof < LEAST_DOF:
            raise ValueError(f"dof must be at least {LEAST_DOF}, got {shown(self.dof)}")
        check_integer("scale_window", self.scale_window, 8)
        if self.max_run is not None and not is_integer(self.max_run, 1):
            raise ValueError(f"max_run must be None or an integer >= 1, got {self.max_run!r}")
        if self.warm_up is not None and not is_integer(self.warm_up, 0):
            raise ValueError(f"warm_up must be None or an integer >= 0, got {self.warm_up!r}")
        for name in ("scale_window", "max_run", "warm_up"):
            check_rows_held(name, getattr(self, name) or 0)

    def _warm_up(self, k: int) -> int:
        """Return the number of first rows that a state of k columns holds."""
        return 3 * k + 20 if self.warm_up is None else int(self.warm_up)

    def _rule(self) -> Rule:
        """Return the kernel's settings: the loss, its parameter, the quartile of the noise, and how
        many rows in a row it may reject.
        """
        longest = int(self.scale_window // 2 if self.max_run is None else self.max_run)
        if self.loss == "huber":
            return HUBER, float(self.threshold), NORMAL_QUARTILE, longest
        return STUDENT, float(self.dof), float(stdtrit(float(self.dof), 0.75)), longest

    def _start(self, origin: Origin) -> RobustSwitch:
        switch = super()._start(origin)
        switch.recent = np.zeros((int(self.scale_window), origin.columns))
        switch.rejected = np.zeros(1, np.int64)
        switch.recent_at = np.array([0, 0, 0 if self._warm_up(origin.ridge.size) else -1])
        width = origin.ridge.size + origin.columns + 2
        switch.first = np.zeros((self._warm_up(origin.ridge.size), width))
        switch.ridge = origin.ridge
        switch.rule = self._rule()
        return switch

    _passed = None  # weights of the last call's usable rows

    def _learn(self, *args: Any, **kwargs: Any) -> None:
        with self._locked():
            if hasattr(self, "_engine"):
                self._check_parameters()
                engine = self._engine_or_raise().engine
                engine.begin(self._rule())
            super()._learn(*args, **kwargs)
            if hasattr(self, "_engine"):
                engine = self._engine_or_raise().engine
                self._passed = engine.weights_passed()

    def _learn_row(
        self, rows: Rows, errors: NDArray, *, predicts: bool
    ) -> tuple[Any, NDArray] | None:
        engine = self._engine_or_raise().engine
        if engine.learns_in_steps(rows.gates.item(0)):
            return None
        engine.begin(self._rule())
        learned = super()._learn_row(rows, errors, predicts=predicts)
        self._passed = engine.weights_passed()
        return learned

    def _solve(self, engine: Any) -> NDArray[np.float64]:
        return engine.form.coefficients()

    def _restore(self, header: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        super()._restore(header, arrays)
        self._engine_or_raise().engine.rule = self._rule()

    def _file_sizes(self, engine: dict[str, Any], header: dict[str, Any], d: int) -> dict[str, int]:
        m, rows = max(header["n_targets"], 1), self._warm_up(d)
        return {"d": d, "w": int(self.scale_window), "f": rows, "width": d + m + 2}

    def _file_arrays(self) -> Fields:
        return {
            "recent": Field(("w", "m")),
            "recent_at": Field((3,), "int64"),
            "rejected": Field((1,), "int64", "row counts", optional=True),
            "first": Field(("f", "width")),
        }

    def _check_file(self, arrays: dict[str, NDArray]) -> None:
        count, following, held = arrays["recent_at"]
        size = int(self.scale_window)
        first = arrays["first"]
        fits = 0 <= count <= size and 0 <= following < size and -1 <= held < max(len(first), 1)
        if not fits:
            raise ValueError(f"recent_at cannot be {arrays['recent_at'].tolist()}")

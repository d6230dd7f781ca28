"""Least squares whose rows are weighted by how far they are off, as they pass."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from olsq.checks import check_choice
from olsq.online.forms.rows import Rows, Trace
from olsq.online.learning import Origin
from olsq.online.variants.base import Variant
from olsq.online.variants.engine import VariantSwitch
from olsq.online.variants.robust_kernels import HUBER, STUDENT, scales_of, update
from olsq.reals import real_array

LOSSES = ("huber", "student")
NORMAL_QUARTILE = 0.6744897501960817
COUNT, NEXT = 0, 1


class RobustSwitch(VariantSwitch):
    """A square-root state, and the residuals that the running scale is made of.

    ``recent`` (w, m) is a ring of standardised a-priori residuals, ``recent_at`` (2,) how many
    there are and where the next one goes.  ``rule`` = (loss, threshold or degrees of freedom,
    quartile of the noise) is given before each call; ``passed`` are the weights it gave.
    """

    rule: tuple[int, float, float]
    recent: NDArray[np.float64]
    recent_at: NDArray[np.int64]
    passed: tuple[NDArray[np.float64], ...] = ()

    def update(
        self, rows: Rows, residual: NDArray, trace: Trace, times: NDArray | None = None
    ) -> None:
        self.fresh = False
        form, n = self.form, rows.X.shape[0]
        passed, t = np.ones(n), 0
        form.widen()
        while t < n:
            t, held = update(
                form.R, form.z, form.columns, form.tally, form.loss, *rows, t, n,
                form.limits.square_root, residual, passed, self.recent, self.recent_at, self.rule,
            )  # fmt: skip
            form.held += held
            if t < n:  # a reset or a direction that is new: no row to be judged by another
                if rows.gates[t] == 0:
                    self.recent_at[:] = 0
                form._take_alone(rows, t, residual, trace)
                t += 1
        form.narrow()
        self.passed = (*self.passed, passed)

    def scales(self) -> NDArray[np.float64]:
        """The running scale (m,); NaN while there are too few residuals."""
        out = np.empty(self.recent.shape[1])
        known = scales_of(self.recent, int(self.recent_at[COUNT]), self.rule[2], out)
        return out if known else np.full(out.size, np.nan)

    def arrays(self) -> dict[str, NDArray]:
        return super().arrays() | {"recent": self.recent, "recent_at": self.recent_at}

    @classmethod
    def restore(cls, description: dict[str, Any], arrays: dict[str, NDArray]) -> RobustSwitch:
        switch = super().restore(description, arrays)
        assert isinstance(switch, RobustSwitch)
        switch.recent, switch.recent_at = arrays["recent"], arrays["recent_at"]
        return switch

    def in_order(self) -> NDArray[np.float64]:
        """The residuals, the oldest first."""
        count, following = self.recent_at
        return np.roll(self.recent, -int(following), axis=0)[len(self.recent) - count :]

    def merged(self, other: Self, ridge: NDArray, half_life: float | None) -> Self:
        both = super().merged(other, ridge, half_life)
        both.rule = other.rule
        size = len(other.recent)
        every = np.concatenate([self.in_order(), other.in_order()])[-size:]
        both.recent = np.zeros_like(other.recent)
        both.recent[: len(every)] = every
        both.recent_at = np.array([len(every), len(every) % size])
        return both


class RobustLeastSquares(Variant):
    """Recursive least squares in which a row that is far off counts for little.

    Row t is weighted by its a-priori residual in units of a running robust scale, once, when it
    passes.  Given these weights the estimate after every row is the **exact** solution of the
    weighted least-squares problem, forgetting and ridge included.  The weights are **not** those of
    the M-estimate of all rows at once, which would be judged again by every new estimate: a row
    that passed while the coefficients were poor keeps the weight that it got, and outliers among
    the first rows, before there is a scale, count in full.

    Parameters
    ----------
    loss : {"huber", "student"}, default "huber"
        "huber": weight 1 up to ``threshold``, beyond it ``threshold / |u|``: an outlier's pull is
        bounded.  "student": ``(dof + 1) / (dof + u^2)``, the weights of maximum likelihood for
        Student's t: the pull of a gross outlier goes to 0.
    threshold : float, default 1.345
        Of "huber", in scales; 1.345 has 95 % of least squares' efficiency under normal noise.
    dof : float, default 4.0
        Degrees of freedom of "student".
    scale_window : int, default 100
        How many of the last residuals the scale is made of.
    forget, half_life : float, default 1
        See :class:`RecursiveLeastSquares`.
    ridge : float or array (d,), default 1e-3
    fit_intercept : bool, default True
    missing : {"skip", "raise"}
    state_dtype : {"float64", "float32"}

    Attributes
    ----------
    coef_ : array (d,) or (m, d)
    intercept_ : float or array (m,)
    weights_ : array (n,)
        What the rows of the last call were weighted with, besides ``sample_weight``; NaN in
        skipped rows.  Near 0: an outlier.
    scale_ : float or array (m,)
        The noise's scale now; NaN while there are fewer than 8 residuals.
    residual_ : array (n,) or (n, m)
        A-priori residuals of the last call.
    n_samples_seen_, n_features_in_, feature_names_in_, metadata_

    Notes
    -----
    The scale is the median of the last absolute residuals, each divided by ``sqrt(1 + x . P x)``,
    over the quartile of the noise assumed (normal, or t of ``dof``): up to half of them may be
    outliers, and it follows noise that changes within ``scale_window / 2`` rows.  After a jump of
    the coefficients every row looks like an outlier until the scale has followed.  Residuals of
    rows that are mostly a new direction (``x . P x > 1``) do not count for it.  Several targets
    have one weight a row, by the mean square of their residuals in scales (Student: the
    multivariate t with independent scales).

    Merging is exact for the weights that the rows got in their own streams; these are not what one
    estimator over both would have given.  O(d^2 + m d + m scale_window) a row.  No standard
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
    CHANGEABLE: ClassVar[frozenset[str]] = Variant.CHANGEABLE | {"loss", "threshold", "dof"}
    RESIDUALS = True

    def __init__(
        self,
        *,
        loss: str = "huber",
        threshold: float = 1.345,
        dof: float = 4.0,
        scale_window: int = 100,
        forget: Any = 1.0,
        half_life: Any = None,
        ridge: Any = 1e-3,
        fit_intercept: bool = True,
        missing: str = "skip",
        state_dtype: Any = "float64",
    ) -> None:
        self.loss = loss
        self.threshold = threshold
        self.dof = dof
        self.scale_window = scale_window
        self.forget = forget
        self.half_life = half_life
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.missing = missing
        self.state_dtype = state_dtype

    @property
    def weights_(self) -> NDArray[np.float64]:
        """What the rows (n,) of the last call were weighted with; NaN in skipped rows."""
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
        self._engine_or_raise()
        with self._locked():
            self._engine.engine.rule = self._rule()
            return self._shaped(self._engine.engine.scales())

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(self.loss, "loss", LOSSES)
        for name in ("threshold", "dof"):
            number = real_array(getattr(self, name), name)
            if number.ndim or not (np.isfinite(number) and number > 0):
                raise ValueError(f"{name} must be a number > 0, got {getattr(self, name)!r}")
        size = self.scale_window
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 8:
            raise ValueError(f"scale_window must be an integer >= 8, got {size!r}")

    def _rule(self) -> tuple[int, float, float]:
        """What the kernel goes by: the loss, its parameter, the quartile of the noise."""
        if self.loss == "huber":
            return HUBER, float(self.threshold), NORMAL_QUARTILE
        return STUDENT, float(self.dof), float(stdtrit(float(self.dof), 0.75))

    def _start(self, origin: Origin) -> RobustSwitch:
        switch = super()._start(origin)
        switch.recent = np.zeros((int(self.scale_window), origin.columns))
        switch.recent_at = np.zeros(2, np.int64)
        switch.rule = self._rule()
        return switch

    _passed: NDArray[np.float64] | None = None  # weights of the last call's usable rows

    def _learn(self, *args: Any, **kwargs: Any) -> None:
        with self._locked():
            if hasattr(self, "_engine"):
                self._check_parameters()
                self._engine.engine.rule, self._engine.engine.passed = self._rule(), ()
            super()._learn(*args, **kwargs)
            if hasattr(self, "_engine"):
                self._passed = np.concatenate([np.empty(0), *self._engine.engine.passed])
                self._engine.engine.passed = ()

    def _solve(self, engine: Any) -> NDArray[np.float64]:
        return engine.form.coefficients()

    def _restore(self, header: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        super()._restore(header, arrays)
        self._engine.engine.rule = self._rule()

    def _file_sizes(self, engine: dict[str, Any], header: dict[str, Any], d: int) -> dict[str, int]:
        return {"d": d, "w": int(self.scale_window)}

    def _file_arrays(self) -> dict[str, tuple[Any, ...]]:
        return {"recent": ("w", "m"), "recent_at": (2,)}

    def _check_file(self, arrays: dict[str, NDArray]) -> None:
        count, following = arrays["recent_at"]
        size = int(self.scale_window)
        if not (0 <= count <= size and 0 <= following < size):
            raise ValueError(f"recent_at cannot be {arrays['recent_at'].tolist()}")

"""The estimator RecursiveLeastSquares: all rows, with or without forgetting."""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_choice, check_flag
from olsq.forgetting.base import Forgetting
from olsq.online.calls.call import Origin
from olsq.online.estimators.inference import Inference
from olsq.online.forms.adaptive import AdaptiveForm
from olsq.online.forms.factor.fixed_ridge import FixedRidgeForm
from olsq.online.forms.form_switch import FormSwitch, read_with, without_ridge
from olsq.online.forms.moments import check as check_moments
from olsq.online.forms.moments import factor_for, prior_shape, switch_from, switch_from_prior
from olsq.online.forms.targets import TargetGroups
from olsq.online.parameters import FilterParameters
from olsq.online.rows.durations import Duration, any_duration
from olsq.online.rows.inputs import check_ridge_size
from olsq.online.rows.options import check_ridge
from olsq.problem import RIDGE_MODES, Moments


@dataclass(eq=False, repr=False, match_args=False)
class RecursiveLeastSquares(FilterParameters, Inference):
    """Least squares solved again after every sample, with forgetting, without drift.

    Minimises, after every row t, ``sum_i zeta_ti w_i (y_i - x_i . coef - intercept)^2
    + coef . Lambda_t coef`` with ``zeta_ti`` the product of the forgetting factors after row i.

    Parameters
    ----------
    forget : float, array or Forgetting, default 1
        Forgetting factor in [0, 1]; 1 forgets nothing, 0 starts afresh.  An array gives one
        factor for each row of every call.  A strategy of :mod:`olsq.forgetting`, such as
        ``Directional(0.98)``, forgets in its own way, and says what it combines with.  After a 0
        (and ``ridge=0``, or a discounted ridge) the coefficients are those of minimum norm until
        rows determine them; :func:`online_lstsq` gives NaN there, since a decision about rank has
        no derivative.
    half_life : float, str or timedelta, optional
        Instead of ``forget``: the number of samples after which a weight has halved, or the time
        after which it has, for rows at irregular times: text such as "30D" or "36h", a timedelta,
        or, with ``times`` that are numbers, a number in their unit.  Each row then forgets
        ``2^(-elapsed / half_life)``, elapsed since the row learned before it; a row that is skipped
        lets time pass, and the next one makes up for it.
    ridge : float or array (d,), default 0
        Penalty on the squared coefficients, never on the intercept, in units of the regressors
        squared.  0 is ordinary least squares: the coefficients are those of minimum norm, and their
        standard errors infinite, until enough rows have been seen.  A ridge steadies the first
        rows, and shrinks the coefficients unless it is small compared with every regressor's sum of
        squares.  Below 1e-12 of that sum rounding decides more than it does where regressors
        depend on each other: 0, which takes the minimum norm there, is better.
    ridge_mode : {"discounted", "fixed"}
        Whether the ridge is forgotten with the data (classical RLS) or stays (regularised RLS).
        The state is the same, of the rows alone; a fixed ridge is added to a copy whenever
        something is read, in ``d^3 / 3`` multiplications.
    fit_intercept : bool, default True
        :func:`coefficient_path` has none unless asked for.
    method : {"auto", "covariance", "sqrt", "information"}
        All name the same thing: a unit triangular factor of the information matrix with its
        diagonal, by Givens rotations without square roots.
    missing : {"skip", "raise", "skip_target"}
        A row with a non-finite value in X or y is skipped as if it had never come (no forgetting,
        not counted), or refused with an error.  "skip_target": a target that is missing skips the
        row for that target alone, and each is learned exactly as if it were the only one.  Targets
        that missed the same rows share a factor; every other history costs one more in time and
        memory, so at most m times as much.
    residuals : bool, default True
        Whether a-priori residuals are kept with ``ridge_mode="fixed"``, where they cost
        ``d^3 / 3`` multiplications per row.  With a discounted ridge they cost nothing.
    cov : {"posterior", "sandwich"}
        What standard errors mean.  "posterior": ``sigma2 P``, with P the inverse information; right
        if row i's noise has variance ``sigma2 / w_i`` and forgotten rows really are noisier, so at
        forget = 1 these are the errors of weighted least squares, but under forgetting they are
        too wide for a stream whose noise is the same all along (a "95 %" band covers 99.4 %).
        "sandwich": ``sigma2 P S P`` with ``S_t = forget^2 S_{t-1} + w^2 x x^T``, the exact variance
        of the estimates for noise of one variance, whatever forgetting and weights are; for noise
        of variance ``sigma2 / w_i`` multiply rows of X and y by ``sqrt(w_i)`` instead of weighting.
        Both take the noise for uncorrelated.  O(d^2) more time per row and d^2 more numbers.
    prior : (mean, covariance) or Moments, optional
        What is known before the first row, instead of ``ridge``: coefficients of this mean (k,), or
        (m, k) by target, and a covariance (k, k), or variances (k,), in units of the noise's
        variance; k is d, or d + 1 with an intercept, the intercept's first.  inf on the diagonal:
        nothing is known.  Or the moments of other data.  It is forgotten like rows learned before
        the first one, and counts as one row per coefficient in ``sigma2_``, which is the mean of
        the conjugate (normal, inverse-gamma) posterior without a prior of its own: ``(sum e^2 +
        (coef - mean)^T C^-1 (coef - mean)) / n`` at forget = 1.  With it ``predict``, ``leverage``,
        ``sample_coef`` and ``step`` answer before the first row.  Not with ``ridge_mode="fixed"``
        or ``cov="sandwich"``.
    noise_variance : float or array (m,), optional
        The variance of the noise, where it is known: of every target, or one each.  Standard
        errors, intervals and tests take it in place of the estimate ``sigma2_``, and the normal
        distribution in place of Student's.  It is that of a row of weight 1, and may change between
        rows, as no state depends on it.  With ``prior``, ``cov_params()`` is then the Kalman
        filter's covariance (``forget=RandomWalk(Q)`` for the drift ``noise_variance Q``).

    Attributes
    ----------
    coef_ : array (d,) or (m, d)
    intercept_ : float or array (m,)
    n_samples_seen_ : int
        Rows learned; skipped rows and rows of weight 0 do not count.
    residual_ : array (n,) or (n, m)
        A-priori residuals of the last call.
    sigma2_, coef_stderr_, intercept_stderr_
        Noise variance and standard errors; inf where the data do not determine them.
    rank_, determined_
        How many directions, and which coefficients (d,), are determined.
    n_held_ : int
        How often wind-up protection acted.
    forgetting_ : dict
        What the strategy given as ``forget`` has estimated: factor, noise variance, breaks.
    n_features_in_, feature_names_in_, metadata_

    Notes
    -----
    Several threads may use one estimator: each call is done as a whole, in the order of arrival.
    Cost per row: O(d^2 + m d) time, O(d^2 + m d) memory.  With ``ridge_mode="fixed"`` residuals and
    paths take O(d^3) per row; each reading takes O(d^3) too. The first use compiles the kernels
    (seconds; cached on disk).  No derivatives.

    Wind-up: where forgetting is about to push a direction's information below rounding level, the
    coefficient is observed "at its present value" with just enough weight to stay determined
    (stabilised forgetting): it does not move, nothing overflows, other directions keep forgetting.
    So is one whose regressor was 0 until its information fell 1e60-fold.
    Held coefficients are not ``determined_``.  With ``ridge_mode="fixed"`` the ridge determines
    them: they return to zero.

    Complex rows: if X or y of the first call is complex, coefficients, residuals and predictions
    are; ``y = X @ coef_`` without a conjugate, and the noise is taken as circular.
    Strategies that do not only weigh rows are refused then.

    Gaps: after a gap of any number of half-lives new rows set the coefficients that they determine,
    and old rows the others.

    References: Golub & Van Loan 2013, 6.5 (updating QR); Haykin 2014, ch. 10 and 15; Kulhavy &
    Zarrop 1993 (stabilised forgetting).

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1000, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + 3.0 + 0.01 * rng.standard_normal(1000)
    >>> est = olsq.RecursiveLeastSquares(forget=0.99)
    >>> for row, target in zip(X, y):
    ...     _ = est.partial_fit(row[None], [target])
    >>> est.coef_.round(1), round(float(est.intercept_), 1)
    (array([ 1. , -2. ,  0.5]), 3.0)
    """

    _: KW_ONLY
    ridge_mode: str = "discounted"
    residuals: bool = True

    ENGINE = FormSwitch
    TIMED = "half_life"
    TAKES_COMPLEX = True
    ROW_BY_ROW: ClassVar[bool] = True

    def _duration(self, timed: bool) -> Duration | None:
        if isinstance(self.forget, Forgetting) and self.forget.length is not None:
            return any_duration(self.forget.length, str(self.forget.TIMED))
        return super()._duration(timed)

    def _check_parameters(self) -> None:
        check_choice(self.ridge_mode, "ridge_mode", RIDGE_MODES)
        check_flag("residuals", self.residuals)
        if self.prior is not None and self.ridge_mode == "fixed":
            raise ValueError(
                "prior and ridge_mode='fixed' cannot be combined: a prior is forgotten with the "
                "data"
            )
        super()._check_parameters()
        if isinstance(self.forget, Forgetting):
            self.forget.refuse_options(self.get_params())

    def _gates(self, forget: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
        if forget is not None and self._strategy is not None:
            raise ValueError(
                f"forget= of a call and forget={type(self.forget).__name__}(...) of the estimator "
                "cannot be combined: leave it out, or make the estimator with a factor"
            )
        return super()._gates(forget, n_rows)

    def _own_factors(self) -> Any:
        forget = self.forget
        return forget.row_factor() if isinstance(forget, Forgetting) else super()._own_factors()

    # -- forgetting by a strategy ------------------------------------------------------------------

    @property
    def forgetting_(self) -> dict[str, Any]:
        """Estimates of the strategy up to the last row, by name.

        "window", the steady-state window in rows for this estimator's coefficients; "factor" of
        that row, where it varies; "noise_variance", "statistic" and "breaks" of the strategies that
        judge errors (see :mod:`olsq.forgetting`).  Empty where rows have factors that no data
        decide.  A variance is a
        number, or an array (m,).  With ``missing="skip_target"`` of the first group of targets.
        """
        form = self._form()
        with self._locked():
            estimates = form.state() if isinstance(form, AdaptiveForm) else {}
        if "noise_variance" in estimates and self._origin.n_targets == 0:
            estimates["noise_variance"] = float(estimates["noise_variance"][0])
        return estimates

    @property
    def _drifts_in_time(self) -> bool:
        return self._strategy is not None and bool(self._strategy.length)

    def _timed_option(self) -> tuple[str, str]:
        forget = self.forget
        if not isinstance(forget, Forgetting) or forget.TIMED is None:
            return super()._timed_option()
        name = type(forget).__name__
        if forget.length is None:
            return f"forget={name}(...)", f"{name}(..., {forget.TIMED}='1h')"
        return f"{forget.TIMED}={forget.length!r}", f"{forget.TIMED}='1h'"

    def _forgetting_of(self, switch: FormSwitch) -> FormSwitch:
        """Convert the state before any row to the form that the strategy needs."""
        if self._strategy is not None:
            form: Any = switch.form
            switch.form = AdaptiveForm.of(form, self._strategy)
        return switch

    def _check_frozen(self) -> None:
        super()._check_frozen()
        made_with = getattr(self._engine.form, "forget", None)
        if self._strategy != made_with:
            raise ValueError(
                f"forget is {self.forget!r} now, but this {type(self).__name__} has learned rows "
                f"with {'a factor for each row' if made_with is None else f'forget={made_with!r}'},"
                " which its state depends on: call fit to start anew, or set forget back"
            )

    # -- beginning ---------------------------------------------------------------------------------

    @classmethod
    def from_moments(
        cls, moments: Moments, *, ridge_mode: str, fit_intercept: bool, **parameters: Any
    ) -> Self:
        """Make an estimator that continues from moments, as if it had learned their rows.

        Parameters
        ----------
        moments : Moments
            ``Solution.state`` of :func:`olsq.online_lstsq`, or :meth:`moments` of an estimator:
            gram (k, k) and cross (m, k), NumPy or JAX, without batch axes.  Of float32 moments
            what comes out is float32.
        ridge_mode : {"discounted", "fixed"}
            What the moments are: with "discounted" they hold what is left of their ridge, and
            ``ridge`` only serves a later ``fit``; with "fixed" they are of the rows alone, and
            ``ridge`` is added whenever the coefficients are read.
        fit_intercept : bool
            Whether their first column is the intercept's, a regressor of ones; k is d + 1 then.
        **parameters
            The constructor's other parameters.

        Returns
        -------
        RecursiveLeastSquares
            Fitted.  One target (m = 1) is a one-dimensional y.

        Raises
        ------
        TypeError, ValueError
            If ``moments`` are no moments: shapes, non-finite or complex numbers, a gram that is
            not symmetric and positive semidefinite; or a parameter is out of range.

        Notes
        -----
        Moments do not hold the squared targets or the number of rows.  So ``sigma2_`` and the
        standard errors are inf until ``forget=0`` drops the moments; ``n_samples_seen_`` and
        ``n_held_`` count from here; ``residual_`` is empty and there are no feature names.  A
        singular gram has a solution of minimum norm until rows determine it.  O(d^3).

        Examples
        --------
        >>> import numpy as np, olsq
        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.standard_normal((100, 2)), rng.standard_normal(100)
        >>> start = olsq.RecursiveLeastSquares(forget=0.9).fit(X[:50], y[:50])
        >>> est = olsq.RecursiveLeastSquares.from_moments(start.moments(), **start.get_params())
        >>> bool(np.allclose(est.partial_fit(X[50:], y[50:]).coef_, start.fit(X, y).coef_))
        True
        """
        make: Any = cls
        est: Self = make(ridge_mode=ridge_mode, fit_intercept=fit_intercept, **parameters)
        est._check_parameters()
        if np.ndim(est.forget) == 0:
            est._gates(None, 1)  # refuses what the first row would
        est._begin(check_moments(moments, bool(fit_intercept)))
        return est

    def _begin(self, moments: Moments) -> None:
        gram, cross = moments
        first, discounted = int(bool(self.fit_intercept)), self.ridge_mode == "discounted"
        d, m = gram.shape[0] - first, cross.shape[0]
        ridge = np.concatenate([np.zeros(first), check_ridge(self.ridge, d)])
        both_float32 = gram.dtype == np.float32 and cross.dtype == np.float32
        dtype = np.dtype(np.float32 if both_float32 else np.float64)
        check_ridge_size(ridge)
        if discounted:  # the gram holds it
            ridge = np.zeros_like(ridge)
        origin = self._make_origin(d, 0 if m == 1 else m, dtype, ridge)
        switch = switch_from(moments, ridge, **self._form_options(origin))
        self._settle(origin, self._engine_of(origin, self._forgetting_of(switch)))

    def _start_ridge(self, n_features: int) -> NDArray[np.float64]:
        ridge = super()._start_ridge(n_features)
        return ridge if self.prior is None else np.zeros_like(ridge)

    def _start(self, origin: Origin) -> FormSwitch:
        if self.prior is not None:
            shape = origin.columns, origin.ridge.size
            R, z = factor_for(self.prior, origin.intercept, origin.is_complex, shape)
            precision = origin.dtype.name
            switch = switch_from_prior(R, z, intercept=origin.intercept, precision=precision)
            return self._forgetting_of(switch)
        switch = FormSwitch.start(origin.ridge, origin.columns, **self._form_options(origin))
        return self._forgetting_of(switch)

    def _has_estimate(self) -> bool:
        return super()._has_estimate() or self.prior is not None

    def _before_first_row(self, X: Any = None) -> Self | None:
        if self.prior is None or super()._has_estimate():
            return None
        self._check_parameters()
        is_complex = self._sees_complex(X)
        if is_complex:
            self._refuse_for_complex()
        d, n_targets = prior_shape(self.prior, bool(self.fit_intercept), is_complex)
        other, dtype = copy.copy(self), np.dtype(np.float64)
        origin = other._make_origin(
            d, n_targets, dtype, other._start_ridge(d), is_complex=is_complex
        )
        engine = TargetGroups.together(other._start(origin), origin.columns, False)
        other._settle(origin, engine)
        return other

    def _form_options(self, origin: Origin) -> dict[str, Any]:
        return {
            "intercept": origin.intercept,
            "discounted": origin.discounted,
            "solving": bool(self.residuals),
            "sandwich": origin.sandwich,
            "precision": origin.dtype.name,
        }

    def _restore(self, header: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        super()._restore(header, arrays)
        if self._origin.discounted or not self._origin.ridge.any():
            return
        switch: Any
        for _, switch in self._engine.groups:
            if not isinstance(switch.form, FixedRidgeForm):  # of earlier versions at forget=1
                form = without_ridge(switch.form, self._origin.ridge)
                switch.form = read_with(form, self._origin.ridge, bool(self.residuals))

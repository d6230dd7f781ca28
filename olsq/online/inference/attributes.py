"""Attributes of a fitted estimator: coefficients, statistics, moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.calls.call import Origin
from olsq.online.forms.form import Form
from olsq.online.forms.locking import Locked
from olsq.online.forms.rows import clip_to
from olsq.online.forms.statistics import statistics_of
from olsq.online.forms.targets import TargetGroups
from olsq.online.rows import complex_rows, inputs
from olsq.online.rows.options import check_noise_variance
from olsq.problem import Moments


class FittedAttributes(Locked):
    """Attributes of a fitted estimator, computed from its engine when read."""

    ridge_mode: str = "discounted"
    cov: str = "posterior"
    noise_variance: Any = None
    missing: str
    n_features_in_: int
    n_samples_seen_: int
    metadata_: dict[str, Any]
    _engine: TargetGroups
    _origin: Origin
    _residual: NDArray | None
    _labelled: Callable[..., Any]
    _log_weights: NDArray | None
    _constant_values: NDArray | None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle and copy, with an engine of its own and without the lock."""
        if not hasattr(self, "_engine"):
            state = self.__dict__.copy()
        else:
            with self._at_work():
                state = self.__dict__ | {"_engine": self._engine.copy()}
        state.pop("_lock", None)
        state.pop("_short_way", None)
        return state

    def _engine_or_raise(self) -> Any:
        if not hasattr(self, "_engine"):
            raise inputs.not_fitted(self)
        return self._engine

    def _before_first_row(self, X: Any = None) -> Any:
        """Return a fitted copy that predicts from the prior, or None without one or after a row.

        It is one of complex coefficients if the prior or the rows ``X`` are complex.
        """
        return None

    def _form(self) -> Any:
        return self._engine_or_raise().form

    def _by_target(self, read: Callable[[Form], NDArray]) -> NDArray:
        """Return ``read`` of the form, (m, ...), by group where targets miss different rows."""
        self._engine_or_raise()
        with self._at_work():
            self._form()
            return self._engine.by_target(read)

    def _per_target(self, read: Callable[[Form], Any]) -> Any:
        """Return a value shared by all targets; one each with ``missing="skip_target"``."""
        self._engine_or_raise()
        with self._at_work():
            form = self._form()
            if not self._engine.parting or self._origin.n_targets == 0:
                return read(form)
            return self._engine.for_each(read)

    def _real_theta(self) -> NDArray:
        """Return the coefficients (m, k) of the engine's rows, of both parts if complex."""
        return self._by_target(lambda form: form.coefficients())

    def _theta(self) -> NDArray:
        theta = self._real_theta()
        return complex_rows.combine_coefficients(theta) if self._origin.is_complex else theta

    def _coefficients(self) -> NDArray:
        theta = clip_to(self._real_theta(), self._origin.dtype)
        return complex_rows.combine_coefficients(theta) if self._origin.is_complex else theta

    def _shaped(self, per_target: NDArray) -> Any:
        """Drop the target axis (the first) if y was one-dimensional."""
        return per_target[0] if self._origin.n_targets == 0 else per_target

    @property
    def coef_(self) -> NDArray[np.floating]:
        """Coefficients (d,) or (m, d); minimum norm while undetermined, never NaN."""
        return self._shaped(self._coefficients()[:, self._first :]).copy()

    @property
    def intercept_(self) -> Any:
        """Intercept, a number or (m,); 0 without one."""
        theta = self._coefficients()
        column = theta[:, 0].copy() if self._first else np.zeros(len(theta), theta.dtype)
        return self._shaped(column)

    @property
    def _first(self) -> int:
        return self._origin.first

    @property
    def residual_(self) -> Any:
        """A-priori residuals of the last call's rows, (n,) or (n, m); NaN in skipped rows."""
        self._engine_or_raise()
        if self._residual is None:
            raise AttributeError(
                "residual_ was not kept: with residuals=False and method='information' rows are "
                "only accumulated. Use residuals=True, or partial_fit_path."
            )
        values = self._residual[:, 0] if self._origin.n_targets == 0 else self._residual
        residual, labels = self.__dict__.get("_labelled_residual", (None, None))
        # Rows that came the short way are arrays, and later than the labels.
        return values if residual is not self._residual else self._labelled(labels, values)

    @property
    def rank_(self) -> Any:
        """Number of directions that data and ridge determine (the intercept counts as one).

        With ``missing="skip_target"`` and several targets an array (m,).
        """
        part = 2 if self._engine_or_raise() and self._origin.is_complex else 1
        return self._per_target(lambda form: int(form.rank) // part)

    @property
    def determined_(self) -> NDArray[np.bool_]:
        """Mask (d,) of the coefficients that data and ridge determine.

        The others are of minimum norm, or held at their last value by wind-up protection.  With
        ``missing="skip_target"`` and several targets an array (m, d).
        """
        found = self._per_target(lambda form: form.determined())
        if self._origin.is_complex:
            k = found.shape[-1] // 2
            found = found[..., :k] & found[..., k:]
        return found[..., self._first :]

    @property
    def sigma2_(self) -> Any:
        """Estimated noise variance, a number or (m,); inf without degrees of freedom for one.

        With ``noise_variance`` the number given there.
        Of complex rows ``E |noise|^2``, the sum of the variances of both parts: n complex rows are
        2n real ones, and d coefficients 2d, so that at forget = 1 without a ridge it is
        ``sum |e|^2 / (n - d)``.
        """
        self._form()
        return self._shaped(self._statistics()[0])

    def _statistics(self) -> tuple[NDArray, NDArray]:
        """Return sigma2 (m,) and standard errors (m, d), the intercept's first if there is one."""
        self._engine_or_raise()
        with self._locked():
            self._form()
            origin, noise = self._origin, self._known_noise(self._origin)
            how = origin.ridge, origin.discounted, origin.sandwich
            both = np.empty((origin.columns, 1 + origin.ridge.size))
            for targets, engine in self._engine.groups:
                found = statistics_of(engine.form, *how, noise[targets])
                both[targets] = np.column_stack(found[:2])
        if origin.is_complex:
            return 2.0 * both[:, 0], complex_rows.combine_errors(both[:, 1:])
        return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1:])

    def _known_noise(self, origin: Origin) -> NDArray[np.float64]:
        """Return the known variances (m,) of the engine's rows, inf where they are estimated."""
        noise = check_noise_variance(self.noise_variance, origin.columns)
        return noise / 2.0 if origin.is_complex else noise

    @property
    def coef_stderr_(self) -> NDArray[np.floating]:
        """Standard errors of ``coef_``, (d,) or (m, d); inf where undetermined.

        ``sqrt(sigma2_ P_jj)``: the ordinary least-squares standard error at forget = 1, the
        posterior standard deviation under discounting otherwise (West & Harrison 1997, 4.3).  With
        ``cov="sandwich"`` ``sqrt(sigma2_ (P S P)_jj)``, the spread of the estimates themselves.
        Of a complex coefficient ``sqrt(E |error|^2)``, under circular noise; the real and the
        imaginary part have each ``1 / sqrt(2)`` of that.
        """
        self._form()
        return self._shaped(self._statistics()[1][:, self._first :])

    @property
    def intercept_stderr_(self) -> Any:
        """Standard error of ``intercept_``; 0 without one."""
        self._form()
        errors = self._statistics()[1]
        return self._shaped(errors[:, 0] if self._first else np.zeros(errors.shape[0]))

    @property
    def n_held_(self) -> int:
        """Number of times wind-up protection held a coefficient that forgetting would have lost."""
        self._engine_or_raise()
        with self._at_work():
            self._form()
            return int(sum(form.held[0] for form in self._engine.forms))

    def moments(self) -> Moments:
        """Return the state as moments, for :func:`olsq.online_lstsq`, :func:`olsq.query` or an
        estimator.

        Returns
        -------
        Moments
            NumPy, float64 whatever the dtype of the state: gram (k, k) and cross (m, k), m = 1
            for a one-dimensional y.  k is d, or d + 1 with an intercept, whose column is the
            *first*: put a 1 before each key or query, and a 0 before the ridge.

        Raises
        ------
        NotFittedError
            Before the first sample.

        Notes
        -----
        The gram holds what is left of a discounted ridge (and a rolling window's ridge): query
        with no ridge.  With ``ridge_mode="fixed"`` it does not: query with that ridge.  It also
        holds what wind-up protection added.  Left behind are the sums behind ``sigma2_`` and
        standard errors, the number of rows, and, except from "information", digits: the gram
        squares the condition number.  O(d^3).

        Examples
        --------
        >>> import numpy as np, olsq
        >>> X = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> est = olsq.RecursiveLeastSquares(fit_intercept=False).fit(X, [1.0, 2.0, 3.0])
        >>> est.moments().gram.round(12)
        array([[2., 1.],
               [1., 2.]])
        """
        self._engine_or_raise()
        complex_rows.refuse_complex(
            self._origin, "moments()", "use save and merge of the estimators instead"
        )
        with self._at_work():
            form = self._form()
            if len(self._engine.groups) > 1:
                raise ValueError(
                    "targets that missed different rows have different moments: there is no "
                    "common gram. Fit one estimator per target."
                )
            return form.moments(self._origin.ridge, self._origin.discounted)

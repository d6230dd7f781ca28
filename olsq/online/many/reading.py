"""Attributes and predictions of a bank, for all filters or for some."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.reals import real_array
from olsq.online.conventions import Estimator
from olsq.online.files import frozen
from olsq.online.forms.counting import RANK
from olsq.online.forms.moments import prior_shape
from olsq.online.forms.rows import Trace, clip_to, split_intercept
from olsq.online.many import decision_kernels
from olsq.online.many.parallel import in_pieces, share
from olsq.online.many.paths import untouched
from olsq.online.many.rows import check_index, check_X
from olsq.online.many.state import BankState, Kind
from olsq.online.rows import complex_rows, inputs
from olsq.online.rows.options import check_noise_variance, plain_parameters

PREDICTED = 1e6  # multiplications that pay for a thread


class Asked(NamedTuple):
    """Rows (N, d) of ``filters`` (b,), equally many for each; one row (1, d) serves all.

    ``axes`` = (b, T) or (b,) are those of the answer, whose first is left out if ``single``.
    """

    state: BankState
    filters: NDArray[np.int64]
    rows: NDArray  # float64, or complex128 of complex filters
    axes: tuple[int, ...]
    single: bool


class BankReading(Estimator):
    """Attributes and predictions of a bank, computed from its states when read."""

    n: int
    n_features: int | None
    prior: Any
    noise_variance: Any
    metadata_: dict[str, Any]
    _state: BankState
    _kind: Kind
    _n_targets: int
    _dtype: np.dtype
    _made_with: dict[str, Any]
    _residual: NDArray | None

    _begin: Callable[..., None]
    _check_ranges: Callable[[int], None]

    def _copied(self) -> dict[str, Any]:
        return {"_state": self._state.copy()} if "_state" in self.__dict__ else {}

    def __sklearn_is_fitted__(self) -> bool:
        return "_state" in self.__dict__ or self.n_features is not None or self.prior is not None

    def _is_complex(self, **data: Any) -> bool:
        """Test whether this is a bank of complex filters, or ``data`` or the prior make it one.

        Raises ValueError for complex data where real rows have been learned.
        """
        if "_state" in self.__dict__ and self._kind.is_complex:
            return True
        complex_names = [
            name for name, values in data.items() if complex_rows.holds_complex(values)
        ]
        if complex_names and "_state" in self.__dict__ and not untouched(self._state).all():
            raise complex_rows.real_model("FilterBank", complex_names[0])
        return bool(complex_names) or complex_rows.prior_is_complex(self.prior)

    def _state_or_raise(self, is_complex: bool | None = None) -> BankState:
        """Return the state; of complex filters if asked for and nothing has been learned."""
        begun = "_state" in self.__dict__
        if is_complex is None:
            is_complex = self._kind.is_complex if begun else self._is_complex()
        if not begun or (is_complex and not self._kind.is_complex):
            if self.n_features is None and self.prior is None:
                raise inputs.not_fitted(
                    self,
                    "This FilterBank has not learned a row yet. Call 'partial_fit', or give "
                    "n_features to ask a bank before its first row.",
                )
            self._check_parameters()
            d, n_targets = self.n_features, 0
            if self.prior is not None:
                of_prior, n_targets = prior_shape(self.prior, bool(self.fit_intercept), is_complex)
                d = of_prior if d is None else d
            assert d is not None
            self._begin(int(d), n_targets, np.dtype(np.float64), is_complex)
        return self._state

    # -- attributes -------------------------------------------------------------------------------

    def _theta(self) -> NDArray:
        """Return coefficients (n, m, k) in the dtype that comes out."""
        with self._locked():
            state = self._state_or_raise()
            theta = state.theta(np.arange(len(state)), self._kind)
            theta = clip_to(theta, self._dtype)
            return complex_rows.combine_coefficients(theta) if self._kind.is_complex else theta

    def _shaped(self, per_target: NDArray) -> NDArray:
        """Drop the axis of targets (the second) if y has none."""
        return per_target[:, 0] if self._n_targets == 0 else per_target

    def _estimates(self, places: NDArray[np.int64] | None = None) -> tuple[Trace, NDArray, NDArray]:
        """Return estimates of all filters, or those ``places`` (b,), with sigma2 and standard
        errors.
        """
        with self._locked():
            state, kind = self._state_or_raise(), self._kind
            filters = np.arange(len(state)) if places is None else places
            estimates = state.estimates(filters, kind)
            sigma2, stderr, _ = state.statistics(filters, kind, estimates, self._known_noise())
            if kind.is_complex:
                return estimates, 2.0 * sigma2, complex_rows.combine_errors(stderr)
            return estimates, sigma2, stderr

    def _known_noise(self) -> NDArray[np.float64]:
        """Return the known variances (m,) of the state's rows, inf where they are estimated."""
        noise = check_noise_variance(self.noise_variance, max(self._n_targets, 1))
        return noise / 2.0 if self._kind.is_complex else noise

    @property
    def _first(self) -> int:
        return int(self._kind.intercept or self._kind.complex_intercept)

    @property
    def coef_(self) -> NDArray:
        """Coefficients (n, d) or (n, m, d); of minimum norm while undetermined, never NaN."""
        return self._shaped(self._theta()[:, :, self._first :])

    @property
    def intercept_(self) -> NDArray:
        """Intercepts (n,) or (n, m); 0 without one."""
        return self._shaped(split_intercept(self._theta(), self._first)[1])

    @property
    def residual_(self) -> NDArray:
        """A-priori residuals of the last call, shaped as its y; NaN in skipped rows."""
        self._state_or_raise()
        if self._residual is None:
            return np.empty(0, self._dtype)
        return self._residual.copy()

    @property
    def n_samples_seen_(self) -> NDArray[np.int64]:
        """Rows learned by each filter (n,); skipped rows and rows of weight 0 do not count."""
        with self._locked():
            return self._state_or_raise().seen.copy()

    @property
    def n_held_(self) -> NDArray[np.int64]:
        """Number of times (n,) wind-up protection held a coefficient of each filter."""
        with self._locked():
            return self._state_or_raise().held.copy()

    @property
    def rank_(self) -> NDArray[np.int64]:
        """Number of directions that each filter's data and ridge determine (n,)."""
        rank = self._estimates()[0].counts[:, RANK].astype(np.int64)
        return rank // 2 if self._kind.is_complex else rank

    @property
    def determined_(self) -> NDArray[np.bool_]:
        """Mask (n, d) of the coefficients that data and ridge determine."""
        determined = np.isfinite(self._estimates()[0].variance)
        if self._kind.is_complex:
            determined = np.logical_and(*np.split(determined, 2, axis=1))
        return determined[:, self._first :]

    @property
    def sigma2_(self) -> NDArray:
        """Estimated noise variances (n,) or (n, m); inf without degrees of freedom.

        Of complex rows ``E |noise|^2``; see :class:`RecursiveLeastSquares`.
        """
        return self._shaped(self._estimates()[1])

    @property
    def coef_stderr_(self) -> NDArray:
        """Standard errors of ``coef_``; inf where undetermined."""
        return self._shaped(self._estimates()[2][:, :, self._first :])

    @property
    def intercept_stderr_(self) -> NDArray:
        """Standard errors of ``intercept_``; 0 without one."""
        return self._shaped(split_intercept(self._estimates()[2], self._first)[1])

    # -- predictions ------------------------------------------------------------------------------

    def predict(self, X: ArrayLike, *, which: ArrayLike | None = None) -> NDArray:
        """Predict rows with the present coefficients.

        Parameters
        ----------
        X : array (n, d) or (n, T, d)
            One row for each filter, or T rows for each; (d,) is one row for all of them.
        which : int or array (b,) of int, optional
            The filters that are asked; X then has b instead of n, and no such axis for an int.

        Returns
        -------
        array (n,) or (n, T), with m targets (n, m) or (n, T, m)
            NaN for a row with a non-finite regressor under ``missing="skip"``.

        Raises
        ------
        ValueError, TypeError
            For bad shapes, for a filter that is not there, and for a non-finite regressor under
            ``missing="raise"``; NotFittedError before the first row without ``n_features``.
        """
        with self._locked():
            asked = self._asked(X, which)
            state, places = asked.state, asked.filters
            if self._kind.is_complex:
                return self._predict_complex(asked)
            theta, places = state.theta(places, self._kind), np.arange(places.size)
            m, k = theta.shape[1:]
            out = np.empty((math.prod(asked.axes), m))
            work = np.full(places.size, len(out) // max(places.size, 1) * m * k)
            arguments = theta, places, asked.rows, self._kind.intercept
            in_pieces(
                lambda begin, end: decision_kernels.predict(*arguments, begin, end, out),
                share(work, PREDICTED),
            )
        predicted = clip_to(out, self._dtype).reshape(*asked.axes, m)
        predicted = predicted[..., 0] if self._n_targets == 0 else predicted
        return predicted[0] if asked.single else predicted

    def _predict_complex(self, asked: Asked) -> NDArray:
        """Run :meth:`predict` with complex coefficients."""
        theta = complex_rows.combine_coefficients(asked.state.theta(asked.filters, self._kind))
        rows = inputs.with_ones(asked.rows, bool(self._first), np.complex128)
        rows = rows.reshape((1 if rows.shape[0] == 1 else len(theta), -1, rows.shape[1]))
        out = np.einsum("btk,bmk->btm", np.broadcast_to(rows, (len(theta), *rows.shape[1:])), theta)
        parts = clip_to(out.real, self._dtype), clip_to(out.imag, self._dtype)
        predicted = complex_rows.joined(*parts).reshape(*asked.axes, theta.shape[1])
        predicted = predicted[..., 0] if self._n_targets == 0 else predicted
        return predicted[0] if asked.single else predicted

    def _asked(self, X: ArrayLike, which: ArrayLike | None) -> Asked:
        """Check the arguments of a prediction, and return its rows and filters."""
        is_complex = self._is_complex(X=X)
        state = self._state_or_raise(is_complex)
        convert = complex_rows.complex_array if is_complex else real_array
        single = which is not None and np.ndim(which) == 0
        filters = np.arange(len(state)) if which is None else check_index(which, len(state))
        array, place = convert(X, "X"), filters[0] if single else filters
        rows = check_X(array, place, filters.size, self.n_features_in_, convert)
        if self.missing == "raise" and not np.isfinite(array).all():
            raise ValueError(
                "Input X contains NaN or infinity; FilterBank predicts NaN for such rows with "
                "missing='skip'."
            )
        axes = rows.shape[:-1]
        rows = array[None] if array.ndim == 1 else rows.reshape(math.prod(axes), rows.shape[-1])
        rows = np.ascontiguousarray(rows, np.complex128 if is_complex else np.float64)
        return Asked(state, filters, rows, axes, single)

    # -- saving -----------------------------------------------------------------------------------

    def _snapshot(
        self, metadata: dict[str, Any] | None
    ) -> tuple[dict[str, Any], dict[str, NDArray]]:
        with self._locked():
            state = self._state_or_raise()
            frozen.check(self, self._made_with)
            self._check_ranges(self._n_targets)
            header = {
                "estimator": "FilterBank",
                "parameters": plain_parameters(self),
                "n_features": self.n_features_in_,
                "n_targets": self._n_targets,
                "dtype": self._dtype.name,
                "metadata": metadata or {},
            }
            if self._kind.is_complex:
                header["complex"] = True
            return header, state.copy().arrays()

"""The estimator FilterBank: many recursive filters of one size as one object."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_flag, is_integer, shown
from olsq.arrays.reals import real_array
from olsq.online.calls.history import kept_values
from olsq.online.conventions import from_options
from olsq.online.estimators.recursive import RecursiveLeastSquares
from olsq.online.files import frozen
from olsq.online.forms.rows import clip_to
from olsq.online.forms.targets import TargetGroups
from olsq.online.many.clocks import TimedRows
from olsq.online.many.in_line import BankRows
from olsq.online.many.learning import learn
from olsq.online.many.making import BankMaking
from olsq.online.many.one_row import learn_one_row
from olsq.online.many.parallel import uninterrupted
from olsq.online.many.paths import (
    finished,
    open_path,
    replace_second_residuals,
    squares_learned,
)
from olsq.online.many.rows import (
    check_index,
    check_number,
    check_rows,
    index_rows,
    settled,
)
from olsq.online.many.state import BankState
from olsq.online.many.uncertainty import BankUncertainty
from olsq.online.paths.collector import joined
from olsq.online.paths.goodness import GroupRows
from olsq.online.paths.path import CoefficientPath
from olsq.online.rows import complex_rows, inputs
from olsq.online.rows.options import (
    check_forget,
    check_noise_variance,
    check_weight,
    without_missing,
)


@dataclass(eq=False, repr=False, match_args=False)
class FilterBank(BankMaking, BankUncertainty):
    """n independent recursive least-squares filters of one size: arms, channels, assets.

    Each is a :class:`RecursiveLeastSquares` on rows of its own, with the same numbers to rounding;
    together they learn in compiled loops over all filters, on all cores.

    Parameters
    ----------
    n : int
        Number of filters.
    n_features : int, optional
        Number of regressors.  If given, the bank can predict before its first row (coefficients are
        0 then); else the first row sets it.
    forget : float or array (n,), default 1
        Forgetting factor in [0, 1], or one for each filter.
    half_life : float or array (n,), optional
        Number of samples after which a weight has halved; instead of ``forget``.
    ridge : float, array (d,) or array (n, d), default 0
        Penalty on the squared coefficients, never on the intercept; forgotten with the data.  0 is
        ordinary least squares; see :class:`RecursiveLeastSquares`.
    fit_intercept : bool, default True
    method : {"auto", "covariance", "sqrt", "information"}
        All name the same thing: a triangular factor of every filter's information matrix.
    missing : {"skip", "raise"}
        A row with a non-finite value is passed over by its filter alone, or refused.
    cov : {"posterior", "sandwich"}
        What standard errors mean; see :class:`RecursiveLeastSquares`.
    prior : (mean, covariance) or Moments, optional
        What is known of every filter's coefficients before its first row, instead of the ridge; see
        :class:`RecursiveLeastSquares`.  With one it predicts before its first row.
    noise_variance : float or array (m,), optional
        The variance of the noise of all filters, where it is known; see
        :class:`RecursiveLeastSquares`.

    Attributes
    ----------
    coef_ : array (n, d) or (n, m, d)
        m is the number of targets; there is no such axis where y has none.
    intercept_ : array (n,) or (n, m)
    n_samples_seen_ : array (n,) of int
    residual_ : array
        A-priori residuals of the last call, shaped as its y; NaN in skipped rows.
    sigma2_, coef_stderr_, intercept_stderr_
        Noise variances (n,) and standard errors (n, d), (n,); inf where undetermined.
    rank_, determined_, n_held_
        Arrays (n,), (n, d) and (n,).
    n_features_in_, metadata_

    Notes
    -----
    O(d^2 + m d) time and memory for a filter and row.  Several threads may use one bank: each call
    is done as a whole.  The first use compiles the kernels, which stay on disk.  No derivatives.

    Complex rows make complex filters, as in :class:`RecursiveLeastSquares`.

    References: as :class:`RecursiveLeastSquares`.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((3, 2))                     # three filters, two regressors
    >>> bank = olsq.FilterBank(3, ridge=1e-6, fit_intercept=False)
    >>> for _ in range(50):
    ...     X = rng.standard_normal((3, 2))                     # one row for each filter
    ...     _ = bank.partial_fit(X, (X * truth).sum(axis=1))
    >>> bool(np.allclose(bank.coef_, truth, atol=1e-6))
    True
    >>> bank.partial_fit([[1.0, 0.0]], [2.0], which=[2]).n_samples_seen_    # only filter 2 learns
    array([50, 50, 51])
    """

    n: int
    _: KW_ONLY
    n_features: int | None = None

    def __len__(self) -> int:
        return int(self.n)

    # -- learning ---------------------------------------------------------------------------------

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        forget: ArrayLike | None = None,
        which: ArrayLike | None = None,
    ) -> Self:
        """Learn one row for each filter, or T rows for each.

        Parameters
        ----------
        X : array (n, d) or (n, T, d)
            One row for each filter, or T rows for each in order; (d,) is one row for all.  The
            first call decides the dtype of what comes out, as for an estimator.
        y : array (n,) or (n, T); with m targets (n, m) or (n, T, m)
        sample_weight : number or array like y without targets, optional
            Weights >= 0; a row whose weight is missing (NaN) has a missing value.
        forget : number, array (n,) or array (n, T), optional
            Forgetting factors for these rows instead of the bank's own.
        which : int or array (b,) of int, optional
            The filters that get rows; X, y, weights and factors then have b instead of n.  The
            others are left as they are: they do not forget.  A filter that is in it several times
            learns its rows in that order.  An int is one filter; then the first axis is left out.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            As :meth:`RecursiveLeastSquares.partial_fit`, and for a filter that is not there.  All
            checks come first: after an error every state is what it was.

        Notes
        -----
        Ctrl-C takes effect once the call is done.
        """
        with self._locked():
            usual = sample_weight is None and forget is None
            if not usual or learn_one_row(self, X, y, which) is None:
                self._learn(X, y, sample_weight, forget, which)
        return self

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Forget everything and learn as :meth:`partial_fit` does."""
        with self._locked():
            fresh = type(self)(**self.get_params())
            fresh._learn(X, y, sample_weight, None, None)
            self.__dict__.update(fresh.__getstate__())
        return self

    def step(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        which: ArrayLike | None = None,
        return_std: bool = False,
    ) -> tuple[NDArray, ...]:
        """Predict a row for each filter, then learn it.

        Parameters
        ----------
        X, y, sample_weight, which
            As in :meth:`partial_fit`, one row for each filter; no filter twice in ``which``.
        return_std : bool, default False
            Whether to return the standard deviations of the predictions' errors too, as
            :meth:`RecursiveLeastSquares.step` does.

        Returns
        -------
        prediction, residual : arrays shaped as y
            The prediction is made before the row is learned; 0, or the prior's, before the first
            one.  NaN where the row has a missing value.
        std : array shaped as y
            Only with ``return_std``: known before the row is learned; inf while the filter's rows
            before do not determine it.

        Raises
        ------
        ValueError, TypeError
            As :meth:`partial_fit`.
        """
        with self._locked():
            if return_std is not False and check_flag("return_std", return_std):
                asked = "_state" in self.__dict__ or self.prior is not None
                std = self._deviation_before(X, sample_weight, which) if asked else np.inf
                before, residual = self.step(X, y, sample_weight=sample_weight, which=which)
                std = np.asarray(std) if asked else np.where(np.isnan(before), np.nan, np.inf)
                return before, residual, std[()]
            if sample_weight is None and (short := learn_one_row(self, X, y, which)) is not None:
                return short[0][()], short[1].copy()  # a number where there is one
            convert = complex_rows.complex_array if self._is_complex(X=X, y=y) else real_array
            rows = index_rows(convert(X, "X"), which, int(self.n))
            filters = np.asarray([] if which is None else which)
            if filters.dtype.kind in "iu":
                filters = filters % int(self.n)  # -1 is the last
            if rows.ndim != 2 or np.unique(filters).size < filters.size:
                raise ValueError("step takes one row for each filter; partial_fit takes several")
            if "_state" in self.__dict__ or self.prior is not None:
                before = self.predict(X, which=which)
                self._learn(X, y, sample_weight, None, which)
                return before, self.residual_
            self._learn(X, y, sample_weight, None, which)
            before, lost = np.zeros_like(self._residual), ~np.isfinite(rows).all(axis=1)
            single = which is not None and np.ndim(which) == 0
            before[lost.all() if single else lost] = np.nan
            return before[()], self.residual_

    def _learn(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        forget: Any,
        which: Any,
        *,
        want_path: bool = False,
        timed: TimedRows | None = None,
    ) -> CoefficientPath | None:
        """Check the arguments, then learn; return the path of the rows as given, if requested.

        Rows that are ``timed`` have the factors of their times.
        """
        fitted = "_state" in self.__dict__
        if fitted:
            frozen.check(self, self._made_with)
        self._check_parameters()
        is_complex = self._is_complex(X=X, y=y)
        fitted = fitted and self._kind.is_complex == is_complex  # else no row has been learned
        convert = complex_rows.complex_array if is_complex else real_array
        n = int(self.n)
        filters = None if which is None else check_index(which, n)
        single = which is not None and np.ndim(which) == 0
        checked = check_rows(
            X,
            y,
            filters,
            n,
            self.n_features_in_ if fitted else self.n_features,
            self._n_targets if fitted else None,
            single,
            convert,
        )
        noise = check_noise_variance(self.noise_variance, max(checked.n_targets, 1))
        factors = self._forget(which if single else filters) if forget is None else forget
        gates = checked.per_row(check_forget(factors), "forget")
        weights = checked.per_row(1.0 if sample_weight is None else sample_weight, "sample_weight")
        check_weight(weights, weights.size)
        usable, heavy = None, None if sample_weight is None else weights
        X_parts, Y_parts = checked.X, checked.Y
        if is_complex:
            X_parts, Y_parts = (np.hstack([np.real(a), np.imag(a)]) for a in (checked.X, checked.Y))
        if heavy is not None or not settled(X_parts, Y_parts):
            usable = inputs.usable_rows(X_parts, Y_parts, heavy, self.missing, self)
        weights = without_missing(weights)
        if timed is not None:
            gates = timed.gates(usable)
        if not fitted:
            dtype = np.real(checked.X).dtype
            self._begin(checked.X.shape[1], checked.n_targets, dtype, is_complex)
        rows = BankRows(
            *checked.groups,
            checked.X,
            checked.Y,
            gates,
            weights,
            np.empty(0, np.bool_) if usable is None else usable,
        )
        if is_complex:
            uninterrupted(lambda: self._learn_pairs(rows, checked.shape))
            return None
        path = None
        if want_path:
            path = open_path(self._state, self._kind, rows, noise)
            before = squares_learned(self._state, self._kind, rows.members)
        residual, constant = learn(self._state, self._kind, rows, path)
        self._residual = clip_to(residual, self._dtype).reshape(checked.shape)
        if path is None:
            return None
        part = finished(path, rows, residual, before, constant, self._kind)
        every_target, one_target = [np.arange(residual.shape[1])], checked.n_targets == 0
        return joined([part], every_target, self._kind.intercept, one_target)

    def _learn_pairs(self, rows: BankRows, shape: tuple[int, ...]) -> None:
        """Learn complex rows; ``shape`` is y's."""
        state, kind = self._state, self._kind
        pairs = rows.as_pairs(kind.complex_intercept)
        before = state.theta(rows.members, kind)
        path = open_path(state, kind, pairs, None)
        samples = state.seen.copy()
        residual, _ = learn(state, kind, pairs, path)
        state.seen[:] = samples + (state.seen - samples) // 2  # a pair is one sample
        path.finish(0, GroupRows(pairs.order, pairs.begins, pairs.ends))
        replace_second_residuals(pairs, before, path, residual)
        self._residual = complex_rows.combine_rows(clip_to(residual, self._dtype)).reshape(shape)

    def grow(self, more: int) -> Self:
        """Add ``more`` filters that have seen no row after the existing ones, which changes ``n``.

        Raises ValueError where ``forget``, ``half_life`` or ``ridge`` has one value for each
        filter: those of the new ones are not known.
        """
        check_number(more, "more")
        if np.ndim(self.forget) > 0 or np.ndim(self.half_life) > 0 or np.ndim(self.ridge) > 1:
            raise ValueError("a bank with a forget or ridge for each filter cannot grow")
        with self._locked():
            n = int(self.n)
            if "_state" in self.__dict__:
                frozen.check(self, self._made_with)
                fresh = self._fresh(self._kind, self.n_features_in_, self._n_targets, more)
                state = self._state.joined(fresh)
                self.n = n + more
                self.__dict__.update(_state=state, _made_with=frozen.snapshot(self))
            else:
                self.n = n + more
        return self

    def __getitem__(self, i: int) -> RecursiveLeastSquares:
        """Return filter i as an estimator with a copy of its state, which continues exactly from
        there.

        ``residual_`` is empty.  Raises IndexError for a filter that is not there, NotFittedError
        before the first row where ``n_features`` is not given.
        """
        if not is_integer(i):
            raise TypeError(f"a filter's number must be an integer, got {shown(i)}")
        n = int(self.n)
        if not -n <= i < n:
            raise IndexError(f"this bank has {n} filters, there is no filter {i}")
        with self._locked():
            state = self._state_or_raise()
            f = int(i) % n
            return self._estimator(state, f)

    def _estimator(self, state: BankState, f: int) -> RecursiveLeastSquares:
        is_complex, first = self._kind.is_complex, self._first
        ridge = state.ridge[f, : self.n_features_in_ + first].copy()
        gates, half_lives = np.asarray(self.forget), np.asarray(self.half_life)
        of_filter = {
            "forget": self.forget if gates.ndim == 0 else float(gates[f]),
            "half_life": self.half_life if half_lives.ndim == 0 else float(half_lives[f]),
            "ridge": self.ridge if np.ndim(self.ridge) < 2 else ridge[first:],
        }
        est = from_options(RecursiveLeastSquares, self.get_params() | of_filter)
        origin = est._make_origin(
            self.n_features_in_, self._n_targets, self._dtype, ridge, is_complex=is_complex
        )
        engine = TargetGroups.together(state.switch(f, self._kind), origin.columns, False)
        logs = np.full(origin.columns, state.logs[f]) if state.logs[f] else None
        est._settle(
            origin,
            engine,
            n_samples_seen_=int(state.seen[f]),
            _log_weights=logs,
            _constant_values=kept_values(state.values[f]),
        )
        return est

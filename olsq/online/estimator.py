"""Recursive least squares as an estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.online.base import Engine, StreamingRegressor
from olsq.online.moments import check as check_moments
from olsq.online.moments import recursion_from
from olsq.online.recursion import METHODS, Recursion, resolve_method
from olsq.problem import (
    RIDGE_MODES,
    Moments,
    check_choice,
    check_forget,
    check_per_row,
    check_ridge,
    forget_from_half_life,
)


class RecursiveLeastSquares(StreamingRegressor):
    """Least squares solved again after every sample, with forgetting, for ever.

    Minimises, after every row t, ``sum_i zeta_ti w_i (y_i - x_i . coef - intercept)^2
    + coef . Lambda_t coef`` with ``zeta_ti`` the product of the forgetting factors after row i.

    Parameters
    ----------
    forget : float or array, default 1
        Forgetting factor in [0, 1]; 1 forgets nothing, 0 starts afresh.  An array gives one
        factor for each row of every call.
    half_life : float, optional
        Number of samples after which a weight has halved; instead of ``forget``.
    ridge : float or array (d,), default 1e-3
        Penalty on the squared coefficients, never on the intercept.  0 is an exact diffuse start:
        ordinary least squares, of minimum norm until enough rows have been seen.
    ridge_mode : {"discounted", "fixed"}
        Whether the ridge is forgotten with the data (classical RLS) or stays (regularised RLS).
        "fixed" with forgetting needs ``method="information"``, which "auto" chooses.
    fit_intercept : bool, default True
    method : {"auto", "covariance", "sqrt", "information"}
        "covariance": the inverse information matrix, bitwise symmetric; the fast one, used within
        bounds that keep its digits and left for the square-root form outside of them.
        "sqrt": triangular factor of the information matrix by Givens rotations; the safe one.
        "information": moments, and a Cholesky solve for every row's residual; bulk updates
        without residuals are matrix products (``residuals=False``).
        "auto": "information" for ``ridge_mode="fixed"``, else "covariance" in float64 and "sqrt"
        in float32.
    missing : {"skip", "raise"}
        A row with a non-finite value in X or y is skipped as if it had never come (no forgetting,
        not counted), or refused with an error.
    residuals : bool, default True
        Whether ``method="information"`` keeps a-priori residuals: one O(d^3) solve a row.  The
        other methods have them for nothing.

    Attributes
    ----------
    coef_ : array (d,) or (m, d)
    intercept_ : float or array (m,)
    n_samples_seen_ : int
        Rows learnt; skipped rows do not count.
    residual_ : array (n,) or (n, m)
        A-priori residuals of the last call.
    sigma2_, coef_stderr_, intercept_stderr_
        Noise variance and standard errors; inf where the data do not determine them.
    rank_, determined_
        How many directions, and which coefficients (d,), are determined.
    n_held_ : int
        How often wind-up protection acted.
    n_features_in_, feature_names_in_, metadata_

    Notes
    -----
    Cost per row: O(d^2 + m d) time, O(d^2 + m d) memory ("information" with residuals: O(d^3)).
    The first use compiles the kernels (seconds; cached on disk).  No derivatives.

    Wind-up: where forgetting is about to push a direction's information below rounding level, the
    coefficient is observed "at its present value" with just enough weight to stay determined
    (stabilised forgetting): it does not move, nothing overflows, other directions keep forgetting.
    So is a regressor that has been zero until its information fell by 1e-60 (float32: 1e-12).
    Held coefficients are not ``determined_``.  "information" has nothing to hold with; there a lost
    coefficient becomes minimum norm, or returns to zero with ``ridge_mode="fixed"``.

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

    def __init__(
        self,
        *,
        forget: Any = 1.0,
        half_life: float | None = None,
        ridge: Any = 1e-3,
        ridge_mode: str = "discounted",
        fit_intercept: bool = True,
        method: str = "auto",
        missing: str = "skip",
        residuals: bool = True,
    ) -> None:
        self.forget = forget
        self.half_life = half_life
        self.ridge = ridge
        self.ridge_mode = ridge_mode
        self.fit_intercept = fit_intercept
        self.method = method
        self.missing = missing
        self.residuals = residuals

    @classmethod
    def from_moments(
        cls, moments: Moments, *, ridge_mode: str, fit_intercept: bool, **parameters: Any
    ) -> Self:
        """An estimator that goes on from moments, as if it had learnt what they sum up.

        Parameters
        ----------
        moments : Moments
            ``Solution.state`` of :func:`olsq.online_lstsq`, or :meth:`moments` of an estimator:
            gram (k, k) and cross (m, k), NumPy or JAX, without batch axes.  Float32 moments make a
            float32 state.
        ridge_mode : {"discounted", "fixed"}
            What the moments are: with "discounted" they hold what is left of their ridge, and
            ``ridge`` only serves a later ``fit``; with "fixed" ``ridge`` is added at the solve.
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
        singular gram goes to the square-root form for method "covariance" too; the solution is
        of minimum norm until rows determine it.  (Of float32 moments, "sqrt" tells dependent
        regressors from rounding error best, "information" worst.)  O(d^3).

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
        est = cls(ridge_mode=ridge_mode, fit_intercept=fit_intercept, **parameters)
        est._check_parameters()
        if np.ndim(est.forget) == 0:
            est._gates(None, 1)  # refuses what the first row would
        est._begin(check_moments(moments, bool(fit_intercept)))
        return est

    def _begin(self, moments: Moments) -> None:
        gram, cross = moments
        d, m = gram.shape[0] - self._first, cross.shape[0]
        ridge = np.concatenate([np.zeros(self._first), check_ridge(self.ridge, d)])
        if self._discounted:  # the gram holds it
            ridge = np.zeros_like(ridge)
        single = gram.dtype == np.float32 and cross.dtype == np.float32
        self._dtype = np.dtype(np.float32 if single else np.float64)
        self._engine = recursion_from(
            moments, resolve_method(self.method, self._dtype, self.ridge_mode), ridge, self._dtype,
            intercept=bool(self.fit_intercept), discounted=self._discounted,
            solving=bool(self.residuals),
        )  # fmt: skip
        self.n_features_in_ = d
        self._n_targets = 0 if m == 1 else m
        self._full_ridge = ridge
        self.n_samples_seen_ = 0
        self.metadata_ = {}
        self._residual = np.empty((0, m), self._dtype)

    def _check_parameters(self) -> None:
        check_choice(self.ridge_mode, "ridge_mode", RIDGE_MODES)
        check_choice(self.method, "method", ("auto", *METHODS))
        check_choice(self.missing, "missing", ("skip", "raise"))

    def _gates(self, forget: ArrayLike | None, n_rows: int) -> NDArray[np.float64]:
        factors: Any = self.forget if forget is None else forget
        if forget is None and self.half_life is not None:
            if not (np.ndim(factors) == 0 and factors == 1):
                raise ValueError("forget and half_life exclude each other: give one of them")
            factors = forget_from_half_life(self.half_life)
        gates = check_per_row(check_forget(factors), n_rows, "forget")
        only_discounted = self.ridge_mode == "fixed" and self.method in ("covariance", "sqrt")
        if only_discounted and n_rows and gates.min() < 1:
            raise ValueError(
                f"method={self.method!r} forgets the ridge with the data; ridge_mode='fixed' "
                "with forget < 1 needs method='information' (or 'auto')"
            )
        return gates

    def _start(self, ridge: NDArray, n_targets: int, dtype: np.dtype) -> Engine:
        return Recursion.start(
            resolve_method(self.method, dtype, self.ridge_mode), ridge, n_targets, dtype,
            intercept=bool(self.fit_intercept), discounted=self._discounted,
            solving=bool(self.residuals),
        )  # fmt: skip

    def _restore_engine(self, description: dict[str, Any], arrays: dict[str, NDArray]) -> Engine:
        return Recursion.restore(description, arrays)

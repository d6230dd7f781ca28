"""The coefficient path: everything the estimators know, after every row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.reals import real_array


class CoefficientPath(NamedTuple):
    """Coefficients and statistics after each of n rows; m targets, or none for a 1-D y.

    Attributes
    ----------
    coef : array (n, d) or (n, m, d)
        Coefficients after the row; minimum norm while undetermined.
    intercept : array (n,) or (n, m)
        Intercept after the row; 0 without one.
    residual : array (n,) or (n, m)
        A-priori (one-step-ahead) residual ``y_t - x_t . theta_{t-1} - b_{t-1}``.  NaN in a row
        that was skipped because it has a missing value, and nowhere else.
    recursive_residual : array (n,) or (n, m)
        The residual divided by the square root of its variance in units of the noise variance
        (Brown, Durbin & Evans 1975, eq. 1); 0 in a row that determined a coefficient for the
        first time; NaN where ``residual`` is.
    sigma2 : array (n,) or (n, m)
        Estimate of the noise variance; inf without degrees of freedom for one.
    stderr : array (n, d) or (n, m, d)
        Standard errors of ``coef``; inf where undetermined.
    intercept_stderr : array (n,) or (n, m)
        Standard error of ``intercept``; 0 without one.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> X = np.arange(1.0, 5.0)[:, None]
    >>> path = olsq.coefficient_path(X, 2.0 * X[:, 0])
    >>> path.coef[:, 0]
    array([2., 2., 2., 2.])
    """

    coef: NDArray
    intercept: NDArray
    residual: NDArray
    recursive_residual: NDArray
    sigma2: NDArray
    stderr: NDArray
    intercept_stderr: NDArray


def coefficient_path(
    X: ArrayLike,
    y: ArrayLike,
    *,
    forget: ArrayLike = 1.0,
    half_life: float | None = None,
    sample_weight: ArrayLike | None = None,
    ridge: ArrayLike = 0.0,
    ridge_mode: str = "discounted",
    window: int | None = None,
    min_samples: int | None = None,
    fit_intercept: bool = False,
    method: str = "auto",
    missing: str = "skip",
    state_dtype: Any = "float64",
    cov: str = "posterior",
    window_of: str | None = None,
) -> CoefficientPath:
    """Coefficients of a regression after every row: expanding, exponential or rolling.

    Parameters
    ----------
    X : array (n, d)
        Regressors, float32 or float64 (anything else becomes float64).
    y : array (n,) or (n, m)
        Targets.
    forget : float or array (n,), default 1
        Forgetting factors in [0, 1]; row t's factor multiplies everything before row t.
    half_life : float, optional
        Samples after which a weight has halved; instead of ``forget``.
    sample_weight : array (n,), optional
        Weights >= 0.
    ridge : float or array (d,), default 0
        Penalty on squared coefficients (the intercept is never penalised).  0 is exact ordinary
        least squares from the first row on.  A path is read as estimates with standard errors, as
        those of statsmodels' and R's regressions on the matrix as it is given: so no ridge and no
        intercept unless asked for, other than in :class:`RecursiveLeastSquares`.
    ridge_mode : {"discounted", "fixed"}
        Whether the ridge is forgotten with the data.
    window : int, optional
        Only the last ``window`` rows count (rolling regression); excludes forgetting.
    min_samples : int, optional
        With ``window``: rows with fewer samples in their window get NaN.  Default: 1.
    fit_intercept : bool, default False
        Whether to add an intercept.
    method : {"auto", "covariance", "sqrt", "information"}
        See :class:`RecursiveLeastSquares`.
    missing : {"skip", "raise", "skip_target"}
        What to do with a row that has a non-finite value; see :class:`RecursiveLeastSquares`.
    state_dtype : {"float64", "float32"}
        See :class:`RecursiveLeastSquares` and :class:`RollingLeastSquares`; a path is float64 for
        float64 data and float32 for float32 data whatever this is.
    cov : {"posterior", "sandwich"}
        What standard errors mean; see :class:`RecursiveLeastSquares`.  "sandwich" is not for
        windows: without weights theirs are the same.
    window_of : {"samples", "positions"}, optional
        With ``window``, what it counts; see :class:`RollingLeastSquares`.

    Returns
    -------
    CoefficientPath

    Raises
    ------
    ValueError
        If an argument is out of range or shapes do not fit; nothing has been computed then.

    Notes
    -----
    O(n d^2) time and O(n d) memory.  From 24 coefficients on, blocks of eight rows share each
    pass over the matrix (the chunk-exact recursion).  No derivatives: see ``olsq.online_lstsq``.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((500, 2))
    >>> y = X @ [1.0, -2.0] + 0.1 * rng.standard_normal(500)
    >>> path = olsq.coefficient_path(X, y, forget=0.98)
    >>> path.coef.shape, path.stderr.shape
    ((500, 2), (500, 2))
    >>> bool(np.all(np.abs(path.coef[-1] - [1.0, -2.0]) < 0.05))
    True
    """
    from olsq.online.conventions import check_cov
    from olsq.online.estimator import RecursiveLeastSquares
    from olsq.online.rolling import RollingLeastSquares

    if window is None:
        if min_samples is not None:
            raise ValueError("min_samples needs window: without one every row has an estimate")
        if window_of is not None:
            raise ValueError("window_of needs window")
        estimator = RecursiveLeastSquares(
            forget=forget, half_life=half_life, ridge=ridge, ridge_mode=ridge_mode,
            fit_intercept=fit_intercept, method=method, missing=missing, state_dtype=state_dtype,
            cov=cov,
        )  # fmt: skip
        return estimator.partial_fit_path(X, y, sample_weight=sample_weight)
    if half_life is not None or not np.all(real_array(forget, "forget") == 1):
        raise ValueError("window and forget (or half_life) exclude each other: give one of them")
    check_cov(cov)
    if cov == "sandwich":
        raise ValueError(
            "cov='sandwich' is for forgetting; standard errors in a window are cov='posterior', "
            "which for rows without weights is the same"
        )
    rolling = RollingLeastSquares(
        window=window, min_samples=min_samples, ridge=ridge, fit_intercept=fit_intercept,
        missing=missing, state_dtype=state_dtype, window_of=window_of,
    )  # fmt: skip
    return rolling.partial_fit_path(X, y, sample_weight=sample_weight)

"""Robust covariances computed from the rows: for unequal variances (White) or correlation (hac).

They weigh the residuals of all rows at the present coefficients, so that the rows must be at hand:
a window has them, and a recursion is given them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.checks import check_choice, is_integer, shown
from olsq.online.forms.counting import DECAY, WEIGHT
from olsq.online.forms.form import Form
from olsq.online.forms.moments import factor_for
from olsq.online.forms.rows import Rows
from olsq.online.paths.collector import KINDS, RobustErrors, newey_west_lags
from olsq.online.rows import inputs
from olsq.online.rows.durations import half_life_gates
from olsq.online.rows.frames import check_same_index
from olsq.online.rows.options import check_weight, without_missing
from olsq.online.rows.times import times_of_call


def check_kind(
    kind: Any, lags: Any, names: tuple[str, str] = ("kind", "lags")
) -> tuple[str, int | None]:
    """Return the kind as spelled in KINDS, given in any case, and the lags, None except for "hac".

    None are Newey and West's choice there.  ``names`` are those of both arguments.

    Raises ValueError for what is no kind of covariance.
    """
    if isinstance(kind, str):
        kind = {name.lower(): name for name in KINDS}.get(kind.lower(), kind)
    check_choice(kind, names[0], tuple(KINDS))
    if kind != "hac":
        if lags is not None:
            raise ValueError(
                f"{names[1]} is for {names[0]}='hac', not for {names[0]}={kind!r}: leave it out"
            )
        return kind, None
    if lags is None:
        return kind, None
    if not is_integer(lags, 0):
        raise ValueError(
            f"{names[0]}='hac' needs {names[1]}, a whole number of rows over which noise is "
            f"correlated, got {shown(lags)}; None is 4 (n / 100)^(2/9), rounded down"
        )
    return kind, int(lags)


def errors_in_window(cov: Any, maxlags: Any, window: Any) -> RobustErrors | None:
    """Return the robust errors of a window that ``cov`` and ``maxlags`` ask for; None for others.

    Raises ValueError for what there is not in a window.
    """
    name = cov.lower() if isinstance(cov, str) else cov
    if name == "sandwich":
        raise ValueError(
            "cov='sandwich' is for forgetting without a window; in a window cov='nonrobust' is the "
            "same for rows without weights, and cov='HC3' stands unequal variances"
        )
    if name in ("nonrobust", "posterior"):
        if maxlags is not None:
            raise ValueError("maxlags is for cov='HAC': leave it out")
        return None
    if not isinstance(cov, str) or name not in map(str.lower, KINDS):
        choices = "nonrobust", "HC0", "HC1", "HC2", "HC3", "HAC"
        check_choice(cov, "cov", choices)
    kind, lags = check_kind(cov, maxlags, ("cov", "maxlags"))
    if lags is not None and is_integer(window) and lags >= window:
        raise ValueError(
            f"maxlags ({lags}) must be smaller than window ({window}), the number of rows whose "
            "correlation is estimated"
        )
    return RobustErrors(kind, lags)


def refuse_maxlags(cov: Any) -> None:
    """Raise ValueError for ``maxlags`` without a window, with what is missing."""
    if isinstance(cov, str) and cov.lower() == "hac":
        raise ValueError(
            "cov='HAC' and maxlags need window=, whose rows have the residuals that they weigh; "
            "half_life= or forget= may go with it"
        )
    raise ValueError("maxlags is for cov='HAC' with window=: leave it out, or give both")


class WeighedRows(NamedTuple):
    """Rows that the covariances of some targets weigh, of which ``usable`` (n, m) have each target.

    ``weights`` (n, m) are those of the present estimate: forgotten as each target is, which forgets
    only in the rows that it has.
    """

    rows: Rows
    usable: NDArray[np.bool_]
    weights: NDArray[np.float64]


def weighed_rows(estimator: Any, data: Any) -> Iterator[tuple[Any, Form, WeighedRows]]:
    """Return the targets, the form and the rows of each engine: those of its window, or ``data``.

    Raises ValueError where rows are missing, or are not those that were learned.
    """
    engines = estimator._engine.groups
    if hasattr(engines[0].engine, "rows"):
        if data is not None:
            raise ValueError(
                f"data must be left out: this {type(estimator).__name__} has the rows of its "
                "window, and weighs those"
            )
        return ((targets, engine.form, _rows_in_window(engine)) for targets, engine in engines)
    if data is None:
        raise ValueError(
            "this covariance weighs the residuals of all rows at the present coefficients, and "
            "a recursion keeps no rows: give them, data=(X, y) or (X, y, sample_weight)"
        )
    rows, usable, weights = _rows_given(estimator, data)
    return (
        (
            targets,
            engine.form,
            WeighedRows(
                rows._replace(Y=rows.Y[:, targets]), usable[:, targets], weights[:, targets]
            ),
        )
        for targets, engine in engines
    )


def _rows_in_window(window: Any) -> WeighedRows:
    # Rows that hold a place in a window without being learned are no neighbours of others.
    held = window.rows()
    rows = Rows.of(*(array[held.weights > 0] for array in held))
    every = np.ones(rows.Y.shape, np.bool_)
    return WeighedRows(rows, every, np.broadcast_to(rows.weights[:, None], every.shape))


def _rows_given(estimator: Any, data: Any) -> WeighedRows:
    if (strategy := estimator._strategy) is not None:
        raise ValueError(
            f"forget={type(strategy).__name__}(...) leaves no weights of rows by which this "
            "covariance could weigh them: cov_params() without kind is that of the state, and a "
            "number for forget, or half_life, leaves such weights"
        )
    if not isinstance(data, (tuple, list)) or len(data) not in (2, 3, 4):
        raise ValueError(
            "data must be (X, y), (X, y, sample_weight) or (X, y, sample_weight, times)"
        )
    given_X, given_y, sample_weight, times = (*data, None, None)[:4]
    check_same_index(X=given_X, y=given_y, sample_weight=sample_weight, times=times)
    X = estimator._checked(given_X)
    y = inputs.check_y(given_y, estimator, X.shape[0], estimator._origin.n_targets)
    weights = check_weight(sample_weight, X.shape[0])
    Y = y if y.ndim == 2 else y[:, None]
    usable = (np.isfinite(X).all(axis=1) & np.isfinite(weights))[:, None] & np.isfinite(Y)
    weights = without_missing(weights)
    if estimator.missing != "skip_target":
        usable = np.broadcast_to(usable.all(axis=1)[:, None], Y.shape)
    data_rows = times, given_X, given_y
    if (usable == usable[:, :1]).all():
        shares = np.broadcast_to(_shares(estimator, data_rows, usable[:, 0])[:, None], Y.shape)
    else:
        shares = np.stack(
            [_shares(estimator, data_rows, of_target) for of_target in usable.T], axis=1
        )
    regressors = np.ones((X.shape[0], X.shape[1] + estimator._first))
    regressors[:, estimator._first :] = X
    rows = Rows.of(regressors, Y.astype(np.float64), np.ones(len(regressors)), weights)
    _check_learned(estimator, rows, usable, weights[:, None] * shares)
    return WeighedRows(rows, usable, weights[:, None] * shares)


def _check_learned(
    estimator: Any, rows: Rows, usable: NDArray[np.bool_], weights: NDArray[np.float64]
) -> None:
    """Raise ValueError if rows with these weights (n, m) are not those that were learned.

    Their sums of weights and squares are those of the state, and the coefficients solve their
    normal equations, ``X^T W (y - X theta) = Lambda (theta - mu)``, to rounding; Lambda is the
    ridge or the prior's information about mu.  To 1 % where only the last rows are given, and what
    they leave of earlier ones is less than that.
    """
    origin = estimator._origin
    information, moment = np.diag(origin.ridge), np.zeros((origin.columns, origin.ridge.size))
    if estimator.prior is not None:
        R, z = factor_for(estimator.prior, origin.intercept, origin.is_complex, moment.shape)
        information, moment = R.T @ R, z @ R
    rows_of_prior = np.linalg.matrix_rank(information) if estimator.prior is not None else 0
    rounding = 1e-3 if origin.dtype == np.float32 else 1e-6
    theta = estimator._real_theta()
    for targets, engine in estimator._engine.groups:
        j, form = targets[0], engine.form
        w = np.where(usable[:, j], weights[:, j], 0.0)
        X, Y = (np.where(usable[:, j, None], a, 0.0) for a in (rows.X, rows.Y[:, targets]))
        short = np.count_nonzero(w) < estimator.n_samples_seen_ and w[0] < 0.01 * w.max()
        tolerance = 0.01 if short else rounding
        left = form.tally[DECAY] if origin.discounted else 1.0  # of the ridge or prior
        squares = w @ X**2
        close = partial(np.allclose, rtol=tolerance, atol=0.0)
        same = close(w.sum() + left * rows_of_prior, form.tally[WEIGHT])
        # Some forms count the ridge among the squares.
        with_prior = squares + left * np.diagonal(information)
        same &= close(squares, form.columns[0]) or close(with_prior, form.columns[0])
        if not short and not form.held[0]:
            lost = X.T @ (w[:, None] * (Y - X @ theta[targets].T))
            lost += left * (moment[targets] - theta[targets] @ information).T
            same &= bool((np.abs(lost) <= tolerance * np.sqrt(np.outer(squares, w @ Y**2))).all())
        if not same:
            raise ValueError(
                "data must be the rows that were learned, with their weights: their sums differ "
                "from those of the estimator. Give (X, y, sample_weight) if rows had weights, and "
                "(X, y, sample_weight, times) if they had times"
            )


def _shares(
    estimator: Any, data_rows: tuple[Any, Any, Any], usable: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Compute what is left (n,) of the weights of rows after all, where ``usable`` ones forget."""
    times, X, y = data_rows
    if estimator._forgets_in_time:
        gates = _gates_in_time(estimator, times, X, y, usable)
    else:
        gates = np.where(usable, estimator._gates(None, usable.size), 1.0)
    return np.append(np.cumprod(gates[:0:-1])[::-1], 1.0)


def _gates_in_time(
    estimator: Any, times: Any, X: Any, y: Any, usable: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Compute forgetting factors (n,) of rows whose half-life is one of time."""
    duration = estimator._half_life_in_time(True)
    name, _ = estimator._timed_option()
    row_times, _ = times_of_call(times, X, y, usable.size, duration, None, name)
    return half_life_gates(row_times, usable, np.empty(0, row_times.dtype), duration.length)


def covariance(
    form: Form,
    theta: NDArray,
    weighed: WeighedRows,
    target: int,
    kind: str,
    lags: int | None,
) -> NDArray[np.float64]:
    """Compute ``P (sum_l c_l sum_t u_t u_{t-l}^T) P`` (k, k) of one target, with ``u = w e x``.

    c is Bartlett's, ``1 - |l| / (lags + 1)`` (Newey & West 1987, eq. 5); HC1 to HC3 as in MacKinnon
    & White (1985).  ``theta`` (k,) are the coefficients of ``target``, a place among those of the
    rows.
    """
    usable, rows = weighed.usable[:, target], weighed.rows
    X, y, w = rows.X[usable], rows.Y[usable, target], weighed.weights[usable, target]
    residual = y - X @ theta
    if kind in ("HC2", "HC3"):
        slack = np.maximum(1.0 - w * form.leverage(X), np.finfo(np.float64).eps)
        residual /= np.sqrt(slack) if kind == "HC2" else slack
    W, _ = form.whitened(X)
    if kind != "hac":
        lags = 0
    elif lags is None:
        lags = newey_west_lags(int(np.count_nonzero(w)))
    products = bartlett_products(form.unwhitened(W) * (w * residual)[:, None], lags)  # of P u
    if kind == "HC1":
        n = int(np.count_nonzero(w))
        with np.errstate(invalid="ignore"):  # residuals of 0 times inf: NaN
            products *= n / (n - form.rank) if n > form.rank else np.inf
    return products


def bartlett_products(series: NDArray, lags: int) -> NDArray[np.float64]:
    """Sum ``s_t s_t^T`` and, with Bartlett's weights, ``s_t s_{t-l}^T`` of a series (n, k)."""
    products = series.T @ series
    for lag in range(1, min(lags, len(series) - 1) + 1):
        cross = series[lag:].T @ series[:-lag]
        products += (1.0 - lag / (lags + 1)) * (cross + cross.T)
    return products

"""Scores of a path's one-step-ahead predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from olsq.arrays.checks import check_integer
from olsq.arrays.reals import real_array
from olsq.online.many.labels import refuse_groups

if TYPE_CHECKING:
    from olsq.online import CoefficientPath


class Scores(NamedTuple):
    """Scores of one-step-ahead predictions; arrays (m,) for several targets.

    Attributes
    ----------
    n : int or array
        Rows scored.
    mse, rmse, mae : float or array
        Mean squared error, its square root, mean absolute error.
    r2 : float or array
        ``1 - sum(e^2) / sum((y - mean of y before)^2)``: 0 is as good as predicting the mean of
        the rows so far, 1 is perfect, and it may be negative.
    """

    n: int | np.ndarray
    mse: float | np.ndarray
    rmse: float | np.ndarray
    mae: float | np.ndarray
    r2: float | np.ndarray


def one_step_scores(path: CoefficientPath, y: ArrayLike, *, burn_in: int | None = None) -> Scores:
    """Score ``path.residual``, whose predictions use the earlier rows only.

    Parameters
    ----------
    path : CoefficientPath
        Of any forgetting, window and ridge.
    y : array (n,) or (n, m)
        The targets that it was made from.
    burn_in : int, optional
        Rows (with a residual) at the start that do not count.  Default: as many as there are
        coefficients, with one for the intercept.

    Returns
    -------
    Scores

    Raises
    ------
    ValueError
        If y has not the shape of ``path.residual``, a target has no row left, or the path has
        several groups.

    References
    ----------
    The benchmark of r2 is that of Campbell & Thompson, "Predicting excess stock returns out of
    sample", Rev. Financ. Stud. 21 (2008) 1509-1531.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> from olsq.stability import one_step_scores
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1000, 2))
    >>> y = X @ [1.0, 2.0] + rng.standard_normal(1000)
    >>> scores = one_step_scores(olsq.coefficient_path(X, y), y)
    >>> scores.n, round(scores.mse, 1), round(scores.r2, 1)
    (997, 1.0, 0.8)
    """
    refuse_groups(path)
    residual = np.asarray(real_array(path.residual, "path.residual"), np.float64)
    target = np.asarray(real_array(y, "y"), np.float64)
    if target.shape != residual.shape:
        raise ValueError(
            f"y must have the shape of path.residual {residual.shape}, not that of {target.shape}"
        )
    skip = path.coef.shape[-1] + 1 if burn_in is None else burn_in
    check_integer("burn_in", skip, 0)
    columns = zip(
        residual.reshape(len(residual), -1).T, target.reshape(len(target), -1).T, strict=True
    )
    scores = [_score(e, v, int(skip)) for e, v in columns]
    if residual.ndim == 1:
        return scores[0]
    return Scores(*(np.array(column) for column in zip(*scores, strict=True)))


def _score(residual: np.ndarray, target: np.ndarray, skip: int) -> Scores:
    row = np.flatnonzero(np.isfinite(residual))
    e, v = residual[row], target[row]
    if len(e) <= skip:
        raise ValueError(f"{len(e)} rows have a residual and burn_in={skip}: none is left to score")
    # the mean of the earlier targets, the forecast that r2 compares with
    mean = np.concatenate([[0.0], np.cumsum(v)[:-1] / np.arange(1, len(v))])
    e, spread = e[skip:], (v - mean)[skip:]
    mse, total = float(np.mean(e**2)), float(np.mean(spread**2))
    r2 = 1.0 - mse / total if total > 0 else float(mse == 0)
    return Scores(len(e), mse, float(np.sqrt(mse)), float(np.mean(np.abs(e))), r2)

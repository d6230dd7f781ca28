"""Public function of tuning: checks, and the conversion back to the user's units."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import check_choice, check_flag, check_integer
from olsq.arrays.reals import real_array
from olsq.online import RecursiveLeastSquares
from olsq.online.known_rows import check_horizon, known_places
from olsq.online.rows.durations import Duration
from olsq.online.rows.frames import check_same_index
from olsq.online.rows.inputs import check_X, check_y, usable_rows
from olsq.online.rows.options import check_forget, check_ridge, check_weight, without_missing
from olsq.problem import RIDGE_MODES
from olsq.progress import PassProgress
from olsq.threads import one_blas_thread
from olsq.tuning import gradient
from olsq.tuning.checks import (
    check_bounds,
    check_burn_in,
    check_y_range,
    in_steps,
    read_half_lives,
    read_stamps,
    units_of_time,
)
from olsq.tuning.mixture import RULES, in_user_units, mix_experts
from olsq.tuning.objective import ForecastLoss
from olsq.tuning.result import Curve, Tuning

MIXTURE_MEMORIES = 12
EXPECTED_PASSES = 170  # 145 to 230 with "gradient", over streams of 24 and 25 regressors


@one_blas_thread
def tune(
    X: ArrayLike,
    y: ArrayLike,
    *,
    method: Literal["gradient", "mixture"] = "gradient",
    forget: ArrayLike | None = None,
    ridge: ArrayLike | None = None,
    half_life_bounds: tuple[Any, Any] | None = None,
    ridge_bounds: tuple[float, float] | None = None,
    ridge_mode: Literal["discounted", "fixed"] = "discounted",
    ridge_shape: ArrayLike | None = None,
    fit_intercept: bool = True,
    sample_weight: ArrayLike | None = None,
    burn_in: int | None = None,
    missing: Literal["skip", "raise"] = "skip",
    starts: int = 3,
    y_range: tuple[ArrayLike, ArrayLike] | None = None,
    rule: Literal["aggregating", "average"] = "aggregating",
    horizon: Any = 1,
    times: Any = None,
) -> Tuning:
    """Find the forgetting factor and ridge with the smallest squared error of forecasts.

    Every row is predicted from the rows before it and no other, as
    :class:`RecursiveLeastSquares` does when it learns: the loss is the weighted mean of
    ``residual_ ** 2``, over rows and targets.  With ``horizon=h`` the prediction of row t knows the
    rows up to t - h, as the residuals of ``coefficient_path(horizon=h)`` do.

    Parameters
    ----------
    X : array (n, d)
        Regressors.
    y : array (n,) or (n, m)
        Targets.  Their squared errors are added as they are: bring targets of different scale to
        one first.
    method : {"gradient", "mixture"}
        "gradient" minimises the loss: L-BFGS-B with exact derivatives (implicit ones, of
        :func:`olsq.online_lstsq_vjp`), from the lowest places of a coarse grid.  "mixture" runs a
        grid of regressions side by side and predicts each row by all of them, weighed by how well
        they have done so far; its loss is close to that of the best in hindsight on every stream.
    forget : float or array (k,), optional
        A number is held, and only the ridge is chosen.  With "mixture": the grid's factors;
        default: twelve memories ``1 / (1 - forget)`` from the number of coefficients to n, and 1.
    ridge : float or array (k,), optional
        A number is held (times ``ridge_shape``).  With "mixture": the grid's ridges; default: 0,
        1e-2, 1 and 100 times the mean square of X (about its mean with an intercept).
    half_life_bounds : pair of float, str or timedelta, optional
        Half-lives to search between, in rows, or as lengths of time ("10D") between ``times``: rows
        are then forgotten by the time that passes, and ``half_life`` of the result is such a
        length.  An upper bound of inf allows ``forget = 1``.
        Default: memories ``1 / (1 - forget)`` of at least as many rows as there are coefficients
        (and half-lives of 0.25), without an upper bound.
    ridge_bounds : (float, float), optional
        A lower bound of 0 allows ``ridge = 0``.  Default: 0, and between 1e-8 and 100 n times the
        mean square of X.
    ridge_mode : {"discounted", "fixed"}
        As for :class:`RecursiveLeastSquares`.  Under "discounted" and forgetting the ridge only
        matters for the first rows.
    ridge_shape : array (d,), optional
        Sizes of the features' penalties relative to each other: the ridge of feature j is
        ``ridge * ridge_shape[j]``.  The mean squares of the columns make the choice independent
        of their units.
    fit_intercept : bool, default True
        As for :class:`RecursiveLeastSquares`; the intercept is not penalised.
    sample_weight : array (n,), optional
        Weights >= 0, of a row in the regression and of its error in the loss.
    burn_in : int, optional
        Rows (complete ones, of positive weight) that a forecast must rest on for its error to
        count.  Default: as many as there are coefficients, before which no regression without a
        ridge says anything, times ``horizon``, but then at most half of the rows.
    missing : {"skip", "raise"}
        A row with a non-finite value is left out, or refused.
    starts : int, default 3
        How many local minima of the grid "gradient" descends from, at most.
    y_range : (low, high), optional
        For "mixture": the interval of the targets, numbers or arrays (m,).  Predictions, and
        targets in the losses, are clipped to it; the regret bound holds for the clipped numbers.
        Default: from the least to the largest y, which is a look ahead: give it for predictions
        that must know nothing of later rows.  The default grid's ridges look ahead in the same way,
        at the scale of X.
    rule : {"aggregating", "average"}
        How "mixture" combines predictions: Vovk's aggregating algorithm, with the smaller bound,
        or the mean with exponential weights.
    horizon : int, float, str or timedelta, default 1
        After how many rows, or how long ("24h"; a float between times that are numbers), the target
        of a row is known; rows with a missing value count too.  A "mixture" is then ``horizon``
        mixtures (in time: as many as the most rows that a horizon goes back) of every horizon-th
        row each, which know the errors of their own rows before, and the regret bound is
        ``horizon`` times as large.
    times : array, series or index (n,), or str, optional
        When the rows were, for a horizon or half-lives in time: dates or numbers, in order.  Not
        needed where X or y has an index of dates.  See :func:`coefficient_path`.

    Returns
    -------
    Tuning
        ``forget``, ``half_life``, ``ridge``, ``loss``, ``curve``, ``ridge_curve``, ``path``,
        ``at_bound``, ``message``; with "mixture" those of its best expert, and ``mixture``.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range, or no row is left to score.  Nothing has been computed
        then.

    Notes
    -----
    A "gradient" costs some 150 passes over the data at the speed of ``partial_fit``, most of them
    for the curves, and about ten gradients for each start: each O(n d^3) up to 24 coefficients and
    O(n d^2) above, some ten times per pass.  Memory O(n (d + m)).  A "mixture" of K experts costs K
    passes and O(n m K) memory.  On a terminal a call of more than two seconds shows a progress
    bar, where Rich is installed.  No derivatives.

    The unit of the loss is that of y squared: ``X * c`` has the same forgetting factor and a ridge
    ``c^2`` times as large, exactly so if c is a power of two.

    The regret bound: with K experts, targets in an interval of length R, and weights up to W,
    the mixture's summed squared error exceeds that of the best expert, in hindsight and whatever
    the data, by at most ``R^2 W ln(K) / 2`` ("aggregating": the squared loss is 2 / R^2-mixable;
    Vovk 1990) or ``2 R^2 W ln(K)`` ("average": it is 1 / (2 R^2)-exp-concave).  It holds for the
    clipped experts and targets, for each target by itself, over the rows after the burn-in.  With
    ``horizon=h`` each of the h mixtures keeps this bound for its own rows (Weinberger &
    Ordentlich 2002), so that it is h times as large for all.

    References
    ----------
    Haykin, "Adaptive Filter Theory" (2014), chapter 10: forgetting.  Vovk, "Aggregating
    strategies" (COLT 1990); Haussler, Kivinen & Warmuth, "Sequential prediction of individual
    sequences under general loss functions" (IEEE Trans. Inf. Theory 44, 1998);
    Cesa-Bianchi & Lugosi, "Prediction, Learning, and Games" (2006), Proposition 3.1 and sections
    3.3, 3.5, 3.6.  Weinberger & Ordentlich, "On delayed prediction of individual sequences" (IEEE
    Trans. Inf. Theory 48, 2002).

    Examples
    --------
    A coefficient that walks: how fast should the regression forget?

    >>> import numpy as np, olsq
    >>> rng = np.random.default_rng(0)
    >>> x = rng.standard_normal(2000)
    >>> y = x * np.cumsum(0.1 * rng.standard_normal(2000)) + rng.standard_normal(2000)
    >>> tuned = olsq.tune(x[:, None], y, fit_intercept=False)
    >>> 0.88 < tuned.forget < 0.94
    True
    >>> est = olsq.RecursiveLeastSquares(forget=tuned.forget, ridge=tuned.ridge)

    Predictions that need no choice beforehand:

    >>> mixed = olsq.tune(x[:, None], y, method="mixture", fit_intercept=False).mixture
    >>> mixed.prediction.shape, bool(mixed.regret <= mixed.regret_bound)
    ((2000,), True)
    """
    check_choice(method, "method", ("gradient", "mixture"))
    check_choice(ridge_mode, "ridge_mode", RIDGE_MODES)
    check_choice(missing, "missing", ("skip", "raise"))
    check_choice(rule, "rule", tuple(RULES))
    length = check_horizon(horizon)
    judge = RecursiveLeastSquares(missing=missing)
    rows = check_X(X, judge, None, allow_empty=False).astype(np.float64, copy=False)
    targets = check_y(y, judge, len(rows), None).astype(np.float64, copy=False)
    check_same_index(X=X, y=y, sample_weight=sample_weight)
    weights = check_weight(sample_weight, len(rows))
    shape = ridge_shape
    if shape is not None:
        shape = check_ridge(shape, rows.shape[1], name="ridge_shape")
    if shape is not None and not shape.any():
        raise ValueError(
            "ridge_shape must be positive for some feature, got only zeros: there would be no "
            "ridge to choose"
        )
    half_lives = read_half_lives(half_life_bounds)
    if isinstance(half_lives[0], Duration) and forget is not None:
        raise ValueError(
            "forget counts rows, and half_life_bounds are lengths of time: give one of them"
        )
    stamps = read_stamps(
        times, X, y, len(rows), {"horizon": length, "half_life_bounds": half_lives[0]}
    )
    check_bounds("ridge_bounds", ridge_bounds, above=None)
    check_integer("starts", starts, 1)
    fit_intercept = check_flag("fit_intercept", fit_intercept)
    usable = usable_rows(rows, targets, weights, missing, judge)
    weights = without_missing(weights)
    complete = np.ones(len(rows), bool) if usable is None else usable
    n_coefs = rows.shape[1] + fit_intercept
    source = None
    if isinstance(length, Duration):
        source = known_places(len(rows), length, stamps)
        length = int((np.arange(len(rows)) - source).max())
    skip = check_burn_in(burn_in, n_coefs, length, weights, complete)
    Y = targets.reshape(len(rows), -1)
    step, elapsed = units_of_time(half_lives[0], stamps, complete)
    if (length > 1 or source is not None) and not complete.all():  # they stay, to be counted
        learned = {"complete": complete}
        parts = [
            np.where(complete.reshape(-1, *[1] * (a.ndim - 1)), a, 0.0) for a in (rows, Y, weights)
        ]
    else:
        learned = {}
        elapsed = None if elapsed is None else elapsed[complete]
        parts = [a[complete] for a in (rows, Y, weights)]
    problem = ForecastLoss(
        *parts,
        shape=shape,
        ridge_mode=ridge_mode,
        fit_intercept=fit_intercept,
        burn_in=skip,
        horizon=length,
        source=source,
        elapsed=elapsed,
        **learned,
    )
    factor = None if forget is None else np.atleast_1d(check_forget(forget))
    if factor is not None and (factor.ndim != 1 or factor.size == 0):
        raise ValueError(f"forget must be a number or a grid (k,), got shape {factor.shape}")
    penalty = None if ridge is None else np.atleast_1d(real_array(ridge, "ridge").astype(float))
    if penalty is not None:
        if penalty.ndim != 1 or penalty.size == 0:
            raise ValueError(f"ridge must be a number or a grid (k,), got shape {penalty.shape}")
        check_ridge(penalty, penalty.size)
    if step is not None:
        half_lives = in_steps(half_lives, step)
    bounds = None if half_life_bounds is None else half_lives
    common = problem, factor, _scaled(problem, penalty), bounds, ridge_bounds
    with PassProgress("tuning", EXPECTED_PASSES) as progress:
        problem.after_pass = progress.advance
        if method == "gradient":
            tuned = _by_gradient(*common, int(starts), shape)
            return tuned._replace(horizon=horizon, step=step)
        X_scaled = np.ldexp(rows, -problem.x_unit)
        span = check_y_range(y_range, Y[complete], problem)
        tuned = _by_mixture(*common, X_scaled, complete, span, rule, shape, targets.ndim == 1)
        return tuned._replace(horizon=horizon, step=step)


def _by_gradient(
    problem: ForecastLoss,
    forget: Any,
    ridge: Any,
    half_lives: Any,
    ridge_bounds: Any,
    starts: int,
    shape: NDArray | None,
) -> Tuning:
    for name, value in (("forget", forget), ("ridge", ridge)):
        if value is not None and value.size > 1:
            raise ValueError(
                f"{name} must be one number, which is held, or None with method='gradient'; "
                "grids are for method='mixture'"
            )
    memories = gradient.memory_range(
        problem, None if forget is None else float(forget[0]), half_lives
    )
    ridges = gradient.ridge_range(problem, None if ridge is None else float(ridge[0]), ridge_bounds)
    best = gradient.minimise(problem, memories, ridges, starts)
    return _build_result(problem, memories, ridges, best, shape)


def _by_mixture(
    problem: ForecastLoss,
    forget: Any,
    ridge: Any,
    half_lives: Any,
    ridge_bounds: Any,
    X: NDArray,
    complete: NDArray,
    span: NDArray,
    rule: str,
    shape: NDArray | None,
    single: bool,
) -> Tuning:
    memories = gradient.memory_range(problem, None, half_lives)
    ridges = gradient.ridge_range(problem, None, ridge_bounds)
    if forget is None:
        longest = min(memories.high, max(memories.low, float(len(problem.X))))
        grid = np.geomspace(memories.low, longest, MIXTURE_MEMORIES)
        forget = np.unique([gradient.forget_of(m) for m in grid] + [1.0] * memories.limit)
    if ridge is None:
        ridge_grid = problem.ridge_scale * np.array([0.0, 1e-2, 1.0, 1e2])
        ridge = np.unique(np.clip(ridge_grid, 0.0 if ridges.limit else ridges.low, ridges.high))
    pairs = np.stack(np.meshgrid(forget, ridge, indexing="ij"), -1).reshape(-1, 2)
    mixture = mix_experts(problem, pairs[:, 0].copy(), pairs[:, 1].copy(), X, complete, span, rule)
    best = int(np.argmin(mixture.expert_loss.sum(axis=0)))
    at = gradient.SearchResult(
        float(pairs[best, 0]),
        float(pairs[best, 1]),
        problem.tried[best][2],
        tuple(
            name
            for name, value, axis in (
                ("forget", pairs[best, 0], forget),
                ("ridge", pairs[best, 1], ridge),
            )
            if len(axis) > 1 and value in (axis.min(), axis.max())
        ),
        "",
    )
    words = f"the best of {len(pairs)} experts in hindsight"
    if at.at_bound:
        words += f", at an end of the grid in {' and '.join(at.at_bound)}"
    low, high = span.T
    targets = problem.Y[problem.learned]
    outside = int((np.clip(targets, low, high) != targets).sum())
    if outside:
        words += f"; {outside} targets lie outside y_range and were clipped to it in the losses"
    tuned = _build_result(problem, memories, ridges, at._replace(message=words), shape)
    return tuned._replace(mixture=in_user_units(problem, mixture, single))


def _build_result(
    problem: ForecastLoss,
    memories: Any,
    ridges: Any,
    best: gradient.SearchResult,
    shape: NDArray | None,
) -> Tuning:
    """Build a result in the user's units, with its curves."""
    tried = tuple(np.array(column) for column in zip(*problem.tried, strict=True))
    curve, ridge_curve, path = (
        Curve(f, problem.reported_ridge(r), problem.reported(loss))
        for f, r, loss in (
            gradient.losses_by_forget(problem, memories, best),
            gradient.losses_by_ridge(problem, ridges, best),
            tried,
        )
    )
    size = float(problem.reported_ridge(best.ridge))
    return Tuning(
        best.forget,
        size if shape is None else size * shape,
        float(problem.reported(best.loss)),
        curve,
        ridge_curve,
        path,
        best.at_bound,
        best.message,
    )


def _scaled(problem: ForecastLoss, ridge: NDArray | None) -> NDArray | None:
    """Convert ridges to the units of the scaled data."""
    return None if ridge is None else np.ldexp(ridge, -problem.ridge_unit)

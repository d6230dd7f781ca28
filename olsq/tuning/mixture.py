"""Mixture of many regressions, weighted online by their past predictions.

Every expert k is a recursive regression with its own forgetting factor and ridge; its prediction
``p_kt``, clipped to an interval of length R, knows the rows up to one horizon before t only.  With
``v_kt`` proportional to ``exp(-eta sum_{s<t} w_s (y_s - p_ks)^2)`` and W the largest w_s:

* "aggregating" (Vovk 1990): at ``eta = 2 / (R^2 W)`` the squared loss is mixable (Haussler,
  Kivinen & Warmuth 1998; Cesa-Bianchi & Lugosi 2006, section 3.6): with the generalised prediction
  ``g(z) = -ln(sum_k v_k exp(-eta_t (z - p_k)^2)) / eta_t`` and ``eta_t = eta w_t``, the number
  ``p = (low + high) / 2 + (g(low) - g(high)) / (2 R)`` has ``(z - p)^2 <= g(z)`` for every z in
  the interval.  Summed over the rows: regret <= ln(K) / eta = R^2 W ln(K) / 2.
* "average": at ``eta = 1 / (2 R^2 W)`` ``exp(-eta (z - p)^2)`` is concave in p (Cesa-Bianchi &
  Lugosi 2006, section 3.3), so that ``p = sum_k v_k p_k`` does it (their Proposition 3.1):
  regret <= ln(K) / eta = 2 R^2 W ln(K).

With a horizon of h rows the errors of the last h - 1 are not known when a row is predicted.  Rows
h apart are then a stream of their own, each with its mixture: every bound holds for each of the h
streams, which is the best order possible (Weinberger & Ordentlich 2002).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from olsq.kernels import kernel
from olsq.online.horizon import predictions_from
from olsq.tuning.objective import ForecastLoss
from olsq.tuning.result import Mixture

RULES = {"aggregating": 2.0, "average": 0.5}  # eta R^2 W


def expert_predictions(
    problem: ForecastLoss, forget: float, ridge: float, X: NDArray, complete: NDArray
) -> NDArray[np.float64]:
    """Predict every row of X (scaled) with one expert, (n, m), NaN where X has a missing value.

    ``complete`` (n,) marks the rows that are learned; a row without its target is predicted from
    the coefficients after the last complete one known by then.
    """
    m, one_row = problem.Y.shape[1], problem.is_one_row
    out = np.full((len(X), m), np.nan)
    asked = ~complete & np.isfinite(X).all(axis=1)
    if one_row and not asked.any():
        residuals = problem.residuals(forget, ridge)
        problem.record_loss(forget, ridge, residuals)
        out[complete] = problem.Y - residuals
        return out
    path = problem.path(forget, ridge)
    problem.record_loss(forget, ridge, np.where(problem.learned[:, None], path.residual, 0.0))
    if not one_row:
        return predictions_from(path, X, problem.source)
    out[complete] = problem.Y - path.residual
    out[asked] = predictions_from(path, X[asked], np.cumsum(complete)[asked] - 1)
    return out


def mix_experts(
    problem: ForecastLoss,
    forgets: NDArray,
    ridges: NDArray,
    X: NDArray,
    complete: NDArray,
    y_range: NDArray,
    rule: str,
) -> Mixture:
    """Compute the mixture of the experts (forgets[k], ridges[k]), in the units of the scaled data.

    ``y_range`` is (m, 2).
    """
    n, m, K = len(X), problem.Y.shape[1], len(forgets)
    experts = np.stack(
        [
            expert_predictions(problem, f, r, X, complete)
            for f, r in zip(forgets, ridges, strict=True)
        ],
        axis=-1,
    )
    complete_rows = np.isfinite(X).all(axis=1)
    prediction, shares = np.full((n, m), np.nan), np.empty((n, m, K))
    loss, expert_loss, bound = np.empty(m), np.empty((m, K)), np.empty(m)
    weight, learned = np.zeros(n), problem.learned
    weight[complete] = np.where(problem.scored > 0, problem.weights, 0.0)[learned]
    phases = range(min(problem.horizon, n))
    heaviest = weight.max()
    for j in range(m):
        low, high = y_range[j]
        width = high - low
        clipped = np.clip(experts[:, j], low, high)
        clipped[~complete_rows] = low  # these rows have weight 0, and their prediction becomes NaN
        target = np.full(n, low)
        target[complete] = np.clip(problem.Y[learned, j], low, high)
        # Kernels see an interval of length 1: its square does not underflow.
        unit = width if width > 0 else 1.0
        mixed = np.empty(n)
        for phase in phases:
            rows = slice(phase, None, len(phases))
            predicted = np.ascontiguousarray(mixed[rows])
            before = np.ascontiguousarray(shares[rows, j])
            aggregate(
                (clipped[rows] - low) / unit,
                (target[rows] - low) / unit,
                weight[rows].copy(),
                0.0,
                width / unit,
                RULES[rule] / heaviest,
                rule == "average",
                predicted,
                before,
            )
            mixed[rows], shares[rows, j] = predicted, before
        prediction[complete_rows, j] = np.clip(low + unit * mixed[complete_rows], low, high)
        loss[j] = weight @ ((target - low) / unit - mixed) ** 2 * unit**2
        expert_loss[j] = weight @ ((clipped - target[:, None]) / unit) ** 2 * unit**2
        bound[j] = len(phases) * width**2 * heaviest * math.log(K) / RULES[rule]
    regret = loss - expert_loss.min(axis=1)
    return Mixture(prediction, shares, forgets, ridges, expert_loss, loss, regret, bound, y_range)


@kernel()
def aggregate(experts, target, weight, low, high, eta, averaging, prediction, shares):
    """Predict every row from experts (n, K), then reweight them by their squared error.

    Fills ``prediction`` (n,) and ``shares`` (n, K), the weights before each row. A row with
    ``weight`` 0 changes no share.
    """
    n, K = experts.shape
    logs = np.zeros(K)
    middle, width = 0.5 * (low + high), high - low
    for t in range(n):
        largest = logs.max()
        total = 0.0
        for k in range(K):
            shares[t, k] = np.exp(logs[k] - largest)
            total += shares[t, k]
        mean = 0.0
        for k in range(K):
            shares[t, k] /= total
            mean += shares[t, k] * experts[t, k]
        rate = eta * weight[t]
        # At a rate of at most 1 / (2 width^2) the mean does as well (exp-concavity), without
        # dividing by a rate that may be tiny.
        if averaging or rate * width**2 <= 0.5:
            prediction[t] = mean
        else:
            # The generalised prediction g at both ends of the interval, and Vovk's substitution.
            # Losses relative to the smallest, so that no exponential underflows in all experts.
            least_low, least_high = np.inf, np.inf
            for k in range(K):
                least_low = min(least_low, (experts[t, k] - low) ** 2)
                least_high = min(least_high, (experts[t, k] - high) ** 2)
            at_low, at_high = 0.0, 0.0
            for k in range(K):
                at_low += shares[t, k] * np.exp(rate * (least_low - (experts[t, k] - low) ** 2))
                at_high += shares[t, k] * np.exp(rate * (least_high - (experts[t, k] - high) ** 2))
            g_low = least_low - np.log(at_low) / rate
            g_high = least_high - np.log(at_high) / rate
            prediction[t] = min(max(middle + (g_low - g_high) / (2 * width), low), high)
        if rate > 0:
            for k in range(K):
                logs[k] -= rate * (experts[t, k] - target[t]) ** 2


def in_user_units(problem: ForecastLoss, mixture: Mixture, single: bool) -> Mixture:
    """Convert a mixture of scaled data to the user's units; ``single`` for one target."""
    y_unit, w_unit = problem.loss_unit // 2, problem.weight_unit
    with np.errstate(over="ignore", under="ignore"):
        losses = {
            name: np.ldexp(getattr(mixture, name), problem.loss_unit + w_unit)
            for name in ("expert_loss", "loss", "regret", "regret_bound")
        }
        ends = {
            name: np.ldexp(getattr(mixture, name), y_unit) for name in ("prediction", "y_range")
        }
    mixture = mixture._replace(ridge=problem.reported_ridge(mixture.ridge), **losses, **ends)
    if not single:
        return mixture
    return mixture._replace(
        prediction=mixture.prediction[:, 0],
        weights=mixture.weights[:, 0],
        expert_loss=mixture.expert_loss[0],
        loss=float(losses["loss"][0]),
        regret=float(losses["regret"][0]),
        regret_bound=float(losses["regret_bound"][0]),
        y_range=mixture.y_range[0],
    )

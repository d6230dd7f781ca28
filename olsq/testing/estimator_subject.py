"""An estimator under test: the problem that it solves, and how its estimate is judged."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.forgetting.base import Forgetting
from olsq.online.rows.options import forget_from_half_life
from olsq.reference import regression as oracle
from olsq.testing.findings import Findings
from olsq.testing.strategies import Regression

UNDETERMINED = 1e-2  # relative error above which coefficients are too ill-determined to compare


class Problem(NamedTuple):
    """The problem that an estimator solves after every row.

    Attributes
    ----------
    ridge : float or array (d,)
        Penalty on the squared coefficients.
    forget : float
        Forgetting factor of every row, where rows bring none of their own.
    discounted : bool
        Whether the ridge is forgotten with the data.
    fit_intercept : bool
        Whether there is an intercept, which has no penalty.
    window : int or None
        Rows that count, of those with a weight; None for all.

    Examples
    --------
    >>> from olsq.testing import Problem
    >>> Problem(ridge=0.5).window is None
    True
    """

    ridge: Any = 0.0
    forget: float = 1.0
    discounted: bool = True
    fit_intercept: bool = False
    window: int | None = None


def least_squares(estimator: Any) -> Problem | None:
    """Return the problem that an estimator's parameters describe; None without a ridge."""
    if not hasattr(estimator, "ridge"):
        return None
    half_life = getattr(estimator, "half_life", None)
    forget = (
        getattr(estimator, "forget", 1.0)
        if half_life is None
        else (forget_from_half_life(half_life))
    )
    return Problem(
        estimator.ridge,
        float(forget),
        getattr(estimator, "ridge_mode", "discounted") == "discounted",
        bool(getattr(estimator, "fit_intercept", False)),
        getattr(estimator, "window", None),
    )


class Subject(NamedTuple):
    """An estimator under test, with its problem and the findings."""

    findings: Findings
    estimator: Any
    problem: Problem | None
    tolerance: float
    merge: Callable[[Any, Any], Any] | None
    rescale: Callable[[Any, float, float, float], Any] | None = None

    @property
    def forgets(self) -> bool:
        """True if rows may bring forgetting factors of their own."""
        by_strategy = isinstance(getattr(self.estimator, "forget", None), Forgetting)
        return self._accepts("forget") and not by_strategy

    @property
    def weighs(self) -> bool:
        return self._accepts("sample_weight")

    def _accepts(self, name: str) -> bool:
        return name in inspect.signature(self.estimator.partial_fit).parameters

    def train(self, data: Regression, *cuts: int, est: Any = None) -> Any:
        """Train a copy on rows up to cuts[0], then on those up to cuts[1], and so on."""
        est = copy.deepcopy(self.estimator) if est is None else est
        start = 0
        for stop in (*cuts, len(data.X)):
            if stop > start:
                options: dict[str, Any] = {}
                if self.weighs:
                    options["sample_weight"] = data.sample_weight[start:stop]
                if self.forgets:
                    options["forget"] = data.forget[start:stop]
                est.partial_fit(data.X[start:stop], data.y[start:stop], **options)
            start = stop
        return est


def row_eps(data: Regression) -> float:
    """Return the eps by which an estimate from these rows is judged, that of their dtype."""
    return float(np.finfo(data.X.dtype).eps)


def in_double(data: Regression) -> Regression:
    """Convert the rows to float64, for the oracle."""
    return data._replace(X=data.X.astype(np.float64), y=data.y.astype(np.float64))


def rows(data: Regression, *cut: int | None) -> Regression:
    """Slice the rows of a stream."""
    part = slice(*cut)
    arrays = {n: getattr(data, n)[part] for n in ("X", "y", "sample_weight", "forget")}
    return data._replace(**arrays)


def coefficients(est: Any, data: Regression) -> tuple[NDArray, NDArray]:
    """Return coef (m, d) and intercept (m,)."""
    m, d = data.y.shape[1], data.X.shape[1]
    coef = np.asarray(est.coef_, np.float64).reshape(m, d)
    intercept = getattr(est, "intercept_", 0.0)
    return coef, np.broadcast_to(np.asarray(intercept, np.float64), (m,))


def row_weights(s: Subject, data: Regression) -> tuple[NDArray, NDArray]:
    """Return the weight of each row at the end, and the ridge that is left."""
    problem, n = s.problem or Problem(), len(data.X)
    weights = data.sample_weight if s.weighs else np.ones(n)
    gates = data.forget if s.forgets else np.full(n, problem.forget)
    counted, decay = np.ones(n), gates.prod() if problem.discounted else 1.0
    if problem.window is not None:  # whose ridge stays
        counted[np.flatnonzero(weights > 0)[: -problem.window]], decay = 0.0, 1.0
    ridge = np.broadcast_to(np.asarray(problem.ridge, float) * decay, data.X.shape[1])
    return counted * oracle.row_weights(gates, weights, n - 1, None), ridge


def judge(
    s: Subject,
    name: str,
    where: str,
    est: Any,
    data: Regression,
    other: Any = None,
    least_condition: float = 1.0,
) -> None:
    """Check that ``est`` is optimal after these rows, and equals ``other`` if that is given."""
    where = f"stream {data.kind!r}{where}"
    coef, intercept = coefficients(est, data)
    if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        s.findings.fail(name, where, "coefficients are not finite")
        return
    problem, (weights, ridge) = s.problem or Problem(), row_weights(s, data)
    if not weights.any():
        return
    eps, data = row_eps(data), in_double(data)
    best, bias, _, _, kappa = oracle.solve(data.X, data.y, weights, ridge, problem.fit_intercept)
    if s.problem is not None:
        excess, rounding = _excess(
            (data.X, data.y, weights, ridge), (coef, intercept), (best, bias)
        )
        limit = s.tolerance * eps * rounding
        s.findings.judge(name, f"{where} (objective)", excess, np.minimum(excess, 0), limit)
    if other is None:
        return
    kappa = max(kappa, least_condition)
    allowed = s.tolerance * eps * kappa**2 if np.isfinite(kappa) else np.inf
    if allowed < UNDETERMINED:
        size = np.abs(data.X).max(0)
        want = coefficients(other, data)[0]
        scale = max(np.abs(want * size).max(), np.abs(data.y).max())
        s.findings.judge(name, f"{where} (coef)", coef * size, want * size, allowed * scale)


def _excess(data: Any, estimate: Any, best: Any) -> tuple[NDArray, NDArray]:
    """Return the objective's excess over its minimum (m,), and what its rounding scales with."""
    X, Y, weights, ridge = data

    def value(coef: NDArray, intercept: NDArray) -> NDArray:
        return weights @ (Y - X @ coef.T - intercept) ** 2 + (ridge * coef**2).sum(1)

    coef, intercept = estimate
    size = np.abs(Y) + np.abs(X) @ np.abs(coef).T + np.abs(intercept)
    return value(*estimate) - value(*best), weights @ size**2 + (ridge * coef**2).sum(1)


def condition(s: Subject, data: Regression) -> float:
    """Return the condition number of the system after these rows, columns scaled to unit length."""
    weights, ridge = row_weights(s, data)
    data = in_double(data)
    intercept = (s.problem or Problem()).fit_intercept
    return float(oracle.solve(data.X, data.y, weights, ridge, intercept)[-1])

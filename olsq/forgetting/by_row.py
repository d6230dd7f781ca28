"""Forgetting by a factor per row that does not depend on the data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from olsq.forgetting.base import Forgetting, read_factor, read_length, sum_of_weights


@dataclass(frozen=True)
class Exponential(Forgetting):
    """Exponential forgetting: what ``forget=factor`` does, by name.

    ``Rbar_t = factor R_{t-1}``: a row counts ``factor`` to the power of its age in rows.

    Parameters
    ----------
    factor : float
        In (0, 1]; 1 forgets nothing.

    Notes
    -----
    Steady-state window: ``1 / (1 - factor)`` rows, the sum of the weights.  (The variance of a mean
    is that of ``(1 + factor) / (1 - factor)`` rows that count the same.)  Combines with every
    option; merges.  Directions that no row excites wind up at the rate ``factor^-t`` until
    wind-up protection holds them.  Exact, and as fast as the number.

    References: Ljung & Soderstrom 1983, ch. 2; Haykin 2014, ch. 10.

    Examples
    --------
    >>> import olsq
    >>> olsq.forgetting.Exponential(0.98).window
    50.0
    """

    factor: float
    weights_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._set(factor=read_factor(self.factor))

    @property
    def window(self) -> float:
        return round(sum_of_weights(self.factor), 9)

    def row_factor(self) -> float:
        return self.factor


@dataclass(frozen=True)
class Stabilised(Exponential):
    """Exponential forgetting in a form that holds what it is about to lose (stabilised).

    ``Rbar_t = factor R_{t-1}``, and where that leaves coefficient j less information than rounding
    does, ``Rbar_t += a e_j e_j^T`` with the observation "it has its present value": nothing moves,
    nothing overflows, other directions keep forgetting.

    Parameters
    ----------
    factor : float
        In (0, 1].

    Notes
    -----
    This is what ``forget=factor`` does too; the name asks for it, so that ``ridge_mode="fixed"``,
    which lets coefficients return to zero, is refused.  The level at
    which a coefficient is held is that of rounding (see :class:`olsq.RecursiveLeastSquares`): it
    keeps a stream alive through any quiet stretch, but the first rows after one still move the
    coefficients freely.  For bounds in units of your own use :class:`ExponentialResetting`.

    Steady-state window: ``1 / (1 - factor)`` rows.  Merges.

    References: Kulhavy & Zarrop 1993, "On a general concept of forgetting".

    Examples
    --------
    >>> import numpy as np, olsq
    >>> est = olsq.RecursiveLeastSquares(forget=olsq.forgetting.Stabilised(0.9))
    >>> X = np.random.default_rng(0).standard_normal((40_000, 2))
    >>> X[100:, 1] = 0.0  # a regressor that falls silent
    >>> _ = est.fit(X, X @ [1.0, 2.0])
    >>> est.coef_.round(6), est.determined_
    (array([1., 2.]), array([ True, False]))
    """

    def refuse_options(self, parameters: dict[str, Any]) -> None:
        super().refuse_options(parameters)
        if parameters["ridge_mode"] == "fixed":
            raise ValueError(
                "forget=Stabilised(...) holds coefficients, which ridge_mode='fixed' returns to "
                "zero: use ridge_mode='discounted', or forget=Exponential(factor)"
            )


@dataclass(frozen=True)
class ByTime(Forgetting):
    """Forgetting by the time that passes between rows, whatever their number.

    ``Rbar_t = 2^(-elapsed_t / half_life) R_{t-1}``, elapsed since the row learned before.

    Parameters
    ----------
    half_life : str, timedelta or float
        As text, "30D" or "36h", or a timedelta, where times are dates; a number in their unit,
        where they are numbers.  Rows must have times: ``partial_fit(X, y, times=...)``, or an index
        of dates.

    Notes
    -----
    What ``half_life=`` does, by name, but that a number is a time and never a count of rows.
    Steady-state window: ``half_life / ln 2`` of time, times the rows that come in a unit of it
    (``window`` is inf: it depends on the stream).  Combines with every option; merges.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> est = olsq.RecursiveLeastSquares(forget=olsq.forgetting.ByTime(2.0), fit_intercept=False)
    >>> _ = est.fit(np.ones((2, 1)), [0.0, 3.0], times=[0.0, 2.0])  # the first row counts a half
    >>> est.coef_.round(2)
    array([2.])
    """

    half_life: Any
    weights_rows: ClassVar[bool] = True
    TIMED: ClassVar[str] = "half_life"

    def __post_init__(self) -> None:
        self._set(half_life=read_length(self.half_life, "half_life"))

    @property
    def window(self) -> float:
        return math.inf

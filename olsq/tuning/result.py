"""What :func:`olsq.tune` returns."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Curve(NamedTuple):
    """The one-step-ahead loss at k places.

    Attributes
    ----------
    forget : array (k,)
    ridge : array (k,)
        In units of ``ridge_shape`` where one was given.
    loss : array (k,)
        Weighted mean of the squared one-step-ahead errors.
    """

    forget: NDArray[np.float64]
    ridge: NDArray[np.float64]
    loss: NDArray[np.float64]


class Mixture(NamedTuple):
    """An online mixture of K regressions, each with its own forgetting factor and ridge.

    Attributes
    ----------
    prediction : array (n,) or (n, m)
        Of each row of y, made from the rows before it; NaN where X has a missing value.
    weights : array (n, K) or (n, m, K)
        Of each expert in that prediction: they sum to 1.
    forget, ridge : array (K,)
        What the experts are; ``ridge`` in units of ``ridge_shape`` where one was given.
    expert_loss : array (K,) or (m, K)
        Weighted sum of each expert's squared errors, of clipped predictions.
    loss : float or array (m,)
        The same sum for the mixture.
    regret : float or array (m,)
        ``loss`` less the smallest ``expert_loss``; negative where the mixture beats every expert.
    regret_bound : float or array (m,)
        What ``regret`` cannot exceed, whatever the data are.
    y_range : array (2,) or (m, 2)
        The interval that predictions, and targets in the losses, were clipped to.
    """

    prediction: NDArray[np.float64]
    weights: NDArray[np.float64]
    forget: NDArray[np.float64]
    ridge: NDArray[np.float64]
    expert_loss: NDArray[np.float64]
    loss: float | NDArray[np.float64]
    regret: float | NDArray[np.float64]
    regret_bound: float | NDArray[np.float64]
    y_range: NDArray[np.float64]


class Tuning(NamedTuple):
    """A forgetting factor and a ridge, with what they were chosen from.

    Attributes
    ----------
    forget : float
        In [0, 1]; give it to :class:`olsq.RecursiveLeastSquares`.
    ridge : float or array (d,)
        A number; with ``ridge_shape``, one for each feature.
    loss : float
        Weighted mean of the squared one-step-ahead errors at the two, in units of y squared.
    curve : Curve
        The loss along the forgetting factor, at the ridge chosen, in ascending order.
    ridge_curve : Curve
        The loss along the ridge, at the forgetting factor chosen.
    path : Curve
        Everything that was tried on the way, in order.
    at_bound : tuple of str
        Which of "forget" and "ridge" ended at the end of its range.
    message : str
        How the search ended, in words.
    mixture : Mixture or None
        With ``method="mixture"``.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> X = np.arange(1.0, 9.0)[:, None]
    >>> tuned = olsq.tune(X, 2.0 * X[:, 0], fit_intercept=False)
    >>> tuned.forget, tuned.ridge, tuned.at_bound
    (1.0, 0.0, ('forget', 'ridge'))
    """

    forget: float
    ridge: float | NDArray[np.float64]
    loss: float
    curve: Curve
    ridge_curve: Curve
    path: Curve
    at_bound: tuple[str, ...]
    message: str
    mixture: Mixture | None = None

    @property
    def half_life(self) -> float:
        """Rows after which a weight has halved: inf at ``forget = 1``."""
        if self.forget <= 0:
            return 0.0
        return math.inf if self.forget == 1 else -math.log(2) / math.log(self.forget)

"""Result of :func:`olsq.tune`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.brief import brief_repr
from olsq.online.rows.durations import is_duration


class Curve(NamedTuple):
    """Losses of forecasts (one step ahead, or of the ``horizon``) at k points.

    Attributes
    ----------
    forget : array (k,)
    ridge : array (k,)
        In units of ``ridge_shape`` where one was given.
    loss : array (k,)
        Weighted mean of the squared errors.
    """

    forget: NDArray[np.float64]
    ridge: NDArray[np.float64]
    loss: NDArray[np.float64]

    __repr__ = brief_repr


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

    __repr__ = brief_repr


class Tuning(NamedTuple):
    """A forgetting factor and a ridge, with the losses that they were chosen by.

    Attributes
    ----------
    forget : float
        In [0, 1]; give it to :class:`olsq.RecursiveLeastSquares`.  With half-lives in time it is
        the factor of one ``step``: give ``half_life`` instead.
    ridge : float or array (d,)
        A number; with ``ridge_shape``, one for each feature.
    loss : float
        Weighted mean of the squared errors at the two, in units of y squared.
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
    horizon : int, float, str or timedelta
        Of the forecasts, as it was given.
    step : timedelta64, float or None
        With half-lives in time the mean time between rows.

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
    horizon: Any = 1
    step: Any = None

    def __repr__(self) -> str:
        """Summarise the choice, its loss, and where the search ended, in a few lines."""
        ridge = np.asarray(self.ridge)
        shown = (
            f"{float(ridge):.6g}"
            if ridge.ndim == 0
            else (f"{ridge.size} numbers from {ridge.min():.4g} to {ridge.max():.4g}")
        )
        lines = [
            f"Tuning: forget={self.forget:.8g} (half-life {self._half_life_shown}), ridge={shown}",
            f"  loss        {self.loss:.6g}  (weighted mean squared {self._ahead} error)",
        ]
        ones = np.flatnonzero(np.asarray(self.curve.forget) == 1)
        if self.forget < 1 and ones.size:
            beside = float(np.asarray(self.curve.loss)[ones[-1]])
            gain = f", {100 * (1 - self.loss / beside):.3g} % saved" if beside > 0 else ""
            lines.append(f"  at forget=1 {beside:.6g}{gain}")
        if self.at_bound:
            lines.append(f"  at the end of its range: {', '.join(self.at_bound)}")
        if self.mixture is not None:
            lines.append(f"  mixture of {np.asarray(self.mixture.forget).size} regressions")
        if self.message:
            lines.append(f"  {self.message}")
        lines.append("  arrays: .curve, .ridge_curve, .path; .plot() draws the first two")
        return "\n".join(lines)

    @property
    def _ahead(self) -> str:
        """The horizon as an adjective."""
        if is_duration(self.horizon):
            length = self.horizon
            text = length if isinstance(length, str) else _length_shown(np.timedelta64(length))
            return f"{text}-ahead"
        return "one-step-ahead" if self.horizon == 1 else f"{self.horizon:,}-row-ahead"

    def plot(self) -> Any:
        """Draw the loss along the forgetting factor and along the ridge.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ImportError
            Without matplotlib: the extra ``plot``.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.5), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        memory = 1 / np.maximum(1 - np.asarray(self.curve.forget), 1e-12)
        finite = np.asarray(self.curve.forget) < 1
        left.plot(memory[finite], np.asarray(self.curve.loss)[finite], marker=".")
        unit = "rows" if self.step is None else "mean steps between rows"
        left.set(
            xscale="log", xlabel=f"memory 1 / (1 - forget), {unit}", ylabel="mean squared error"
        )
        for loss in np.asarray(self.curve.loss)[~finite][:1]:
            left.axhline(loss, linestyle=":", color="0.4", label="forget = 1")
            left.legend(frameon=False)
        if self.forget < 1:
            left.axvline(1 / (1 - self.forget), color="0.7", linewidth=1)
        ridges, losses = np.asarray(self.ridge_curve.ridge), np.asarray(self.ridge_curve.loss)
        right.plot(ridges[ridges > 0], losses[ridges > 0], marker=".")
        right.set_xscale("log")
        for loss in losses[ridges == 0][:1]:
            right.axhline(loss, linestyle=":", color="0.4", label="ridge = 0")
            right.legend(frameon=False)
        right.set_xlabel("ridge")
        return figure

    @property
    def half_life(self) -> Any:
        """Rows after which a weight has halved, or the time (timedelta64 between dates): inf at
        ``forget = 1``.
        """
        if self.forget == 1:
            return math.inf
        steps = 0.0 if self.forget <= 0 else -math.log(2) / math.log(self.forget)
        return steps if self.step is None else steps * self.step

    @property
    def _half_life_shown(self) -> str:
        half_life = self.half_life
        if not isinstance(half_life, np.timedelta64):
            return f"{half_life:.4g}{' rows' if self.step is None else ''}"
        return _length_shown(half_life)


def _length_shown(length: np.timedelta64) -> str:
    """Format a length of time as text that is read back, to four digits."""
    seconds = length / np.timedelta64(1, "s")
    for name, unit in (("D", 86400), ("h", 3600), ("min", 60)):
        if seconds >= unit:
            return f"{seconds / unit:.4g}{name}"
    return f"{seconds:.4g}s"

"""Finite impulse responses: the last values of X."""

from __future__ import annotations

from typing import Any

from olsq.features.lagged import LaggedBuilder, Taps
from olsq.features.parameters import check_integer


class FIR(LaggedBuilder):
    """The last values of X: ``x_{t-delay}, ..., x_{t-delay-taps+1}``.

    Parameters
    ----------
    taps : int, default 1
        How many.
    delay : int, default 0
        Rows before the first of them.
    of : column or sequence of columns, optional
        By name or position; default: all.
    carry : bool, default False
        See :class:`Lags`.

    Notes
    -----
    The regressors of an adaptive filter; an echo canceller's, with the far end's signal as X.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.features import FIR
    >>> fir = FIR(3)
    >>> fir.partial_transform(np.arange(1.0, 4.0)[:, None])
    array([[ 1., nan, nan],
           [ 2.,  1., nan],
           [ 3.,  2.,  1.]])
    >>> fir.get_feature_names_out(["far"]).tolist()
    ['far_lag0', 'far_lag1', 'far_lag2']
    """

    def __init__(
        self, taps: int = 1, *, delay: int = 0, of: Any = None, carry: bool = False
    ) -> None:
        self.taps = taps
        self.delay = delay
        self.of = of
        self.carry = carry

    def _taps(self) -> Taps:
        first = check_integer("delay", self.delay, 0)
        return Taps([], range(first, first + check_integer("taps", self.taps, 1)))

"""Regressors of an autoregression with inputs."""

from __future__ import annotations

from typing import Any

from olsq.features.lagged import LaggedBuilder, Taps
from olsq.features.parameters import check_integer


def arx_taps(na: Any, nb: Any, delay: Any) -> Taps:
    """Return the lags of y and of X that the orders and the delay of an ARX model mean."""
    of_y, of_x = check_integer("na", na, 0), check_integer("nb", nb, 0)
    first = check_integer("delay", delay, 0)
    if of_y + of_x == 0:
        raise ValueError("na and nb are both 0: there would be no features")
    return Taps(range(1, of_y + 1), range(first, first + of_x))


class ARX(LaggedBuilder):
    """``y_{t-1}, ..., y_{t-na}``, and of every input ``x_{t-delay}, ..., x_{t-delay-nb+1}``.

    Parameters
    ----------
    na, nb : int, default 1
        Numbers of lags of y and of each input; one of them may be 0.
    delay : int, default 1
        Rows before an input acts on y; 0 where the same row's does.
    of : column or sequence of columns, optional
        The inputs, by name or position; default: all columns of X.
    carry : bool, default False
        See :class:`Lags`.

    Notes
    -----
    Orders and delay are those of MATLAB's ``arx([na nb nk])`` (there y's lags enter with the
    opposite sign).  With ``na > 0`` features are made of y, and :class:`Lags` says what that means
    for scikit-learn.

    References
    ----------
    Ljung, "System Identification" (1999), section 4.2.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.features import ARX
    >>> arx = ARX(na=1, nb=2, delay=1)
    >>> arx.partial_transform([[1.0], [2.0], [3.0]], [10.0, 20.0, 30.0])
    array([[nan, nan, nan],
           [10.,  1., nan],
           [20.,  2.,  1.]])
    >>> arx.get_feature_names_out().tolist()
    ['y_lag1', 'x0_lag1', 'x0_lag2']
    """

    def __init__(
        self, na: int = 1, nb: int = 1, *, delay: int = 1, of: Any = None, carry: bool = False
    ) -> None:
        self.na = na
        self.nb = nb
        self.delay = delay
        self.of = of
        self.carry = carry

    def _taps(self) -> Taps:
        return arx_taps(self.na, self.nb, self.delay)

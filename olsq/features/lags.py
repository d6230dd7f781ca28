"""Lagged values of y or of columns of X."""

from __future__ import annotations

from typing import Any

from olsq.features.lagged import LaggedBuilder, Taps
from olsq.features.parameters import check_lags


class Lags(LaggedBuilder):
    """Values of earlier rows.

    Parameters
    ----------
    lags : int or sequence of int, default 1
        How many rows back; a number means 1 up to it.  0, the row itself, only of X.
    of : "y", "X", column or sequence of columns, default "y"
        Whose values: y's, all of X's, or those of columns, by name (of a data frame) or position.
    carry : bool, default False
        Whether ``transform`` takes its rows as those that follow ``fit``'s, as a Pipeline that
        predicts the next rows needs.  Otherwise they are a stream of their own.

    Attributes
    ----------
    n_features_in_, feature_names_in_

    Notes
    -----
    Row t's features are ``s_{t-l}``: NaN in the first rows, and where ``s`` was missing l rows
    before.  O(lags) memory, and no arithmetic: float32 comes out as the same number in float64.

    With ``of="y"`` scikit-learn's contract cannot hold as it stands, since ``transform(X)`` has no
    y: give it (``transform(X, y)``), or lag a column of X that holds the target.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> from olsq.features import Lags
    >>> rng = np.random.default_rng(0)
    >>> y = np.zeros(500)
    >>> for t in range(2, 500):
    ...     y[t] = 1.2 * y[t - 1] - 0.5 * y[t - 2] + rng.standard_normal()
    >>> lags, est = Lags(2), olsq.RecursiveLeastSquares()
    >>> for start in range(0, 500, 100):
    ...     block = y[start : start + 100]
    ...     _ = est.partial_fit(lags.partial_transform(None, block), block)
    >>> est.coef_.round(1)
    array([ 1.2, -0.5])
    >>> forecast = est.predict(lags.peek(None))
    """

    def __init__(self, lags: Any = 1, *, of: Any = "y", carry: bool = False) -> None:
        self.lags = lags
        self.of = of
        self.carry = carry

    def _taps(self) -> Taps:
        if isinstance(self.of, str) and self.of == "y":
            return Taps(check_lags(self.lags, 1), [])
        return Taps([], check_lags(self.lags, 0))

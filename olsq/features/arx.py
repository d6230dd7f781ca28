"""Regressors of autoregressions with inputs, linear (ARX) and polynomial (NARX)."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.features.base import State
from olsq.features.lags import LaggedBuilder, Taps
from olsq.features.parameters import bounded_integer
from olsq.features.table import Table


def arx_taps(na: Any, nb: Any, delay: Any) -> Taps:
    """Return the lags of y and of X that the orders and the delay of an ARX model mean."""
    of_y, of_x = bounded_integer("na", na, 0), bounded_integer("nb", nb, 0)
    first = bounded_integer("delay", delay, 0)
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
    step : length of time, optional
        The length of a lag of 1, such as ``"1h"``; default: a row.
    times, tolerance
        With ``step``, as for :class:`Lags`.
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
        self,
        na: int = 1,
        nb: int = 1,
        *,
        delay: int = 1,
        of: Any = None,
        step: Any = None,
        times: Any = None,
        tolerance: Any = None,
        carry: bool = False,
    ) -> None:
        self.na = na
        self.nb = nb
        self.delay = delay
        self.of = of
        self.step = step
        self.times = times
        self.tolerance = tolerance
        self.carry = carry

    def _taps(self) -> Taps:
        return arx_taps(self.na, self.nb, self.delay)


MOST_FEATURES = 10_000  # with more, a state of d^2 numbers (800 MB) does not fit most machines


class NARX(LaggedBuilder):
    """All monomials, up to a degree, of the values that :class:`ARX` gives.

    Parameters
    ----------
    na, nb, delay, of, step, times, tolerance, carry
        As for :class:`ARX`.
    degree : int, default 2
        Largest degree of a monomial.  The constant is left to the regression's intercept.

    Notes
    -----
    ``(p + degree)! / (p! degree!) - 1`` features of p lagged values, by degree and then in order:
    those of degree 1 are ARX's.  Powers of large numbers are larger: bring X and y to about 1.

    References
    ----------
    Billings, "Nonlinear System Identification" (2013), section 2.2.

    Examples
    --------
    >>> from olsq.features import NARX
    >>> narx = NARX(na=1, nb=1, degree=2).fit([[1.0], [2.0]], [3.0, 4.0])
    >>> narx.get_feature_names_out().tolist()
    ['y_lag1', 'x0_lag1', 'y_lag1^2', 'y_lag1*x0_lag1', 'x0_lag1^2']
    >>> narx.peek([[5.0]])
    array([[ 4.,  2., 16.,  8.,  4.]])
    """

    def __init__(
        self,
        na: int = 1,
        nb: int = 1,
        *,
        delay: int = 1,
        degree: int = 2,
        of: Any = None,
        step: Any = None,
        times: Any = None,
        tolerance: Any = None,
        carry: bool = False,
    ) -> None:
        self.na = na
        self.nb = nb
        self.delay = delay
        self.degree = degree
        self.of = of
        self.step = step
        self.times = times
        self.tolerance = tolerance
        self.carry = carry

    def _taps(self) -> Taps:
        bounded_integer("degree", self.degree, 1)
        return arx_taps(self.na, self.nb, self.delay)

    def _open(self, table: Table) -> State:
        state = super()._open(table)
        self._check_size(len(self._places(state["columns"], table.targets)))
        return state

    def _check_state(self, state: State, width: int, targets: int) -> None:
        super()._check_state(state, width, targets)
        self._check_size(len(self._places(state["columns"], targets)))

    def _check_size(self, p: int) -> None:
        """Raise ValueError if p lagged values have too many monomials."""
        degree = int(self.degree)
        # Of a large p or degree the binomial coefficient alone takes seconds.
        small = min(p, degree) == 0 or max(p, degree) <= MOST_FEATURES
        count = math.comb(p + degree, min(p, degree, 20)) - 1 if small else MOST_FEATURES + 1
        if count > MOST_FEATURES:
            raise ValueError(
                f"{p} lagged values have more than {MOST_FEATURES} monomials up to degree "
                f"{degree}: lower na, nb or degree"
            )

    def _monomials(self, p: int) -> list[tuple[int, ...]]:
        """List the factors' indices of every monomial, by degree."""
        return [
            term
            for degree in range(1, int(self.degree) + 1)
            for term in combinations_with_replacement(range(p), degree)
        ]

    def _build(self, state: State, table: Table, learn: bool) -> tuple[NDArray[np.float64], State]:
        values, state = super()._build(state, table, learn)
        terms = self._monomials(values.shape[1])
        out = np.empty((table.n, len(terms)))
        with np.errstate(over="ignore"):  # what overflows is infinite, and that row is skipped
            for k, term in enumerate(terms):
                out[:, k] = values[:, term[0]]
                for factor in term[1:]:
                    out[:, k] *= values[:, factor]
        return out, state

    def _names(self, state: State, labels: list[str], targets: int) -> list[str]:
        base = super()._names(state, labels, targets)
        return [
            "*".join(f"{base[i]}^{k}" if k > 1 else base[i] for i, k in Counter(term).items())
            for term in self._monomials(len(base))
        ]

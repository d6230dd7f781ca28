"""Lagged values of y and of columns of X, and finite impulse responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.features.base import FeatureBuilder, State
from olsq.features.files import check_columns, check_keys
from olsq.features.parameters import check_integer, check_lags
from olsq.features.table import Table


class Taps(NamedTuple):
    """Lags of y's columns and of X's columns; ranges, so that many of them take no memory."""

    y: Sequence[int]
    X: Sequence[int]


class LaggedBuilder(FeatureBuilder):
    """Features ``s_{t-l}`` of sources s (columns of X, then of y) and their lags l."""

    of: Any

    def _taps(self) -> Taps:
        """Return the lags that the parameters ask for."""
        raise NotImplementedError

    @property
    def _uses_y(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return bool(self._taps().y)

    def _check_parameters(self) -> None:
        self._taps()

    def _depth(self) -> int:
        taps = self._taps()
        return max(_largest(taps.y), _largest(taps.X))

    def _open(self, table: Table) -> State:
        taps = self._taps()
        columns = []
        if taps.X:
            if table.X is None:
                raise ValueError(f"{type(self).__name__} requires X: its features are made of it")
            columns = table.find(self.of, self)
        width = len(columns) + (max(table.targets, 1) if taps.y else 0)
        return {"columns": columns, "tail": np.full((self._depth(), width), np.nan)}

    def _places(self, columns: list[int], targets: int) -> list[tuple[int, int]]:
        """List (source, lag) of every feature: those of y first, all lags of a source together."""
        taps, n_x = self._taps(), len(columns)
        target_lags = [
            (n_x + j, lag) for j in range(max(targets, 1) if taps.y else 0) for lag in taps.y
        ]
        return target_lags + [(j, lag) for j in range(n_x) for lag in taps.X]

    def _build(self, state: State, table: Table, learn: bool) -> tuple[NDArray[np.float64], State]:
        columns, tail = state["columns"], state["tail"]
        parts = [table.numbers(columns)] if columns else []
        if self._taps().y:
            assert table.y is not None
            parts.append(table.y)
        rows = np.concatenate([tail, np.concatenate(parts, axis=1)])
        places = self._places(columns, table.targets)
        depth, out = len(tail), np.empty((table.n, len(places)))
        for k, (source, lag) in enumerate(places):
            out[:, k] = rows[depth - lag : depth - lag + table.n, source]
        return out, {"columns": columns, "tail": rows[len(rows) - depth :].copy()}

    def _names(self, state: State, labels: list[str], targets: int) -> list[str]:
        sources = [labels[c] for c in state["columns"]]
        sources += [f"y{j}" for j in range(targets)] if targets else ["y"]
        return [f"{sources[s]}_lag{lag}" for s, lag in self._places(state["columns"], targets)]

    def _check_state(self, state: State, width: int, targets: int) -> None:
        check_keys(state, {"columns", "tail"})
        check_columns(state["columns"], width)
        taps, tail = self._taps(), state["tail"]
        if bool(taps.X) != bool(state["columns"]):
            raise ValueError("columns and lags of X do not belong together")
        sources = len(state["columns"]) + (max(targets, 1) if taps.y else 0)
        fits = isinstance(tail, np.ndarray) and tail.shape == (self._depth(), sources)
        if not fits or tail.dtype != np.float64:
            raise ValueError("the history does not have the shape of its lags")


def _largest(lags: Sequence[int]) -> int:
    """Return the largest lag, 0 of none, without going through a range."""
    if isinstance(lags, range):
        return lags[-1] if lags else 0
    return max(lags, default=0)


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

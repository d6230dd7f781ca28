"""The features of several builders side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.features.base import FeatureBuilder, State
from olsq.features.files import check_columns, check_keys
from olsq.features.table import Table


class Union(FeatureBuilder):
    """The features of several builders, and columns of X as they are, in one array.

    Parameters
    ----------
    builders : sequence of builders
        Their parameters are read and they stay as they are: history and files are the union's.
    passthrough : bool, column or sequence of columns, default False
        Columns of X that are features themselves, after the others; True for all.
    carry : bool, default False
        See :class:`Lags`; the builders' own is not read.

    Notes
    -----
    scikit-learn's FeatureUnion does the same for ``fit`` and ``transform``; this one also
    continues: ``partial_transform``, ``peek``, ``save``.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.features import Fourier, Lags, Trend, Union
    >>> features = Union([Lags(2), Fourier(12), Trend()], passthrough=True)
    >>> features.partial_transform(np.zeros((5, 1)), np.arange(5.0)).shape
    (5, 6)
    >>> features.get_feature_names_out(["price"]).tolist()
    ['y_lag1', 'y_lag2', 'sin1/12', 'cos1/12', 'trend', 'price']
    """

    _text = True

    def __init__(
        self, builders: Any = (), *, passthrough: Any = False, carry: bool = False
    ) -> None:
        self.builders = builders
        self.passthrough = passthrough
        self.carry = carry

    @property
    def _timed(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return any(builder._timed for builder in self.builders)

    @property
    def _uses_y(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return any(builder._uses_y for builder in self.builders)

    def _check_parameters(self) -> None:
        if not hasattr(self.builders, "__len__"):
            raise ValueError(f"builders must be a sequence of builders, got {self.builders!r}")
        for builder in self.builders:
            if not isinstance(builder, FeatureBuilder):
                raise ValueError(f"builders must be objects of olsq.features, got {builder!r}")
            builder._check_parameters()
        if not len(self.builders) and self.passthrough is False:
            raise ValueError("builders is empty and passthrough is False: there are no features")

    def _open(self, table: Table) -> State:
        columns = []
        if self.passthrough is not False:
            of = None if self.passthrough is True else self.passthrough
            columns = table.find(of, self)
        return {"columns": columns, "parts": [b._open(table) for b in self.builders]}

    def _restart(self, state: State, table: Table) -> State:
        pairs = zip(self.builders, state["parts"], strict=True)
        return {**state, "parts": [b._restart(part, table) for b, part in pairs]}

    def _build(self, state: State, table: Table, learn: bool) -> tuple[NDArray[np.float64], State]:
        blocks, parts = [], []
        for builder, part in zip(self.builders, state["parts"], strict=True):
            features, after = builder._build(part, table, learn)
            blocks.append(features)
            parts.append(after)
        if state["columns"]:
            blocks.append(table.numbers(state["columns"]))
        return np.concatenate(blocks, axis=1), {**state, "parts": parts}

    def _names(self, state: State, labels: list[str], targets: int) -> list[str]:
        names = []
        for builder, part in zip(self.builders, state["parts"], strict=True):
            names += builder._names(part, labels, targets)
        return names + [labels[c] for c in state["columns"]]

    def _check_state(self, state: State, width: int, targets: int) -> None:
        check_keys(state, {"columns", "parts"})
        check_columns(state["columns"], width)
        if self.passthrough is False and state["columns"]:
            raise ValueError("nothing is passed through")
        if not isinstance(state["parts"], list) or len(state["parts"]) != len(self.builders):
            raise ValueError("parts are not those of the builders")
        for builder, part in zip(self.builders, state["parts"], strict=True):
            builder._check_state(part, width, targets)

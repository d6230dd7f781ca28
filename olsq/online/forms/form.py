"""The interface of a form of the state, for form switch, windows and readers; copies of forms."""

from __future__ import annotations

import copy
import functools
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from olsq.online.forms.limits import DOUBLE
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.schema import Fields
from olsq.problem import Moments


class Form(ABC):
    """The state of one stream in one of its forms.

    A factor may hold a stack of states instead, to read them together: every array then has a
    leading axis of b streams, (..., d) below is (b, d), and the zero pivots are in the same places.
    A stack does not learn.

    Attributes
    ----------
    columns, tally, loss, held, spread : arrays
        Counters that every form keeps; they are described with the kernels.
    precision : str
        The dtype that the rows were given in: what they agree to says nothing.
    """

    name: ClassVar[str]
    FIELDS: ClassVar[Fields]  # the arrays; one that a state is without is None
    ARGUMENTS: ClassVar[tuple[str, ...]] = ("intercept", "precision")  # what else makes a form
    reports_residuals: bool = True

    intercept: bool
    precision: str
    columns: NDArray[np.float64]
    tally: NDArray[np.float64]
    loss: NDArray[np.float64]
    held: NDArray[np.int64]
    spread: NDArray

    @property
    def shared(self) -> dict[str, Any]:
        """Arguments that are the same for another form of this state."""
        names = "columns", "tally", "loss", "held", "spread", "intercept", "precision"
        return {name: getattr(self, name) for name in names}

    @property
    @abstractmethod
    def in_kernels(self) -> tuple[NDArray, ...]:
        """The arrays as the kernels take them: matrix, coefficients, columns, tally, loss."""

    @property
    def spread_in_kernels(self) -> NDArray | None:
        """``spread``, or None where nobody asks for it: kernels are compiled without it then."""
        return self.spread if self.spread.size else None

    @abstractmethod
    def update(self, rows: Rows, start: int, stop: int, residual: NDArray, trace: Trace) -> int:
        """Absorb rows from start on; return the first one that is not taken, or stop."""

    def learns_in_steps(self, gate: float) -> bool:
        """Test whether a row with this factor changes the state in several steps of Python, which
        an interrupt could part.
        """
        return False

    def absorb(self, rows: Rows, residual: NDArray, trace: Trace) -> None:
        """Absorb all rows of a call."""
        self.update(rows, 0, rows.X.shape[0], residual, trace)

    @property
    @abstractmethod
    def rank(self) -> int: ...

    @property
    @abstractmethod
    def full_rank(self) -> bool: ...

    @abstractmethod
    def coefficients(self) -> NDArray[np.float64]:
        """Return theta (..., m, d), of minimum norm where undetermined."""

    @abstractmethod
    def determined(self) -> NDArray[np.bool_]:
        """Mask (..., d) of the coefficients that the data and the ridge determine."""

    @abstractmethod
    def inverse_diagonal(self) -> NDArray[np.float64]:
        """Return the diagonal (..., d) of the inverse information; inf where undetermined."""

    @abstractmethod
    def sandwich(self) -> tuple[NDArray[np.float64], Any]:
        """Return the diagonal (..., d) of ``P S P``, inf where undetermined, and ``tr(P S)``
        (...).
        """

    @abstractmethod
    def rounding_of_squares(self) -> float:
        """Return the rounding error of sums of squares, in units of the targets' about 0."""

    @abstractmethod
    def explained(self) -> NDArray[np.float64]:
        """Return by how much coefficients lower the objective (m,), beyond an intercept alone."""

    @abstractmethod
    def whitened(self, X: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return rows w (..., n, r) with ``w_s . w_t = x_s . P x_t``, and the mask (..., n) of
        known x.

        P is the inverse information.  An x is known if it lies in the span of what the data and
        the ridge determine; w means nothing where it does not.
        """

    @abstractmethod
    def unwhitened(self, W: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows ``P x`` (..., n, d) for the rows ``whitened(x)``; any generalised inverse P
        will do.
        """

    def solved(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows ``P x`` (..., n, d)."""
        return self.unwhitened(self.whitened(X)[0])

    def deviations(self, W: NDArray[np.float64], sandwich: bool) -> NDArray[np.float64]:
        """Return rows (..., n, d) of the covariance P, or ``P S P``, for rows of independent
        standard normal numbers.
        """
        return self.solved(W @ self.spread) if sandwich else self.unwhitened(W)

    def leverage(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``x . P x`` (..., n), inf where x is not known; O(d^2) per row."""
        with np.errstate(over="ignore", invalid="ignore"):  # of a row whose square has no number
            W, known = self.whitened(X)
            leverage = (W**2).sum(-1)
        return np.where(known & ~self.is_held(X, leverage), leverage, np.inf)

    def sandwich_leverage(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``x . P S P x`` (..., n), inf where x is not known; O(d^2) per row."""
        with np.errstate(over="ignore", invalid="ignore"):
            half = self.solved(X) @ np.swapaxes(self.spread, -1, -2)
            leverage = (half**2).sum(-1)
        return np.where(np.isfinite(self.leverage(X)), leverage, np.inf)

    def is_held(self, X: NDArray[np.float64], leverage: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Mask (..., n) of the x that point along a coefficient held by wind-up protection."""
        return np.zeros(X.shape[:-1], np.bool_)

    @abstractmethod
    def moments(self, ridge: NDArray, discounted: bool) -> Moments:
        """Return gram and cross; ``ridge`` (d,) is what the problem's gram started with."""

    def keep_targets(self, targets: NDArray[np.int64]) -> None:
        """Drop all targets but these."""
        for name, field in self.FIELDS.items():
            array = getattr(self, name)
            if field.target_axis is not None and array is not None:
                setattr(self, name, np.take(array, targets, field.target_axis))

    def arrays(self) -> dict[str, NDArray]:
        """Return every array of the state, by name."""
        arrays = {name: getattr(self, name) for name in self.FIELDS}
        return {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def restore(cls, arguments: dict[str, Any], arrays: dict[str, NDArray]) -> Self:
        """Rebuild the form from what describes it and the results of :meth:`arrays`."""
        precision = arguments["precision"][1]  # behind the state's, which is float64
        own = {name: arrays[name] for name in cls.FIELDS if name in arrays}
        return cls(**own, **arguments | {"precision": precision})

    def describe(self) -> dict[str, Any]:
        """Return what :func:`olsq.online.forms.form_switch.restore` needs besides the arrays."""
        arguments = {name: getattr(self, name) for name in self.ARGUMENTS}
        precision = [DOUBLE, self.precision]
        return {"form": self.name, "arguments": arguments | {"precision": precision}}


State = TypeVar("State")

SMALL = 16_384  # numbers of a state whose copy takes some microseconds

_PLAIN = frozenset({float, int, bool, str, bytes, type(None)})


def copied(state: State, made: dict[int, Any] | None = None) -> State:
    """Copy an object that holds arrays as ``copy.deepcopy`` does, in a tenth of the time.

    Made for every call of several rows.  Arrays keep their order in memory; what is neither an
    array, nor plain, nor an object of such attributes is left to ``copy.deepcopy``.  ``made`` holds
    copies by identity, for one object under two names.
    """
    made, kind = {} if made is None else made, type(state)
    if id(state) in made:
        return made[id(state)]
    if isinstance(state, np.ndarray) and kind is np.ndarray and not state.dtype.hasobject:
        twin: Any = state.copy("K")
    elif _is_of_attributes(kind):
        twin = made[id(state)] = object.__new__(kind)
        attributes = vars(twin)
        for name, value in vars(state).items():
            attributes[name] = value if type(value) in _PLAIN else copied(value, made)
    elif isinstance(state, tuple) and all(type(value) in _PLAIN for value in state):
        return state
    else:
        return copy.deepcopy(state, made)
    made[id(state)] = twin
    return twin


@functools.cache
def _is_of_attributes(kind: type) -> bool:
    """Test whether copying an object's attributes copies it: ours, without ``__deepcopy__``."""
    ours = kind.__module__.startswith("olsq.online.")
    return ours and kind.__dictoffset__ != 0 and not hasattr(kind, "__deepcopy__")

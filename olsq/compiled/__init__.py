"""Recursive least squares inside the user's own compiled loop.

Every function can be called from ``@numba.njit`` code, also ``nogil``, ``parallel`` and cached, and
from Python, on a :class:`State`, a named tuple of arrays.  One target, no intercept.  The
conversions are for Python only.
"""

from olsq.compiled import overloads as _overloads  # noqa: F401  registers them with Numba
from olsq.compiled.conversion import from_estimator, to_estimator
from olsq.compiled.functions import coef, init, predict, state_at, update
from olsq.compiled.state import State

__all__ = [
    "State",
    "coef",
    "from_estimator",
    "init",
    "predict",
    "state_at",
    "to_estimator",
    "update",
]

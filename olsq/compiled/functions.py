"""The public functions as Python calls them: check the arguments, then run a kernel.

:mod:`olsq.compiled.overloads` says what the same names mean in compiled code.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.checks import is_integer, shown
from olsq.arrays.reals import real_array
from olsq.compiled import calls
from olsq.compiled.state import State, check_state
from olsq.kernels import compile_external_kernels, waiting_kernels
from olsq.online.many.rows import check_number
from olsq.online.rows.inputs import check_ridge_size
from olsq.online.rows.options import check_forget, check_ridge
from olsq.problem import LARGEST

_LARGEST = LARGEST[np.dtype(np.float64)]


def init(n_features: int, *, ridge: ArrayLike = 1e-3, n: int | None = None) -> State:
    """Make the state of one filter, or of n filters, before any row.

    Parameters
    ----------
    n_features : int
        Number of regressors d.  There is no intercept: give a regressor of ones.
    ridge : float or array (d,), default 1e-3
        Penalty on the squared coefficients, forgotten with the data, in units of the regressors
        squared.  0 is ordinary least squares, of minimum norm until rows determine it, as
        :class:`olsq.RecursiveLeastSquares` is by default.  Where some columns are 1e8 times as
        long as others, undetermined coefficients are not those of least norm.
    n : int, optional
        Number of filters.  Every array of the state then has a leading axis n;
        :func:`state_at` is one of them.

    Returns
    -------
    State
        d^2 + 6 d + 10 numbers, O(n d^2) for n filters.

    Raises
    ------
    TypeError, ValueError
        If ``n_features`` or ``n`` is not an integer of at least 1, or ``ridge`` is negative, not
        finite, or of another length.  In compiled code too: call it before a ``prange``, not in it.

    Notes
    -----
    In compiled code ``ridge`` and ``n`` are keywords as well, and ``ridge`` is a number or a
    float64 array.  No derivatives.

    Examples
    --------
    >>> from olsq import compiled
    >>> state = compiled.init(2, ridge=1.0)
    >>> compiled.coef(state)
    array([0., 0.])
    >>> compiled.init(2, n=1000).factor.shape
    (1000, 2, 3)
    """
    check_number(n_features, "n_features")
    if n is not None:
        check_number(n, "n")
    vector = check_ridge(ridge, int(n_features))
    check_ridge_size(vector)
    if n is None:
        return calls.make_one(int(n_features), vector)
    return calls.make_several(int(n), int(n_features), vector)


def state_at(states: State, i: int) -> State:
    """Return filter i of n: a view, so that updating it updates ``states``.

    Parameters
    ----------
    states : State
        Of n filters, made by ``init(..., n=n)``.
    i : int
        From 0; negative numbers count from the end.

    Returns
    -------
    State
        Of one filter, without a copy.  It costs nothing in compiled code.

    Raises
    ------
    TypeError, IndexError
        In Python, if there is no such filter.  In compiled code the state is then one of no
        coefficients: predictions and residuals of it are NaN, and nothing is written.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq import compiled
    >>> states = compiled.init(1, ridge=1.0, n=3)
    >>> compiled.update(compiled.state_at(states, 1), np.ones(1), 2.0)
    2.0
    >>> compiled.coef(states)
    array([[0.],
           [1.],
           [0.]])
    """
    check_state(states, "states", many=True)
    if states.factor.ndim == 2:
        raise ValueError("states holds one filter: give it to update and predict as it is")
    if not is_integer(i):
        raise TypeError(f"i must be an integer, got {shown(i)}")
    size = states.factor.shape[0]
    if not -size <= i < size:
        raise IndexError(f"i is {i}, but states has {size} filters, 0 to {size - 1}")
    return State(*(array[i] for array in states))


def predict(state: State, x: ArrayLike) -> float:
    """Predict one row: the product of its regressors and the coefficients.

    Parameters
    ----------
    state : State
        Of one filter.  It is only read: several threads may predict with one state.
    x : array (d,)
        float64 in compiled code.

    Returns
    -------
    float
        NaN where x has a missing value, as ``RecursiveLeastSquares.predict``.  In compiled code
        also where x has another length than the state.

    Raises
    ------
    TypeError, ValueError
        In Python, for an x that is not of shape (d,).  In compiled code a wrong type is a
        ``TypingError`` when the caller is compiled, and nothing is raised after that.

    Notes
    -----
    O(d^2): the factor is solved.  No derivatives.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq import compiled
    >>> state = compiled.init(2, ridge=1.0)
    >>> compiled.predict(state, np.array([1.0, 2.0]))
    0.0
    """
    row = _check_x(x, check_state(state))
    if waiting_kernels:
        compile_external_kernels()
    return calls.predict_arrays(*state, row)


def update(state: State, x: ArrayLike, y: float, forget: float = 1.0, weight: float = 1.0) -> float:
    """Learn one row, in place; return its a-priori residual ``y - predict(state, x)``.

    The coefficients are those of ``RecursiveLeastSquares(fit_intercept=False, ridge=ridge)`` after
    the same rows, bit by bit where they are determined.  So is its wind-up protection, which holds
    coefficients that forgetting is about to lose.

    Parameters
    ----------
    state : State
        Of one filter.  Two threads must not update one state at a time.
    x : array (d,)
        Regressors; float64 in compiled code.
    y : float
    forget : float, default 1
        Forgetting factor in [0, 1] of this row; 0 starts afresh.
    weight : float, default 1
        Weight >= 0 of this row.  A row of weight 0 is not learned, but forgetting goes on.

    Returns
    -------
    float
        NaN where the row was skipped, which leaves the state as it was: a row with a missing or
        infinite value.  In compiled code also a row that Python refuses.

    Raises
    ------
    TypeError, ValueError
        In Python, for an x that is not of shape (d,), a forgetting factor outside of [0, 1], a
        weight that is negative or not finite, and values whose squares overflow.  In compiled code
        wrong types are a ``TypingError`` when the caller is compiled, and nothing is raised after
        that.

    Notes
    -----
    O(d^2).  No allocation where coefficients are well determined.  No derivatives:
    :func:`olsq.update` with :func:`olsq.query` has them, in JAX.

    References: as :class:`olsq.RecursiveLeastSquares`.

    Examples
    --------
    >>> import numba, numpy as np
    >>> from olsq import compiled
    >>> @numba.njit
    ... def learn(X, y):
    ...     state = compiled.init(X.shape[1], ridge=1.0)
    ...     for t in range(len(y)):
    ...         compiled.update(state, X[t], y[t], 0.99, 1.0)
    ...     return compiled.coef(state)
    >>> learn(np.ones((1, 1)), np.array([4.0])).round(3)
    array([2.01])
    """
    d = check_state(state)
    row = _check_x(x, d)
    target, factor, own = (
        _read_number(value, name)
        for value, name in ((y, "y"), (forget, "forget"), (weight, "weight"))
    )
    check_forget(factor)
    if not 0 <= own < math.inf:
        raise ValueError(f"weight must be finite and >= 0, got {own!r}")
    size = max(float(np.abs(row).max()), abs(target))
    if size < math.inf and max(size, 1.0) * max(1.0, math.sqrt(own)) > _LARGEST:
        raise ValueError(
            f"x or y contains a value of magnitude {size:.3g} and the weight is {own:.3g}; squares "
            f"of values beyond {_LARGEST:.0e}, times the weight, overflow. Rescale them"
        )
    if waiting_kernels:
        compile_external_kernels()
    return calls.update_arrays(*state, row, target, factor, own)


def coef(state: State) -> NDArray[np.float64]:
    """Return the coefficients, a new array.

    Parameters
    ----------
    state : State
        Of one filter or of n.

    Returns
    -------
    array (d,) or (n, d)
        Of minimum norm while rows and ridge do not determine them.

    Raises
    ------
    TypeError, ValueError
        In Python, for what is no state.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq import compiled
    >>> state = compiled.init(2, ridge=1.0)
    >>> compiled.update(state, np.array([0.0, 1.0]), 3.0)
    3.0
    >>> compiled.coef(state)
    array([0. , 1.5])
    """
    check_state(state, many=True)
    compile_external_kernels()
    return calls.coef(state) if state.factor.ndim == 2 else calls.coef_all(state)


def _check_x(x: Any, d: int) -> NDArray[np.float64]:
    row = np.ascontiguousarray(real_array(x, "x"), np.float64)
    if row.shape != (d,) or np.ndim(x) != 1:
        raise ValueError(
            f"x must have shape ({d},), as the state has {d} features, got shape {np.shape(x)}"
        )
    return row


def _read_number(value: Any, name: str) -> float:
    if type(value) is float:
        return value
    array = real_array(value, name)
    if array.ndim:
        raise ValueError(f"{name} must be a number, got an array of shape {array.shape}")
    return float(array)

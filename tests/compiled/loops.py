"""Loops of a user, which the tests share: each takes a second to compile."""

import numba
import numpy as np

from olsq import compiled


@numba.njit
def learn(state, X, y, forget, weight):
    """Learn rows one at a time: coefficients (n, d), predictions and residuals (n,)."""
    n, d = X.shape
    coef, prediction, residual = np.empty((n, d)), np.empty(n), np.empty(n)
    for t in range(n):
        prediction[t] = compiled.predict(state, X[t])
        residual[t] = compiled.update(state, X[t], y[t], forget[t], weight[t])
        coef[t] = compiled.coef(state)
    return coef, prediction, residual

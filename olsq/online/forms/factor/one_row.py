"""One ordinary row of a NumPy stream: checked, predicted and learned by one kernel."""

from __future__ import annotations

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.counting import absorb_squares, count_row
from olsq.online.forms.edges import check_spread
from olsq.online.forms.factor.counters import count_squares, row_is_sound
from olsq.online.forms.factor.edges import check_state
from olsq.online.forms.factor.kernels import absorb_row
from olsq.online.forms.factor.path import is_determined
from olsq.online.forms.factor.registers import fma


@kernel(strict=True)
def learn_one(form, x, y, settings, limits, errors, prediction):
    """Absorb the row x (1, d), y (1,) or (1, m); False if it goes another way.

    ``form`` = (state, spread), whose spread may be None, as in :mod:`.learning`.
    ``settings`` = (gate, weight, whether a 1 for an intercept goes before x, the largest sum of
    squares of the row's numbers).  A row that is not within it, as one that is not finite is not,
    goes another way, and so does one that needs care; nothing has changed then.  The a-priori
    errors (1, m) and the ``prediction`` (m,) are written.
    """
    state, spread = form
    check_state(state)
    F, D, columns, tally, loss = state
    check_spread(spread, D.shape[0], False)
    gate, weight, intercept, settled = settings
    d, m, first = D.shape[0], loss.shape[0], 1 if intercept else 0
    targets = y.reshape(y.size)
    if x.shape != (1, d - first) or targets.shape != (m,) or errors.shape != (1, m):
        raise ValueError("the shape of the row does not fit the state")
    if prediction.shape != (m,):
        raise ValueError("the shape of the prediction does not fit the state")
    row, w, size = np.empty(d), np.empty(d + m), 0.0
    row[0] = 1.0
    for k in range(first, d):
        v = x[0, k - first]
        row[k] = v
        size += v * v
    if not size <= settled or not 0 < gate <= 1 or not weight > 0:
        return False
    for q in range(m):
        if not targets[q] * targets[q] <= settled:
            return False
        w[d + q] = targets[q]
    for k in range(d):
        w[k] = row[k]
    if not row_is_sound(D, columns, row, gate, weight, limits, tally):
        return False
    absorb_row(F, D, loss, w, gate, weight, errors[0])
    count_squares(columns, row, gate, weight)
    count_row(tally, gate, weight)
    if spread is not None:
        gates, weights = np.full(1, gate), np.full(1, weight)
        absorb_squares(spread, row.reshape(1, d), gates, weights, 0, 1)
    for q in range(m):
        prediction[q] = targets[q] - errors[0, q]
    return True


@kernel(strict=True)
def predict_one(F, D, x, intercept, out):
    """Predict the row x (1, d) into out (1, m); False where it is not finite, or F is singular."""
    d, m, first = D.shape[0], out.shape[1], 1 if intercept else 0
    if F.shape != (d, d + m) or x.shape != (1, d - first) or out.shape[0] != 1:
        raise ValueError("the shape of the row does not fit the state")
    if not is_determined(D):
        return False
    w, size = np.zeros(d + m), 0.0
    w[0] = 1.0
    for k in range(first, d):
        w[k] = x[0, k - first]
        size += w[k] * w[k]
    if not size < np.inf:
        return False
    for j in range(d):
        for k in range(j + 1, d + m):
            w[k] = fma(-w[j], F[j, k], w[k])
    for q in range(m):
        out[0, q] = -w[d + q]
    return True

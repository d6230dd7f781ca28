"""Bounds on the rounding errors in a window's form, and what can be made good without a rebuild.

Entering and leaving rows change the information R = P^-1 exactly but for rounding, so a window has
``R + sum of dR_i`` and solves ``(R + sum dR_i) theta = b + sum dR_i theta_i``, ``dR_i`` of the
order of ``eps R_i``.  What a large row has left in R is there when the row is not: the errors are
measured in the window as it is now, not as it was.  Two bounds hold for ``|R^-1/2 dR R^-1/2|``, and
the smaller one counts:

    leverages   rho <- (rho + eps inflation) / (1 - l) for each row of leverage l that leaves
    columns     sum of all (eps inflation) times max_j P_jj c_j, c the columns' largest squares

The first grows by exp(d) a window on ordinary rows, the second is not sharp for collinear columns.
Errors of theta are in units of y: the bound times ``sqrt(largest / present sum of y^2)``.

``monitor`` (2,) holds rho and the sum; ``columns[1]`` the columns' largest squares, and ``sizes``
(3, m) the sum of squared targets, its largest value and the largest loss, all of them since the
form was made or refined.
"""

from __future__ import annotations

import math

from olsq.kernels import kernel

EPS = 2.3e-16
FORGOTTEN_LOSS = 1e-6
SUM, LARGEST_SUM, LARGEST_LOSS = 0, 1, 2  # rows of ``sizes``
# How far the measured error may be below the true one: the probe is one direction of d.
SAFETY = 4.0
# A refined form must last: its bound starts below this share of the tolerated error.
SHARE = 0.125


@kernel(forceinline=True)
def is_accurate(bound, tolerance, sizes, loss):
    """Note the sizes after a row; test whether coefficients and losses are within the tolerance.

    ``bound`` is that of P's errors.
    """
    share = bound / tolerance
    fine = share < 1.0
    for target in range(loss.shape[0]):
        most = max(sizes[LARGEST_SUM, target], sizes[SUM, target])
        worst = max(sizes[LARGEST_LOSS, target], loss[target])
        sizes[LARGEST_SUM, target], sizes[LARGEST_LOSS, target] = most, worst
        # Not as quotients: a target may be 0 throughout.
        fine &= (share * share * most <= sizes[SUM, target]) & (
            loss[target] >= FORGOTTEN_LOSS * worst
        )
    return fine


@kernel(forceinline=True)
def refine(form, window, tolerance, scratch):
    """Measure P's error with the window's rows and refine all else; return whether P is accurate.

    O(rows (d + m)), where a rebuild takes O(rows d^2).  With g the gradient of the objective, theta
    becomes ``theta + P g``; losses, columns, the sum of weights and ``sizes`` are summed anew.
    P's error is that of ``P (R z)`` beside z, z a probe that has a share in every direction.
    """
    P, theta, columns, tally, loss = form
    ring_X, ring_Y, ring_w, place, ridge, monitor, sizes = window
    probe, image, step = scratch
    d, m = P.shape[0], loss.shape[0]
    slots, count, slot = ring_w.shape[0], place[0], place[1]
    weight_sum = 0.0
    for k in range(d):
        columns[0, k] = ridge[k]
    for target in range(m):
        sizes[SUM, target] = 0.0
    for r in range(count):
        row = (slot - count + r) % slots
        weight = ring_w[row]
        weight_sum += weight
        for k in range(d):
            columns[0, k] += weight * ring_X[row, k] * ring_X[row, k]
        for target in range(m):
            sizes[SUM, target] += weight * ring_Y[row, target] * ring_Y[row, target]
    tally[3] = weight_sum
    inflation = 0.0
    for k in range(d):
        columns[1, k] = columns[0, k]
        inflation = max(inflation, P[k, k] * columns[0, k])
        sign = 1.0 if math.sin(k * k + 1.0) > 0 else -1.0
        step[k] = sign * math.sqrt(columns[0, k])
    scale = math.sqrt(inflation)
    for k in range(d):
        total = 0.0
        for j in range(d):
            total += P[k, j] * step[j]
        # P^1/2 of the weak directions, R^1/2 of the others
        probe[k] = total / scale + (step[k] / columns[0, k] if columns[0, k] > 0 else 0.0)
        image[k] = ridge[k] * probe[k]
    for r in range(count):
        row = (slot - count + r) % slots
        projected = 0.0
        for k in range(d):
            projected += ring_X[row, k] * probe[k]
        projected *= ring_w[row]
        for k in range(d):
            image[k] += projected * ring_X[row, k]
    error = 0.0
    for k in range(d):
        total = probe[k]
        for j in range(d):
            total -= P[k, j] * image[j]
        error = max(error, abs(total) * math.sqrt(columns[0, k]))
    monitor[0] = monitor[1] = SAFETY * error + EPS * inflation
    good = monitor[0] < SHARE * tolerance
    for target in range(m):
        loss[target] = 0.0
        for k in range(d):
            image[k] = -ridge[k] * theta[target, k]
            loss[target] += ridge[k] * theta[target, k] * theta[target, k]
        for r in range(count):
            row = (slot - count + r) % slots
            residual = ring_Y[row, target]
            for k in range(d):
                residual -= ring_X[row, k] * theta[target, k]
            weighted = ring_w[row] * residual
            loss[target] += weighted * residual
            for k in range(d):
                image[k] += weighted * ring_X[row, k]
        gain = 0.0
        for k in range(d):
            total = 0.0
            for j in range(d):
                total += P[k, j] * image[j]
            theta[target, k] += total
            gain += total * image[k]
        # A step that is not small is not known to enough digits.
        good = good and gain <= 1e-6 * sizes[SUM, target]
        loss[target] = max(loss[target] - gain, 0.0)
        sizes[LARGEST_SUM, target], sizes[LARGEST_LOSS, target] = sizes[SUM, target], loss[target]
    return good

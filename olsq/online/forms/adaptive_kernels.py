"""Numba kernels of the forgetting strategies that are not one given factor a row.

They work on the square-root form: R upper triangular with ``R^T R`` the information matrix, and
``R theta_l = z_l``.  All that they do to it is orthogonal, or scales it, so that it stays the
factor of a positive semidefinite matrix whatever is rounded.  :mod:`olsq.forgetting` has the
equations.
"""

from __future__ import annotations

import math

from olsq.forgetting.entries import (
    BOUNDED,
    CYCLIC,
    DIRECTIONAL,
    FACTOR,
    GATE,
    LAST_TRACE,
    LONGEST,
    PER_COEFFICIENT,
    RESET,
    RESETTING,
    SMALLEST,
    TRACE,
    TURN,
    VARIABLE,
)
from olsq.kernels import kernel
from olsq.linalg.numpy.rotations import rotate_pair
from olsq.online.forms.error_kernels import factor_by_error
from olsq.online.forms.square_root_kernels import rotate
from olsq.online.forms.triangular_kernels import back_substitute, inverse_diagonal

SMALLEST_SQUARE, LARGEST_SQUARE = 1e-250, 1e250  # between these no square has lost digits


@kernel(called=True)
def inflate(R, z, g, step, row, rest):
    """Update R, z from P to ``P + step^2 g g^T``, leaving the coefficients R theta = z unchanged.

    ``theta' = theta + step g w`` with w of variance 1 is the system of rows ``[1 | 0]`` and
    ``[-step R g | R]`` in (w, theta'); rotations from the last row up clear the column of w, and
    keep R triangular (the square-root information filter's time update; Bierman 1977, ch. 6).
    ``g`` (d,); row (d,) and rest (m,) are scratch.
    """
    d, m = R.shape[0], z.shape[0]
    for k in range(d):
        row[k] = 0.0
    for target in range(m):
        rest[target] = 0.0
    last = d - 1
    while last >= 0 and g[last] == 0:
        last -= 1
    pivot = 1.0
    for i in range(last, -1, -1):
        own, other = R[i, i:], row[i:]
        v = 0.0
        # v = step (R g)_i, the entry of row i in the column of w
        for k in range(last + 1 - i):
            v += own[k] * g[i + k]
        v *= step
        if v == 0:
            continue
        # rotate (pivot, v) to (length, 0): row i of R against the row of w
        length = math.hypot(pivot, v)
        c, s = pivot / length, v / length
        pivot = length
        rotate_pair(own, other, c, s, 1.0)
        rotate_pair(z[:, i], rest, c, s, 1.0)


@kernel(forceinline=True)
def scale(R, z, factor):
    """Multiply R and z by a factor."""
    d, m = R.shape[0], z.shape[0]
    for i in range(d):
        for k in range(i, d):
            R[i, k] *= factor
        for target in range(m):
            z[target, i] *= factor


@kernel(forceinline=True)
def scale_columns(R, factors):
    """Multiply column j of R by ``factors[j]``."""
    for i in range(R.shape[0]):
        own, part = R[i, i:], factors[i:]
        for k in range(own.shape[0]):
            own[k] *= part[k]


@kernel(called=True)
def set_targets(R, z, theta):
    """Set z to ``R theta``, so that the coefficients become theta."""
    d, m = R.shape[0], z.shape[0]
    for i in range(d):
        own = R[i, i:]
        for target in range(m):
            known = theta[target, i:]
            total = 0.0
            for k in range(own.shape[0]):
                total += own[k] * known[k]
            z[target, i] = total


@kernel(called=True)
def observe_as_they_are(R, z, shares, first, count, scratch):
    """Add ``shares[j]`` of information to coefficients first..first + count, which do not move."""
    theta, x, y, noise = scratch
    d, m = R.shape[0], z.shape[0]
    back_substitute(R, z, theta)
    for i in range(count):
        j = (first + i) % d
        for k in range(d):
            x[k] = noise[k] = 0.0
        # the row sqrt(share_j) e_j with the target it already has, so that its residual is 0
        x[j] = math.sqrt(shares[j])
        for target in range(m):
            y[target] = x[j] * theta[target, j]
        rotate(R, z, x, y, 1.0, noise)


@kernel(forceinline=True)
def power_of_two(size):
    """Return a power of two that scales ``size`` > 0 to about 1, itself and its inverse normal."""
    return math.ldexp(1.0, min(max(-math.frexp(size)[1], -1000), 1000))


@kernel(forceinline=True)
def image_of_unit(R, x, g, image):
    """Compute ``g = x / |R x|`` (d,); return False where ``R x`` is 0. image (d,) is scratch.

    x and then R x are first multiplied by powers of two, which is exact: on streams whose rows are
    far below the information of older ones, the squares would underflow.
    """
    d = R.shape[0]
    largest = 0.0
    for k in range(d):
        largest = max(largest, abs(x[k]))
    if largest == 0:
        return False
    up = power_of_two(largest)
    for k in range(d):
        g[k] = up * x[k]
    largest = 0.0
    for i in range(d):
        own, part = R[i, i:], g[i:]
        total = 0.0
        for k in range(own.shape[0]):
            total += own[k] * part[k]
        image[i] = total
        largest = max(largest, abs(total))
    if largest == 0:
        return False
    up, size = power_of_two(largest), 0.0
    for i in range(d):
        size += (up * image[i]) ** 2
    share = 1.0 / math.sqrt(size)
    for k in range(d):
        g[k] *= share * up
    return True


@kernel(forceinline=True)
def factor_by_trace(options, memory, R, inverse, diagonal):
    """Compute the factor that keeps the trace of P bounded.

    The trace is computed afresh every d rows, O(d^2) per row, and carried between: dividing by
    factors enlarges its rounding error like that of P.
    """
    d = R.shape[0]
    if memory[LAST_TRACE] <= 0 or memory[TURN] >= d:
        inverse_diagonal(R, inverse, diagonal)
        total = 0.0
        for j in range(d):
            total += diagonal[j]
        memory[LAST_TRACE] = total
        memory[TURN] = 0
    return min(1.0, max(options[FACTOR], memory[LAST_TRACE] / options[TRACE]))


@kernel(forceinline=True)
def carry_trace(memory, R, p, u, factor, weight, leverage):
    """Update the trace of P for a row with ``p = R^-T x``, ``leverage = p.p``, before R changes."""
    d = R.shape[0]
    size = 0.0
    for i in range(d - 1, -1, -1):  # u = R^-1 p = P x
        total = p[i]
        for k in range(i + 1, d):
            total -= R[i, k] * u[k]
        u[i] = total / R[i, i]
        size += u[i] * u[i]
    before = memory[LAST_TRACE]
    # tr P' = (tr P - w |P x|^2 / (factor + w x.P x)) / factor
    after = before - weight * size / (factor + weight * leverage)
    memory[LAST_TRACE] = after / factor if after > 1e-3 * before else 0.0  # digits were cancelled
    memory[TURN] += 1


@kernel(forceinline=True)
def undetermined_factor(kind, options):
    """Return the factor of a row that is no new direction, while coefficients are undetermined.

    All that is known forgets by it: factors by coefficient and the trace of P need a full rank.
    """
    if kind == VARIABLE:
        return options[LONGEST]
    return options[FACTOR] if kind in (PER_COEFFICIENT, RESETTING, RESET) else 1.0


@kernel(forceinline=True)
def forget(strategy, form, x, p, judged, elapsed, scratch):
    """Forget: update R, z to the state before row x is learned.

    Returns the factor that is left for the rotation to apply, and the one that counts of rows and
    the loss forget with.  x (d,), p = R^-T x; ``strategy`` and ``judged`` as in
    ``error_kernels.continue_trial``; ``scratch`` = (theta (m, d), row (d,), rest (m,), g (d,),
    inverse (d, d)).
    """
    kind, options, vectors, memory, _, _ = strategy
    R, z, _, _, _ = form
    theta, row, rest, g, inverse = scratch
    _, leverage, weight, _ = judged
    d = R.shape[0]
    factor = options[FACTOR]
    if kind in (VARIABLE, RESET):
        gate = factor_by_error(strategy, judged, d, rest)
        memory[GATE] = gate
        return gate, gate
    if kind == BOUNDED:
        gate = factor_by_trace(options, memory, R, inverse, g)
        carry_trace(memory, R, p, g, gate, weight, leverage)
        memory[GATE] = gate
        return gate, gate
    # Rbar = F R F with F = diag(sqrt(factors)), so the factor's columns are scaled
    if kind == PER_COEFFICIENT:
        scale_columns(R, vectors[0])
        return 1.0, factor
    if kind == DIRECTIONAL:
        if factor == 1 or weight == 0:
            return 1.0, factor if weight > 0 else 1.0
        size = 0.0  # of R x
        for i in range(d):
            own, part = R[i, i:], x[i:]
            total = 0.0
            for k in range(own.shape[0]):
                total += own[k] * part[k]
            size += total * total
        for k in range(d):
            g[k] = x[k]
        # Pbar = P + (1 / factor - 1) x x^T / |R x|^2
        share = math.sqrt(1.0 / factor - 1.0)
        if SMALLEST_SQUARE < size < LARGEST_SQUARE:
            share /= math.sqrt(size)
        elif not image_of_unit(R, x, g, row):
            return 1.0, factor
        inflate(R, z, g, share, row, rest)
        return 1.0, factor
    if kind == RESETTING:
        if factor < 1:
            scale(R, z, math.sqrt(factor))
            count = 1 if options[CYCLIC] > 0 else d
            turn = int(memory[TURN]) % d
            observe_as_they_are(R, z, vectors[0], turn, count, (theta, row, rest, g))
            memory[TURN] = (turn + count) % d
        return 1.0, factor
    # Pbar = P + elapsed Q, one rank-one step per vector of Q
    step = math.sqrt(elapsed)
    for r in range(vectors.shape[0] if elapsed > 0 else 0):
        inflate(R, z, vectors[r], step, row, rest)
    return 1.0, 1.0


@kernel(forceinline=True)
def passed_over(kind, options, x, weight):
    """Test whether a row is shorter than directional forgetting accepts."""
    if kind != DIRECTIONAL or options[SMALLEST] <= 0:
        return False
    size = 0.0
    for k in range(x.shape[0]):
        size += x[k] * x[k]
    return weight * size < options[SMALLEST] ** 2

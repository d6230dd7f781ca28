"""Numba kernels of the forgetting strategies that are not one given factor a row.

They work on the factor ``F = [U T]`` and the pivots D of :mod:`.factor.kernels`.  All that they do
to it keeps pivots from becoming negative, whatever is rounded.  :mod:`olsq.forgetting` has the
equations.
"""

from __future__ import annotations

import math

import numpy as np

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
from olsq.online.forms.error_kernels import factor_by_error
from olsq.online.forms.factor.kernels import (
    absorb_unit,
    called,
    inline,
    inner_product,
    load_unit,
)
from olsq.online.forms.factor.registers import add_scaled, fma, load4, store
from olsq.online.forms.factor.solving import solve, variances

SMALLEST_SQUARE, LARGEST_SQUARE = 1e-250, 1e250  # between these no square has lost digits


@called
def inflate(F, D, g, step, scratch):
    """Update F, D from P to ``P + step^2 g g^T``, leaving the coefficients as they are.

    ``theta' = theta + step g w`` with w of variance 1 is the system of rows ``[1 | 0]`` and
    ``[-step R g | R]`` in (w, theta'), R = D^1/2 U; rotations from the last row up clear the column
    of w, and keep R triangular (the square-root information filter's time update; Bierman 1977, ch.
    6).  Without square roots, with ``alpha`` the square of the pivot of w and b its row times it::

        h = U_i g,   alpha' = alpha + step^2 D_i h^2,   F_i' = F_i - step h / alpha b,
        b' = b + step D_i h F_i,   D_i' = D_i alpha / alpha'

    ``g`` (d,); scratch (d + m,).
    """
    d, width, alpha = D.shape[0], F.shape[1], 1.0
    for k in range(width):
        scratch[k] = 0.0
    first, last = 0, d - 1
    while last >= 0 and g[last] == 0:
        last -= 1
    while first < last and g[first] == 0:  # most are one coefficient's
        first += 1
    for i in range(last, -1, -1):
        h = step * inner_product(F, i, g, max(first, i), last + 1)
        share = D[i] * h
        if share == 0:
            continue
        part, k = h / alpha, i // 4 * 4  # b is 0 up to i
        while k + 4 <= width:
            f4, b4 = load4(F, i * width + k), load4(scratch, k)
            store(F, i * width + k, add_scaled(f4, -part, b4))
            store(scratch, k, add_scaled(b4, share, f4))
            k += 4
        for j in range(max(k, i), width):
            f, b = F[i, j], scratch[j]
            F[i, j] = fma(-part, b, f)
            scratch[j] = fma(share, f, b)
        before = alpha
        alpha += share * h
        D[i] *= before / alpha


@inline
def scale_columns(F, D, factors):
    """Multiply column j of ``R = D^1/2 U`` by ``factors[j]`` (d,)."""
    d = D.shape[0]
    for i in range(d):
        for k in range(i + 1, d):
            F[i, k] *= factors[k] / factors[i]
        D[i] *= factors[i] * factors[i]


@called
def set_targets(F, theta):
    """Set the targets to ``U theta``, so that the coefficients become theta (m, d)."""
    m, d = theta.shape
    for i in range(d):
        for q in range(m):
            total = theta[q, i]
            for k in range(i + 1, d):
                total += F[i, k] * theta[q, k]
            F[i, d + q] = total


@called
def observe_as_they_are(F, D, shares, first, count):
    """Add ``shares[j]`` of information to coefficients first..first + count, which do not move."""
    d, width = F.shape
    m = width - d
    theta, w, unused, error = np.empty((m, d)), np.empty(width), np.zeros(m), np.empty(m)
    solve(F, D, theta)
    for i in range(count):
        j = (first + i) % d
        load_unit(w, j)
        for q in range(m):  # the target that e_j already has, so that its error is 0
            w[d + q] = theta[q, j]
        absorb_unit(F, D, unused, w, j, shares[j], error)


@kernel(forceinline=True)
def power_of_two(size):
    """Return a power of two that scales ``size`` > 0 to about 1, itself and its inverse normal."""
    return math.ldexp(1.0, min(max(-math.frexp(size)[1], -1000), 1000))


@inline
def image(F, D, i, x):
    """Compute entry i of ``R x``, with ``R = D^1/2 U``."""
    return math.sqrt(D[i]) * inner_product(F, i, x, i, D.shape[0])


@inline
def image_of_unit(F, D, x, g, images):
    """Compute ``g = x / |R x|`` (d,); return False where ``R x`` is 0. images (d,) is scratch.

    x and then R x are first multiplied by powers of two, which is exact: on streams whose rows are
    far below the information of older ones, the squares would underflow.
    """
    d = D.shape[0]
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
        images[i] = image(F, D, i, g)
        largest = max(largest, abs(images[i]))
    if largest == 0:
        return False
    up, size = power_of_two(largest), 0.0
    for i in range(d):
        size += (up * images[i]) ** 2
    share = 1.0 / math.sqrt(size)
    for k in range(d):
        g[k] *= share * up
    return True


@inline
def factor_by_trace(options, memory, F, D, inverse, diagonal):
    """Compute the factor that keeps the trace of P bounded.

    The trace is computed afresh every d rows, O(d^2) per row, and carried between: dividing by
    factors enlarges its rounding error like that of P.
    """
    d = D.shape[0]
    if memory[LAST_TRACE] <= 0 or memory[TURN] >= d:
        variances(F, D, inverse, diagonal)
        total = 0.0
        for j in range(d):
            total += diagonal[j]
        memory[LAST_TRACE] = total
        memory[TURN] = 0
    return min(1.0, max(options[FACTOR], memory[LAST_TRACE] / options[TRACE]))


@inline
def carry_trace(memory, F, D, p, u, factor, weight, leverage):
    """Update the trace of P for a row with parts p (d,), before F changes."""
    d = D.shape[0]
    size = 0.0
    for i in range(d - 1, -1, -1):  # u = U^-1 D^-1 p = P x
        total = p[i] / D[i]
        for k in range(i + 1, d):
            total -= F[i, k] * u[k]
        u[i] = total
        size += total * total
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


@inline
def forget(strategy, state, x, p, judged, elapsed, scratch):
    """Forget: update F, D to the state before row x is learned.

    Returns the factor that is left for the row to apply, and the one that counts of rows and the
    loss forget with.  x (d,); p (d,) its parts of :func:`take_out_parts`; ``strategy`` and
    ``judged`` as in ``error_kernels.continue_trial``; ``scratch`` = (g (d,), images (d,), row (d +
    m,), squares (m,), inverse (d, d)).
    """
    kind, options, vectors, memory, _, _ = strategy
    F, D, _, _, _ = state
    g, images, row, squares, inverse = scratch
    _, leverage, weight, _ = judged
    d = D.shape[0]
    factor = options[FACTOR]
    if kind in (VARIABLE, RESET):
        gate = factor_by_error(strategy, judged, d, squares)
        memory[GATE] = gate
        return gate, gate
    if kind == BOUNDED:
        gate = factor_by_trace(options, memory, F, D, inverse, g)
        carry_trace(memory, F, D, p, g, gate, weight, leverage)
        memory[GATE] = gate
        return gate, gate
    # Mbar = S M S with S = diag(sqrt(factors)), so the columns of R are scaled
    if kind == PER_COEFFICIENT:
        scale_columns(F, D, vectors[0])
        return 1.0, factor
    if kind == DIRECTIONAL:
        if factor == 1 or weight == 0:
            return 1.0, factor if weight > 0 else 1.0
        size = 0.0  # of R x
        for i in range(d):
            part = image(F, D, i, x)
            size += part * part
            g[i] = x[i]
        # Pbar = P + (1 / factor - 1) x x^T / |R x|^2
        share = math.sqrt(1.0 / factor - 1.0)
        if SMALLEST_SQUARE < size < LARGEST_SQUARE:
            share /= math.sqrt(size)
        elif not image_of_unit(F, D, x, g, images):
            return 1.0, factor
        inflate(F, D, g, share, row)
        return 1.0, factor
    if kind == RESETTING:
        if factor < 1:
            for j in range(d):
                D[j] *= factor
            count = 1 if options[CYCLIC] > 0 else d
            turn = int(memory[TURN]) % d
            observe_as_they_are(F, D, vectors[0], turn, count)
            memory[TURN] = (turn + count) % d
        return 1.0, factor
    # Pbar = P + elapsed Q, one rank-one step per vector of Q
    step = math.sqrt(elapsed)
    for r in range(vectors.shape[0] if elapsed > 0 else 0):
        inflate(F, D, vectors[r], step, row)
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

"""Numba kernels of the square-root form: R upper triangular, ``R^T R`` the information matrix.

Each row is rotated into R with d Givens rotations (QRD-RLS; Golub & Van Loan 6.5, Haykin ch. 15).
``z`` (m, d) holds the rotated targets, so that ``R theta_l = z_l``.  A zero pivot R_jj means
that nothing is known yet about coefficient j given the ones before it; such a row of R is zero.

``columns`` (2, d) holds the squared lengths of R's columns (the diagonal of the information) and
their values when the column last saw a nonzero regressor; ``tally`` = [forgotten count of rows, the
same with squared forgetting, product of all gates, forgotten sum of weights]; ``loss`` (m,) the
minimised objective.  ``spread`` is a triangular factor of ``S_t = gamma^2 S_{t-1} + w^2 x x^T``, or
(0, 0) where nobody asks for it.
Values are checked at the public edge; kernels that take rows check their shapes once.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.linalg.numpy.rotations import givens, rotate_pair
from olsq.online.forms.edges import (
    check_call,
    check_form,
    check_spread,
    check_trace,
    wants_sandwich,
)
from olsq.online.forms.triangular_kernels import back_substitute, forward_solve, inverse_diagonal

COUNT, COUNT_SQUARED, DECAY, WEIGHT = 0, 1, 2, 3
FAINTEST = 2.0**-1000  # the least that gates above 0 leave of anything: its root is a normal number
# No coefficient: where fewer rows than coefficients are remembered to 1e-15, each row is eliminated
# from all older ones without pivoting, and rounding errors multiply.
WILDEST = 1e100
EPS = float(np.finfo(np.float64).eps)
# From this many coefficients on a path's variances are carried along, and computed from the inverse
# of R, which is O(d^3), every 2^6 rows or when they have shrunk as much.  Smaller models compute
# them for every row, so that pieces of any size give the same bits.
CARRIED_FROM, CARRIED, MOST_INFLATION = 48, 2.0**-44, 1e6
RANK, USED = 4, 5  # a trace's row of counts goes on with the rank and tr(P S)


@kernel(called=True)
def rotate(R, z, x, y, root_gate, noise):
    """Scale R, z by root_gate and rotate the row (x, y) into them; x and y are destroyed.

    What remains in y is the row's component orthogonal to the columns (its square is the
    increase of the loss).  An x_j below ``noise[j]`` times the part of the row not yet absorbed
    is rounding error and is dropped: else a collinear stream would regress y on that error.
    """
    d, m = R.shape[0], z.shape[0]
    g = root_gate
    unabsorbed = 1.0
    for j in range(d):
        xj = x[j]
        # Rotations keep a row's digits however little of it is left, so its noise shrinks with it:
        # what an old row has to say far below the new one (after a gap) is there to be learned.
        if abs(xj) <= noise[j] * unabsorbed:
            x[j] = 0
            if g != 1:
                row = R[j, j:]
                for k in range(row.shape[0]):
                    row[k] *= g
                for target in range(m):
                    z[target, j] *= g
            continue
        pivot = R[j, j] * g
        if pivot == 0:  # the first row to say anything here: it becomes the factor's row, whole
            sign = math.copysign(1.0, xj)
            tail, row = x[j:], R[j, j:]
            for k in range(tail.shape[0]):
                row[k] = sign * tail[k]
                tail[k] = 0
            for target in range(m):
                z[target, j] = sign * y[target]
                y[target] = 0
            for i in range(j + 1, d if g != 1 else 0):
                for k in range(i, d):  # expressions of slices take seconds to compile
                    R[i, k] *= g
                for target in range(m):
                    z[target, i] *= g
            return
        c, s, R[j, j] = givens(pivot, xj)
        unabsorbed *= abs(c)
        rotate_pair(R[j, j + 1 :], x[j + 1 :], c, s, g)
        rotate_pair(z[:, j], y, c, s, g)


@kernel(called=True)
def keep_determined(form, pin, floor, scratch):
    """Hold coefficients that forgetting is about to lose (stabilised forgetting).

    Where R_jj has shrunk to ``pin`` times its column's length, or the column itself to ``floor``
    of its squared length at the last excitation, the observation "coefficient j has its present
    value" is added with just enough weight to double that level.  Its residual is zero, so no
    coefficient moves.  A value that rounding errors have made is forgotten instead.  Returns how
    many were held.
    """
    R, z, columns, _, _ = form
    noise, x, y, theta = scratch
    d, m = R.shape[0], z.shape[0]
    count = 0
    for j in range(d):
        level = math.sqrt(max(pin * pin * columns[0, j], floor * columns[1, j]))
        if R[j, j] == 0 or abs(R[j, j]) >= level:
            continue
        back_substitute(R, z, theta)
        for k in range(d):
            x[k] = noise[k] = 0.0
        wild = False
        for target in range(m):
            wild = wild or not abs(theta[target, j]) < WILDEST
        if wild:
            for k in range(d):
                R[j, k] = 0.0
            for target in range(m):
                z[target, j] = 0.0
            continue
        x[j] = 2 * level
        for target in range(m):
            y[target] = x[j] * theta[target, j]
        columns[0, j] += x[j] * x[j]
        rotate(R, z, x, y, 1.0, noise)
        count += 1
    return count


@kernel(forceinline=True)
def add_square(columns, k, gate, square):
    """Update column k's squared length by one row."""
    columns[0, k] = gate * columns[0, k] + square
    if square > 0:
        columns[1, k] = columns[0, k]


@kernel(forceinline=True)
def count_row(tally, gate, weight):
    """Update the counts of forgotten rows and the product of gates."""
    seen = 1.0 if weight > 0 else 0.0
    tally[COUNT] = gate * tally[COUNT] + seen
    tally[COUNT_SQUARED] = gate * gate * tally[COUNT_SQUARED] + seen
    # Never 0 but after a reset: what a merge leaves of older rows is faint, and is there.
    tally[DECAY] = max(gate * tally[DECAY], FAINTEST) if gate > 0 and tally[DECAY] > 0 else 0.0
    tally[WEIGHT] = gate * tally[WEIGHT] + weight


@kernel(called=True)
def absorb_squares(spread, X, gates, weights, start, stop):
    """Rotate rows start..stop, times their weights, into ``spread``; gates forget them squared.

    ``spread`` may be None, or (0, 0): that of nobody.
    """
    if spread is None:
        return
    d = spread.shape[0]
    if d == 0:
        return
    check_spread(spread, X.shape[1], True)
    n = X.shape[0]
    if gates.shape != (n,) or weights.shape != (n,) or not 0 <= start <= stop <= n:
        raise ValueError("the shapes of rows, gates and weights do not fit together")
    x, noise, y, z = np.empty(d), np.zeros(d), np.empty(0), np.empty((0, d))
    for t in range(start, stop):
        for k in range(d):
            x[k] = weights[t] * X[t, k]
        rotate(spread, z, x, y, gates[t], noise)


@kernel()
def sandwich_diagonal(spread, inverse, out):
    """Compute the diagonal of ``P S P`` into ``out``; return ``tr(P S)``.

    ``spread^T spread = S`` and ``inverse inverse^T = P``, both upper triangular.  None makes 0.
    """
    if spread is None:
        return 0.0
    d = inverse.shape[0]
    half = np.zeros((d, d))  # spread @ inverse
    used = 0.0
    for i in range(d):
        row = half[i]
        for k in range(i, d):
            factor, below = spread[i, k], inverse[k]
            for j in range(k, d):
                row[j] += factor * below[j]
        for j in range(i, d):
            used += row[j] * row[j]
    for j in range(d):
        out[j] = 0.0
        for i in range(d):
            total = 0.0
            for k in range(max(i, j), d):
                total += half[i, k] * inverse[j, k]
            out[j] += total * total
    return used


@kernel(forceinline=True)
def record(trace, t, theta, loss, tally, rank, used):
    """Write the state after row t into the trace, except variances."""
    coefs, _, losses, counts, _, _ = trace
    for target in range(theta.shape[0]):
        losses[t, target] = loss[target]
        for k in range(theta.shape[1]):
            coefs[t, target, k] = theta[target, k]
    record_counts(counts, t, tally, rank, used)


@kernel(forceinline=True)
def record_counts(counts, t, tally, rank, used):
    """Write the counts that an estimate rests on after row t."""
    for k in range(tally.shape[0]):
        counts[t, k] = tally[k]
    counts[t, RANK], counts[t, USED] = rank, used


@kernel(forceinline=True)
def is_held(variance, now, excited, limits, d, tally):
    """Test whether a coefficient's information is within ten times the level where it is held.

    ``now``, ``excited`` are the two entries of ``columns``; nothing is held without forgetting.
    """
    if tally[DECAY] >= 1:
        return False
    pin = 40 * noise_level(limits, d, tally)
    return variance * now * pin * pin > 1 or now < 100 * limits[1] * excited


@kernel(forceinline=True)
def absorb(form, row, targets, gate, weight, limits, scratch):
    """Forget, rotate one row in, and hold what would be lost; return how many were held.

    ``scratch`` = (noise (d,) as ``forward_solve`` leaves it, x (d,), y (m,), theta (m, d)).
    """
    R, z, columns, tally, loss = form
    noise, x, y, _ = scratch
    d, m = R.shape[0], z.shape[0]
    root_weight = math.sqrt(weight)
    for k in range(d):
        x[k] = root_weight * row[k]
        add_square(columns, k, gate, x[k] * x[k])
        if weight > 0:
            noise[k] *= root_weight
    for target in range(m):
        y[target] = root_weight * targets[target]
    rotate(R, z, x, y, math.sqrt(gate), noise)
    for target in range(m):
        loss[target] = gate * loss[target] + y[target] * y[target]
    count_row(tally, gate, weight)
    if gate < 1:
        pin = 4 * noise_level(limits, d, tally)
        return keep_determined(form, pin, limits[1], scratch)
    return 0


@kernel(forceinline=True)
def noise_level(limits, d, tally):
    """Compute the relative rounding error of a rotated regressor.

    d rotations of the row itself, and R's own error: one rounding a row, which add up like a
    random walk over the rows that count.  On top of it what the row came with.
    """
    return limits[0] * (2 * np.sqrt(d) + 3 * np.sqrt(tally[COUNT])) + limits[2]


@kernel(called=True)
def carry_variances(R, p, gate, gain, columns, variances):
    """Update the diagonal of P for a row ``x = R^T p``, in O(d^2); False where digits are lost.

    ``P' = (P - gain u u^T) / gate`` with ``u = P x = R^-1 p``.  R is from before the row.
    ``variances`` (2, d) holds the diagonal, and bounds of its errors: a difference keeps those of
    what it is taken from.  Where rows determine little, rotations drop parts of a row that would
    count here.
    """
    d = R.shape[0]
    u = np.empty((1, d))
    back_substitute(R, p.reshape((1, d)), u)
    lost = 0
    for j in range(d):
        before = variances[0, j]
        after = (before - gain * u[0, j] * u[0, j]) / gate
        error = (variances[1, j] + 4 * EPS * before) / gate
        variances[0, j], variances[1, j] = after, error
        fine = (error < CARRIED * after) & (after * columns[0, j] < MOST_INFLATION)
        lost += 0 if fine else 1
    return lost == 0


@kernel(forceinline=True)
def update(form, spread, rows, span, limits, residual, trace):
    """Absorb the rows of a span; return (first row not absorbed, number of coefficients held).

    ``form`` = (R, z, columns, tally, loss); ``rows`` = (X, Y, gates, weights), of which those of
    ``span`` = (start, stop) are learned.  ``limits`` = (epsilon of the stored state, floor of a
    column's information, relative rounding error of the data).
    ``residual`` (n, m) receives the a-priori errors ``y - z . R^-T x``.
    ``trace`` is an ``olsq.online.forms.rows.Trace`` as a plain tuple, or None, without which Numba
    compiles half as much.  So does ``spread``, which may be None without a sandwich.
    Stops before a row whose treatment needs minimum-norm coefficients (a new direction, a reset,
    or a trace while some coefficient is undetermined): the caller takes that row alone.
    """
    check_call(form, rows, span, residual)
    R, z, columns, tally, loss = form
    X, Y, gates, weights = rows
    d, m = R.shape[0], z.shape[0]
    check_trace(trace, X.shape[0], d, m)
    check_spread(spread, d, wants_sandwich(trace))
    p, x, y, noise = np.empty(d), np.empty(d), np.empty(m), np.empty(d)
    theta = np.empty((m, d))
    scratch = noise, x, y, theta
    if trace is not None:
        _, diags, _, _, recursive, sandwich = trace
        want_variances = diags.shape[0] > 0
        inverse = np.empty((d, d) if want_variances else (0, 0))
        carrying = want_variances and d >= CARRIED_FROM and sandwich.shape[0] == 0
        carried, variances = False, np.empty((2, d))
    held = 0
    for t in range(span[0], span[1]):
        full = True
        for j in range(d):
            full = full and R[j, j] != 0
            x[j] = X[t, j]
            noise[j] = abs(x[j])
        if trace is not None and not full:
            return t, held
        if gates[t] == 0:
            return t, held
        if forward_solve(R, x, p, columns, noise_level(limits, d, tally), noise) >= 0:
            return t, held
        for target in range(m):
            total = Y[t, target]
            for k in range(d):
                total -= z[target, k] * p[k]
            residual[t, target] = total
        if trace is not None:
            leverage = 0.0
            for k in range(d):
                leverage += p[k] * p[k]
            gain = weights[t] / (gates[t] + weights[t] * leverage)
            for target in range(m):
                recursive[t, target] = residual[t, target] * math.sqrt(gates[t] * gain)
            if carried:
                carried = carry_variances(R, p, gates[t], gain, columns, variances)
        count = absorb(form, X[t], Y[t], gates[t], weights[t], limits, scratch)
        held += count
        absorb_squares(spread, X, gates, weights, t, t + 1)
        if trace is not None:
            back_substitute(R, z, theta)
            used = 0.0
            if want_variances:
                if carried and count == 0:
                    for k in range(d):
                        diags[t, k] = variances[0, k]
                else:
                    inverse_diagonal(R, inverse, diags[t])
                    carried = carrying
                    for k in range(d):
                        variances[0, k], variances[1, k] = diags[t, k], EPS * diags[t, k]
                if sandwich.shape[0] > 0:
                    used = sandwich_diagonal(spread, inverse, sandwich[t])
                for k in range(d):
                    if is_held(diags[t, k], columns[0, k], columns[1, k], limits, d, tally):
                        diags[t, k] = math.inf
            record(trace, t, theta, loss, tally, d, used)
    return span[1], held


@kernel()
def absorb_alone(form, spread, row, targets, gate, weight, limits):
    """Absorb one row that :func:`update` stops before: a reset, or a direction that may be new.

    Returns ``w gamma / (gamma + w x.P x)``, whose root times the a-priori residual is the recursive
    residual (0 where the row is a reset, or its direction new), and how many coefficients were
    held.
    """
    R, z, columns, tally, loss = form
    d, m = R.shape[0], z.shape[0]
    x, p, noise, share = np.empty(d), np.empty(d), np.empty(d), 0.0
    for attempt in range(2):
        for k in range(d):
            x[k] = row[k]
            noise[k] = abs(row[k])
        new = forward_solve(R, x, p, columns, noise_level(limits, d, tally), noise)
        if gate > 0:
            if attempt == 0 and new < 0:
                leverage = 0.0
                for k in range(d):
                    leverage += p[k] * p[k]
                share = weight * gate / (gate + weight * leverage)
            break
        # a gate of 0 drops everything before the row, which is then absorbed at gate 1
        R[:] = 0.0
        z[:] = 0.0
        columns[:] = 0.0
        tally[:] = 0.0
        loss[:] = 0.0
        if spread is not None:
            spread[:] = 0.0
        gate = 1.0
    held = absorb(
        form, row, targets, gate, weight, limits, (noise, x, np.empty(m), np.empty((m, d)))
    )
    gates, weights = np.full(1, gate), np.full(1, weight)
    absorb_squares(spread, row.reshape((1, d)), gates, weights, 0, 1)
    return share, held


@kernel()
def take_alone(form, spread, row, targets, gate, weight, limits):
    """Run :func:`absorb_alone` after a check of shapes."""
    check_form(form)
    check_spread(spread, form[0].shape[0], False)
    if row.shape != form[0].shape[:1] or targets.shape != form[4].shape:
        raise ValueError("the shape of the row does not fit the state")
    return absorb_alone(form, spread, row, targets, gate, weight, limits)


@kernel()
def absorb_observations(form, X, Y, errors, largest, faintest, limits):
    """Absorb rows X (n, d), Y (n, m) that combine rows of a factor; they forget nothing.

    ``largest`` (d,) are the largest entries of the factor's columns.  What cancels in a row leaves
    rounding errors in proportion to them, at the size of the row where that is faint, from before a
    gap: no row is older than to be ``faintest`` beside the newest.  ``errors`` (n, d), in units of
    rounding, come on top.
    """
    check_form(form)
    R, z, columns, tally, _ = form
    d, m = R.shape[0], z.shape[0]
    n = X.shape[0]
    if X.shape != (n, d) or Y.shape != (n, m) or errors.shape != X.shape or largest.shape != (d,):
        raise ValueError("the shapes of rows, targets, errors and largest do not fit the state")
    row, p, x, y, noise = np.empty(d), np.empty(d), np.empty(d), np.empty(m), np.empty(d)
    scratch = noise, x, y, np.empty((m, d))
    for t in range(n):
        level, size = noise_level(limits, d, tally), faintest
        for k in range(d):
            if X[t, k] != 0:
                size = max(size, abs(X[t, k]) / largest[k])
        for k in range(d):
            noise[k] = size * largest[k] + errors[t, k]
            x[k] = row[k] = X[t, k] if abs(X[t, k]) > level * noise[k] else 0.0
        forward_solve(R, x, p, columns, level, noise)
        absorb(form, row, Y[t], 1.0, 1.0, limits, scratch)


@kernel(forceinline=True)
def downdate(form, p, targets, root_weight, remaining, scratch):
    """Remove a row (LINPACK's downdate), given ``R^T p = root_weight * row``.

    With ``remaining = 1 - |p|^2`` (0 if the row was all that was known) rotations take
    (p, sqrt(remaining)) to (0, 1); the same rotations take [R; 0] to [R without the row; row].
    ``scratch`` = ((d,), (m,)).
    """
    (R, z, _, _, loss), (x, y) = form, scratch
    d, m = R.shape[0], z.shape[0]
    norm = math.sqrt(remaining)
    for k in range(d):
        x[k] = 0.0
    for target in range(m):
        total = root_weight * targets[target]
        for k in range(d):
            total -= z[target, k] * p[k]
        y[target] = total / norm if norm > 0 else 0.0
        loss[target] = max(loss[target] - y[target] * y[target], 0.0)
    for i in range(d - 1, -1, -1):
        c, s, norm = givens(norm, p[i])
        rotate_pair(R[i, i:], x[i:], c, -s, 1.0)
        rotate_pair(z[:, i], y, c, -s, 1.0)

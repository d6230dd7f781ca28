"""Numba kernels of the information form: moments, and a Cholesky solve for every row."""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms.edges import (
    check_call,
    check_gates,
    check_spread,
    check_trace,
    wants_sandwich,
)
from olsq.online.forms.square_root_kernels import (
    DECAY,
    absorb_squares,
    add_square,
    count_row,
    record,
    sandwich_diagonal,
)
from olsq.online.forms.triangular_kernels import back_substitute, forward_solve, inverse_diagonal

# A gate below this may leave the older rows below the rounding of newer ones.  Moments added up
# lose 16 digits there, and keep 12 above.
GAP = 1e-4
ROUNDING = 8 * float(np.finfo(np.float64).eps)  # of an entry of moments, for each coefficient


@kernel(forceinline=True)
def effective_gate(gate, columns, floor):
    """Return the gate, or the smallest that keeps one column at ``floor`` x its last excited level.

    Only a gap or an absence of any excitation gets there; forgetting on would end in underflow.
    A gate of exactly 0 is a reset, and is obeyed.
    """
    if gate == 0 or gate == 1:
        return gate
    least = math.inf
    for j in range(columns.shape[1]):
        now, excited = columns[0, j], columns[1, j]
        if excited > 0 and now > 0:  # one never excited, or not since a reset, has nothing to lose
            if gate * now >= floor * excited:
                return gate
            least = min(least, floor * excited / now if floor * excited < now else 1.0)
    return gate if least == math.inf else least


@kernel(forceinline=True)
def next_gap(gates, start, stop):
    """Find the first row of start..stop whose gate leaves little, or nothing; else return stop."""
    for t in range(start, min(stop, gates.shape[0])):
        if gates[t] < GAP:
            return t
    return stop


@kernel(forceinline=True)
def sinks(gate, columns, floor):
    """Test whether this gate would bring a column below ``floor`` x its last excited level."""
    below = 0
    for j in range(columns.shape[1]):
        below += 1 if gate * columns[0, j] < floor * columns[1, j] else 0
    return below > 0 and gate > 0


@kernel(forceinline=True)
def fill_shares(gate, columns, floor, shares):
    """Compute the share left of each column's information: the gate, or what keeps it at its floor.

    Forgetting on would end in denormal numbers, whose quotients are no coefficients.  A row and a
    column of H keep the larger share of their two: all that is held is 1e-60 of what it was, so
    that the others do not notice.
    """
    for j in range(shares.shape[0]):
        now, least = columns[0, j], floor * columns[1, j]
        shares[j] = gate
        if gate > 0 and gate * now < least:
            shares[j] = min(least / now, 1.0) if now > 0 else 1.0


@kernel(forceinline=True)
def gates_and_counts(columns, tally, X, gates, weights, floor, effective, left):
    """Fill ``effective`` with the gates after the floor, and update columns and tally.

    ``left`` (d,) receives what all rows leave of each column.  Returns whether a column was held
    at its floor: without one all of ``left`` is the product of the gates.
    """
    n, d = X.shape
    check_gates(gates, n)
    check_gates(effective, n)
    if weights.shape != (n,) or columns.shape != (2, d) or tally.shape != (4,):
        raise ValueError("the shapes of rows, weights and counters do not fit together")
    if left.shape != (d,):
        raise ValueError("left does not have the shape of the columns")
    shares, held, common, product = np.empty(d), False, 1.0, 1.0
    for k in range(d):
        left[k] = 1.0
    for t in range(n):
        product *= gates[t]
    # What all gates together leave above the floor no single one brings below it.
    calm = product > 0 and not sinks(product, columns, floor)
    for t in range(X.shape[0]):
        gate = gates[t] if calm else effective_gate(gates[t], columns, floor)
        effective[t] = gate
        if not calm and gate != 1 and sinks(gate, columns, floor):
            held = True
            fill_shares(gate, columns, floor, shares)
            for k in range(d):
                left[k] *= shares[k]
                add_square(columns, k, shares[k], weights[t] * X[t, k] ** 2)
        else:
            common *= gate
            for k in range(d):
                add_square(columns, k, gate, weights[t] * X[t, k] ** 2)
        count_row(tally, gate, weights[t])
    for k in range(d):
        left[k] *= common
    return held


@kernel(forceinline=True)
def factorise(H, ridge, decay, lost, R):
    """Factorise ``H + decay * ridge`` = R^T R; return False if it is singular to rounding.

    A pivot counts as lost when no more than ``lost`` of its diagonal entry is left, or no more than
    rounding errors in the entries above it may have made.
    """
    d = H.shape[0]
    for i in range(d):
        for j in range(i):
            R[i, j] = 0.0
        for j in range(i, d):
            R[i, j] = H[i, j]
        R[i, i] += decay * ridge[i]
    left = 1.0
    for i in range(d):
        diagonal = H[i, i] + decay * ridge[i]
        if not R[i, i] > lost * diagonal:
            return False
        left *= R[i, i] / diagonal
        pivot = math.sqrt(R[i, i])
        row = R[i, i:]
        for k in range(row.shape[0]):
            row[k] /= pivot
        for j in range(i + 1, d):
            factor = R[i, j]
            below, above = R[j, j:], R[i, j:]
            for k in range(below.shape[0]):
                below[k] -= factor * above[k]
    return left > 3 * ROUNDING * d or pivots_are_sound(R)


@kernel()
def pivots_are_sound(R):
    """Test whether every pivot of R (d, d) is more than rounding errors of ``R^T R`` can make.

    With ``A = R^T R`` and ``v = R_jj R^-1 e_j``, whose last entry is 1, errors ``E`` of A change
    pivot j, ``R_jj^2``, by ``v^T E v``: by ``eps sum v_i^2 A_ii``.  With unit columns that sum is
    at most ``R_jj^2`` over the least eigenvalue, which is more than a third of the determinant: the
    caller tries that first.  An estimate of the eigenvalue, in O(d^2), settles all but the rest.
    """
    d = R.shape[0]
    lengths = np.zeros(d)
    for i in range(d):
        for j in range(i, d):
            lengths[j] += R[i, j] * R[i, j]
    lengths = np.sqrt(lengths)
    if _inverse_norm(R, lengths) ** 2 * ROUNDING * d < 1:
        return True
    inverse, diagonal = np.zeros((d, d)), np.empty(d)
    inverse_diagonal(R, inverse, diagonal)
    for j in range(d):
        total = 0.0
        for i in range(j + 1):
            total += (lengths[i] * inverse[i, j]) ** 2
        if not total * ROUNDING * d < 1:
            return False
    return True


@kernel()
def _inverse_norm(R, lengths):
    """Estimate the largest singular value of ``diag(lengths) R^-1`` from below.

    LINPACK's way (Cline, Moler, Stewart & Wilkinson 1979): signs that make ``R^-T`` of a vector
    grow, then one step of inverse iteration.
    """
    d = R.shape[0]
    w, rest = np.empty(d), np.zeros(d)
    size = 0.0
    for i in range(d):
        sign = -1.0 if rest[i] > 0 else 1.0
        w[i] = (sign * lengths[i] - rest[i]) / R[i, i]
        size += w[i] * w[i]
        tail, row, factor = rest[i + 1 :], R[i, i + 1 :], w[i]
        for k in range(tail.shape[0]):
            tail[k] += row[k] * factor
    grown = 0.0
    for i in range(d - 1, -1, -1):
        total = w[i]
        tail, row = w[i + 1 :], R[i, i + 1 :]
        for k in range(tail.shape[0]):
            total -= row[k] * tail[k]
        w[i] = total / R[i, i]
        grown += (lengths[i] * w[i]) ** 2
    return math.sqrt(grown / size)


@kernel(forceinline=True)
def solve(R, G, theta):
    """Solve ``R^T R theta_l = g_l`` for theta (m, d)."""
    d, m = R.shape[0], G.shape[0]
    z = G.copy()
    for target in range(m):
        for i in range(d):
            z[target, i] /= R[i, i]
            value = z[target, i]
            rest, row = z[target, i + 1 :], R[i, i + 1 :]
            for k in range(rest.shape[0]):
                rest[k] -= value * row[k]
    back_substitute(R, z, theta)


@kernel(forceinline=True)
def update_solving(state, penalty, theta, rows, span, limits, residual, trace):
    """Absorb the rows of a span one at a time and solve for the coefficients after each.

    ``state`` = ((H, G, columns, tally, squares), spread); ``penalty`` = (ridge, discounted).
    ``theta`` must hold the coefficients before the span.  Returns (t, solved): if not
    solved, row t - 1 was absorbed but the system is singular: the caller finishes that row.
    ``limits`` = (floor of a column's information, relative pivot that is lost).
    """
    form, spread = state
    check_call(form, rows, span, residual)
    H, G, columns, tally, squares = form
    X, Y, gates, weights = rows
    (ridge, discounted), (floor, lost), (start, stop) = penalty, limits, span
    d, m = H.shape[0], G.shape[0]
    check_trace(trace, X.shape[0], d, m)
    if theta.shape != (m, d) or ridge.shape != (d,):
        raise ValueError("theta and ridge do not have shapes that fit the moments")
    check_spread(spread, d, wants_sandwich(trace))
    R, inverse = np.empty((d, d)), np.empty((d, d))
    x, p, noise, loss = np.empty(d), np.empty(d), np.empty(d), np.empty(m)
    shares = np.empty(d)
    effective = gates.copy()
    factored = factorise(H, ridge, tally[DECAY] if discounted else 1.0, lost, R)
    for t in range(start, stop):
        for target in range(m):
            error = Y[t, target]
            for k in range(d):
                error -= theta[target, k] * X[t, k]
            residual[t, target] = error
        gate, weight = effective_gate(gates[t], columns, floor), weights[t]
        effective[t] = gate
        if trace is not None:
            leverage = math.inf
            if factored:
                for k in range(d):
                    x[k], noise[k] = X[t, k], 0.0
                forward_solve(R, x, p, columns, 0.0, noise)
                leverage = 0.0
                for k in range(d):
                    leverage += p[k] * p[k]
            # recursive residual: e sqrt(w gamma / (gamma + w x.P x))
            share = weight * gate / (gate + weight * leverage) if weight * gate > 0 else 0.0
            for target in range(m):
                trace[4][t, target] = residual[t, target] * math.sqrt(share)
        held = sinks(gate, columns, floor)
        if held:
            fill_shares(gate, columns, floor, shares)
        for i in range(d):
            xi = weight * X[t, i]
            if held:
                for k in range(d):
                    H[i, k] = max(shares[i], shares[k]) * H[i, k] + xi * X[t, k]
                add_square(columns, i, shares[i], xi * X[t, i])
            else:
                for k in range(d):
                    H[i, k] = gate * H[i, k] + xi * X[t, k]
                add_square(columns, i, gate, xi * X[t, i])
        for target in range(m):
            yw = weight * Y[t, target]
            past = gate * squares[target] if gate > 0 else 0.0  # which may be unknown: infinite
            squares[target] = past + yw * Y[t, target]
            for k in range(d):
                G[target, k] = (shares[k] if held else gate) * G[target, k] + yw * X[t, k]
        count_row(tally, gate, weight)
        absorb_squares(spread, X, effective, weights, t, t + 1)
        decay = tally[DECAY] if discounted else 1.0
        factored = factorise(H, ridge, decay, lost, R)
        if not factored:
            return t + 1, False
        solve(R, G, theta)
        if trace is not None:
            _, diags, _, _, _, sandwich = trace
            used = 0.0
            if diags.shape[0] > 0:
                inverse_diagonal(R, inverse, diags[t])
            if sandwich.shape[0] > 0:
                used = sandwich_diagonal(spread, inverse, sandwich[t])
            for target in range(m):
                total = squares[target]
                for k in range(d):
                    total -= theta[target, k] * G[target, k]
                loss[target] = max(total, 0.0)
            record(trace, t, theta, loss, tally, d, used)
    return stop, True

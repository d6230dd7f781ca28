"""Kernels of decoding: one token of one stream, or of each stream of a batch in turn.

``*_one`` serve single streams, whose time goes into the call and not into the arithmetic.
gram and inverse (d, d), cross (m, d); key, query and ridge (d,), value (m,); gate and weight are
numbers.  In ``*_all`` each has the streams as its first axis.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import copy, inverse_factor, whiten
from olsq.sequence.numpy.tokens import absorb_token, add_inverse

# With an inverse refreshed this often a query takes about 2 steps to 1e-4, instead of 19 from a
# Jacobi start.
REFRESH_EVERY = 32  # tokens between factorisations; rank-one updates in between
REFRESH_BELOW = 0.3  # or as soon as the gates since then multiply to less than this
# or where a token's leverage k.P k, beside its gate, times the rounding unit is above this: what a
# rank-one update leaves of P along the key is a difference, off by so much of itself.
REFRESH_LOSS = 0.01


@kernel()
def absorb_tokens(gram, cross, keys, values, gates, weights):
    """Run :func:`absorb_token` in place for every stream of a batch."""
    for b in range(gram.shape[0]):
        absorb_token(gram[b], cross[b], keys[b], values[b], gates[b], weights[b], gram[b], cross[b])


@kernel()
def refresh_inverse(blas, gram, ridge, ahead, inverse):
    """Invert a system with its ridge times ``ahead``; NaN where there is no inverse."""
    d, number = gram.shape[0], gram.dtype.type
    system, half = np.empty((d, d), gram.dtype), np.empty((d, d), gram.dtype)
    extra = number(0)
    for _ in range(2):
        for i in range(d):
            for j in range(d):
                system[i, j] = gram[i, j]
            system[i, i] += number(ahead) * ridge[i] + extra * gram[i, i]
        sound = inverse_factor(blas, system, half, d, 0.0)
        if sound:
            break
        # A second try with 4 d eps of the diagonal: a system singular to rounding cannot be told
        # from it.
        extra = number(4 * d * (1.2e-7 if gram.itemsize == 4 else 2.3e-16))
    for i in range(d):
        for j in range(d):
            total = number(0) if sound else number(np.nan)
            for k in range(max(i, j), d):
                total += half[k, i] * half[k, j]
            inverse[i, j] = total


@kernel()
def refresh_inverses(blas, gram, ridge, ahead, inverse):
    """Run :func:`refresh_inverse` for every stream of a batch."""
    for b in range(gram.shape[0]):
        refresh_inverse(blas, gram[b], ridge[b], ahead[b], inverse[b])


@kernel()
def update_inverse(inverse, key, gate, weight, new_inverse):
    """Update ``P' = (P - h h^T) / gate`` with ``h = P k sqrt(w / (gate + w k P k))``.

    Returns False, with nothing updated, where rounding would leave too little of P.
    """
    number, d = inverse.dtype.type, inverse.shape[0]
    gate, weight, leverage = number(gate), number(weight), number(0)
    u = np.empty(d, inverse.dtype)
    for i in range(d):
        total = number(0)
        for j in range(d):
            total += inverse[i, j] * key[j]
        # u = P k;  P' = (P - w u u^T / (gate + w k.u)) / gate
        u[i] = total
        leverage += total * key[i]
    innovation = gate + weight * leverage
    most = REFRESH_LOSS / (1.2e-7 if inverse.itemsize == 4 else 2.3e-16)
    if leverage < 0 or most * gate < weight * leverage < math.inf:
        return False
    # A key too large to square, or one without weight, only decays the inverse.
    if weight == 0 or not math.isfinite(leverage):
        weight, innovation = number(0), number(1)
        for i in range(d):
            u[i] = number(0)
    scale = weight / innovation
    for i in range(d):
        for j in range(d):
            new_inverse[i, j] = (inverse[i, j] - scale * u[i] * u[j]) / gate
    return True


@kernel()
def update_inverses(inverse, keys, gates, weights):
    """Run :func:`update_inverse` in place for every stream of a batch; False where one did."""
    for b in range(inverse.shape[0]):
        if not update_inverse(inverse[b], keys[b], gates[b], weights[b], inverse[b]):
            return False
    return True


@kernel()
def ridge_head_start(gates):
    """Return the factor for the ridge inside a new inverse, after gates whose product is ``gates``.

    Gates discount that ridge until the next refresh: started too large by this factor, it is right
    halfway there, if gates stay as they were.
    """
    return min(max(gates, REFRESH_BELOW), 1.0) ** -0.5


@kernel()
def update_one(blas, state, token, clock, new):
    """Update one stream and its inverse by one token.

    ``state`` = gram, cross, inverse, ridge; ``token`` = key, value, gate, weight; ``clock`` = the
    product of gates since the last refresh and its age, of which the new ones are returned;
    ``new`` = the new gram, cross and inverse, which are written.
    """
    (gram, cross, inverse, ridge), (key, value, gate, weight) = state, token
    new_gram, new_cross, new_inverse = new
    absorb_token(gram, cross, key, value, gate, weight, new_gram, new_cross)
    since, age = gram.dtype.type(clock[0] * gate), clock[1] + 1
    fresh = age >= REFRESH_EVERY or since < REFRESH_BELOW
    if not fresh and update_inverse(inverse, key, gate, weight, new_inverse):
        return since, age
    refresh_inverse(blas, new_gram, ridge, ridge_head_start(since), new_inverse)
    return gram.dtype.type(1), 0


@kernel()
def multiply_vector(A, x, y):
    """Compute y = A x."""
    for i in range(A.shape[0]):
        total = x.dtype.type(0)
        for j in range(A.shape[1]):
            total += A[i, j] * x[j]
        y[i] = y.dtype.type(total)


@kernel()
def solve_densely(blas, gram, cross, query, ridge, value):
    """Compute ``G (H + Lambda)^-1 q`` by a factorisation in float64, the smallest solution if
    singular.
    """
    d = gram.shape[0]
    system, W = np.empty((d, d)), np.empty((d, d))
    scratch, spare = np.empty((d, d)), np.empty((d, d))
    q, x, inner = np.empty(d), np.zeros(d), np.empty(d)
    copy(gram, system)
    for i in range(d):
        system[i, i] += ridge[i]
        q[i] = query[i]
    rank = whiten(blas, system, W, scratch, spare)
    if rank < 0:
        x[:] = np.nan
    add_inverse(W, rank, q, inner, x)
    multiply_vector(cross, x, value)


@kernel()
def solve_densely_all(blas, gram, cross, queries, ridge, value):
    """Run :func:`solve_densely` for every stream of a batch."""
    for b in range(gram.shape[0]):
        solve_densely(blas, gram[b], cross[b], queries[b], ridge[b], value[b])


@kernel()
def multiply_system(gram, ridge, x, unit, scratch, y):
    """Compute ``y = U (H + Lambda) U x``, U the diagonal of ``unit``."""
    for i in range(x.shape[0]):
        scratch[i] = unit[i] * x[i]
    multiply_vector(gram, scratch, y)
    for i in range(x.shape[0]):
        y[i] = unit[i] * (y[i] + ridge[i] * scratch[i])


@kernel()
def precondition(inverse, r, unit, scratch, z):
    """Compute ``z = U^-1 P U^-1 r``, U the diagonal of ``unit``."""
    for i in range(r.shape[0]):
        scratch[i] = r[i] / unit[i]
    multiply_vector(inverse, scratch, z)
    for i in range(r.shape[0]):
        z[i] /= unit[i]


@kernel()
def dot(x, y):
    """Compute x . y."""
    total = x.dtype.type(0)
    for i in range(x.shape[0]):
        total += x[i] * y[i]
    return total


@kernel()
def solve_carried(gram, cross, query, ridge, inverse, tol, most, value):
    """Compute ``G (H + Lambda)^-1 q`` by conjugate gradient preconditioned by a carried inverse.

    In units in which the system has a diagonal near 1, so that the residual of no column hides
    behind that of another.  Powers of two change no digit.
    """
    number, d, kind = gram.dtype.type, gram.shape[0], gram.dtype
    x, r, p = np.empty(d, kind), np.empty(d, kind), np.empty(d, kind)
    z, mp, unit = np.empty(d, kind), np.empty(d, kind), np.ones(d, kind)
    for i in range(d):
        diagonal = gram[i, i] + ridge[i]
        if 0 < diagonal < math.inf:
            unit[i] = 2.0 ** -math.floor(math.log2(diagonal) / 2 + 0.5)
    # The query divided by its largest entry, so that its squares neither overflow nor underflow.
    largest = number(0)
    for i in range(d):
        largest = max(largest, abs(unit[i] * query[i]))
    size = largest if largest > 0 else number(1)
    for i in range(d):
        r[i] = unit[i] * query[i] / size
    goal = number(tol) * number(tol) * dot(r, r)
    precondition(inverse, r, unit, mp, x)  # the first iterate
    multiply_system(gram, ridge, x, unit, z, mp)
    for i in range(d):
        r[i] -= mp[i]
    left, before = dot(r, r), number(0)
    for step in range(most):
        if not left > goal:
            break
        precondition(inverse, r, unit, mp, z)
        rz = dot(z, r)
        turn = rz / before if step > 0 and before > 0 else number(0)
        for i in range(d):
            p[i] = z[i] + turn * p[i] if step > 0 else z[i]
        multiply_system(gram, ridge, p, unit, z, mp)
        curvature = dot(mp, p)
        if not curvature > 0:
            break
        alpha = rz / curvature
        for i in range(d):
            x[i] += alpha * p[i]
            r[i] -= alpha * mp[i]
        before, left = rz, dot(r, r)
    for i in range(d):
        x[i] *= unit[i]
    multiply_vector(cross, x, value)
    for j in range(value.shape[0]):
        value[j] *= size


@kernel()
def solve_carried_all(gram, cross, queries, ridge, inverse, tol, most, value):
    """Run :func:`solve_carried` for every stream of a batch."""
    for b in range(gram.shape[0]):
        solve_carried(gram[b], cross[b], queries[b], ridge[b], inverse[b], tol, most, value[b])

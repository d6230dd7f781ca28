"""The recursion of the one factor: a row and four rows.

The state of a stream is ``F = [U T]`` (d, d + m) with U unit upper triangular, the pivots D (d,),
and the loss (m,)::

    sum of w x x^T = U^T D U,    U theta = T,    loss = sum of w (y - x theta)^2

To absorb a row of weight a after forgetting by a gate, w starts as [x y], and column by column::

    p = w_j,   D_j' = gate D_j + a p^2,   g = a p / D_j',   a <- a gate D_j / D_j'
    w <- w - p F_j,   F_j <- F_j + g w

What is left of w are the a-priori errors ``y - x theta``, and of a
``weight / (1 + weight x (gate M)^-1 x)``, which times the square of the error the loss grows by.
These are Givens rotations without square roots (Gentleman 1973, algorithm AS 75; Miller 1992,
AS 274).  Forgetting changes D alone.  A pivot of 0 means that nothing is known of coefficient j
given the ones before it; F_j is then a row of the identity, and the first row that has something
to say of it is taken whole.

Where a row outweighs what a column knew (``D_j' > 4 gate D_j``) the sum ``F_j + g w`` would cancel.
There ``F_j <- (gate D_j / D_j') F_j + g w`` with w from before the subtraction, which is the same
in exact arithmetic (Fletcher and Powell 1974; Gill, Golub, Murray and Saunders 1974).

Functions are compiled with the order of operations as written, so that one row and four rows give
the same bits.
"""

from __future__ import annotations

from olsq.kernels import kernel
from olsq.online.forms.factor.limits import SMALLEST_PIVOT, STEEP
from olsq.online.forms.factor.registers import (
    add_product,
    add_scaled,
    fma,
    load4,
    load8,
    plus,
    store,
    total,
    zero4,
)

inline = kernel(forceinline=True, strict=True)
called = kernel(called=True, strict=True)


@inline
def update_pivot(D, j, gate, weight, p):
    """Update D_j; return g, what is left of the weight, and the old pivot's share in the new."""
    old = gate * D[j]
    scaled = weight * p
    new = fma(scaled, p, old)
    D[j] = new
    inverse = 1.0 / new if new >= SMALLEST_PIVOT else 0.0
    share = old * inverse if new >= SMALLEST_PIVOT else 1.0
    return scaled * inverse, weight * share, share


@inline
def update_row(F, w, j, p, g, share):
    """Compute ``w <- w - p F_j``, then ``F_j <- F_j + g w`` or its form for steep rows.

    Columns before j are 0 in both arrays and stay so, w_j becomes 0 and F_jj stays 1, all exactly:
    so vectors may begin at the multiple of four before j, and no load waits for a store of another
    width.
    """
    width = w.shape[0]
    row, k = j * width, j // 4 * 4
    if share < STEEP:
        for i in range(j + 1, width):
            f, v = F[j, i], w[i]
            F[j, i] = fma(g, v, share * f)
            w[i] = fma(-p, f, v)
        w[j] = 0.0
        return
    while k + 4 <= width:
        f4 = load4(F, row + k)
        v4 = add_scaled(load4(w, k), -p, f4)
        store(w, k, v4)
        store(F, row + k, add_scaled(f4, g, v4))
        k += 4
    for i in range(max(k, j + 1), width):
        f = F[j, i]
        v = fma(-p, f, w[i])
        w[i] = v
        F[j, i] = fma(g, v, f)


@inline
def subtract_row(F, w, j, p, first):
    """Compute ``w <- w - p F_j`` from column ``first`` on, to the bits of :func:`update_row`."""
    width = w.shape[0]
    k = first // 4 * 4
    while k + 4 <= width:
        store(w, k, add_scaled(load4(w, k), -p, load4(F, j * width + k)))
        k += 4
    for i in range(max(k, first), width):
        w[i] = fma(-p, F[j, i], w[i])


@inline
def inner_product(A, i, w, first, n):
    """Return the product of entries ``first``..n of row i of an array and of w.

    Up to three entries before ``first`` may count too: where one of both is 0.
    """
    width, k, even, odd = A.shape[1], first // 4 * 4, zero4(), zero4()
    while k + 8 <= n:
        even = add_product(even, load4(A, i * width + k), load4(w, k))
        odd = add_product(odd, load4(A, i * width + k + 4), load4(w, k + 4))
        k += 8
    product = total(plus(even, odd))
    for j in range(k, n):
        product = fma(A[i, j], w[j], product)
    return product


@inline
def copy_row(source, s, target, t):
    """Copy row s of an array to row t of another."""
    d, k = source.shape[1], 0
    while k + 4 <= d:
        store(target, t * d + k, load4(source, s * d + k))
        k += 4
    for j in range(k, d):
        target[t, j] = source[s, j]


@inline
def load_row(w, X, Y, t):
    """Fill w (d + m,) with row t of X (n, d) and Y (n, m)."""
    d, k = X.shape[1], 0
    while k + 4 <= d:
        store(w, k, load4(X, t * d + k))
        k += 4
    for j in range(k, d):
        w[j] = X[t, j]
    for q in range(Y.shape[1]):
        w[d + q] = Y[t, q]


@inline
def load_unit(w, j):
    """Fill w (d + m,) with the row e_j and targets of 0."""
    for k in range(w.shape[0]):
        w[k] = 0.0
    w[j] = 1.0


@inline
def write_errors(w, loss, gate, left, error):
    """Write the a-priori errors (m,) that are left in w; add them to the loss."""
    m = loss.shape[0]
    first = w.shape[0] - m
    for q in range(m):
        e = w[first + q]
        error[q] = e
        loss[q] = fma(left * e, e, gate * loss[q])


@called
def absorb_row(F, D, loss, w, gate, weight, error):
    """Absorb the row w (d + m,), which is destroyed; return what is left of its weight."""
    return absorb_from(F, D, loss, w, 0, gate, weight, error)


@called
def absorb_unit(F, D, loss, w, j, weight, error):
    """Do :func:`absorb_row` for the row e_j, which may have targets."""
    return absorb_from(F, D, loss, w, j, 1.0, weight, error)


@inline
def absorb_from(F, D, loss, w, first, gate, weight, error):
    """Do :func:`absorb_row` for a row that is 0 before column ``first``, where the gate is 1."""
    left = weight
    for j in range(first, D.shape[0]):
        p = w[j]
        g, left, share = update_pivot(D, j, gate, left, p)
        update_row(F, w, j, p, g, share)
    write_errors(w, loss, gate, left, error)
    return left


@called
def copy_state(state, into):
    """Copy a state, (F, D, columns, tally, loss), into the arrays of another."""
    for i in range(state[0].shape[0]):
        for k in range(state[0].shape[1]):
            into[0][i, k] = state[0][i, k]
        into[1][i] = state[1][i]
        into[2][0, i], into[2][1, i] = state[2][0, i], state[2][1, i]
    for k in range(state[3].shape[0]):
        into[3][k] = state[3][k]
    for q in range(state[4].shape[0]):
        into[4][q] = state[4][q]


# -- four rows ----------------------------------------------------------------------------------


@inline
def sweep8(F, W, j, k, p, g):
    """Compute :func:`update_row` for columns k..k + 7 of rows j..j + 3 of F and four rows W."""
    width = W.shape[1]
    row = j * width + k
    f0, f1 = load8(F, row), load8(F, row + width)
    f2, f3 = load8(F, row + 2 * width), load8(F, row + 3 * width)
    for r in range(4):
        w, i = load8(W, r * width + k), 4 * r
        w = add_scaled(w, -p[i], f0)
        f0 = add_scaled(f0, g[i], w)
        w = add_scaled(w, -p[i + 1], f1)
        f1 = add_scaled(f1, g[i + 1], w)
        w = add_scaled(w, -p[i + 2], f2)
        f2 = add_scaled(f2, g[i + 2], w)
        w = add_scaled(w, -p[i + 3], f3)
        f3 = add_scaled(f3, g[i + 3], w)
        store(W, r * width + k, w)
    store(F, row, f0)
    store(F, row + width, f1)
    store(F, row + 2 * width, f2)
    store(F, row + 3 * width, f3)


@inline
def sweep4(F, W, j, k, p, g):
    """Compute :func:`sweep8` for four columns."""
    width = W.shape[1]
    row = j * width + k
    f0, f1 = load4(F, row), load4(F, row + width)
    f2, f3 = load4(F, row + 2 * width), load4(F, row + 3 * width)
    for r in range(4):
        w, i = load4(W, r * width + k), 4 * r
        w = add_scaled(w, -p[i], f0)
        f0 = add_scaled(f0, g[i], w)
        w = add_scaled(w, -p[i + 1], f1)
        f1 = add_scaled(f1, g[i + 1], w)
        w = add_scaled(w, -p[i + 2], f2)
        f2 = add_scaled(f2, g[i + 2], w)
        w = add_scaled(w, -p[i + 3], f3)
        f3 = add_scaled(f3, g[i + 3], w)
        store(W, r * width + k, w)
    store(F, row, f0)
    store(F, row + width, f1)
    store(F, row + 2 * width, f2)
    store(F, row + 3 * width, f3)


@inline
def put(array, j, r, value):
    """Write an entry of an array, which may be None."""
    if array is None:
        return
    array[j, r] = value


@inline
def keep(history, j, r, p, g, old):
    """Keep p, g and the forgotten pivot of column j and row r; of row 2 the pivot once more."""
    if history is None:
        return
    put(history[0], j, r, p)
    put(history[1], j, r, g)
    put(history[2], j, r, old)
    if r == 2:
        history[3][j] = old


@called
def absorb_steep_columns(F, D, gates, t, j, W, left, history):
    """Do columns j..j + 3 of :func:`absorb_four` where some rows outweigh some columns."""
    width = W.shape[1]
    for r in range(4):
        for i in range(4):
            p, old = W[r, j + i], gates[t + r] * D[j + i]
            g, left[r], share = update_pivot(D, j + i, gates[t + r], left[r], p)
            keep(history, j + i, r, p, g, old)
            for k in range(j + i + 1, width):
                f, v = F[j + i, k], W[r, k]
                u = fma(-p, f, v)
                W[r, k] = u
                F[j + i, k] = fma(g, v, share * f) if share < STEEP else fma(g, u, f)


@inline
def absorb_four(F, D, loss, rows, t, scratch, errors, history):
    """Do :func:`absorb_row` for rows t..t + 3, to the same bits; F passes through once for all.

    ``scratch`` = W (4, d + m), p (16,), g (16,), left (4,), which receives what is left of the
    weights, and (40,).  ``history`` is None, or p, g, gate D (d, 4) of every column and row, which
    may be None, and gate D (d,) of row 2.
    """
    X, Y, gates, weights = rows
    W, p, g, left, saved = scratch
    d, width = D.shape[0], W.shape[1]
    for r in range(4):
        left[r] = weights[t + r]
        load_row(W[r], X, Y, t + r)
    fours = d // 4 * 4
    for j in range(0, fours, 4):
        for r in range(4):
            store(saved, 4 * r, load4(W, r * width + j))
            store(saved, 16 + 4 * r, load4(F, (j + r) * width + j))
            saved[32 + r], saved[36 + r] = D[j + r], left[r]
        least = 1.0
        for r in range(4):  # the corner: four columns of one row after the other
            weight, gate = left[r], gates[t + r]
            for i in range(4):
                pi, old = W[r, j + i], gate * D[j + i]
                gi, weight, share = update_pivot(D, j + i, gate, weight, pi)
                keep(history, j + i, r, pi, gi, old)
                p[4 * r + i], g[4 * r + i] = pi, gi
                least = min(least, share)
                for k in range(i + 1, 4):
                    v = fma(-pi, F[j + i, j + k], W[r, j + k])
                    W[r, j + k] = v
                    F[j + i, j + k] = fma(gi, v, F[j + i, j + k])
            left[r] = weight
        if least < STEEP:  # rare: these columns again, from what they were
            for r in range(4):
                D[j + r], left[r] = saved[32 + r], saved[36 + r]
                for i in range(4):
                    W[r, j + i], F[j + r, j + i] = saved[4 * r + i], saved[16 + 4 * r + i]
            absorb_steep_columns(F, D, gates, t, j, W, left, history)
            continue
        k = j + 4
        if k % 8 and k + 4 <= width:
            sweep4(F, W, j, k, p, g)
            k += 4
        while k + 8 <= width:
            sweep8(F, W, j, k, p, g)
            k += 8
        if k + 4 <= width:
            sweep4(F, W, j, k, p, g)
            k += 4
        while k < width:
            for r in range(4):
                v = W[r, k]
                for i in range(4):
                    v = fma(-p[4 * r + i], F[j + i, k], v)
                    F[j + i, k] = fma(g[4 * r + i], v, F[j + i, k])
                W[r, k] = v
            k += 1
    for r in range(4):  # the last columns, and the targets
        weight, gate = left[r], gates[t + r]
        for j in range(fours, d):
            pj, old = W[r, j], gate * D[j]
            gj, weight, share = update_pivot(D, j, gate, weight, pj)
            keep(history, j, r, pj, gj, old)
            for k in range(j + 1, width):
                f, v = F[j, k], W[r, k]
                u = fma(-pj, f, v)
                W[r, k] = u
                F[j, k] = fma(gj, v, share * f) if share < STEEP else fma(gj, u, f)
        left[r] = weight
        write_errors(W[r], loss, gate, weight, errors[t + r])


@inline
def rank_of(D):
    """Count the pivots that are positive."""
    rank = 0
    for j in range(D.shape[0]):
        rank += 1 if D[j] > 0 else 0
    return rank


@inline
def clear_row(F, j):
    """Make row j of F one of the identity."""
    for k in range(F.shape[1]):
        F[j, k] = 0.0
    F[j, j] = 1.0

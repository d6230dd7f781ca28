"""Kernels that solve tokens one by one, and systems without a unique solution."""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import copy, whiten


@kernel()
def add_inverse(W, rank, r, inner, x):
    """Compute ``x <- x + W^T W r`` with the first ``rank`` rows of W; overwrites ``inner`` (d,)."""
    for i in range(rank):
        inner[i] = 0.0
        for j in range(x.shape[0]):
            inner[i] += W[i, j] * r[j]
        for j in range(x.shape[0]):
            x[j] += W[i, j] * inner[i]


@kernel()
def solve_refined(system, W, rank, q, x, r, inner):
    """Solve ``system x = q`` with ``W^T W`` its (pseudo-)inverse; NaN for a rank of -1.

    A regular system's solution is refined once; ``r`` and ``inner`` (d,) are overwritten.
    """
    d = system.shape[0]
    for i in range(d):
        x[i] = 0.0 if rank >= 0 else np.nan
    for _ in range(2 if rank == d else 1):  # the second refines the first
        for i in range(d):
            r[i] = q[i]
            for j in range(d):
                r[i] -= system[i, j] * x[j]
        add_inverse(W, rank, r, inner, x)


@kernel()
def add_outer(A, left, right, gate, weight, absent, out):
    """Compute ``gate A + weight left right^T``; only decay where ``absent``.

    A gate of 0 drops NaN.
    """
    number = A.dtype.type
    for i in range(A.shape[0]):
        row = number(0) if absent else weight * left[i]
        for j in range(A.shape[1]):
            a = A[i, j]
            a = number(0) if gate == 0 and not math.isfinite(a) else gate * a
            out[i, j] = a if absent else a + row * right[j]


@kernel()
def absorb_token(gram, cross, key, value, gate, weight, new_gram, new_cross):
    """Update ``H' = gate H + w k k^T``, ``G' = gate G + w v k^T``; a gate of 0 drops even a NaN."""
    number, d, m = gram.dtype.type, gram.shape[0], cross.shape[0]
    # H' = gate H + w k k^T,  G' = gate G + w v k^T
    gate, weight = number(gate), number(weight)
    absent = False  # of weight 0 and not finite: left out
    if weight == 0:
        for j in range(d):
            absent = absent or not math.isfinite(key[j])
        for j in range(m):
            absent = absent or not math.isfinite(value[j])
    add_outer(gram, key, key, gate, weight, absent, new_gram)
    add_outer(cross, value, key, gate, weight, absent, new_cross)


@kernel()
def has_cotangent(upstream, first, count):
    """Test whether any of ``count`` upstream gradients from ``first`` on is not 0."""
    for t in range(first, first + count):
        for j in range(upstream.shape[1]):
            if upstream[t, j] != 0:
                return True
    return False


@kernel()
def read_out_token(t, system, cross, q, x, outputs):
    """Write the output G x of token t and its norms ``|q - M x|`` and ``|x|``."""
    value, _, norms = outputs
    left = length = 0.0
    for i in range(x.shape[0]):
        error = q[i]
        for j in range(x.shape[0]):
            error -= system[i, j] * x[j]
        left += error * error
        length += x[i] * x[i]
    norms[t, 0], norms[t, 1] = math.sqrt(left), math.sqrt(length)
    for k in range(value.shape[1]):
        total = 0.0
        for j in range(x.shape[0]):
            total += cross[k, j] * x[j]
        value[t, k] = value.dtype.type(total)


@kernel()
def solve_tokens(blas, stream, first, count, moments, work, outputs, pairs):
    """Solve tokens one by one, each from its own moments, where a chunk would lose digits.

    A system without a unique solution (a ridge of 0 or forgotten, and too few samples) gets the one
    of smallest norm. ``gates[first]`` is already applied to the moments.  With ``pairs``, both
    systems of a gradient.
    """
    keys, values, queries, weights, gates, ridge = stream
    (gram, cross), (system, W, _, _) = moments, work
    d = gram.shape[0]
    q, x, r, inner = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    for t in range(first, first + count):
        gate = gates[t] if t > first else 1.0
        absorb_token(gram, cross, keys[t], values[t], gate, weights[t], gram, cross)
        if pairs is not None and not has_cotangent(pairs[0], t, 1):
            continue
        copy(gram, system)
        for j in range(d):
            system[j, j] += ridge[t if ridge.shape[0] > 1 else 0, j]
            q[j] = float(queries[t, j])
        rank = whiten(blas, *work)
        solve_refined(system, W, rank, q, x, r, inner)
        if outputs is not None:
            read_out_token(t, system, cross, q, x, outputs)
        if pairs is not None:
            upstream, solutions, adjoints = pairs
            for i in range(d):
                solutions[t, i], q[i] = x[i], 0.0
                for k in range(cross.shape[0]):
                    q[i] += cross[k, i] * upstream[t, k]
            solve_refined(system, W, rank, q, adjoints[t], r, inner)


@kernel()
def count_keys_in_range(W, system, keys, weights, first, count):
    """Count the keys from ``first`` on, up to ``count``, that lie in the range of a singular
    system.

    ``W^T W`` is its pseudo-inverse. Its rank does not grow before the first key outside the range.
    """
    d = W.shape[0]
    inner, mapped = np.empty(d), np.empty(d)
    for t in range(first, first + count):
        if weights[t] == 0:
            continue
        size = left = 0.0
        for i in range(d):
            inner[i] = 0.0
            for j in range(d):
                inner[i] += W[i, j] * float(keys[t, j])
        for j in range(d):
            mapped[j] = 0.0
            for i in range(d):
                mapped[j] += W[i, j] * inner[i]
        for i in range(d):
            error = float(keys[t, i])
            size += error * error
            for j in range(d):
                error -= system[i, j] * mapped[j]
            left += error * error
        # A residual of 1e-7 of the key's norm: above rounding, far below a key with a part outside.
        if not left <= 1e-14 * size:
            return t - first
    return count

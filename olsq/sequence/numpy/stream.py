"""Solve a whole stream in one pass: chunks as long as their gates allow, each solved at once.

Moments are carried and factorised in float64 whatever the dtype of the stream, since they are what
rounding accumulates in.  A chunk is tried in the stream's dtype, then in float64, then token by
token: each is taken where the one before would cancel too many digits.

``chunk`` = keys (T, d), values (T, m), queries (T, d) and weights (T,) of the stream; gates (T,),
ridge (1 or T, d), value (T, m), steps (T,), norms (T, 2) = ``|q - M x|`` and ``|x|``.  A chunk is
the tokens ``first`` to ``first + count``, at most ``most``; ``work`` are four matrices (d, d).
"""

from __future__ import annotations

import math

import numpy as np

from olsq.kernels import kernel
from olsq.sequence.numpy.blas import copy, inflation, multiply_nt, multiply_tn, scale, whiten
from olsq.sequence.numpy.chunk import solve_chunk
from olsq.sequence.numpy.tokens import count_keys_in_range, solve_tokens

LOG_SPREAD = 1.4  # |log| of the gates' product within a chunk, fixed ridge: f stays within 2
LOG_SPREAD_DISCOUNTED = 3.0  # no corrections needed: only the keys' weights must stay comparable
RIDGE_SPREAD = 0.5  # |log| by which ridges of one chunk may differ
SHORT = 8  # tokens solved one by one before a chunk is tried again
FEWEST = 3  # fewest tokens solved as a chunk; fewer (harsh gates) are solved one by one
INFLATION = 1e3  # largest A_jj (A^-1)_jj with which a chunk is solved in float32
SMALLEST = 1e-25  # diagonal of a system below which float32 underflows in its products
# (tolerance of corrections, largest pivot of I + Y Y^T, largest backward error)
LIMITS_SINGLE = (1e-6, 30.0, 1e-5)
LIMITS_DOUBLE_OF_SINGLE = (1e-7, 1e9, 1e-7)
LIMITS_DOUBLE = (1e-14, 30.0, 1e-13)


@kernel()
def is_lost(t, keys, values, gates, weights):
    """Test whether the sample of token t makes everything after it unknown."""
    if math.isnan(gates[t]) or not math.isfinite(weights[t]):
        return True
    if weights[t] == 0:
        return False
    for j in range(keys.shape[1]):
        if not math.isfinite(keys[t, j]):
            return True
    for j in range(values.shape[1]):  # noqa: SIM110 (kernels have no generators)
        if not math.isfinite(values[t, j]):
            return True
    return False


@kernel()
def compare_ridges(ridge, a, b):
    """Compare the ridges of two tokens: 0 if equal, 1 if of about the same size, 2 if far apart."""
    result = 0
    for j in range(ridge.shape[1]):
        x, y = ridge[a, j], ridge[b, j]
        if x != y:
            result = 1
            if not (x > 0 and y > 0 and abs(math.log(x / y)) <= RIDGE_SPREAD):
                return 2
    return result


@kernel()
def find_chunk_end(chunk, gates, ridge, spread, first, most):
    """Find the end of the longest chunk from ``first`` that one reference serves, and whether one
    ridge does.

    Gates and ridges decide it, never samples: a later sample must not change an earlier output.
    """
    keys = chunk[0]
    total, uniform, t = 0.0, True, first + 1
    while t < min(first + most, keys.shape[0]):
        if not gates[t] > 0:
            break
        total -= math.log(gates[t])
        if total > spread:
            break
        if ridge.shape[0] > 1:
            relation = compare_ridges(ridge, first, t)
            if relation == 2:
                break
            uniform = uniform and relation == 0
        t += 1
    return t, uniform


@kernel()
def absorb_chunk(blas, chunk, first, count, ratio, gram, cross):
    """Advance the moments over a chunk: ``H <- (zeta_C / zeta_r) (zeta_r H + K~^T K~)``, in
    float64.
    """
    keys, values, _, weights = chunk
    d, m = keys.shape[1], values.shape[1]
    K, V = np.empty((count, d)), np.empty((count, m))
    last = ratio[count - 1]
    for i in range(count):
        t = first + i
        root = math.sqrt(weights[t] * (ratio[i] / last))
        for j in range(d):
            K[i, j] = root * float(keys[t, j]) if weights[t] > 0 else 0.0
        for j in range(m):
            V[i, j] = root * float(values[t, j]) if weights[t] > 0 else 0.0
    # H <- (f_1 / f_C) H + sum_i (f_i / f_C) w_i k_i k_i^T, with f_t = zeta_r / zeta_t
    decay = ratio[0] / last
    multiply_tn(blas, K, K, gram, 1.0, decay)
    multiply_tn(blas, V, K, cross, 1.0, decay)


@kernel()
def fits_float32(system):
    """Test whether the range of float32 holds the products of a system."""
    for j in range(system.shape[0]):  # noqa: SIM110 (kernels have no generators)
        if not SMALLEST < system[j, j] < 1 / SMALLEST:
            return False
    return True


@kernel()
def compute_chunk_scales(chunk, gates, ridge, first, count, uniform):
    """Compute ``f_t`` (count,), ridges (count, d) and their reference L (d,) of one chunk."""
    d = ridge.shape[1]
    ratio, own, reference = np.empty(count), np.empty((count, d)), np.empty(d)
    total = 0.0
    for i in range(count):
        total += math.log(gates[first + i]) if i > 0 else 0.0
        ratio[i] = total
        for j in range(d):
            own[i, j] = ridge[first + i if ridge.shape[0] > 1 else 0, j]
    for i in range(count):
        ratio[i] = math.exp(total / 2 - ratio[i])
    for j in range(d):
        reference[j] = own[0, j]
        if not uniform and reference[j] > 0:
            logs = 0.0
            for i in range(count):
                logs += math.log(own[i, j])
            reference[j] = math.exp(logs / count)
    return ratio, own, reference


@kernel()
def count_sound_tokens(chunk, gates, first, count):
    """Count the tokens from ``first`` on, up to ``count``, before the first with a lost sample."""
    keys, values, _, weights = chunk
    for i in range(count):
        if is_lost(first + i, keys, values, gates, weights):
            return i
    return count


@kernel(inline="always")
def solve_in_cheapest_precision(
    blas, chunk, first, count, sound, uniform, parts, singular, cross, work, value, steps, norms
):
    """Solve a chunk in the cheapest precision that keeps its digits.

    Returns how many tokens were solved.

    Tokens from ``sound`` on are not solved.
    """
    ratio, own, reference = parts
    keys = chunk[0]
    system, W, _, _ = work
    m, d = cross.shape
    Z = np.empty((m, d))
    multiply_nt(blas, cross, W, Z, ratio[0])
    done = np.int64(0)  # np.int64: a literal would give `done` a second type in Numba
    if keys.itemsize == 4:
        if fits_float32(system) and inflation(system, W) < INFLATION:
            kind = keys.dtype
            single = np.empty((d, d), kind), np.empty((d, d), kind), np.empty((m, d), kind)
            done, corrections = solve_chunk(
                blas,
                chunk,
                first,
                count,
                (done, sound),
                copy(system, single[0]),
                copy(W, single[1]),
                copy(Z, single[2]),
                ratio,
                own,
                reference,
                uniform,
                LIMITS_SINGLE,
                value,
                norms,
            )
            steps[first : first + done] = corrections
        limits = LIMITS_DOUBLE_OF_SINGLE
    else:
        limits = LIMITS_DOUBLE
    if done < sound:
        allowed = (limits[0], limits[1], np.inf if singular else limits[2])
        single_done = done
        done, corrections = solve_chunk(
            blas,
            chunk,
            first,
            count,
            (done, sound),
            system,
            W,
            Z,
            ratio,
            own,
            reference,
            uniform,
            allowed,
            value,
            norms,
        )
        steps[first + single_done : first + done] = corrections
    return done


@kernel(inline="always")
def solve_next_chunk(
    blas, chunk, gates, ridge, spread, most, first, moments, work, value, steps, norms
):
    """Solve the next chunk from ``first`` on; return the first token not solved."""
    gram, cross = moments
    system, W, scratch, spare = work
    d = gram.shape[0]
    end, uniform = find_chunk_end(chunk, gates, ridge, spread, first, most)
    count = end - first
    parts = compute_chunk_scales(chunk, gates, ridge, first, count, uniform)
    ratio, own, reference = parts
    sound, done = count_sound_tokens(chunk, gates, first, count), np.int64(0)
    if count >= FEWEST or end == gates.shape[0]:
        for i in range(d):
            for j in range(d):
                system[i, j] = ratio[0] * gram[i, j]
            system[i, i] += reference[i]
        rank = whiten(blas, system, W, scratch, spare)
        answered = sound if rank == d else np.int64(0)
        if 0 <= rank < d:
            answered = count_keys_in_range(W, system, chunk[0], chunk[3], first, sound)
        if answered > 0:
            done = solve_in_cheapest_precision(
                blas,
                chunk,
                first,
                count,
                answered,
                uniform,
                parts,
                rank < d,
                cross,
                work,
                value,
                steps,
                norms,
            )
        if done > 0:
            absorb_chunk(blas, chunk, first, done, ratio, gram, cross)
    left = min(sound - done, SHORT)
    if left > 0:
        if done > 0:
            scale(gram, gates[first + done])
            scale(cross, gates[first + done])
        solve_tokens(
            blas,
            chunk,
            gates,
            first + done,
            left,
            own[done:] if ridge.shape[0] > 1 else ridge,
            gram,
            cross,
            work,
            value,
            norms,
        )
    return first + done + left


@kernel()
def erase_output(value, t):
    """Set the output of token t to NaN."""
    for j in range(value.shape[1]):
        value[t, j] = np.nan


@kernel()
def is_finite(A):
    """Test whether all entries of a matrix are finite."""
    for i in range(A.shape[0]):
        for j in range(A.shape[1]):
            if not math.isfinite(A[i, j]):
                return False
    return True


@kernel()
def erase_lost_query(t, queries, ridge, value):
    """Set the output of token t to NaN if its query or ridge is not finite.

    No other token sees them.
    """
    own = t if ridge.shape[0] > 1 else 0
    for j in range(queries.shape[1]):
        if not (math.isfinite(queries[t, j]) and math.isfinite(ridge[own, j])):
            erase_output(value, t)
            return


@kernel(inline="always")
def solve_stream(blas, chunk, gates, ridge, spread, most, moments, value, steps, norms):
    """Solve every token of one stream; update ``moments`` = (gram, cross), float64, in place."""
    keys, values, queries, weights = chunk
    gram, cross = moments
    d = gram.shape[0]
    work = np.empty((d, d)), np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    state_lost = not (is_finite(gram) and is_finite(cross))
    t = np.int64(0)  # np.int64: a literal would make Numba compile everything below twice
    while t < gates.shape[0]:
        if gates[t] == 0:
            state_lost = False
        state_lost = state_lost or is_lost(t, keys, values, gates, weights)
        if state_lost:
            erase_output(value, t)
            norms[t] = np.nan
            t += 1
            continue
        if gates[t] < 1:
            scale(gram, gates[t])
            scale(cross, gates[t])
        t = solve_next_chunk(
            blas, chunk, gates, ridge, spread, most, t, moments, work, value, steps, norms
        )
    for t in range(gates.shape[0]):
        erase_lost_query(t, queries, ridge, value)
    for i in range(d):
        for j in range(i):
            gram[i, j] = gram[j, i]
    if state_lost:
        scale(gram, np.nan)
        scale(cross, np.nan)


@kernel()
def solve_streams(first, last, blas, arrays, options, gram, cross, value, steps, norms):
    """Solve streams first..last of a batch; no stream touches another's arrays."""
    keys, values, queries, weights, gates, ridge = arrays
    spread, most = options
    for b in range(first, last):
        chunk = keys[b], values[b], queries[b], weights[b]
        own = ridge[b] if ridge.shape[0] > 1 else ridge[0]
        solve_stream(
            blas,
            chunk,
            gates[b],
            own,
            spread,
            most,
            (gram[b], cross[b]),
            value[b],
            steps[b],
            norms[b],
        )

"""The compiled loop over rows of the forgetting strategies that keep a state of their own."""

from __future__ import annotations

import math

import numpy as np

from olsq.forgetting.entries import (
    BOUNDED,
    DIRECTIONAL,
    KNOWN,
    LAST_TRACE,
    N_MEMORY,
    N_OPTIONS,
    PER_COEFFICIENT,
    RESET,
    RESETTING,
    TRIAL,
    VARIABLE,
    WALK,
)
from olsq.kernels import kernel
from olsq.online.forms.adaptive_kernels import (
    forget,
    passed_over,
    set_targets,
    undetermined_factor,
)
from olsq.online.forms.counting import DECAY, count_row, noise_level
from olsq.online.forms.edges import check_trace
from olsq.online.forms.error_kernels import (
    continue_trial,
    learn_aside,
    rounding_of_error,
    standardised,
    start_trial,
)
from olsq.online.forms.factor.careful import hold, needs_hold
from olsq.online.forms.factor.counters import count_squares
from olsq.online.forms.factor.edges import check_call
from olsq.online.forms.factor.judging import absorb_with, take_out_parts
from olsq.online.forms.factor.kernels import called, load_row
from olsq.online.forms.factor.path import is_determined, record_row
from olsq.online.forms.factor.solving import solve


@kernel(forceinline=True)
def check_strategy(strategy, d, m):
    """Check options (8,), memory (7,), variances (m,), vectors (r, d), and ``aside``."""
    kind, options, vectors, memory, variances, aside = strategy
    one = kind in (PER_COEFFICIENT, RESETTING)
    rows, size = m, 0
    if kind == RESET:
        rows, size = 1, d * (d + m) + 3 * d + 5 * m + 5
    elif kind == VARIABLE:
        size = 2
    elif kind == PER_COEFFICIENT:
        size = d
    if (
        options.shape != (N_OPTIONS,)
        or memory.shape != (N_MEMORY,)
        or variances.shape != (m,)
        or vectors.shape[1] != d
        or (one and vectors.shape[0] != 1)
        or aside.shape != (rows, size)
    ):
        raise ValueError("the arrays of a way of forgetting do not have shapes that fit the state")


@called
def column_lengths(F, D, columns, x, weight):
    """Compute the squared lengths of R's columns, also as last excited where the row x is not 0."""
    d = D.shape[0]
    for k in range(d):
        columns[0, k] = 0.0
    for i in range(d):
        columns[0, i] += D[i]
        for k in range(i + 1, d):
            columns[0, k] += D[i] * F[i, k] * F[i, k]
    for k in range(d):
        if weight > 0 and x[k] != 0:
            columns[1, k] = columns[0, k]


@called
def predict_by(theta, rows, t, error):
    """Compute ``y - x . theta`` of each target of row t into error (m,)."""
    X, Y, _, _ = rows
    m, d = theta.shape
    for q in range(m):
        total = Y[t, q]
        for k in range(d):
            total -= X[t, k] * theta[q, k]
        error[q] = total


@called
def take_increment(F, D, theta, known):
    """Add the coefficients of F, the increments of a row, to ``known`` (m, d)."""
    solve(F, D, theta)
    m, d = theta.shape
    for q in range(m):
        for k in range(d):
            known[q, k] += theta[q, k]
    set_targets(F, known)


@kernel(strict=True, makes_arrays=True)
def update(state, strategy, rows, span, limits, residual, trace):
    """Absorb the rows of a span; return (first row not absorbed, coefficients held, its factor).

    As :func:`olsq.online.forms.factor.learning.learn_sound`, with ``strategy`` = (kind, options,
    vectors, memory, variances, aside): the way of forgetting, its numbers, and its state.
    ``rows`` = (X, Y, elapsed, weights) with the time since the row before, in which coefficients
    walk, in the place of gates.  While a coefficient is undetermined, a row in a new direction
    forgets nothing (coefficients walk before it all the same), and others by
    ``undetermined_factor``.  O(d^2) per row, unless ``forget`` says otherwise.

    Under PerCoefficient the coefficients are carried by their increments, in ``aside``: where
    factors differ, columns of R come to differ by any factor while their coefficients stay
    determined, and back substitution would cancel all digits of the small ones.
    """
    check_call(state, rows, span, residual)
    F, D, columns, tally, loss = state
    kind, options, _, memory, _, aside = strategy
    X, Y, elapsed, weights = rows
    start, stop = span
    d, m = D.shape[0], loss.shape[0]
    check_trace(trace, X.shape[0], d, m)
    check_strategy(strategy, d, m)
    want_path, wide = trace is not None, 0
    if trace is not None:
        wide = d if trace[1].shape[0] > 0 else 0
    inverse = np.empty((d, d) if wide > 0 or kind == BOUNDED else (0, 0))
    p, noise, w, error, floor = np.empty(d), np.empty(d), np.empty(d + m), np.empty(m), np.empty(m)
    theta, variance = np.empty((m, d)), np.empty(wide)
    scratch = np.empty(d), np.empty(d), np.empty(d + m), np.empty(m), inverse
    by_factor, by_error = kind in (VARIABLE, RESET, BOUNDED), kind in (VARIABLE, RESET)
    by_inflation = kind in (DIRECTIONAL, WALK)
    held = 0
    for t in range(start, stop):
        full = is_determined(D)
        predicted, leverage, sound = take_out_parts(state, rows, t, limits, noise, p, residual[t])
        level, in_range = noise_level(limits, d, tally), True
        for q in range(m):
            in_range = in_range and math.isfinite(residual[t, q])
            floor[q] = rounding_of_error(F, p, Y[t, q], q, level) if by_error else 0.0
        gate = counted = 1.0
        if predicted and not full:
            gate = counted = undetermined_factor(kind, options)
        by_increments = full and kind == PER_COEFFICIENT
        if by_increments:
            if memory[KNOWN] == 0:
                solve(F, D, aside)
                memory[KNOWN] = 1.0
            predict_by(aside, rows, t, residual[t])
            for q in range(m):
                in_range = in_range and math.isfinite(residual[t, q])
        weight = weights[t]
        if not in_range:  # the prediction overflows: learned, the row would make the state NaN
            weight = 0.0
            for q in range(m):
                residual[t, q] = 0.0
        judged = residual[t], leverage, weight, floor
        if by_error and not full and predicted and weight > 0:
            # The error is a sample of the noise although other coefficients are undetermined;
            # without it a silent start would end in errors that nothing can be compared with.
            standardised(strategy, judged, d, error)
        if full and kind == RESET and memory[TRIAL] > 0:
            taken = continue_trial(strategy, state, rows, t, judged, limits)
            if taken:  # its errors stay those of the state that made the prediction
                _, _, sound = take_out_parts(state, rows, t, limits, noise, p, error)
        # What is known of walking coefficients fades before a row in a new direction too.
        forgets = full or kind == WALK or (by_inflation and predicted)
        if forgets and not passed_over(kind, options, X[t], weight):
            gate, counted = forget(strategy, state, X[t], p, judged, elapsed[t], scratch)
            if kind == RESET and memory[TRIAL] == 1:
                start_trial(aside, memory, state)
            if kind == RESET and memory[TRIAL] > 0:
                learn_aside(aside, options, (X, Y, elapsed, weights), t, limits)
            if not by_factor:
                tally[DECAY] = 0.0  # the ridge is no penalty of a known size any more
        elif full:
            weight = 0.0
        if not predicted or (want_path and not full):
            if forgets and not by_factor:  # what went beside the gate, which is 1
                count_row(tally, counted, 0.0)
                for q in range(m):
                    loss[q] *= counted
                column_lengths(F, D, columns, X[t], 0.0)
            return t, held, gate
        load_row(w, X, Y, t)
        for q in range(m if by_increments else 0):
            w[d + q] = residual[t, q]
            for k in range(d):
                F[k, d + q] = 0.0
        if not in_range:
            for k in range(d + m):
                w[k] = 0.0
        for q in range(m if gate == 1 else 0):  # what goes beside the gate
            loss[q] *= counted
        left = absorb_with(state, w, gate, weight, noise, sound, error)
        if by_increments:
            take_increment(F, D, theta, aside)
        for q in range(m):
            if trace is not None:
                trace[4][t, q] = residual[t, q] * math.sqrt(left)
            if not in_range:
                residual[t, q] = math.nan
        if by_factor:
            count_squares(columns, X[t], gate, weight)
        else:
            column_lengths(F, D, columns, X[t], weight)
        count_row(tally, counted, weight)
        if tally[DECAY] < 1 and needs_hold(D, columns, tally, limits):
            count = hold(F, D, columns, tally, limits)
            held += count
            if count > 0:
                memory[LAST_TRACE] = 0.0
                if by_increments:
                    set_targets(F, aside)
        if trace is not None:
            record_row(state, None, t, limits, theta, variance, inverse, trace)
            for q in range(m if by_increments else 0):
                for k in range(d):
                    trace[0][t, q, k] = aside[q, k]
    return stop, held, 1.0

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
from olsq.online.forms.edges import check_call, check_trace
from olsq.online.forms.error_kernels import (
    continue_trial,
    learn_aside,
    standardised,
    start_trial,
)
from olsq.online.forms.square_root_kernels import (
    DECAY,
    add_square,
    count_row,
    is_held,
    keep_determined,
    noise_level,
    record,
    rotate,
)
from olsq.online.forms.triangular_kernels import back_substitute, forward_solve, inverse_diagonal


@kernel(forceinline=True)
def check_strategy(strategy, d, m):
    """Check options (8,), memory (7,), variances (m,), vectors (r, d), and ``aside``."""
    kind, options, vectors, memory, variances, aside = strategy
    one = kind in (PER_COEFFICIENT, RESETTING)
    rows, size = m, 0
    if kind == RESET:
        rows, size = 1, d * d + m * d + 2 * d + 5 * m + 5
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


@kernel(called=True)
def column_lengths(R, columns, x):
    """Compute the squared lengths of R's columns, also as last excited where x has an entry."""
    d = R.shape[0]
    for k in range(d):
        columns[0, k] = 0.0
    for i in range(d):
        own, sums = R[i, i:], columns[0, i:]
        for k in range(own.shape[0]):
            sums[k] += own[k] * own[k]
    for k in range(d):
        if x[k] != 0:
            columns[1, k] = columns[0, k]


@kernel(forceinline=True)
def error_of(theta, x, targets, error):
    """Compute ``y - x . theta`` of each target into error (m,)."""
    for target in range(theta.shape[0]):
        total = targets[target]
        for k in range(x.shape[0]):
            total -= x[k] * theta[target, k]
        error[target] = total


@kernel()
def update(form, strategy, rows, span, limits, residual, trace):
    """Absorb the rows of a span; return (first row not absorbed, coefficients held, its factor).

    As :func:`olsq.online.forms.square_root_kernels.update`, with ``strategy`` = (kind, options,
    vectors, memory, variances, aside): the way of forgetting, its numbers, and its state.
    ``rows`` = (X, Y, elapsed, weights) with the time since the row before, in which coefficients
    walk, in the place of gates.  While a coefficient is undetermined, a row in a new direction
    forgets nothing (coefficients walk before it all the same), and others by
    ``undetermined_factor``.  O(d^2) per row, unless ``forget`` says otherwise.

    Under PerCoefficient the coefficients are carried by their increments, in ``aside``: where
    factors differ, columns of R come to differ by any factor while their coefficients stay
    determined, and back substitution would cancel all digits of the small ones.
    """
    check_call(form, rows, span, residual)
    R, z, columns, tally, loss = form
    kind, options, _, memory, _, aside = strategy
    X, Y, elapsed, weights = rows
    start, stop = span
    d, m = R.shape[0], z.shape[0]
    check_trace(trace, X.shape[0], d, m)
    check_strategy(strategy, d, m)
    want_path, want_variances = trace is not None, False
    if trace is not None:
        want_variances = trace[1].shape[0] > 0
    p, x, y, noise = np.empty(d), np.empty(d), np.empty(m), np.empty(d)
    theta, row, rest, g = np.empty((m, d)), np.empty(d), np.empty(m), np.empty(d)
    inverse = np.empty((d, d) if want_variances or kind == BOUNDED else (0, 0))
    absorbing, forgetting = (noise, x, y, theta), (theta, row, rest, g, inverse)
    # What rounding may make of errors; noise, x and p of the state aside.
    floor, own = np.empty(m), np.empty((3, d if kind == RESET else 0))
    by_factor, by_error = kind in (VARIABLE, RESET, BOUNDED), kind in (VARIABLE, RESET)
    by_inflation = kind in (DIRECTIONAL, WALK)
    held = 0
    for t in range(start, stop):
        full = True
        for j in range(d):
            full = full and R[j, j] != 0
            x[j] = X[t, j]
            noise[j] = abs(x[j])
        level = noise_level(limits, d, tally)
        predicted = forward_solve(R, x, p, columns, level, noise) < 0
        # leverage = x.P x = |R^-T x|^2
        leverage, in_range = 0.0, True
        for k in range(d):
            leverage += p[k] * p[k]
        # a-priori residual e = y - x.theta = y - z.p
        for target in range(m):
            total = Y[t, target]
            for k in range(d):
                total -= z[target, k] * p[k]
            in_range = in_range and math.isfinite(total)
            residual[t, target] = total
            if by_error:
                total = abs(Y[t, target])
                for k in range(d):
                    total += abs(z[target, k] * p[k])
                floor[target] = level * total
        gate = counted = 1.0
        if predicted and not full:
            gate = counted = undetermined_factor(kind, options)
        by_increments = full and kind == PER_COEFFICIENT
        if by_increments:
            if memory[KNOWN] == 0:
                back_substitute(R, z, aside)
                memory[KNOWN] = 1.0
            error_of(aside, X[t], Y[t], residual[t])
            for target in range(m):
                in_range = in_range and math.isfinite(residual[t, target])
        weight = weights[t]
        if not in_range:  # the prediction overflows: learned, the row would make the state NaN
            weight = 0.0
            for target in range(m):
                residual[t, target] = 0.0
        judged = residual[t], leverage, weight, floor
        if by_error and not full and predicted and weight > 0:
            # The error is a sample of the noise although other coefficients are undetermined;
            # without it a silent start would end in errors that nothing can be compared with.
            standardised(strategy, judged, d, rest)
        if full and kind == RESET and memory[TRIAL] > 0:
            continue_trial(strategy, form, X[t], Y[t], judged, limits, noise, own)
        # What is known of walking coefficients fades before a row in a new direction too.
        forgets = full or kind == WALK or (by_inflation and predicted)
        if forgets and not passed_over(kind, options, X[t], weight):
            gate, counted = forget(strategy, form, X[t], p, judged, elapsed[t], forgetting)
            if kind == RESET and memory[TRIAL] == 1:
                for k in range(d):
                    own[0, k] = noise[k]
                start_trial(aside, memory, form)
            if kind == RESET and memory[TRIAL] > 0:
                scratch = own[0], own[1], y, theta
                learn_aside(aside, options, X[t], Y[t], weight, limits, scratch)
            if not by_factor:
                tally[DECAY] = 0.0  # the ridge is no penalty of a known size any more
        elif full:
            weight = 0.0
        if not predicted or (want_path and not full):
            if forgets and not by_factor:  # what went beside the gate, which is 1
                count_row(tally, counted, 0.0)
                for target in range(m):
                    loss[target] *= counted
                for k in range(d):
                    x[k] = 0.0
                column_lengths(R, columns, x)
            return t, held, gate
        root_weight = math.sqrt(weight)
        for k in range(d):
            x[k] = root_weight * X[t, k]
            if weight > 0:
                noise[k] *= root_weight
            if by_factor:
                add_square(columns, k, gate, x[k] * x[k])
        for target in range(m):
            y[target] = root_weight * (residual[t, target] if by_increments else Y[t, target])
            for k in range(d if by_increments else 0):
                z[target, k] = 0.0
        rotate(R, z, x, y, math.sqrt(gate), noise)
        if by_increments:
            back_substitute(R, z, theta)
            for target in range(m):
                for k in range(d):
                    aside[target, k] += theta[target, k]
            set_targets(R, z, aside)
        for target in range(m):
            loss[target] = counted * loss[target] + y[target] * y[target]
            if trace is not None:
                trace[4][t, target] = math.copysign(y[target], residual[t, target])
            if not in_range:
                residual[t, target] = math.nan
        count_row(tally, counted, weight)
        if not by_factor:
            for k in range(d):
                x[k] = root_weight * X[t, k]
            column_lengths(R, columns, x)
        if tally[DECAY] < 1:
            pin = 4 * noise_level(limits, d, tally)
            count = keep_determined(form, pin, limits[1], absorbing)
            held += count
            if count > 0:
                memory[LAST_TRACE] = 0.0
                if by_increments:
                    set_targets(R, z, aside)
        if trace is not None:
            diags = trace[1]
            if by_increments:
                for target in range(m):
                    for k in range(d):
                        theta[target, k] = aside[target, k]
            else:
                back_substitute(R, z, theta)
            if diags.shape[0] > 0:
                inverse_diagonal(R, inverse, diags[t])
            for k in range(d if diags.shape[0] > 0 else 0):
                if is_held(diags[t, k], columns[0, k], columns[1, k], limits, d, tally):
                    diags[t, k] = math.inf
            record(trace, t, theta, loss, tally, d, 0.0)
    return stop, held, 1.0

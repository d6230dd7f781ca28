"""Numba kernels of the forgetting strategies driven by one-step-ahead errors.

Both judge errors against an estimate of the noise's variance.  Three things can make errors grow:
a change of the coefficients, a rise of the noise, and rounding; only the first is a reason to
forget.  Rounding is bounded row by row.  A rise of the noise shows in what follows: errors stay
large however short the memory is.
"""

from __future__ import annotations

import math

import numpy as np

from olsq.forgetting.entries import (
    BREAKS,
    FACTOR,
    GATE,
    KEEP,
    LONGEST,
    NOISE,
    NOISE_ROWS,
    OUTLIER,
    RATIO,
    ROWS,
    SEEN,
    SHORTEST,
    STATISTIC,
    STRETCH,
    STRETCH_CLIPPED,
    STRETCHES,
    THRESHOLD,
    TRIAL,
    VARIABLE,
)
from olsq.kernels import kernel
from olsq.online.forms.factor.judging import absorb_judged, take_out_parts
from olsq.online.forms.factor.kernels import called, copy_state, inline

CLIP = 9.0  # an error counts for at most so many times the noise's variance ...
CLIPPED = 1.0 / 0.9950  # ... and what that leaves out of the mean of Gaussian errors, inverted
EXTRA = 10.0  # rows beyond those that determine the coefficients, to estimate a variance from
TRAINING = 2.0  # times d rows before a trial compares: after d, a reset state predicts wildly
DECISIVE, LONGEST_TRIAL = 3.0, 4.0  # a Bayes factor of 20; at most so many times the least rows
CHANCE = 3.0  # standard deviations of an estimated variance beyond which it is another one


@inline
def rounding_of_error(F, p, target, q, level):
    """Return what rounding may make of the error of target q, given the row's parts p (d,)."""
    total, d = abs(target), p.shape[0]
    for k in range(d):
        total += abs(F[k, d + q] * p[k])
    return level * total


@called
def standardised(strategy, judged, first, squares):
    """Compute ``z^2 = w e^2 / (s sigma2)`` per target into ``squares``; return whether they can be
    judged.

    ``strategy`` and ``judged`` as in :func:`continue_trial`.

    The estimate of sigma2 goes on with the row.  ``first`` rows, at the start and after a break,
    are left to determine the coefficients, and as many and EXTRA more to start the mean with.
    sigma2 is nowhere below the square of ``floor``, what rounding makes of errors.  A row of zeros,
    y too (a sensor that is off), is no sample of anything.
    """
    _, options, _, memory, variances, _ = strategy
    residual, leverage, weight, floor = judged
    m = residual.shape[0]
    told = leverage > 0
    for target in range(m):
        squares[target] = 0.0
        told = told or residual[target] != 0
    if not told:
        return False
    memory[SEEN] += 1
    settled = memory[SEEN] > first
    given, known = options[NOISE] > 0, options[NOISE] > 0 or memory[ROWS] >= first + EXTRA
    if not given and settled:
        memory[ROWS] = min(memory[ROWS] + 1, max(options[NOISE_ROWS], first + EXTRA))
    share = weight / (1.0 + weight * leverage)
    for target in range(m):
        square, least = share * residual[target] ** 2, share * floor[target] ** 2
        variance = max(options[NOISE] if given else variances[target], least)
        squares[target] = square / variance if variance > 0 else (CLIP if square > 0 else 0.0)
        if not given and settled:
            square = max(square, least)
            if known and variance > 0:
                square = CLIPPED * min(square, CLIP * variance)
            variances[target] += (square - variances[target]) / memory[ROWS]
    return known and settled


@kernel(forceinline=True)
def factor_by_error(strategy, judged, d, squares):
    """Compute the factor of a row from its errors, for the kinds VARIABLE and RESET.

    ``squares`` (m,) is scratch, the others as in :func:`standardised`.
    """
    kind, options, _, memory, _, _ = strategy
    weight = judged[2]
    if weight == 0:
        return memory[GATE] if kind == VARIABLE else options[FACTOR]
    m = squares.shape[0]
    if not standardised(strategy, judged, d, squares):
        return options[LONGEST] if kind == VARIABLE else options[FACTOR]
    if kind == VARIABLE:
        total = 0.0
        for target in range(m):
            total += squares[target]
        follow_noise(strategy, judged, total / m, d)
        # factor = 1 - mean(z^2) / memory, within its bounds
        wanted = 1.0 - options[FACTOR] * total / m
        return min(max(wanted, options[SHORTEST]), options[LONGEST])
    if memory[TRIAL] > 0:
        return options[FACTOR]
    ratio = options[RATIO]
    for target in range(m):
        # Page's CUSUM: g' = max(0, g + ((1 - 1 / ratio) min(z^2, outlier^2) - log(ratio)) / 2)
        square = min(squares[target], options[OUTLIER])
        memory[STATISTIC] += 0.5 * ((1.0 - 1.0 / ratio) * square - math.log(ratio))
    memory[STATISTIC] = max(memory[STATISTIC], 0.0)
    if memory[STATISTIC] >= options[THRESHOLD]:
        memory[STATISTIC] = memory[SEEN] = 0.0
        memory[BREAKS] += 1
        memory[TRIAL] = 1.0
        return options[KEEP]
    return options[FACTOR]


# -- a rise of the noise under Variable ------------------------------------------------------------


@kernel(forceinline=True)
def follow_noise(strategy, judged, ratio, d):
    """Adopt the level of errors that stay large although the memory is as short as it gets.

    Clipped at CLIP times the estimate, errors of noise that has risen by decades raise it by
    decades too slowly.  So squares are added up over stretches of the shortest window and d rows.
    A change of coefficients is forgotten within each stretch to ``exp(-2)`` of its square.  Where
    most rows of two stretches in turn were clipped, and the second is not below half the first,
    it is noise, and the second's mean is its variance.  ``ratio`` is the row's mean z^2.
    """
    _, options, _, memory, variances, aside = strategy
    residual, leverage, weight, _ = judged
    if options[NOISE] > 0:
        return
    m = residual.shape[0]
    share = weight / (1.0 + weight * leverage)
    memory[STRETCH] += 1
    memory[STRETCH_CLIPPED] += 1.0 if ratio >= CLIP else 0.0
    for target in range(m):
        aside[target, 0] += share * residual[target] ** 2
    rows = memory[STRETCH]
    if rows < d + 1.0 / (1.0 - options[SHORTEST]):
        return
    large = 2 * memory[STRETCH_CLIPPED] > rows
    lasting = large and memory[STRETCHES] > 0
    for target in range(m):
        lasting = lasting and aside[target, 0] >= 0.5 * aside[target, 1]
    for target in range(m):
        if lasting and aside[target, 0] > rows * variances[target]:
            variances[target] = aside[target, 0] / rows
        aside[target, 1], aside[target, 0] = aside[target, 0], 0.0
    if lasting:
        memory[ROWS] = min(memory[ROWS], max(rows, d + EXTRA))
    memory[STRETCHES] = 1.0 if large and not lasting else 0.0
    memory[STRETCH] = memory[STRETCH_CLIPPED] = 0.0


# -- the trial after an alarm of ResetOnBreak ------------------------------------------------------
#
# An alarm resets the state at once.  Beside it the state goes on as if nothing had happened, in
# ``aside``: [F | D | columns | tally | loss | sums of squares and their largest, of the state
# aside and of the reset one (4 m) | sum of log s_aside - log s_reset].  After 2 d rows, which
# determine the coefficients of both, d + EXTRA rows or more, until one is DECISIVELY better, are
# predicted by both.  With a noise variance that neither knows, the logarithm of their Bayes factor
# is
#
#     N / 2 log(S_aside / S_reset) + 1 / 2 sum (log s_aside - log s_reset),   S = sum w e^2 / s
#
# (a partial Bayes factor, O'Hagan 1995: the 2 d rows train the vague prior that a reset is).  The
# largest square of either is left out, so that an outlier decides nothing.  Where the state aside
# predicts as well, the coefficients had not changed, and it is what goes on.


@kernel(forceinline=True, makes_arrays=True)
def state_aside(aside, d, m):
    """Return the state and the trial's sums (4 m + 1,) as views of ``aside``."""
    own = aside[0]
    a = d * (d + m)
    b = a + d
    c = b + 2 * d
    e = c + 4
    state = (
        own[:a].reshape((d, d + m)),
        own[a:b],
        own[b:c].reshape((2, d)),
        own[c:e],
        own[e : e + m],
    )
    return state, own[e + m :]


@kernel(forceinline=True, makes_arrays=True)
def start_trial(aside, memory, state):
    """Store the state before an alarm's row in ``aside``."""
    own, sums = state_aside(aside, state[1].shape[0], state[4].shape[0])
    copy_state(state, own)
    for k in range(sums.shape[0]):
        sums[k] = 0.0
    memory[TRIAL] = 2.0


@kernel(forceinline=True, makes_arrays=True)
def learn_aside(aside, options, rows, t, limits):
    """Absorb row t into the state aside as if there had been no alarm."""
    d, m = rows[0].shape[1], rows[1].shape[1]
    own, _ = state_aside(aside, d, m)
    noise, p, error = np.empty(d), np.empty(d), np.empty(m)
    _, _, sound = take_out_parts(own, rows, t, limits, noise, p, error)
    absorb_judged(own, rows, t, (options[FACTOR], rows[3][t]), limits, noise, sound)


@kernel(forceinline=True)
def bayes_factor(sums, rows, m):
    """Compute the logarithm of the Bayes factor of the reset state against the one aside."""
    score = 0.5 * m * sums[4 * m]
    for target in range(m):
        unchanged = sums[target] - sums[m + target]
        changed = sums[2 * m + target] - sums[3 * m + target]
        if unchanged > 0 and changed > 0:
            score += 0.5 * rows * math.log(unchanged / changed)
        elif unchanged > 0:
            score = math.inf
    return score


@kernel(forceinline=True, makes_arrays=True)
def continue_trial(strategy, state, rows, t, judged, limits):
    """Compare the state aside and the reset one on row t, that neither has learned; maybe decide.

    ``strategy`` = (kind, options, vectors, memory, variances, aside); ``judged`` = (residual (m,),
    leverage and weight of the row in the reset state, what rounding makes of residuals (m,)).
    Returns whether the state aside has taken over.
    """
    _, options, _, memory, variances, aside = strategy
    residual, leverage, weight, floor = judged
    d, m = state[1].shape[0], state[4].shape[0]
    own, sums = state_aside(aside, d, m)
    if weight > 0 and memory[SEEN] >= TRAINING * d:
        noise, p, error = np.empty(d), np.empty(d), np.empty(m)
        _, own_leverage, _ = take_out_parts(own, rows, t, limits, noise, p, error)
        own_share, share = weight / (1 + weight * own_leverage), weight / (1 + weight * leverage)
        told = False
        for target in range(m):
            least = floor[target] ** 2
            aside_square = own_share * max(error[target] ** 2, least)
            reset_square = share * max(residual[target] ** 2, least)
            told = told or aside_square > 0 or reset_square > 0
            for place, square in ((0, aside_square), (2 * m, reset_square)):
                sums[place + target] += square
                sums[place + m + target] = max(sums[place + m + target], square)
        if told:
            sums[4 * m] += math.log(share) - math.log(own_share)
            memory[TRIAL] += 1
    rows_compared = memory[TRIAL] - 2 - 1  # without the largest
    score = 0.0
    if rows_compared >= d + EXTRA:
        score = bayes_factor(sums, rows_compared, m)
    undecided = abs(score) < DECISIVE and rows_compared < LONGEST_TRIAL * (d + EXTRA)
    if rows_compared < d + EXTRA or undecided:
        return False
    won = 2 * m if score > 0 else 0
    if won == 0:
        copy_state(own, state)
        memory[BREAKS] -= 1
    if not options[NOISE] > 0:
        for target in range(m):
            found = (sums[won + target] - sums[won + m + target]) / rows_compared
            if found > variances[target] * (1.0 + CHANCE * math.sqrt(2.0 / rows_compared)):
                variances[target] = found
                memory[ROWS] = min(memory[ROWS], rows_compared)
    memory[TRIAL] = 0.0
    return won == 0

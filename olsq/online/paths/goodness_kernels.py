"""Sums of squares of the targets, and constant columns, of the rows behind every row's estimate."""

from __future__ import annotations

import numpy as np

from olsq.kernels import kernel

EPS = float(np.finfo(np.float64).eps)


@kernel(forceinline=True)
def merge(weight, mean, squares, other_weight, other_mean, other_squares):
    """Merge two weights, means and sums of squares about them (Chan, Golub & LeVeque 1983)."""
    total = weight + other_weight
    if total <= 0.0:
        return 0.0, 0.0, 0.0
    step, share = other_mean - mean, other_weight / total
    squares += other_squares + step * step * weight * share
    return total, mean + step * share, squares


@kernel(forceinline=True)
def value_after(value, x):
    """Return the value that a column has had in every row, with one more row x: 0 once it varies.

    NaN is that of no row yet.
    """
    return x if value != value else value if value == x else 0.0


@kernel()
def fill_sums_of_squares(rows, begins, ends, oldest, before, centred, scratch, out):
    """Compute the weighted sum of squares of the rows ``oldest[p]..p`` at every position p.

    ``rows`` = (order (s,), Y (N, m), gates (N,), weights (N,)): position p is row ``order[p]``.
    Group g has the positions ``begins[g]..ends[g]``; ``oldest`` (s,) goes up within it.  Its
    ``begins[g] - 1`` stands for what came before the group, weight, mean and sum of squares
    ``before`` (g, m, 3).  out (s, m) is about the mean where ``centred`` (s,), else about 0.
    ``scratch`` (longest group + 1, 3).

    Nothing is subtracted, so that rows that have left leave no rounding error: what is inside is
    the rows up to an anchor, summed backwards from it once, and those after it.
    """
    order, Y, gates, weights = rows
    for g in range(begins.shape[0]):
        first = begins[g] - 1
        for target in range(Y.shape[1]):
            anchor, fade = first, 1.0
            for c in range(3):
                scratch[0, c] = before[g, target, c]
            weight, mean, squares = 0.0, 0.0, 0.0  # of the rows after the anchor
            for p in range(begins[g], ends[g]):
                row = order[p]
                fade *= gates[row]
                weight *= gates[row]
                squares *= gates[row]
                if weights[row] > 0:
                    weight, mean, squares = merge(
                        weight, mean, squares, weights[row], Y[row, target], 0.0
                    )
                if oldest[p] > anchor:
                    anchor, fade = p, 1.0
                    weight, mean, squares = 0.0, 0.0, 0.0
                    for i in range(p, oldest[p] - 1, -1):
                        row = order[i]
                        if weights[row] > 0:
                            weight, mean, squares = merge(
                                weight, mean, squares, fade * weights[row], Y[row, target], 0.0
                            )
                        scratch[i - first, 0] = weight
                        scratch[i - first, 1] = mean
                        scratch[i - first, 2] = squares
                        fade *= gates[row]
                    weight, mean, squares, fade = 0.0, 0.0, 0.0, 1.0
                i = oldest[p] - first
                total, center, about = merge(
                    fade * scratch[i, 0],
                    scratch[i, 1],
                    fade * scratch[i, 2],
                    weight,
                    mean,
                    squares,
                )
                about_zero = about + total * center * center
                # Each mean is off by a rounding or two: of equal targets that is all there is.
                if centred[p] and about <= 16 * EPS * EPS * about_zero:
                    about = 0.0
                out[p, target] = about if centred[p] else about_zero


@kernel()
def rises_evenly(values):
    """Test whether the rows of values (n, 3) rise by the same from each to the next, exactly."""
    for t in range(2, values.shape[0]):
        for j in range(3):
            if values[t, j] != values[0, j] + t * (values[1, j] - values[0, j]):
                return False
    return True


@kernel()
def fill_own_residuals(coef, X, Y, out):
    """Compute ``y_t - x_t . coef_t`` (n, m) of rows X (n, d) and coefficients (n, m, k).

    Where k = d + 1 the first one is an intercept.
    """
    n, d = X.shape
    first = coef.shape[2] - d
    for t in range(n):
        for target in range(coef.shape[1]):
            predicted = coef[t, target, 0] if first else 0.0
            for j in range(d):
                predicted += coef[t, target, first + j] * X[t, j]
            out[t, target] = Y[t, target] - predicted


@kernel()
def fill_constant_rows(rows, X, begins, ends, values, counts):
    """Count the rows of every group up to the first at which no column has had one value so far.

    ``rows`` as in :func:`fill_sums_of_squares`; ``values`` (g, d) are those that columns of a group
    have had in every row before, 0 where they varied or are 0, NaN before the first row, and
    change.  counts (g,) is the number of all rows of a group where a column never varies.
    """
    order, _, _, weights = rows
    for g in range(begins.shape[0]):
        counts[g] = ends[g] - begins[g]
        for p in range(begins[g], ends[g]):
            row, constant = order[p], False
            for j in range(X.shape[1]):
                if weights[row] > 0:
                    values[g, j] = value_after(values[g, j], X[row, j])
                constant |= values[g, j] != 0
            if not constant:
                counts[g] = p - begins[g]
                break

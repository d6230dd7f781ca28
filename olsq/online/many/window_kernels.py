"""Numba kernels over groups of rows with a rolling window each."""

from __future__ import annotations

import numpy as np

from olsq.kernels import kernel
from olsq.online.forms import covariance_kernels
from olsq.online.forms.statistics import fill_statistics
from olsq.online.many.kernels import COVARIANCE
from olsq.online.windows import row_kernels as rolling_kernels


@kernel()
def roll_groups(
    state, begins, ends, order, X, Y, settings, begin, end, residual, path, done
):  # fmt: skip
    """Continue groups begin..end from a full window, each after its first ``window`` rows.

    ``state`` = (forms, matrix, coefs, columns, tally, loss) of a bank, after those rows; group i's
    rows are ``order[begins[i]:ends[i]]``.  ``settings`` = (window, limits of the covariance form,
    of the window's kernel, ridge (k,), intercept).  ``path`` as in ``kernels.learn_path``.
    ``done[i]`` says whether a group is: one that the covariance form does not keep the digits of,
    or that needs a rebuild, is not, and what was written of it does not count.
    """
    forms, matrix, coefs, columns, tally, loss = state
    window, within, limits, ridge, intercept = settings
    path_coef, path_sigma2, path_stderr, path_recursive = path
    m, k = coefs.shape[1], coefs.shape[2]
    first = 1 if intercept else 0
    N, d = X.shape
    groups = begins.shape[0]
    if (
        d + first != k or Y.shape != (N, m) or residual.shape != (N, m) or ridge.shape[0] != k
        or path_coef.shape != (N, m, k) or path_recursive.shape != (N, m)
        or forms.shape[0] != groups or ends.shape[0] != groups or done.shape[0] != groups
        or matrix.shape[0] != groups or not 0 <= begin <= end <= groups or window < 1
    ):  # fmt: skip
        raise ValueError("the shapes of rows, states and results do not fit")
    longest = 0
    for g in range(begin, end):
        if not 0 <= begins[g] <= ends[g] <= order.shape[0]:
            raise ValueError("the rows of a group are outside of the order")
        longest = max(longest, ends[g] - begins[g])
    for row in order:
        if not 0 <= row < N:
            raise ValueError("a row is outside of the shape of X")
    wanted = path_stderr.shape[0] > 0
    held = longest if wanted else 0
    x, y, weights = np.ones((longest, k)), np.empty((longest, m)), np.ones(longest)
    error, leaving = np.empty((longest, m)), np.empty(0, np.int64)
    whole = (
        np.empty((longest, m, k)), np.empty((held, k)), np.empty((longest, m)),
        np.empty((longest, 6)), np.empty((longest, m)), np.empty((0, k)),
    )  # fmt: skip
    sigma2, stderr = np.empty((longest, m)), np.empty((longest, m, k))
    ring_X, ring_Y, ring_w = np.empty((window, k)), np.empty((window, m)), np.ones(window)
    for g in range(begin, end):
        n = ends[g] - begins[g]
        done[g] = n <= window
        if done[g] or forms[g] != COVARIANCE:
            continue
        if not covariance_kernels.trusted(matrix[g], columns[g], within):
            continue
        for t in range(n):
            row = order[begins[g] + t]
            for j in range(d):
                x[t, first + j] = X[row, j]
            for target in range(m):
                y[t, target] = Y[row, target]
        for t in range(window):
            for j in range(k):
                ring_X[t, j] = x[t, j]
            for target in range(m):
                ring_Y[t, target] = y[t, target]
            ring_w[t] = 1.0
        place, monitor = np.array([window, 0, 0]), np.zeros(2)
        for target in range(m):
            monitor[1] = max(monitor[1], loss[g, target])
        trace = (
            whole[0][:n], whole[1][: n if wanted else 0], whole[2][:n], whole[3][:n], whole[4][:n],
            whole[5],
        )  # fmt: skip
        _, answer = rolling_kernels.update(
            matrix[g], coefs[g], columns[g], tally[g], loss[g], monitor, ring_X, ring_Y, ring_w,
            place, x[:n], y[:n], weights[:n], leaving, window, n, limits, error[:n], trace,
        )  # fmt: skip
        if answer != rolling_kernels.DONE:
            continue
        done[g] = True
        if wanted:
            fill_statistics(
                trace[2][window:], trace[0][window:], trace[1][window:], trace[5],
                trace[3][window:], ridge, True, sigma2[window:n], stderr[window:n],
            )  # fmt: skip
        for t in range(window, n):
            row = order[begins[g] + t]
            for target in range(m):
                residual[row, target] = error[t, target]
                path_recursive[row, target] = trace[4][t, target]
                for j in range(k):
                    path_coef[row, target, j] = trace[0][t, target, j]
                if wanted:
                    path_sigma2[row, target] = sigma2[t, target]
                    for j in range(k):
                        path_stderr[row, target, j] = stderr[t, target, j]

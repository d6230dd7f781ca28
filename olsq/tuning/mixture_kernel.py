"""Exponential weights over experts, one row after another."""

from __future__ import annotations

import numpy as np

from olsq.kernels.kernel import kernel


@kernel()
def aggregate(experts, target, weight, low, high, eta, averaging, prediction, shares):
    """Predict every row from experts (n, K), then reweight them by their squared error.

    Fills ``prediction`` (n,) and ``shares`` (n, K), the weights before each row. A row with
    ``weight`` 0 changes no share.
    """
    n, K = experts.shape
    logs = np.zeros(K)
    middle, width = 0.5 * (low + high), high - low
    for t in range(n):
        largest = logs.max()
        total = 0.0
        for k in range(K):
            shares[t, k] = np.exp(logs[k] - largest)
            total += shares[t, k]
        mean = 0.0
        for k in range(K):
            shares[t, k] /= total
            mean += shares[t, k] * experts[t, k]
        rate = eta * weight[t]
        # At a rate of at most 1 / (2 width^2) the mean does as well (exp-concavity), without
        # dividing by a rate that may be tiny.
        if averaging or rate * width**2 <= 0.5:
            prediction[t] = mean
        else:
            # The generalised prediction g at both ends of the interval, and Vovk's substitution.
            # Losses relative to the smallest, so that no exponential underflows in all experts.
            least_low, least_high = np.inf, np.inf
            for k in range(K):
                least_low = min(least_low, (experts[t, k] - low) ** 2)
                least_high = min(least_high, (experts[t, k] - high) ** 2)
            at_low, at_high = 0.0, 0.0
            for k in range(K):
                at_low += shares[t, k] * np.exp(rate * (least_low - (experts[t, k] - low) ** 2))
                at_high += shares[t, k] * np.exp(rate * (least_high - (experts[t, k] - high) ** 2))
            g_low = least_low - np.log(at_low) / rate
            g_high = least_high - np.log(at_high) / rate
            prediction[t] = min(max(middle + (g_low - g_high) / (2 * width), low), high)
        if rate > 0:
            for k in range(K):
                logs[k] -= rate * (experts[t, k] - target[t]) ** 2

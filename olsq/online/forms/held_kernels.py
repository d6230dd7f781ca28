"""Variances of coefficients that wind-up protection holds, which data do not determine."""

from __future__ import annotations

import math

from olsq.kernels import kernel
from olsq.online.forms.square_root_kernels import is_held


@kernel()
def hide_held(variance, columns, tally, limits):
    """Set variance (b, k) to inf where wind-up protection holds the coefficient."""
    b, k = variance.shape
    for i in range(b):
        for j in range(k):
            if math.isfinite(variance[i, j]) and is_held(
                variance[i, j], columns[i, 0, j], columns[i, 1, j], limits, k, tally[i]
            ):
                variance[i, j] = math.inf

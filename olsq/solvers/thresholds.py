"""Thresholds shared by both backends: which gates a chunk's factors cover, and how many
corrections.
"""

from __future__ import annotations

from typing import Any

FLOOR = -80.0  # log of the smallest gate a reference sees; smaller ones only precondition
MAX_LOG_SCALE = 3.5  # |log f| up to which a token uses its factor; beyond, plain CG is as good
MILD_LOG_SCALE = 0.7  # |log f| up to which one reference and Chebyshev steps serve a whole stream
REGULAR = 10.0  # growth up to which P is exact to rounding; beyond, it preconditions
ROUNDED = 25.0  # eps of the default tolerance: 3e-6 in float32, 6e-15 in float64
# Corrections beyond which conjugate gradient (or, in NumPy's kernels, one factorisation a token)
# takes over.  A correction is one apply: measured, a quarter of a step of conjugate gradient, which
# needs about as many (float64, d 64, gates .98: 18 corrections in 0.37 of the time of 19 steps).
MOST_CORRECTIONS = 40
TOO_FEW = 0.01  # relative error that fixed corrections may leave without a warning


def correction_error(kappa: Any, steps: Any) -> Any:
    """Bound the relative error after ``steps`` Chebyshev steps, on a spectrum of condition
    ``kappa``.

    A step shrinks the error by ``rho = (sqrt(kappa) - 1) / (sqrt(kappa) + 1)``: in the norm of
    ``P^{-1}`` it is ``2 rho^(steps + 1)``, in any between that and the one of M ``kappa`` times as
    much.  Arithmetic only: NumPy's kernels and JAX's tracers use it too.
    """
    return 2 * kappa * ((kappa**0.5 - 1) / (kappa**0.5 + 1)) ** (steps + 1)

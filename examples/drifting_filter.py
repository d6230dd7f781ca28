"""Follow the impulse response of a system that changes, from its input and output alone.

    python examples/drifting_filter.py

A filter of eight taps drifts slowly and jumps once.  Recursive least squares with three memories
follows it; the errors show the usual bargain: a short memory reacts fast and is noisy.
"""

import numpy as np

import olsq

rng = np.random.default_rng(0)
n, taps = 6000, 8
signal = rng.standard_normal(n + taps)
X = np.lib.stride_tricks.sliding_window_view(signal, taps)[:n]
response = np.cumsum(0.003 * rng.standard_normal((n, taps)), axis=0) + np.linspace(1, 0, taps)
response[3000:] *= -1  # the jump
y = (X * response).sum(1) + 0.1 * rng.standard_normal(n)

print("memory (half-life)   error of the taps: before the jump   100 rows after   1000 rows after")
for half_life in (20, 100, 500):
    path = olsq.coefficient_path(X, y, half_life=half_life)
    error = np.linalg.norm(path.coef - response, axis=1)
    print(f"{half_life:>18} {error[2999]:>38.3f} {error[3100]:>16.3f} {error[4000]:>17.3f}")

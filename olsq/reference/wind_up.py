"""Oracle of wind-up protection: the rule in decimal arithmetic of 80 digits, free of rounding.

Moments ``H <- gamma H + x x^T``, ``G <- gamma G + y x``.  With ``H = L D L^T``, D_j is what the
rows say about coefficient j beyond the ones before it.  After every row, for j in turn: if D_j is
below ``max(pin^2 H_jj, floor E_j)``, with E_j the value of H_jj when regressor j was last nonzero,
the observation "coefficient j has its present value" is added with four times that weight.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal, localcontext
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

DIGITS = 80


class Held(NamedTuple):
    """Result: coef (len(at), d) after the rows ``at``; count (len(at),), the number of holds."""

    coef: NDArray[np.float64]
    count: NDArray[np.int64]


def path(
    X: NDArray,
    y: NDArray,
    *,
    gate: float,
    ridge: NDArray,
    eps: float,
    floor: float,
    coarse: float,
    at: Iterable[int],
) -> Held:
    """Run X (n, d), y (n,), one gate < 1, ridge (d,).

    ``eps``, ``floor``, ``coarse`` are the limits.
    """
    positions = set(at)
    coefs, counts = [], []
    with localcontext() as context:
        context.prec = DIGITS
        d, g = X.shape[1], Decimal(gate)
        H = [[Decimal(float(ridge[i]) if i == j else 0) for j in range(d)] for i in range(d)]
        G, excited = [Decimal(0)] * d, [H[i][i] for i in range(d)]
        rows, count = 0.0, 0
        for t in range(X.shape[0]):
            x, target = [Decimal(float(v)) for v in X[t]], Decimal(float(y[t]))
            rows = gate * rows + 1
            pin = Decimal(4 * (eps * (2 * d**0.5 + 3 * rows**0.5) + coarse))
            for i in range(d):
                G[i] = g * G[i] + target * x[i]
                for j in range(i, d):
                    H[i][j] = g * H[i][j] + x[i] * x[j]
                excited[i] = H[i][i] if x[i] else excited[i]
            L, D = _factor(H)
            for j in range(d):
                level = max(pin * pin * H[j][j], Decimal(floor) * excited[j])
                if 0 < D[j] < level:
                    G[j] += 4 * level * _solve(L, D, G)[j]
                    H[j][j] += 4 * level
                    count += 1
                    L, D = _factor(H)
            if t in positions:
                coefs.append([float(c) for c in _solve(L, D, G)])
                counts.append(count)
    return Held(np.array(coefs), np.array(counts))


def _factor(H: list[list[Decimal]]) -> tuple[list[list[Decimal]], list[Decimal]]:
    """Factorise H's upper triangle into unit lower L (by columns: L[i][j] below column i) and D."""
    d, schur = len(H), [list(row) for row in H]
    L = [[Decimal(0)] * d for _ in range(d)]
    for i in range(d):
        for j in range(i + 1, d):
            L[i][j] = schur[i][j] / schur[i][i] if schur[i][i] else Decimal(0)
            for k in range(j, d):
                schur[j][k] -= L[i][j] * schur[i][k]
    return L, [schur[i][i] for i in range(d)]


def _solve(L: list[list[Decimal]], D: list[Decimal], G: list[Decimal]) -> list[Decimal]:
    d, z = len(D), list(G)
    for i in range(d):
        for j in range(i + 1, d):
            z[j] -= L[i][j] * z[i]
    z = [z[i] / D[i] if D[i] else Decimal(0) for i in range(d)]
    for i in reversed(range(d)):
        z[i] -= sum((L[i][j] * z[j] for j in range(i + 1, d)), Decimal(0))
    return z

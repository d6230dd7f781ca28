"""How often "95 %" bands hold the truth: 2,000 streams for each kind of forgetting and weights.

    python -m benchmarks.reports.coverage  # some minutes; prints the table of the page on accuracy

Noise of one variance, an intercept and three white regressors, ridge 0, 600 rows; weights are
drawn from [.2, 3].  A coefficient counts as covered if it is within 1.96 standard errors.
"""

from __future__ import annotations

import numpy as np

import olsq

STREAMS, ROWS, D, INTERCEPT = 2000, 600, 3, 2.0


def share(forget: float, weighted: bool, cov: str) -> float:
    """The part of coefficients (the intercept among them) that their bands cover."""
    rng = np.random.default_rng([14, int(1000 * forget), weighted])
    covered = 0
    for _ in range(STREAMS):
        X, truth = rng.standard_normal((ROWS, D)), rng.standard_normal(D)
        y = X @ truth + INTERCEPT + rng.standard_normal(ROWS)
        weights = rng.uniform(0.2, 3.0, ROWS) if weighted else None
        est = olsq.RecursiveLeastSquares(forget=forget, ridge=0.0, cov=cov).fit(X, y, weights)
        covered += int(np.sum(np.abs(est.coef_ - truth) < 1.96 * est.coef_stderr_))
        covered += int(abs(est.intercept_ - INTERCEPT) < 1.96 * est.intercept_stderr_)
    return covered / (STREAMS * (D + 1))


def main() -> None:
    """Print the table."""
    print("| forget | weights | posterior | sandwich |\n|---|---|---|---|")
    for forget in (1.0, 0.99, 0.95):
        for weighted in (False, True):
            cells = [f"{100 * share(forget, weighted, c):.1f} %" for c in ("posterior", "sandwich")]
            name = "in [0.2, 3]" if weighted else "1"
            print(f"| {forget:g} | {name} | {cells[0]} | {cells[1]} |", flush=True)


if __name__ == "__main__":
    main()

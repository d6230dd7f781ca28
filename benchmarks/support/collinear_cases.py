"""Seeded float32 streams with dependent columns, in mixed units, that forget; and their judge."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import olsq

D, NOISE = 25, 0.1


class Case(NamedTuple):
    """X (n, 25), y (n,) in float32, the estimator's parameters, and the dependent columns.

    ``lengths`` (25,) are the columns' root mean squares; ``truth`` (25,) made y.
    """

    X: NDArray[np.float32]
    y: NDArray[np.float32]
    parameters: dict[str, Any]
    dependent: NDArray[np.int64]
    lengths: NDArray[np.float64]
    truth: NDArray[np.float64]


def draw(seed: int) -> Case:
    """One case: what is copied, the units, the ridge and the forgetting follow from the seed."""
    rng = np.random.default_rng([14, seed])
    n = int(rng.choice([400, 1500]))
    scales = 10.0 ** rng.uniform(-5, 5, D)
    X = (rng.standard_normal((n, D)) * scales).astype(np.float32)
    one, copy, other = (int(j) for j in rng.choice(D, 3, replace=False))
    dependent = [one, copy]
    kind = rng.choice(["same", "other units", "sum"])
    if kind == "same":
        X[:, copy] = X[:, one]
    elif kind == "other units":  # rounded: not exactly a multiple
        X[:, copy] = X[:, one] * np.float32(scales[copy] / scales[one])
    else:
        X[:, other] *= np.float32(rng.uniform(0.2, 5.0) * scales[one] / scales[other])
        X[:, copy] = X[:, one] + X[:, other]
        dependent = [one, copy, other]
    lengths = np.sqrt(np.mean(X.astype(np.float64) ** 2, axis=0))
    truth = rng.standard_normal(D) / lengths
    y = X.astype(np.float64) @ truth + NOISE * rng.standard_normal(n)
    ridge = np.where(rng.random(D) < 0.5, 0.0, 10.0 ** rng.uniform(-6, 0, D) * lengths**2)
    ridge[copy] = 0.0
    parameters = {
        "forget": float(rng.choice([0.9, 0.99, 1.0])), "ridge": ridge.tolist(),
        "fit_intercept": bool(rng.random() < 0.5),
        "method": str(rng.choice(["auto", "covariance", "sqrt", "information"])),
    }  # fmt: skip
    return Case(X, y.astype(np.float32), parameters, np.array(dependent, int), lengths, truth)


def complaints(case: Case, blocks: int = 7, **changes: Any) -> list[str]:
    """What is wrong with the estimates on a case; empty if nothing is."""
    est = olsq.RecursiveLeastSquares(**{**case.parameters, **changes})
    n, size = len(case.y), 0.0
    residuals = []
    for part in np.array_split(np.arange(n), blocks):
        est.partial_fit(case.X[part], case.y[part])
        residuals.append(est.residual_)
        coef = np.abs(est.coef_.astype(np.float64) * case.lengths)  # in units of y, as truth
        error = est.coef_stderr_ * case.lengths
        # What is determined may be badly determined; what is not has no reason to be large.
        size = max(size, float(np.where(np.isinf(error), coef, coef - 6 * error).max()))
    wrong = []
    residual = np.concatenate(residuals)
    settled = slice(n // 2, None)
    memory = 1 / (1 - est.forget) if est.forget < 1 else n
    # With fewer rows in memory than coefficients a one-step error is large, but no more than that.
    usual = 2e3 if memory < 2 * D else 3.0
    if not np.isfinite(residual).all() or not np.isfinite(est.coef_).all():
        wrong.append("not finite")
        return wrong
    rms = float(np.sqrt(np.mean(residual[settled].astype(np.float64) ** 2)))
    if rms > usual * NOISE:
        wrong.append(f"residuals of {rms:.2g}")
    if size > (1e4 if memory < 2 * D else 1e3):
        wrong.append(f"coefficients of {size:.2g}")
    # No error at all, or one that says that nothing is known.
    flagged = np.isinf(est.coef_stderr_) | (est.coef_stderr_ * case.lengths > 100.0)
    ridge = np.asarray(case.parameters["ridge"])[case.dependent] / case.lengths[case.dependent] ** 2
    forgotten = ridge.max(initial=0.0) * est.forget**n < 1e-14  # below what float32 columns hold
    if forgotten and not flagged[case.dependent].all():
        wrong.append(f"dependent columns not flagged: {flagged[case.dependent]}")
    return wrong

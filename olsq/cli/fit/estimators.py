"""The estimators that ``olsq fit`` learns with, made from its options."""

from __future__ import annotations

from typing import Any

from olsq.cli.fit.options import FitOptions
from olsq.online import (
    GroupedLeastSquares,
    GroupedRollingLeastSquares,
    RecursiveLeastSquares,
    RollingLeastSquares,
)

Groups = GroupedLeastSquares | GroupedRollingLeastSquares
Estimator = RecursiveLeastSquares | RollingLeastSquares | Groups


def make_estimator(options: FitOptions) -> Estimator:
    """Return a fresh estimator with these options."""
    common: dict[str, Any] = {
        "ridge": options.ridge or 0.0,
        "fit_intercept": options.intercept,
        # The first rows have no lags, which is nobody's mistake.
        "missing": "skip" if options.lags else options.missing,
        "noise_variance": options.noise_variance,
    }
    fading: dict[str, Any] = {
        "forget": 1.0 if options.forget is None else options.forget,
        "half_life": options.half_life,
    }
    if options.window is not None:
        window = options.window if isinstance(options.window, str) else int(options.window)
        kind = RollingLeastSquares if options.by is None else GroupedRollingLeastSquares
        more = {"window_of": options.window_of, "min_samples": options.min_samples}
        return kind(window=window, **more, **common, **fading)
    # Where all rows count the same both errors are those of ordinary least squares, and the
    # sandwich's would be half of the time.
    same = options.half_life is None and options.forget in (None, 1.0) and options.weight is None
    cov = (options.cov or ("posterior" if same else "sandwich")).lower()
    common |= fading | {
        "method": options.method,
        "cov": "posterior" if cov == "nonrobust" else cov,
    }
    if options.by is not None:
        return GroupedLeastSquares(**common)
    return RecursiveLeastSquares(ridge_mode=options.ridge_mode, **common)

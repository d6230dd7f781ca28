"""Regressions whose coefficients drift: maximum likelihood, smoothing, forecasts, tests."""

from olsq.drift.api import time_varying
from olsq.drift.constancy import LikelihoodRatio
from olsq.drift.result import TimeVaryingFit

__all__ = ["LikelihoodRatio", "TimeVaryingFit", "time_varying"]

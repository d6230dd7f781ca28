"""Feature builders for streams: lags, filters, seasonal terms, trends, indicators of levels.

Each is a scikit-learn transformer that also continues from call to call and from file to file,
and none looks ahead: row t's features know the rows before t, of X also row t itself where a lag
of 0 is asked for.
"""

from olsq.features.arx import ARX, NARX
from olsq.features.base import FeatureBuilder
from olsq.features.formula import Formula
from olsq.features.fourier import Fourier
from olsq.features.grouped import Grouped
from olsq.features.lags import FIR, Lags
from olsq.features.one_hot import OneHot
from olsq.features.random_fourier import RandomFourier
from olsq.features.trend import Trend
from olsq.features.union import Union

__all__ = [
    "ARX",
    "FIR",
    "NARX",
    "FeatureBuilder",
    "Formula",
    "Fourier",
    "Grouped",
    "Lags",
    "OneHot",
    "RandomFourier",
    "Trend",
    "Union",
]

"""Forecast CO2 at Mauna Loa half a year ahead, every week, with intervals.

    python examples/gallery/seasonal_forecast.py [--figure co2.png]

A trend and three harmonics of the year, forgotten with a half-life of two years, at the dates of
the weeks that were measured: weeks are missing, and nothing is filled in.  A regression's intervals
take noise for independent and coefficients for settled, which is too narrow half a year ahead: a
second regression, on a constant, learns by how much.
"""

from __future__ import annotations

import figures
import numpy as np
import pandas as pd

import olsq
from olsq import features
from olsq.datasets import mauna_loa_co2

AHEAD = np.timedelta64(182, "D")


def forecasts(table: pd.DataFrame, co2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means (weeks,) made 26 weeks before, and half widths (weeks, 2): as they are, calibrated."""
    mean, reach = np.full(len(table), np.nan), np.full((len(table), 2), np.nan)
    year = features.Fourier("365.25D", order=3, of="date")
    trend = features.Trend(scale="3650D", origin="1980-01-01", of="date")
    X = features.Union([year, trend]).fit_transform(table)  # none of them looks ahead
    est = olsq.RecursiveLeastSquares(half_life="730D", ridge=1e-6)
    scale = olsq.RecursiveLeastSquares(half_life=104, prior=([1.0], [0.1]), fit_intercept=False)
    dates = table["date"].to_numpy()
    for t in range(len(X)):
        est.partial_fit(X[t : t + 1], co2[t : t + 1], times=dates[t : t + 1])  # NaN: skipped
        # The error of the forecast made for today half a year ago, over its half-width
        off = 1.645 * (co2[t] - mean[t]) / reach[t, 0]
        scale.partial_fit([[1.0]], [off**2])  # NaN before the first forecast: skipped too
        later = np.searchsorted(dates, dates[t] + AHEAD)
        if t > 150 and later < len(X):
            x = X[later : later + 1]
            mean[later] = est.predict(x)[0]
            reach[later, 0] = est.predict_interval(x, level=0.9)[1][0] - mean[later]
            reach[later, 1] = reach[later, 0] * np.sqrt(scale.predict([[1.0]])[0])
    return mean, reach


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    data = mauna_loa_co2()
    table, co2 = pd.DataFrame({"date": data["date"]}), data["co2"]
    mean, reach = forecasts(table, co2)
    known = np.isfinite(mean) & np.isfinite(co2)
    error = np.abs(mean - co2)[known]
    size = np.sqrt(np.mean(error**2))
    last_year = np.sqrt(np.nanmean((co2[52:] - co2[:-52])[known[52:]] ** 2))
    print(f"{known.sum():,} weeks, each forecast 26 weeks before: error {size:.2f} ppm")
    print(f"the value of the year before: {last_year:.2f} ppm")
    covered = [np.mean(error <= reach[known, i]) for i in range(2)]
    for name, share, width in zip(
        ("as they are", "calibrated"), covered, 2 * reach[known].T, strict=True
    ):
        print(f"90 % intervals, {name}: cover {share:.1%}, {width.mean():.2f} ppm wide")
    assert size < 0.6 * last_year
    assert abs(covered[1] - 0.9) < 0.03

    def draw(axes):
        dates = table["date"].to_numpy()
        some = dates > np.datetime64("1994-01-01")
        both = mean + np.outer([-1, 1], reach[:, 1]).reshape(2, -1)
        axes.fill_between(dates[some], *both[:, some], alpha=0.25, lw=0)
        axes.plot(dates[some], mean[some], label="forecast of\n26 weeks\nbefore, 90 %")
        axes.plot(dates[some], co2[some], ".", ms=2.5, color="0.2", label="measured")
        axes.set(ylabel="CO2, ppm")

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()

"""CO2 a year ahead, with intervals that cover what they say.

    python examples/gallery/year_ahead.py [--figure year_ahead.png]

Weekly CO2 at Mauna Loa, 1958 to 2001, on a trend and a season.  Each week is forecast a year ahead,
when its value and those of the year in between are not known.  A regression tuned one week ahead
follows every wiggle, and is lost a year later; tuned for the horizon, it errs a third less than
last year's value plus last year's rise.  Intervals from the errors of past forecasts cover 90 %;
the regression's own, which take its coefficients for constant, cover less.
"""

from __future__ import annotations

import figures
import numpy as np

import olsq
from olsq.datasets import mauna_loa_co2

YEAR = 52


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    data = mauna_loa_co2()
    year, co2 = np.asarray(data["year"], float), np.asarray(data["co2"], float)
    waves = [f(2 * np.pi * k * year) for k in (1, 2) for f in (np.sin, np.cos)]
    X = np.column_stack([year - year[0], *waves])
    scores = {}
    for ahead in (1, YEAR):
        # [use]
        tuned = olsq.tune(X, co2, ridge=0.0, horizon=ahead, starts=1)
        path = olsq.coefficient_path(X, co2, forget=tuned.forget, fit_intercept=True, horizon=YEAR)
        scores[ahead] = olsq.score_forecasts(path, co2, level=0.9, half_life=10 * YEAR)
        # [end]
        print(
            f"tuned {ahead:2} weeks ahead: half-life {tuned.half_life:2.0f} weeks, "
            f"a year ahead {scores[ahead].rmse:.2f} ppm"
        )
    best = scores[YEAR]
    judged = np.isfinite(best.lower) & np.isfinite(best.residual)
    naive = np.full(co2.size, np.nan)
    naive[2 * YEAR :] = co2[2 * YEAR :] - (2 * co2[YEAR:-YEAR] - co2[: -2 * YEAR])
    simple = np.sqrt(np.nanmean(naive[judged] ** 2))
    print(f"last year's value and rise: {simple:.2f} ppm")
    est, inside = olsq.RecursiveLeastSquares(forget=tuned.forget), []
    rows = olsq.DelayedTargets(est, horizon=YEAR)
    for t in range(co2.size):
        rows.step(X[t], co2[t])
        if judged[t]:
            lower, upper = est.predict_interval(X[t : t + 1], level=0.9)
            inside.append(lower[0] <= co2[t] <= upper[0])
    print(
        f"inside the 90 % intervals: {100 * best.coverage:.0f} % "
        f"(+- {196 * best.coverage_stderr:.0f} %); the regression's own: "
        f"{100 * np.mean(inside):.0f} %"
    )

    assert best.rmse < 0.4 * scores[1].rmse
    assert best.rmse < 0.75 * simple
    assert abs(best.coverage - 0.9) < 2 * best.coverage_stderr
    assert np.mean(inside) < 0.8

    def draw(axes):
        some, band = year > 1985, {"color": "#2166ac", "alpha": 0.25, "lw": 0}
        lower, upper = best.lower[some], best.upper[some]
        axes[0].fill_between(year[some], lower, upper, **band)
        axes[0].plot(year[some], co2[some], ".", color="#d9730d", ms=2)
        axes[0].set_title("CO2 in ppm, and 90 % from a year before", loc="left", fontsize=9)
        middle = best.prediction[some]
        axes[1].fill_between(year[some], lower - middle, upper - middle, **band)
        axes[1].plot(year[some], best.residual[some], color="#d9730d", lw=0.9)
        axes[1].axhline(0, color="#6b7785", lw=0.7)
        axes[1].set_xticks(range(1985, 2003, 5))
        axes[1].set_title("Errors of the forecasts, and their 90 %", loc="left", fontsize=9)

    figures.save(options.figure, draw, rows=2)


if __name__ == "__main__":
    main()

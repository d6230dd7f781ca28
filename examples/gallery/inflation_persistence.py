"""The persistence of US inflation, a coefficient that changes over time.

    python examples/gallery/inflation_persistence.py [--draws 99] [--figure inflation.png]

Inflation on its value a quarter before, 1959 to 2009: both coefficients are random walks whose
variances are estimated.  What a shock left for the next quarter was little in the 1960s, more than
half around 1980, and nothing after the disinflation, as Cogley and Sargent found (2001).  Then the
drift of the rows up to 1984 forecasts the quarters after them, one ahead, online, beside the
regression on all rows so far: with smaller errors until 2007, and larger ones in the crash of 2008.
"""

from __future__ import annotations

import figures
import numpy as np
import pandas as pd

import olsq
from olsq.datasets import us_macro
from olsq.stability import nyblom


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments, draws=99)
    data = us_macro()
    inflation, year = data["infl"], data["time"][2:]
    # [use]
    X = pd.DataFrame({"before": inflation[1:-1]})
    y = inflation[2:]
    fit = olsq.time_varying(X, y)
    print(fit.summary())
    persistence, error = fit.coef[:, 0], fit.stderr[:, 0]
    # [end]
    constant = fit.likelihood_ratio(draws=options.draws, random_state=0)
    print(f"constant coefficients: p = {constant.p_value:.3g}, likelihood ratio,")
    print(f"                       p = {nyblom(X, y, fit_intercept=True).p_value:.3g}, Nyblom's")
    for when in (1965, 1980, 1995):
        at = int(np.argmin(np.abs(year - when)))
        print(f"persistence in {when}: {persistence[at]:5.2f} +- {1.96 * error[at]:.2f}")

    early = int(np.searchsorted(year, 1985.0))
    first = olsq.time_varying(X[:early], y[:early])
    model = first.estimator
    errors, inside = [], []
    for t in range(early, len(y)):
        mean, std = model.predict(X[t : t + 1], return_std=True)
        errors.append(y[t] - mean[0])
        inside.append(abs(errors[-1]) < 1.96 * std[0])
        model.partial_fit(X[t : t + 1].to_numpy(), y[t : t + 1])
    still = olsq.coefficient_path(X, y, fit_intercept=True).residual[early:]
    print("error a quarter ahead  with drift  constant")
    spans = {"1985 to 2007": year[early:] < 2008, "2008 and 2009": year[early:] >= 2008}
    rms = {
        name: [float(np.sqrt(np.mean(np.square(e)[rows]))) for e in (errors, still)]
        for name, rows in spans.items()
    }
    for name, (ours, theirs) in rms.items():
        print(f"{name:>21} {ours:11.2f} {theirs:9.2f}")
    print(f"{100 * np.mean(inside):.0f} % of all lie within the 95 % intervals")

    eighties = (year > 1979) & (year < 1981)
    assert persistence[eighties].min() > 0.4
    assert abs(persistence[year > 1985]).max() < 0.3
    assert constant.p_value < 0.05
    assert rms["1985 to 2007"][0] < 0.95 * rms["1985 to 2007"][1]
    assert 0.88 < np.mean(inside) < 0.98

    def draw(axes):
        for ax, j, name in ((axes[0], 0, "Persistence"), (axes[1], None, "Intercept")):
            smoothed, filtered = fit.smoothed, fit.filtered
            middle = smoothed.intercept if j is None else smoothed.coef[:, j]
            spread = smoothed.intercept_stderr if j is None else smoothed.stderr[:, j]
            online = filtered.intercept if j is None else filtered.coef[:, j]
            ax.fill_between(
                year, middle - 1.96 * spread, middle + 1.96 * spread, color="#2166ac", alpha=0.18
            )
            ax.plot(year[20:], online[20:], color="#d9730d", lw=0.9, label="online")
            ax.plot(year, middle, color="#2166ac", lw=1.4, label="all rows")
            ax.axhline(0, color="#6b7785", lw=0.7)
            ax.set_title(f"{name} of US inflation, 95 % band", loc="left", fontsize=9)

    figures.save(options.figure, draw, rows=2)


if __name__ == "__main__":
    main()

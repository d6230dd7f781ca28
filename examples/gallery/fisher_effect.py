"""Interest and inflation in windows whose rows fade, with errors for correlated noise.

    python examples/gallery/fisher_effect.py [--figure fisher.png]

The rate of three-month US treasury bills on the inflation of the last year, 1960 to 2009: the last
20 years count, and a quarter's weight halves every ten.  Both series are persistent, so that
the noise of neighbouring quarters is correlated, and Newey and West's standard errors are a third
larger than the usual ones.  Fisher's one for one is outside of the interval in the late 1980s and
inside from 1994 on.  Inflation explains 80 % of the rate before the disinflation, and 10 % in 2008.
"""

from __future__ import annotations

import figures
import numpy as np

import olsq
from olsq.datasets import us_macro

WINDOW, HALF_LIFE, LAGS = 80, 40, 4  # quarters


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    data = us_macro()
    inflation = np.convolve(data["infl"], np.full(4, 0.25), mode="valid")
    rate, year = data["tbilrate"][3:], data["time"][3:]
    X, rows = inflation[:, None], {"window": WINDOW, "half_life": HALF_LIFE, "fit_intercept": True}
    # [use]
    path = olsq.coefficient_path(X, rate, cov="HAC", maxlags=LAGS, **rows)
    lower, upper = (end[:, 0] for end in path.conf_int(0.95))
    explained = path.r_squared
    # [end]
    usual = olsq.coefficient_path(X, rate, **rows)
    full = slice(WINDOW, None)
    print("quarter  percent per percent  95 % interval  R-squared")
    for when in (1982, 1990, 1997, 2008):
        t = int(np.argmin(np.abs(year - when)))
        print(
            f"   {when} {path.coef[t, 0]:20.2f}  {lower[t]:5.2f} to {upper[t]:4.2f}"
            f"  {explained[t]:9.2f}"
        )
    ratio = path.stderr[full, 0] / usual.stderr[full, 0]
    print(f"Newey and West's errors are {np.median(ratio):.2f} times the usual ones (median)")
    print(f"R-squared between {explained[full].min():.2f} and {explained[full].max():.2f}")

    t = len(rate) - 1  # the last window, written out
    weight = 0.5 ** (np.arange(WINDOW)[::-1] / HALF_LIFE)
    rows_inside = slice(t - WINDOW + 1, t + 1)
    own = np.column_stack([np.ones(WINDOW), X[rows_inside]]) * np.sqrt(weight)[:, None]
    theta = np.linalg.lstsq(own, np.sqrt(weight) * rate[rows_inside], rcond=None)[0]
    assert np.isclose(theta[1], path.coef[t, 0])
    assert 1.2 < np.median(ratio) < 1.5
    assert explained[full].min() < 0.15
    assert explained[full].max() > 0.7

    def draw(axes):
        axes[0].fill_between(year[full], lower[full], upper[full], color="#2166ac", alpha=0.18)
        axes[0].plot(year[full], path.coef[full, 0], color="#2166ac", lw=1.4)
        axes[0].axhline(1, color="#6b7785", lw=0.7)
        axes[0].set_title("Rate per percent of inflation, 95 % (HAC)", loc="left", fontsize=9)
        axes[1].plot(year[full], explained[full], color="#d9730d", lw=1.4)
        axes[1].set_ylim(0, 1)
        axes[1].set_title("R-squared of the fading window", loc="left", fontsize=9)

    figures.save(options.figure, draw, rows=2)


if __name__ == "__main__":
    main()

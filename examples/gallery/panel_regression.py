"""Investment of eleven firms: a pooled, a within and a Fama-MacBeth regression from one pass.

    python examples/gallery/panel_regression.py [--figure panel.png]

Grunfeld's firms, 1935 to 1954, arrive a year at a time.  Each group holds a regression of one firm;
their states give one regression of all firms, with errors that allow for anything within a firm.
Firms of different size have different levels: the pooled regression mixes the differences between
firms with the changes within them, which the within regression keeps.
"""

from __future__ import annotations

import figures
import numpy as np

import olsq
from olsq.datasets import grunfeld


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    data = grunfeld()
    X = np.column_stack([data["value"], data["capital"]])
    y, firm, year = data["invest"], data["firm"], data["year"]
    firms = olsq.GroupedLeastSquares()
    for now in np.unique(year):
        rows = year == now
        firms.partial_fit(X[rows], y[rows], by=firm[rows])
    pooled, within = firms.pooled(cov="cluster"), firms.within(cov="cluster")
    yearly = olsq.fama_macbeth(X, y, by=year, lags=3)
    print(within)
    for name, fit in (("pooled", pooled), ("within", within), ("by year", yearly)):
        print(name, "slopes", fit.coef.round(3), "errors", fit.stderr.round(3))
    # The errors of independent noise are too small: what a firm invests beyond the line lasts.
    plain = firms.within()
    assert (within.stderr > 1.2 * plain.stderr).all()
    centred = np.column_stack([X, y])
    for name in np.unique(firm):
        centred[firm == name] -= centred[firm == name].mean(axis=0)
    wanted = np.linalg.lstsq(centred[:, :2], centred[:, 2])[0]
    np.testing.assert_allclose(within.coef, wanted, rtol=1e-10)

    def draw(axes):
        for axis, j, name in ((axes[0], 0, "market value"), (axes[1], 1, "capital")):
            axis.axhline(0.0, color="0.7", lw=0.8)
            each = firms.coef_[:, j]
            axis.plot(np.zeros(each.size), each, ".", color="0.4")
            for place, fit in enumerate((pooled, within, yearly), 1):
                low, high = (bound[j] for bound in fit.conf_int(0.95))
                axis.plot([place, place], [low, high], color=f"C{place - 1}")
                axis.plot(place, fit.coef[j], "o", color=f"C{place - 1}")
            axis.set(ylabel=f"slope of {name}")
        axes[1].set_xticks(range(4), ["each firm", "pooled", "within firms", "years\n(3 lags)"])

    figures.save(options.figure, draw, rows=2)


if __name__ == "__main__":
    main()

"""Betas of many assets to three factors over a rolling year, as a frame with dates and names.

    python examples/gallery/rolling_betas.py [--assets 500] [--figure betas.png]

Ten years of daily returns, simulated: three factors with volatility that comes and goes, betas that
wander, noise of 1 % a day, a holiday now and then.  Beside it statsmodels' RollingOLS and pandas'
exponentially weighted covariances on some of the assets.
"""

from __future__ import annotations

import time

import figures
import numpy as np
import pandas as pd

import olsq

FACTORS = ["market", "size", "value"]


def simulate(assets: int, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    days = pd.bdate_range("2014-01-01", "2023-12-31")
    days = days[rng.random(days.size) > 0.03]
    n = days.size
    volatility = np.exp(0.5 * np.sin(np.arange(n) / 200))[:, None] * [0.010, 0.006, 0.005]
    factors = rng.standard_normal((n, 3)) * volatility
    start = np.array([1.0, 0.0, 0.0]) + 0.4 * rng.standard_normal((assets, 3))
    steps = 0.01 * rng.standard_normal((n, assets, 3))
    betas = start + np.cumsum(steps, axis=0)
    returns = np.einsum("tk,tak->ta", factors, betas) + 0.01 * rng.standard_normal((n, assets))
    names = [f"A{i:03d}" for i in range(assets)]
    return (
        pd.DataFrame(factors, days, FACTORS),
        pd.DataFrame(returns, days, pd.Index(names)),
        betas,
    )


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments, assets=60)
    factors, returns, truth = simulate(options.assets)
    for memory in ({"window": "365D"}, {"half_life": 120}):  # compiles, once and for all
        olsq.coefficient_path(factors, returns.iloc[:, :2], fit_intercept=True, **memory)
    start = time.perf_counter()
    path = olsq.coefficient_path(factors, returns, window="365D", fit_intercept=True)
    betas = path.to_frame()  # dates down, (asset, coefficient) across
    last_year = betas.loc["2023", ("A007", "market")]
    ours = time.perf_counter() - start
    start = time.perf_counter()
    fading = olsq.coefficient_path(factors, returns, half_life=120, fit_intercept=True)
    ours_fading = time.perf_counter() - start
    some = returns.columns[:5]
    start = time.perf_counter()
    theirs = rolling_ols(factors, returns[some])
    statsmodels = (time.perf_counter() - start) * options.assets / len(some)
    start = time.perf_counter()
    weighted = weighted_betas(factors, returns[some])
    pandas = (time.perf_counter() - start) * options.assets / len(some)
    days = slice(300, None)
    market = truth[days, :, 0]
    error = {
        "olsq, a year": path.coef[days, :, 0] - market,
        "RollingOLS, 244 rows": theirs[days, :, 0] - market[:, :5],
        "olsq, half-life 120": fading.coef[days, :, 0] - market,
        "pandas ewm, one factor": weighted[days] - market[:, :5],
    }
    seconds = dict(zip(error, (ours, statsmodels, ours_fading, pandas), strict=True))
    print(f"{len(factors):,} days x {options.assets} assets")
    for name, wrong in error.items():
        size = np.sqrt(np.nanmean(wrong**2))
        print(f"{name:>26}: {seconds[name]:8.2f} s, error of the market beta {size:.3f}")
    true = truth[-240:, 7, 0].mean()
    print(f"A007's market beta in 2023: {last_year.mean():.2f}, true {true:.2f}")
    same = np.abs(path.coef[400, :5] - by_hand(factors, returns[some], 400)).max()
    print(f"largest difference from a regression by hand on one year: {same:.0e}")
    assert same < 1e-10
    assert list(betas.index) == list(returns.index)

    def draw(axes):
        table = betas["A007"]
        axes.fill_between(
            table.index[260:], *(table["market"][260:] + s * 2 * table["market_stderr"][260:]
                                 for s in (-1, 1)), alpha=0.2, lw=0,
        )  # fmt: skip
        axes.plot(table.index[260:], table["market"][260:], label="one year, two\nstandard errors")
        axes.plot(table.index, truth[:, 7, 0], color="0.3", lw=1, label="true")
        axes.set(ylabel="market beta of A007")

    figures.save(options.figure, draw)


def rolling_ols(factors: pd.DataFrame, returns: pd.DataFrame) -> np.ndarray:
    """What it took: a loop over assets, a window in rows, and no way to say "a year"."""
    from statsmodels.regression.rolling import RollingOLS

    X = factors.assign(const=1.0)
    fits = [RollingOLS(returns[name], X, window=244).fit(params_only=True) for name in returns]
    return np.stack([fit.params[FACTORS].to_numpy() for fit in fits], axis=1)


def weighted_betas(factors: pd.DataFrame, returns: pd.DataFrame) -> np.ndarray:
    """One factor at a time: pandas has no regression on several."""
    market = factors["market"]
    variance = market.ewm(halflife=120).var()
    return np.stack([r.ewm(halflife=120).cov(market) / variance for _, r in returns.items()], 1)


def by_hand(factors: pd.DataFrame, returns: pd.DataFrame, t: int) -> np.ndarray:
    day = factors.index[t]
    last = (factors.index > day - pd.Timedelta("365D")) & (factors.index <= day)
    X = np.column_stack([np.ones(last.sum()), factors[last]])
    return np.linalg.lstsq(X, returns[last], rcond=None)[0][1:].T


if __name__ == "__main__":
    main()

"""A night without data and a silent start, compared with other libraries.

    python -m benchmarks.reports.interruptions  # seconds; seed 0

Each library is told of the gap in the way it has: times (olsq, pandas), a forgetting factor of the
first row after it, where the factor can be set between rows (padasip, river), or not at all
(polars-ols, whose half-life counts rows).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import olsq

GOOD_ROWS = 1000
RAISED = np.inf


class Stream(NamedTuple):
    """Rows of one regressor and an intercept; ``minutes`` (n,), factors (n,), truth at the end."""

    x: NDArray
    y: NDArray
    minutes: NDArray
    forget: NDArray
    truth: tuple[float, float]  # intercept, slope
    alive: int  # the first row that counts


def night(half_life: float) -> Stream:
    """A row a minute from 08:00 to 09:00 on two days; the slope turns from 2 to -1 overnight."""
    rng = np.random.default_rng(0)
    minutes = np.concatenate([np.arange(60.0), 1440 + np.arange(60.0)])
    x = rng.standard_normal(120)
    y = 3 + np.where(minutes < 1000, 2.0, -1.0) * x + 0.1 * rng.standard_normal(120)
    forget = np.exp2(-np.diff(minutes, prepend=0.0) / half_life)
    return Stream(x, y, minutes, forget, (3.0, -1.0), 60)


def silent(rows: int) -> Stream:
    """Zeros, regressor and target, and then rows of slope 2 without an intercept to learn."""
    rng = np.random.default_rng(0)
    x = np.concatenate([np.zeros(rows), rng.standard_normal(GOOD_ROWS)])
    y = 2 * x + 0.1 * rng.standard_normal(x.size) * (x != 0)
    n = np.arange(x.size)
    return Stream(x, y, n * 1.0, np.full(x.size, 0.99), (0.0, 2.0), rows)


def with_ones(stream: Stream) -> NDArray:
    return np.column_stack([np.ones(stream.x.size), stream.x])


def half_life(stream: Stream) -> float:
    """In minutes, which are rows where none is missing."""
    return float(np.log(2) / -np.log(stream.forget[1]))


def ours(stream: Stream) -> NDArray:
    path = olsq.coefficient_path(
        with_ones(stream), stream.y, half_life=half_life(stream), times=stream.minutes, ridge=1e-3
    )
    return path.coef


def robust(stream: Stream) -> NDArray:
    est = olsq.RobustLeastSquares(half_life=half_life(stream), fit_intercept=False)
    coef, Z = [], with_ones(stream)
    for t in range(len(Z)):
        est.partial_fit(Z[t : t + 1], stream.y[t : t + 1], times=stream.minutes[t : t + 1])
        coef.append(est.coef_)
    return np.array(coef)


def padasip(stream: Stream) -> NDArray:
    from padasip.filters import FilterRLS

    f = FilterRLS(2, mu=0.99, eps=1e-3, w="zeros")
    coef = []
    for z, target, gate in zip(with_ones(stream), stream.y, stream.forget, strict=True):
        f.mu = gate
        f.adapt(target, z)
        coef.append(f.w.copy())
    return np.array(coef)


def river(stream: Stream) -> NDArray:
    from river.linear_model import BayesianLinearRegression

    model = BayesianLinearRegression(alpha=1e-3, beta=1.0, smoothing=0.99)
    coef = []
    for z, target, gate in zip(with_ones(stream), stream.y, stream.forget, strict=True):
        model.smoothing = gate if gate < 1 else None
        try:
            model.learn_one({0: z[0], 1: z[1]}, target)
        except np.linalg.LinAlgError:  # "Singular matrix", and it stays so
            coef += [[RAISED, RAISED]] * (len(stream.x) - len(coef))
            break
        coef.append([model.predict_one({0: 1.0, 1: 0.0}), model.predict_one({0: 0.0, 1: 1.0})])
    return np.array(coef)


def polars_ols(stream: Stream) -> NDArray:
    import polars as pl
    import polars_ols  # noqa: F401

    frame = pl.DataFrame({"one": np.ones(stream.x.size), "x": stream.x, "y": stream.y})
    found = frame.select(
        pl.col("y").least_squares.rls("one", "x", half_life=half_life(stream), mode="coefficients")
    ).to_series()
    return found.struct.unnest().to_numpy()


def pandas_ewm(stream: Stream) -> NDArray:
    import pandas as pd

    times = pd.Timestamp("2026-01-01") + pd.to_timedelta(stream.minutes, unit="min")
    length = pd.Timedelta(minutes=half_life(stream))
    x, y = pd.Series(stream.x), pd.Series(stream.y)
    means = [s.ewm(halflife=length, times=times).mean().to_numpy() for s in (x, y, x * y, x * x)]
    mx, my, mxy, mxx = means
    with np.errstate(all="ignore"):
        slope = (mxy - mx * my) / (mxx - mx * mx)
    return np.column_stack([my - slope * mx, slope])


LIBRARIES: dict[str, tuple[Callable[[Stream], NDArray], str]] = {
    "olsq, `RecursiveLeastSquares`": (ours, "`times=`"),
    "olsq, `RobustLeastSquares`": (robust, "`times=`"),
    "padasip": (padasip, "`mu` of the row"),
    "river": (river, "`smoothing` of the row"),
    "polars-ols": (polars_ols, "not at all"),
    "pandas `ewm` of products": (pandas_ewm, "`times=`"),
}


def error(coef: NDArray, stream: Stream, after: int) -> str:
    """The larger error of the two coefficients, ``after`` rows into the new life."""
    now = coef[stream.alive + after - 1]
    if np.isinf(now).all():
        return "**raises**"
    value = np.abs(now - stream.truth).max()
    if not value < 1e100:  # the last digits of other numbers decide which, or NaN
        return "**diverges**"
    return f"{value:.2g}" if value < 1000 else f"**{value:.0e}**"


def paths(stream: Stream) -> dict[str, NDArray]:
    with np.errstate(all="ignore"):
        return {name: run(stream) for name, (run, _) in LIBRARIES.items()}


def main() -> None:
    """Print both tables."""
    print("| library | how it learns of the gap | half-life 5 min: error after 2 rows | 10 | 60 "
          "| half-life 1 min: 2 rows | 10 | 60 |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    slow, fast = night(5.0), night(1.0)
    found = paths(slow), paths(fast)
    for name, (_, told) in LIBRARIES.items():
        cells = [error(found[0][name], slow, n) for n in (2, 10, 60)]
        cells += [error(found[1][name], fast, n) for n in (2, 10, 60)]
        print(f"| {name} | {told} | " + " | ".join(cells) + " |", flush=True)
    print()
    print("| library | error after 60 silent rows and 10 good ones | 100 | 1,000 "
          "| after 10,000 silent rows and 10 good ones | 100 | 1,000 |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    few, many = silent(60), silent(10_000)
    first, second = paths(few), paths(many)
    for name in LIBRARIES:
        cells = [error(first[name], few, n) for n in (10, 100, 1000)]
        cells += [error(second[name], many, n) for n in (10, 100, 1000)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

"""The two regressions of ``olsq demo``, and the baselines they are compared with."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

import olsq
from olsq.datasets import mauna_loa_co2, us_macro
from olsq.online import CoefficientPath

Result = TypeVar("Result")


@dataclass(frozen=True)
class Study:
    """A regression on bundled data: X (n, d), y (n,) with NaN where missing, time (n,) in years.

    ``unit`` is that of y.  ``burn_in`` rows are learned before errors are scored, for every method
    alike; ``half_life`` rows is the memory of the forgetting regression, ``memory`` the same in
    words.
    """

    title: str
    formula: str
    unit: str
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    time: NDArray[np.float64]
    burn_in: int
    half_life: float
    memory: str


@dataclass(frozen=True)
class Entry:
    """One line of the comparison: errors (n,) of the predictions, NaN where none was made."""

    name: str
    error: NDArray[np.float64]
    seconds: float | None = None
    honest: bool = True


def macro_study() -> Study:
    """US consumer prices explained by the money stock, as in R's and Stata's manuals."""
    data = us_macro()
    return Study(
        "US prices and money", "cpi ~ 1 + m1", "index points",
        data["m1"][:, None], data["cpi"], data["time"],
        burn_in=20, half_life=8.0, memory="half-life 2 years",
    )  # fmt: skip


def co2_study() -> Study:
    """CO2 at Mauna Loa: a line through time and a yearly wave of two harmonics."""
    data = mauna_loa_co2()
    angle = 2 * np.pi * data["year"]
    waves = [wave(k * angle) for k in (1, 2) for wave in (np.cos, np.sin)]
    return Study(
        "CO2 at Mauna Loa", "co2 ~ 1 + year + yearly wave", "ppm", np.column_stack(
            [data["year"] - 1980.0, *waves]
        ), data["co2"], data["year"], burn_in=104, half_life=26.0, memory="half-life 26 weeks",
    )  # fmt: skip


def paths(study: Study) -> tuple[CoefficientPath, CoefficientPath]:
    """Coefficient paths of the study: nothing forgotten, and with its half-life."""
    return _path(study, None), _path(study, study.half_life)


def _path(study: Study, half_life: float | None) -> CoefficientPath:
    return olsq.coefficient_path(
        study.X, study.y, fit_intercept=True, half_life=half_life, cov="sandwich"
    )


def compare(study: Study) -> list[Entry]:
    """Errors of olsq and of the baselines, each predicting a row from the rows before it."""
    everything, forgetting = paths(study)
    refitted, refitted_seconds = _timed(lambda: _refitted(study))
    return [
        Entry(f"olsq, {study.memory}", forgetting.residual, _best_of(study, study.half_life)),
        Entry("olsq, nothing forgotten", everything.residual, _best_of(study, None)),
        Entry("OLS fitted anew for every row", refitted, refitted_seconds),
        Entry("last value", study.y - _last_value(study.y)),
        Entry("mean so far", study.y - _mean_so_far(study.y)),
        Entry("OLS on all rows at once*", _in_sample(study), honest=False),
    ]


def scored_rows(study: Study) -> NDArray[np.bool_]:
    """Rows on which every method is compared."""
    return np.isfinite(study.y) & (np.arange(len(study.y)) >= study.burn_in)


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def _best_of(study: Study, half_life: float | None, repeats: int = 3) -> float:
    """Seconds of the fastest of a few runs: the work, without what else the machine did."""
    return min(_timed(lambda: _path(study, half_life))[1] for _ in range(repeats))


def _with_ones(study: Study) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    return np.column_stack([np.ones(len(study.y)), study.X]), np.isfinite(study.y)


def _refitted(study: Study) -> NDArray[np.float64]:
    """A whole least-squares fit before every row: what olsq does without fitting anew."""
    Z, known = _with_ones(study)
    error = np.full(len(study.y), np.nan)
    for t in np.flatnonzero(scored_rows(study)):
        before = known[:t]
        coef = np.linalg.lstsq(Z[:t][before], study.y[:t][before], rcond=None)[0]
        error[t] = study.y[t] - Z[t] @ coef
    return error


def _in_sample(study: Study) -> NDArray[np.float64]:
    """Residuals of one fit to all rows, which has seen the answers it is asked for."""
    Z, known = _with_ones(study)
    coef = np.linalg.lstsq(Z[known], study.y[known], rcond=None)[0]
    return study.y - Z @ coef


def _last_value(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The latest known value before each row."""
    row = np.maximum.accumulate(np.where(np.isfinite(y), np.arange(len(y)), 0))
    return np.concatenate([[np.nan], y[row][:-1]])


def _mean_so_far(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of the known values before each row."""
    known = np.isfinite(y)
    total, count = np.cumsum(np.where(known, y, 0.0)), np.cumsum(known)
    return np.concatenate([[np.nan], total[:-1] / np.maximum(count[:-1], 1)])

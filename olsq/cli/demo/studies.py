"""The two regressions of ``olsq demo`` and the baselines that they are compared with."""

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
    """Regress US consumer prices on the money stock, as in R's and Stata's manuals."""
    data = us_macro()
    return Study(
        "US prices and money", "cpi ~ 1 + m1", "index points",
        data["m1"][:, None], data["cpi"], data["time"],
        burn_in=20, half_life=8.0, memory="half-life 2 years",
    )  # fmt: skip


def co2_study() -> Study:
    """Regress CO2 at Mauna Loa on a trend and a yearly wave of two harmonics."""
    data = mauna_loa_co2()
    angle = 2 * np.pi * data["year"]
    waves = [wave(k * angle) for k in (1, 2) for wave in (np.cos, np.sin)]
    return Study(
        "CO2 at Mauna Loa", "co2 ~ 1 + year + yearly wave", "ppm", np.column_stack(
            [data["year"] - 1980.0, *waves]
        ), data["co2"], data["year"], burn_in=104, half_life=26.0, memory="half-life 26 weeks",
    )  # fmt: skip


def paths(study: Study) -> tuple[CoefficientPath, CoefficientPath]:
    """Compute the study's coefficient paths: without forgetting, and with its half-life."""
    return _compute_path(study, None), _compute_path(study, study.half_life)


def _compute_path(study: Study, half_life: float | None) -> CoefficientPath:
    return olsq.coefficient_path(
        study.X, study.y, fit_intercept=True, half_life=half_life, cov="sandwich"
    )


def compare(study: Study) -> list[Entry]:
    """Compare olsq with the baselines, each of which predicts a row from the rows before it."""
    everything, forgetting = paths(study)
    refitted, refitted_seconds = _time_call(lambda: _refit_errors(study))
    return [
        Entry(
            f"olsq, {study.memory}", forgetting.residual, _fastest_seconds(study, study.half_life)
        ),
        Entry("olsq, nothing forgotten", everything.residual, _fastest_seconds(study, None)),
        Entry("OLS fitted anew for every row", refitted, refitted_seconds),
        Entry("last value", study.y - _last_value(study.y)),
        Entry("mean so far", study.y - _mean_so_far(study.y)),
        Entry("OLS on all rows at once*", _in_sample_residuals(study), honest=False),
    ]


def scored_rows(study: Study) -> NDArray[np.bool_]:
    """Mark the rows (n,) on which all methods are compared."""
    return np.isfinite(study.y) & (np.arange(len(study.y)) >= study.burn_in)


def _time_call(work: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def _fastest_seconds(study: Study, half_life: float | None, repeats: int = 3) -> float:
    """Return the seconds of the fastest of a few runs, the least disturbed by other processes."""
    return min(_time_call(lambda: _compute_path(study, half_life))[1] for _ in range(repeats))


def _design_and_known(study: Study) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    return np.column_stack([np.ones(len(study.y)), study.X]), np.isfinite(study.y)


def _refit_errors(study: Study) -> NDArray[np.float64]:
    """Compute errors of a whole least-squares fit before every row, the work that olsq saves."""
    Z, known = _design_and_known(study)
    error = np.full(len(study.y), np.nan)
    for t in np.flatnonzero(scored_rows(study)):
        before = known[:t]
        coef = np.linalg.lstsq(Z[:t][before], study.y[:t][before], rcond=None)[0]
        error[t] = study.y[t] - Z[t] @ coef
    return error


def _in_sample_residuals(study: Study) -> NDArray[np.float64]:
    """Compute residuals of one fit to all rows, which has seen the values it predicts."""
    Z, known = _design_and_known(study)
    coef = np.linalg.lstsq(Z[known], study.y[known], rcond=None)[0]
    return study.y - Z @ coef


def _last_value(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the latest known value before each row."""
    row = np.maximum.accumulate(np.where(np.isfinite(y), np.arange(len(y)), 0))
    return np.concatenate([[np.nan], y[row][:-1]])


def _mean_so_far(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of the known values before each row."""
    known = np.isfinite(y)
    total, count = np.cumsum(np.where(known, y, 0.0)), np.cumsum(known)
    return np.concatenate([[np.nan], total[:-1] / np.maximum(count[:-1], 1)])

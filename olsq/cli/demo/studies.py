"""The studies of ``olsq demo``: two regressions with their baselines, and one inside a sequence."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import olsq
from olsq.datasets import mauna_loa_co2, us_macro
from olsq.online import CoefficientPath

Result = TypeVar("Result")
STEP = 1.0  # of the delta rules; measured: 0.5 and 1.4 end with more error
# The programs run once: XLA's optimisations would take longer than the work that they save.
_QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


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
        "US prices and money",
        "cpi ~ 1 + m1",
        "index points",
        data["m1"][:, None],
        data["cpi"],
        data["time"],
        burn_in=20,
        half_life=8.0,
        memory="half-life 2 years",
    )


def co2_study() -> Study:
    """Regress CO2 at Mauna Loa on a trend and a yearly wave of two harmonics."""
    data = mauna_loa_co2()
    angle = 2 * np.pi * data["year"]
    waves = [wave(k * angle) for k in (1, 2) for wave in (np.cos, np.sin)]
    return Study(
        "CO2 at Mauna Loa",
        "co2 ~ 1 + year + yearly wave",
        "ppm",
        np.column_stack([data["year"] - 1980.0, *waves]),
        data["co2"],
        data["year"],
        burn_in=104,
        half_life=26.0,
        memory="half-life 26 weeks",
    )


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
    Z, complete = _design_and_known(study)
    error = np.full(len(study.y), np.nan)
    for t in np.flatnonzero(scored_rows(study)):
        before = complete[:t]
        coef = np.linalg.lstsq(Z[:t][before], study.y[:t][before], rcond=None)[0]
        error[t] = study.y[t] - Z[t] @ coef
    return error


def _in_sample_residuals(study: Study) -> NDArray[np.float64]:
    """Compute residuals of one fit to all rows, which has seen the values it predicts."""
    Z, complete = _design_and_known(study)
    coef = np.linalg.lstsq(Z[complete], study.y[complete], rcond=None)[0]
    return study.y - Z @ coef


def _last_value(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the latest known value before each row."""
    row = np.maximum.accumulate(np.where(np.isfinite(y), np.arange(len(y)), 0))
    return np.concatenate([[np.nan], y[row][:-1]])


def _mean_so_far(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of the known values before each row."""
    finite = np.isfinite(y)
    total, count = np.cumsum(np.where(finite, y, 0.0)), np.cumsum(finite)
    return np.concatenate([[np.nan], total[:-1] / np.maximum(count[:-1], 1)])


SEQUENCES, TOKENS, DIM = 64, 256, 8
JUMP = TOKENS // 2
EARLY, LATE = slice(JUMP - 40, JUMP - 1), slice(TOKENS - 41, TOKENS - 1)
FORGET, RIDGE = 0.95, 1e-3


@dataclass(frozen=True)
class Reading:
    """Errors of one rule on the sequences: relative squared error (T - 1,) of each next value.

    The mean over sequences of squared errors, divided by the mean square of the values: 1 is what
    answering 0 costs.
    """

    name: str
    error: NDArray[np.float64]
    best: bool = False


def drifting_sequences(seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Make keys and values (B, T, 1, d): linear maps, one per sequence, that drift and jump
    half-way.

    The second moment of the keys has a condition number of 100, as embeddings do; on white keys a
    delta rule does as well as the exact solve, since its one step points straight at the answer.
    """
    rng = np.random.default_rng(seed)
    turned = np.linalg.qr(rng.standard_normal((SEQUENCES, DIM, DIM)))[0] * np.logspace(0, -1, DIM)
    white = rng.standard_normal((SEQUENCES, TOKENS, DIM)) / np.sqrt(DIM)
    keys = np.einsum("bij,btj->bti", turned, white)
    steps = 0.01 * rng.standard_normal((SEQUENCES, TOKENS, DIM, DIM))
    steps[:, 0] += rng.standard_normal((SEQUENCES, DIM, DIM))
    steps[:, JUMP] += rng.standard_normal((SEQUENCES, DIM, DIM))
    values = np.einsum("btij,btj->bti", np.cumsum(steps, axis=1), keys)
    values += 0.01 * rng.standard_normal(values.shape)
    return keys[:, :, None].astype(np.float32), values[:, :, None].astype(np.float32)


def read_sequences(keys: NDArray[np.float32], values: NDArray[np.float32]) -> list[Reading]:
    """Run each rule on all sequences: learn token t, then predict the value of token t + 1."""
    import jax

    from olsq import attention
    from olsq.solvers import Dense

    k, v, q = keys[:, :-1], values[:, :-1], keys[:, 1:]
    length = np.linalg.norm(k, axis=-1, keepdims=True)
    unit, scaled = k / length, v / length  # delta rules want keys of length 1

    def linear(q: Any, k: Any, v: Any, forget: Any) -> Any:
        return attention.gla(q, k, v, forget=forget)[0]

    def delta(q: Any, k: Any, v: Any, forget: Any) -> Any:
        return attention.gated_delta(q, k, v, forget=forget, weight=STEP)[0]

    def solve(q: Any, k: Any, v: Any, forget: Any) -> Any:
        # Dense solves every token by itself: the answers of the default, which compiles longer.
        return attention.mesa(q, k, v, forget=forget, ridge=RIDGE, solver=Dense())[0]

    # linear attention sums over the tokens so far, so its output is divided by their number
    token_counts = np.arange(1, TOKENS, dtype=np.float32)[:, None, None]
    runs: list[tuple[str, Callable[..., Any], tuple[Any, ...], float, Any]] = [
        ("linear attention", linear, (q * DIM, k, v), 1.0, token_counts),
        ("delta rule", delta, (q, unit, scaled), 1.0, 1.0),
        ("gated delta rule, forgetting 0.99", delta, (q, unit, scaled), 0.99, 1.0),
        ("exact solve (Mesa), nothing forgotten", solve, (q, k, v), 1.0, 1.0),
        (f"exact solve (Mesa), forgetting {FORGET}", solve, (q, k, v), FORGET, 1.0),
    ]
    programs: dict[Callable[..., Any], Any] = {}
    readings = []
    for name, rule, streams, forget, divisor in runs:
        if rule not in programs:
            lowered = jax.jit(rule).lower(*streams, np.float32(forget))
            programs[rule] = lowered.compile(compiler_options=_QUICK)
        answers = np.asarray(programs[rule](*streams, np.float32(forget))) / divisor
        squared = np.square(answers - values[:, 1:], dtype=np.float64).mean((0, 2, 3))
        relative = squared / np.square(values, dtype=np.float64).mean()
        readings.append(Reading(name, relative, best=rule is solve and forget < 1))
    return readings

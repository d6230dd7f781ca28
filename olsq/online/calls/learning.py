"""Absorb the checked rows of one call of ``fit`` or ``partial_fit``."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.online.calls.call import Call, Origin, blocks, forgetting_in_time, prepare
from olsq.online.calls.history import History, values_of_target
from olsq.online.forms.counting import COUNT
from olsq.online.forms.rows import Rows, Trace, clip_to, pairs_stay_orthogonal
from olsq.online.forms.statistics import statistics_of
from olsq.online.forms.targets import TargetGroups
from olsq.online.paths.collector import PathCollector, PathPart, RobustErrors, joined
from olsq.online.paths.goodness import GroupRows
from olsq.online.paths.path import CoefficientPath

PAIRS_SETTLE = 16  # rows per coefficient, after which all are usually determined


class Absorbed(NamedTuple):
    """The state after a call, its a-priori residuals (n, m), and its path if requested.

    ``calls`` are the rows of each group of targets, with the factors that they were learned with.
    """

    engine: TargetGroups
    residual: NDArray
    calls: list[Call]
    path: CoefficientPath | None


def absorb(
    engine: TargetGroups,
    call: Call,
    origin: Origin,
    *,
    began: bool,
    want_path: bool,
    fewest: int,
    noise: NDArray[np.float64] | None = None,
    constant_values: NDArray[np.float64] | None = None,
    robust: RobustErrors | None = None,
) -> Absorbed:
    """Absorb the rows of a call into an engine, which changes.

    ``began`` says whether it has learned rows before; a path is NaN below ``fewest`` samples, and
    is without statistics if ``noise`` is None, else the known noise variances (m,), inf where they
    are to be estimated.  ``constant_values`` are those of the columns before the call.
    ``robust`` replaces the standard errors of windows.
    """
    if call.usable is not None:
        engine = engine.split(call.usable)
    (n, m), k = call.Y.shape, origin.ridge.size
    residual = np.empty((n, m), origin.dtype)
    parts, calls = [], []
    for targets, part in engine.groups:
        group_call, every = forgetting_in_time(call.of(targets), part), len(targets) == m
        calls.append(group_call)
        collector = history = None
        if want_path:
            group_noise = None if noise is None else noise[targets]
            shape = n, len(targets), k
            collector = PathCollector(shape, origin.dtype, origin.sandwich, group_noise)
            usable = group_call.usable
            if usable is not None and not (part.advances_on_missing or usable[:1].all()):
                _begin(collector, part, origin, int(usable.argmax()) if usable.any() else n)
            if group_noise is not None:
                values = values_of_target(constant_values, int(targets[0]), call.X.shape[1])
                history = History.of(part, origin, began, values, len(targets))
        errors = residual if every else np.empty((n, len(targets)), origin.dtype)
        _feed(part, group_call, origin, errors, collector)
        if not every:
            residual[:, targets] = errors
        if collector is not None:
            collector.finish(fewest, GroupRows.of_one(n))
            statistics = None
            if history is not None:
                sums = history.sums_of_squares(part, group_call, origin)
                if robust is not None and sums is not None:
                    regressors = history.regressors(group_call, origin)
                    inside = sums.inside()
                    robust.fill(collector, inside, sums.Y, regressors, origin.ridge, sums.skip)
                statistics = partial(collector.row_statistics, sums)
            parts.append(PathPart(collector, errors, statistics))
    if not want_path:
        return Absorbed(engine, residual, calls, None)
    order = [part.targets for part in engine.groups]
    path = joined(parts, order, origin.intercept, origin.n_targets == 0)
    return Absorbed(engine, residual, calls, path)


def _begin(collector: PathCollector, engine: Any, origin: Origin, first: int) -> None:
    """Set the estimates of the rows that are skipped before the first usable one."""
    form, how = engine.form, (origin.ridge, origin.discounted, origin.sandwich)
    statistics = () if collector.noise is None else statistics_of(form, *how, collector.noise)
    samples = getattr(engine, "n_samples", form.tally[COUNT])  # a window's form may count less
    collector.begin(slice(0, first), form.coefficients(), samples, *statistics)


def _feed(
    engine: Any, call: Call, origin: Origin, residual: NDArray, collector: PathCollector | None
) -> None:
    """Feed the rows of a call to an engine; ``residual`` (n, m) receives the a-priori errors."""
    (n, m), k, usable = call.Y.shape, origin.ridge.size, call.usable
    # A missing row is a step of time there: pass it as a row of zeros with weight 0.
    empty = usable if engine.advances_on_missing else None
    if usable is not None:
        residual[:] = np.nan
    # A second row's a-priori residual uses the coefficients before its pair, kept in a trace.
    pairs = origin.is_complex and (collector is not None or engine.form.reports_residuals)
    wants_trace = pairs or collector is not None
    skip_mask = None if empty is not None else usable
    # Without a path the trace can end once all coefficients are determined: a short block first.
    settling = -(-PAIRS_SETTLE * k // 8) * 8 if pairs and collector is None else 0
    for block in blocks(n, skip_mask, k, wants_trace, settling):
        rows = prepare(call, block, empty, origin.intercept)
        replaces = pairs and (
            collector is not None
            or not engine.form.full_rank
            or not pairs_stay_orthogonal(rows.gates)
        )
        trace = Trace.none(m, k)
        if collector:
            trace = collector.trace(block, rows.X.shape[0])
        elif replaces:
            trace = Trace.empty(rows.X.shape[0], m, k, variance=False)
        block_residual = np.empty(rows.Y.shape)
        times = None if call.times is None else call.times[block]
        before = engine.form.coefficients()[None] if replaces else None
        samples = engine.update(rows, block_residual, trace, times)
        if before is not None:
            replace_second_residuals(rows, before, trace, block_residual)
        residual[block] = clip_to(block_residual, residual.dtype)
        if collector:
            collector.add(trace, block, origin.ridge, origin.discounted, rows)
            if samples is not None:
                collector.count[block] = samples
    if empty is not None:
        residual[~empty] = np.nan
        if collector:
            collector.recursive[~empty] = np.nan
            collector.in_sample[~empty[: len(collector.in_sample)]] = np.nan


def replace_second_residuals(rows: Rows, before: NDArray, trace: Trace, residual: NDArray) -> None:
    """Replace the residuals of the second rows of pairs by those before the pair was learned.

    They are the same where ``u P v = 0`` for the rows of a pair, except for rounding; not after a
    reset, or where a row determines coefficients for the first time.  ``before`` (1, m, k) are the
    coefficients before the first pair.
    """
    theta = np.concatenate([before, trace.coef[1:-1:2]])
    first, second = residual[0::2], residual[1::2]
    # Both rows have one leverage: the first row's scale, or the second's where that is unknown.
    scaled, other = trace.recursive[0::2], trace.recursive[1::2]
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(first != 0, scaled / first, np.where(second != 0, other / second, 0.0))
    second[:] = rows.Y[1::2] - np.einsum("nmk,nk->nm", theta, rows.X[1::2])
    trace.recursive[1::2] = scale * second

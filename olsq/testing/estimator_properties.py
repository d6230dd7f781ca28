"""The properties of an estimator that learns row by row, one function each."""

from __future__ import annotations

import copy
import pickle
import tempfile
from typing import Any

import numpy as np

from olsq.online.estimators.recursive import RecursiveLeastSquares
from olsq.online.estimators.rolling import RollingLeastSquares
from olsq.online.loading import load
from olsq.testing.estimator_subject import (
    UNDETERMINED,
    Subject,
    coefficients,
    condition,
    judge,
    row_eps,
    rows,
)
from olsq.testing.kinds import interruption
from olsq.testing.strategies import Regression

ORACLE, PREFIX, CHUNK, RESUME = "oracle", "prefix invariance", "chunk invariance", "resumption"
MERGE, SCALE, PERMUTE = "merging", "scale equivariance", "permutation of targets"
WEIGHTS = "units of weights"
CAUSAL, ABSENT, COUNT = "causality", "absent rows", "counting"
INTERRUPT = "interruptions"
PROPERTIES = (
    ORACLE,
    PREFIX,
    CHUNK,
    RESUME,
    MERGE,
    SCALE,
    WEIGHTS,
    PERMUTE,
    CAUSAL,
    ABSENT,
    COUNT,
    INTERRUPT,
)
# Kinds of interruption for every estimator, and those that need a factor per row.  Scales are such
# that moments in double precision still hold every row: normal equations are an honest method.
QUIET = (
    ("silent start", 60),
    ("constant start", 60),
    ("amplitude rises", 6),
    ("amplitude falls", 6),
    ("column scales", 3),
)
PAUSES = (("gap", 30), ("gap", 300), ("bursts", 300))

# Factors of X and y, and of weights: powers of two, whose products do not round, and for weights of
# four, whose roots do not either.  So an estimate may only differ where a threshold has units.
SCALES = ((2.0**10, 2.0**-5), (2.0**-27, 2.0**27), (2.0**27, 2.0**-27))
WEIGHT_SCALES = (2.0**-28, 2.0**28)

BLOCK = 7  # rows: divides no length used here, so that the last block is shorter
OF_OLSQ = RecursiveLeastSquares, RollingLeastSquares


def check_stream(s: Subject, data: Regression) -> None:
    """Check every property on one stream of finite rows."""
    check_oracle(s, data)
    check_chunks(s, data)
    check_prefix(s, data)
    check_resumption(s, data)
    check_scale(s, data)
    check_weight_units(s, data)
    check_targets(s, data)
    check_lost_row(s, data)
    check_absent_row(s, data)
    check_merging(s, data)


def check_oracle(s: Subject, data: Regression) -> None:
    """Check that the estimate minimises the objective after the rows, and that each counts once."""
    est = s.train(data)
    if s.problem is not None:
        judge(s, ORACLE, "", est, data)
    if hasattr(est, "n_samples_seen_"):
        count = len(data.X) if not s.weighs else int(np.count_nonzero(data.sample_weight))
        s.findings.judge(COUNT, f"stream {data.kind!r}", est.n_samples_seen_, count, 0)


def check_chunks(s: Subject, data: Regression) -> None:
    """Check that rows one by one, and in blocks, give the estimate of those rows at once."""
    if not s.findings.is_open(CHUNK):
        return
    n = len(data.X)
    batch = s.train(data)
    judge(s, CHUNK, ", rows one by one", s.train(data, *range(1, n)), data, batch)
    judge(s, CHUNK, f", blocks of {BLOCK}", s.train(data, *range(BLOCK, n, BLOCK)), data, batch)


def check_merging(s: Subject, data: Regression) -> None:
    """Check that two estimators of one half each, merged, are one of both halves."""
    half = len(data.X) // 2
    if s.merge is None or half == 0 or not s.findings.is_open(MERGE):
        return
    pieces = rows(data, None, half), rows(data, half, None)
    both = s.merge(*map(s.train, pieces))
    worst = max(condition(s, piece) for piece in pieces)  # what a piece lost stays lost
    judge(s, MERGE, "", both, data, s.train(data), worst)


def check_interruptions(s: Subject) -> None:
    """Check the estimate after a silent start, a gap or a change of scale.

    A copy made at the first row after the interruption goes on as the original does.
    """
    if not s.findings.is_open(INTERRUPT):
        return
    for kind, size in (*QUIET, *(PAUSES if s.forgets else ())):
        stream = interruption(kind, size, features=3, rows=12)
        ones = np.ones(len(stream.X))
        forget = stream.forget if kind in ("gap", "bursts") else ones
        y = np.column_stack([stream.y, -stream.y])
        data = Regression(f"{kind} {size}", stream.X, y, ones, forget, 0.0)
        est = s.train(data, *range(stream.alive, len(stream.X)))
        judge(s, INTERRUPT, "", est, data)
        first, later = rows(data, None, stream.alive + 1), rows(data, stream.alive + 1, None)
        resumed = s.train(later, est=copy.deepcopy(s.train(first)))
        judge(s, INTERRUPT, ", a copy at the first row", resumed, data)


def check_prefix(s: Subject, data: Regression) -> None:
    """Check that later rows change no estimate: a copy that learns them leaves it as it was."""
    if not s.findings.is_open(PREFIX):
        return
    half = len(data.X) // 2
    first = rows(data, None, half)
    est = s.train(first)
    before = coefficients(est, first)
    s.train(rows(data, half, None), est=copy.deepcopy(est))
    where = f"stream {data.kind!r}"
    s.findings.judge(PREFIX, where, coefficients(est, first)[0], before[0], 0)
    if hasattr(est, "partial_fit_path"):
        options = {"forget": data.forget} if s.forgets else {}
        path = copy.deepcopy(s.estimator).partial_fit_path(
            data.X, data.y, data.sample_weight, **options
        )
        size = np.abs(before[0]).max()
        allowed = s.tolerance * row_eps(data) * condition(s, first) ** 2
        if allowed < UNDETERMINED:
            s.findings.judge(PREFIX, where, path.coef[half - 1], before[0], allowed * size)


def check_resumption(s: Subject, data: Regression) -> None:
    """Check that a copy, from a pickle or a file, continues as the original does, bit for bit."""
    if not s.findings.is_open(RESUME):
        return
    half = len(data.X) // 2
    est = s.train(rows(data, None, half))
    try:
        resumed = pickle.loads(pickle.dumps(est))
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        s.findings.fail(RESUME, f"stream {data.kind!r}", f"it cannot be pickled: {error}")
        return
    copies = {"a copy in the middle": resumed}
    if type(est) in OF_OLSQ:  # a file of a subclass is not read back
        with tempfile.TemporaryDirectory() as folder:
            est.save(f"{folder}/state.olsq")
            copies["a file in the middle"] = load(f"{folder}/state.olsq")
    second = rows(data, half, None)
    want = coefficients(s.train(second, est=est), data)
    for name, other in copies.items():
        got = coefficients(s.train(second, est=other), data)
        for a, b in zip(got, want, strict=True):
            s.findings.judge(RESUME, f"stream {data.kind!r}, {name}", a, b, 0)
        judge(s, RESUME, f", {name}", other, data)


def check_scale(s: Subject, data: Regression) -> None:
    """Check that coefficients scale by y / x when X is multiplied by x and y by y."""
    if not s.findings.is_open(SCALE):
        return
    scales = s.problem is not None or s.rescale is not None  # an unknown penalty does not scale
    for x, y in SCALES:
        check_units(s, SCALE, data, x=x if scales else 1.0, y=y)


def check_weight_units(s: Subject, data: Regression) -> None:
    """Check that multiplying all weights and the ridge by a constant changes no coefficient."""
    if not (s.findings.is_open(WEIGHTS) and s.weighs and hasattr(s.estimator, "ridge")):
        return
    for weight in WEIGHT_SCALES:
        check_units(s, WEIGHTS, data, weight=weight)


def check_units(
    s: Subject, name: str, data: Regression, *, x: float = 1.0, y: float = 1.0, weight: float = 1.0
) -> None:
    """Check the estimate from rows in other units, with parameters that follow them."""
    other = data._replace(X=data.X * x, y=data.y * y, sample_weight=data.sample_weight * weight)
    est = s.train(other, est=(s.rescale or rescale_ridge)(copy.deepcopy(s.estimator), x, y, weight))
    est.coef_  # noqa: B018  # what is not fitted says so here
    coef, intercept = coefficients(est, data)
    want = coefficients(s.train(data), data)
    allowed = s.tolerance * row_eps(data) * condition(s, data) ** 2
    if allowed < UNDETERMINED:
        where = (
            f"stream {data.kind!r}, X times {x:.2g}, y times {y:.2g}, weights times {weight:.2g}"
        )
        for got, expected in ((coef * (x / y), want[0]), (intercept / y, want[1])):
            size = max(np.abs(expected).max(), np.abs(data.y).max())
            s.findings.judge(name, where, got, expected, allowed * size)


def rescale_ridge(estimator: Any, x: float, y: float, weight: float) -> Any:
    """Multiply the ridge as the squares of X, and the weights, are multiplied."""
    ridge = np.asarray(getattr(estimator, "ridge", 0.0))
    if np.any(ridge != 0):
        estimator.ridge = ridge * (x**2 * weight)
    return estimator


def check_targets(s: Subject, data: Regression) -> None:
    """Check that targets in another order give coefficients in that order."""
    if not s.findings.is_open(PERMUTE):
        return
    want = coefficients(s.train(data), data)[0]
    got = coefficients(s.train(data._replace(y=data.y[:, ::-1].copy())), data)[0][::-1]
    allowed = s.tolerance * row_eps(data) * max(np.abs(want).max(), 1e-300)
    s.findings.judge(PERMUTE, f"stream {data.kind!r}", got, want, allowed)


def check_lost_row(s: Subject, data: Regression) -> None:
    """Check that a row that is not finite is refused, or changes nothing."""
    if not s.findings.is_open(CAUSAL):
        return
    half, where = len(data.X) // 2, f"stream {data.kind!r}"
    for bad, name in ((np.nan, "X"), (np.inf, "X"), (np.nan, "y")):
        est = s.train(rows(data, None, half))
        before = coefficients(est, data)
        row = rows(data, half, half + 1)
        corrupted = getattr(row, name).copy()
        corrupted[0, 0] = bad
        try:
            s.train(row._replace(**{name: corrupted}), est=est)
        except ValueError:
            s.findings.judge(CAUSAL, where, coefficients(est, data)[0], before[0], 0)
        later = rows(data, half + 1, None)
        est = s.train(later, est=est)
        other = s.train(later, est=s.train(rows(data, None, half)))
        size = np.abs(coefficients(other, data)[0]).max()
        got, want = (coefficients(e, data)[0] for e in (est, other))
        if name == "y":  # the other targets may have learned the row
            got, want = got[:1], want[:1]
        s.findings.judge(CAUSAL, f"{where}, {name} = {bad}", got, want, 1e3 * row_eps(data) * size)


def check_absent_row(s: Subject, data: Regression) -> None:
    """Check that rows of weight 0, between factors of 1, change nothing."""
    if not s.findings.is_open(ABSENT) or not s.weighs:
        return
    n = len(data.X)
    weight, forget = data.sample_weight.copy(), data.forget.copy()
    absent = np.arange(n) % 5 == 2
    weight[absent], forget[absent] = 0, 1
    if s.problem is not None and s.problem.forget != 1 and not s.forgets:
        return
    dirty = data._replace(sample_weight=weight, forget=forget)
    clean = Regression(
        data.kind, data.X[~absent], data.y[~absent], weight[~absent], forget[~absent], data.ridge
    )
    judge(s, ABSENT, "", s.train(dirty), clean, s.train(clean))

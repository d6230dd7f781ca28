"""Random streams and options: every front door gives what ``fit`` does, to rounding."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

import olsq

KINDS = ["plain", "dummies", "mean", "walk", "ones", "integers", "late"]
STATE = ("coef_", "coef_stderr_", "sigma2_", "rank_", "n_samples_seen_", "determined_")
PATH = ("coef", "stderr", "sigma2", "residual", "recursive_residual", "r_squared", "n_rows")


def draw(seed):
    """Return rows, targets, weights or None, and a generator for more."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(4, 60)), int(rng.integers(1, 7))
    X = rng.standard_normal((n, d))
    match KINDS[seed % len(KINDS)]:
        case "dummies":
            X = np.eye(d)[rng.integers(0, d, n)]
        case "mean":
            X += 50
        case "walk":
            X = np.cumsum(X, axis=0)
        case "ones":
            X[:, 0] = 1.0
        case "integers":
            X = np.round(2 * X)
        case "late":
            X[: n // 2, -1] = 0.0
    y = X @ rng.standard_normal(d) + rng.standard_normal(n) + 5.0
    if rng.random() < 0.3:
        y[rng.random(n) < 0.2] = np.nan
        y[-1] = 5.0
    weights = None
    if rng.random() < 0.5:
        weights = rng.exponential(size=n)
        weights[rng.random(n) < 0.1] = 0.0
        weights[0], weights[-1] = rng.choice([0.0, 1.0]), 1.0
    return X, y, weights, rng


def options_of(rng):
    options = {
        "fit_intercept": bool(rng.random() < 0.6),
        "ridge": float(rng.choice([0.0, 0.0, 1.0])),
        "forget": float(rng.choice([1.0, 0.97, 0.8])),
        "method": str(rng.choice(["auto", "sqrt", "information"])),
    }
    if options["method"] != "information":
        options["cov"] = str(rng.choice(["posterior", "sandwich"]))
    return options


def pieces_of(n, rng):
    edges = np.unique([0, *rng.integers(0, n, n // 4), n])
    return [slice(*ends) for ends in pairwise(edges)]


def part(weights, rows):
    return None if weights is None else weights[rows]


def same(actual, true, what, scale=None):
    """Compare to rounding, of a size that is ``scale``, or the largest finite entry's."""
    actual, true = np.asarray(actual, float), np.asarray(true, float)
    finite = np.abs(true[np.isfinite(true)])
    size = max(finite.max(initial=1e-6), 1e-6) if scale is None else scale
    assert_allclose(actual, true, rtol=1e-6, atol=1e-7 * size, err_msg=what)


def same_state(actual, true, what):
    for name in STATE:
        same(getattr(actual, name), getattr(true, name), f"{what} {name}")


def same_path(actual, true, rows, what):
    for name in PATH:
        scale = {"r_squared": 1.0, "residual": 10.0, "recursive_residual": 10.0}.get(name)
        same(getattr(actual, name)[rows], getattr(true, name), f"{what} {name}", scale)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(140))
def test_one_stream(seed):
    X, y, weights, rng = draw(seed)
    options = options_of(rng)
    make = partial(olsq.RecursiveLeastSquares, **options)
    true = make().fit(X, y, weights)
    by_row, by_piece, paths = make(), make(), []
    errors = [
        by_row.step(x, target, sample_weight=part(weights, t))[1]
        for t, (x, target) in enumerate(zip(X, y, strict=True))
    ]
    same_state(by_row, true, "rows")
    same(errors, true.residual_, "rows' residuals", 10.0)
    for rows in pieces_of(len(y), rng):
        paths.append(by_piece.partial_fit_path(X[rows], y[rows], part(weights, rows)))
        by_piece = olsq.loads(by_piece.to_bytes()) if rng.random() < 0.3 else by_piece
    same_state(by_piece, true, "pieces")
    path = olsq.coefficient_path(X, y, sample_weight=weights, **options)
    same(path.residual, true.residual_, "path's residuals", 10.0)
    same(path.coef[-1], true.coef_, "path's coefficients")
    same(path.stderr[-1], true.coef_stderr_, "path's errors")
    for name in PATH:
        together = np.concatenate([getattr(piece, name) for piece in paths])
        scale = {"r_squared": 1.0}.get(name, 10.0 if "residual" in name else None)
        same(together, getattr(path, name), f"pieces of the path {name}", scale)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(70))
def test_several_streams(seed):
    X, y, weights, rng = draw(seed)
    options = options_of(rng)
    options["method"] = "auto"
    labels = rng.integers(0, 3, len(y))
    y[[np.flatnonzero(labels == label)[0] for label in np.unique(labels)]] = 5.0
    if weights is not None:
        weights[[np.flatnonzero(labels == label)[0] for label in np.unique(labels)]] = 1.0
    groups = olsq.GroupedLeastSquares(**options).fit(X, y, weights, by=labels)
    path = olsq.coefficient_path(X, y, sample_weight=weights, by=labels, **options)
    in_pieces = olsq.GroupedLeastSquares(**options)
    bank = olsq.FilterBank(3, **options).partial_fit(X, y, weights, which=labels)
    for rows in pieces_of(len(y), rng):
        in_pieces.partial_fit(X[rows], y[rows], part(weights, rows), by=labels[rows])
        in_pieces = olsq.loads(in_pieces.to_bytes()) if rng.random() < 0.3 else in_pieces
    for label in np.unique(labels):
        rows = labels == label
        true = olsq.RecursiveLeastSquares(**options).fit(X[rows], y[rows], part(weights, rows))
        alone = olsq.coefficient_path(
            X[rows], y[rows], sample_weight=part(weights, rows), **options
        )
        same_path(path, alone, rows, "by")
        for actual in (groups, in_pieces):
            place = list(actual.keys()).index(label)
            for name in STATE:
                same(getattr(actual, name)[place], getattr(true, name), f"groups {name}")
        for name in STATE:
            same(getattr(bank, name)[label], getattr(true, name), f"bank {name}")
        same(groups.residual_[rows], true.residual_, "groups' residuals", 10.0)


def window_of(n, rng):
    """Return the options of a window, and the times of its rows, or None."""
    options = {"fit_intercept": bool(rng.random() < 0.6), "ridge": float(rng.choice([0, 0, 0.1]))}
    options["window"], times = int(rng.integers(1, n + 1)), None
    if rng.random() < 0.4:
        options["window"] = f"{rng.integers(1, 20)}D"
        seconds = np.cumsum(rng.exponential(86400, n) * (rng.random(n) > 0.2)).astype(int)
        times = np.datetime64("2024-01-01", "s") + seconds
    elif rng.random() < 0.5:
        options["window_of"] = "positions"
    if rng.random() < 0.3:
        options["forget"] = 0.9
    if times is None and rng.random() < 0.3:
        options["min_samples"] = int(min(options["window"], rng.integers(1, 3)))
    return options, times


@pytest.mark.full
@pytest.mark.parametrize("seed", range(70))
def test_windows(seed):
    X, y, weights, rng = draw(seed)
    if seed % 5 == 0:
        X[rng.integers(len(y) - 1)] *= 1e4
    options, times = window_of(len(y), rng)
    make = partial(olsq.RollingLeastSquares, **options)
    true = make().fit(X, y, weights, times=times)
    path = olsq.coefficient_path(X, y, sample_weight=weights, times=times, **options)
    by_row, by_piece, paths = make(), make(), []
    for t in range(len(y)):
        time = None if times is None else times[t]
        by_row.step(X[t], y[t], sample_weight=part(weights, t), time=time)
    for rows in pieces_of(len(y), rng):
        arguments = X[rows], y[rows], part(weights, rows)
        paths.append(by_piece.partial_fit_path(*arguments, times=part(times, rows)))
        by_piece = olsq.loads(by_piece.to_bytes()) if rng.random() < 0.3 else by_piece
    for actual in (by_row, by_piece):
        same_state(actual, true, "windows")
    size = np.nanmax(np.abs(y)) if seed % 5 else 1e6
    same(path.residual, true.residual_, "path's residuals", size)
    for name in ("coef", "residual"):
        together = np.concatenate([getattr(piece, name) for piece in paths])
        same(together, getattr(path, name), f"pieces {name}", size)
    labels = rng.integers(0, 2, len(y))
    for label in np.unique(labels):
        y[np.flatnonzero(labels == label)[0]] = 5.0
        if weights is not None:
            weights[np.flatnonzero(labels == label)[0]] = 1.0
    groups = olsq.coefficient_path(X, y, sample_weight=weights, times=times, by=labels, **options)
    for label in np.unique(labels):
        rows = labels == label
        arguments = {"sample_weight": part(weights, rows), "times": part(times, rows)}
        alone = olsq.coefficient_path(X[rows], y[rows], **arguments, **options)
        for name in ("coef", "stderr", "sigma2", "residual", "recursive_residual", "n_rows"):
            same(getattr(groups, name)[rows], getattr(alone, name), f"by {name}", size)

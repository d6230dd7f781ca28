"""Rolling paths of groups in compiled loops are those of each group alone."""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq.online.paths import collector
from olsq.online.paths.arrays import RowStatistics


def table(seed=0, n=500):
    """Rows of five groups in disorder, with missing values and a row without a label."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) * [1.0, 100.0, 0.01]
    y = X @ [1.0, -0.02, 50.0] + rng.standard_normal(n)
    by = rng.integers(0, 5, n).astype(object)
    by[by == 4] = np.where(rng.uniform(size=np.count_nonzero(by == 4)) < 0.1, 4, 3)  # a short one
    X[rng.integers(0, n, 9), 1] = np.nan
    y[rng.integers(0, n, 5)] = np.nan
    by[7] = None
    return X, y, by


def agrees(path, alone, rows):
    names = (*path._fields, *RowStatistics._fields)
    for name, got, want in zip(names, path.every_array, alone.every_array, strict=True):
        scale = np.abs(want[np.isfinite(want)]).max(initial=1e-300)
        np.testing.assert_allclose(got[rows], want, rtol=1e-8, atol=1e-9 * scale, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"window": 25}, {"window": 1}, {"window": 25, "min_samples": 10, "fit_intercept": True},
        {"window": 10, "ridge": 0.1}, {"window": 20, "window_of": "positions"},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("collinear", [False, True])
def test_each_group_is_as_alone(options, statistics, collinear):
    X, y, by = table()
    if collinear:  # for most of one group: windows without an answer of their own
        X[by == 2, 2] = np.where(np.arange(np.count_nonzero(by == 2)) < 70, X[by == 2, 0], 1.0)
    path = olsq.coefficient_path(X, y, by=by, statistics=statistics, **options)
    for g in range(5):
        rows = by == g
        alone = olsq.coefficient_path(X[rows], y[rows], statistics=statistics, **options)
        agrees(path, alone, rows)
    assert all(np.isnan(array[7]).all() for array in path)


def test_a_group_without_a_complete_row_and_several_targets():
    X, y, by = table(2)
    y[by == 1] = np.nan
    path = olsq.coefficient_path(X, y, by=by, window=20)
    assert np.isnan(path.coef[by == 1]).all()
    Y = np.column_stack([y, 2 * y])
    both = olsq.coefficient_path(X, Y, by=by, window=20)
    np.testing.assert_allclose(both.coef[:, 0], path.coef, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(both.stderr[:, 1], 2 * path.stderr, rtol=1e-9)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["HC0", "HC1", "HC2", "HC3", "HAC"])
@pytest.mark.parametrize(
    "options",
    [
        {"window": 25}, {"window": 25, "maxlags": 3}, {"window": 6, "fit_intercept": True},
        {"window": 10, "ridge": 0.1, "min_samples": 7}, {"window": 20, "noise_variance": 2.0},
        {"window": 1},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("m", [0, 2])
def test_robust_errors_of_each_group_are_those_alone(options, kind, m):
    if "maxlags" in options and kind != "HAC":
        options = {"window": options["window"]}
    if kind in ("HC2", "HC3"):  # 0 / 0 in windows of k rows, which have errors if noise is known
        options = {name: value for name, value in options.items() if name != "noise_variance"}
    X, y, by = table(3)
    y[by == 1] = np.nan  # a group without a usable row
    X[by == 2, 2] = 1.0  # one that becomes determined late
    y = np.column_stack([y, y**2]) if m else y
    path = olsq.coefficient_path(X, y, by=by, cov=kind, **options)
    for g in (0, 2, 3, 4):
        rows = by == g
        agrees(path, olsq.coefficient_path(X[rows], y[rows], cov=kind, **options), rows)
    assert np.isnan(path.stderr[(by == 1) | (np.arange(len(X)) == 7)]).all()
    bare = olsq.coefficient_path(X, y, by=by, cov=kind, statistics=False, **options)
    assert np.isnan(bare.stderr).all()
    np.testing.assert_allclose(
        bare.coef, path.coef, rtol=1e-8, atol=1e-9 * np.nanmax(abs(path.coef))
    )


@pytest.mark.parametrize("options", [{"window": 20}, {"window": 1.5}, {"window": 30, "by": None}])
@pytest.mark.parametrize("kind", ["HC2", "HAC"])
def test_robust_errors_of_pieces_are_those_of_all_rows(monkeypatch, kind, options):
    """Pieces end within groups and windows, and change no bit."""
    X, y, by = table(4)
    times = np.sort(np.random.default_rng(1).uniform(0, 30, len(X)))
    options = {"by": by, "cov": kind, "times": times} | options
    whole = olsq.coefficient_path(X, y, **options)
    for work in (1.0, 5e3, 4e4):
        monkeypatch.setattr(collector, "PIECE_WORK", work)
        pieces = olsq.coefficient_path(X, y, **options)
        np.testing.assert_array_equal(pieces.stderr, whole.stderr)

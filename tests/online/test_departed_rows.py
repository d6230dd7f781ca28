"""Rows many times larger than the others leave no trace once they have left the window.

Every door has the same streams, against solutions in extended precision; a new one is a function
in ``DOORS``.
"""

from __future__ import annotations

import copy
import itertools

import numpy as np
import polars as pl
import pytest

import olsq
import olsq.polars
from tests.online import departed

ALLOWED = 1e-9  # error over the condition number


def by_path(stream, monkeypatch):
    path = olsq.coefficient_path(stream.X, stream.y, **stream.options, **stream.given)
    return path.coef, path.intercept


def in_pieces_of(size, stream, tmp_path=None):
    """Feed an estimator in pieces, saved and loaded between them where there is a folder."""
    est = olsq.RollingLeastSquares(**stream.options, ridge=0.0)
    coef, intercept = np.zeros_like(stream.X), np.zeros_like(stream.y)
    for start in range(0, len(stream.X), size):
        part = slice(start, min(start + size, len(stream.X)))
        given = {name: values[part] for name, values in stream.given.items()}
        est.partial_fit(stream.X[part], stream.y[part], **given)
        if tmp_path is not None:
            est.save(tmp_path / "window.olsq")
            est = olsq.load(tmp_path / "window.olsq")
        coef[part.stop - 1], intercept[part.stop - 1] = est.coef_, est.intercept_
    rows = [t for t in stream.judged() if (t + 1) % size == 0]
    return coef, intercept, rows


def row_by_row(stream, monkeypatch):
    return in_pieces_of(1, stream)[:2]


def in_pieces(stream, monkeypatch):
    return in_pieces_of(7, stream)


def saved_between(stream, monkeypatch, tmp_path):
    return in_pieces_of(11, stream, tmp_path)


def by_groups(stream, monkeypatch):
    """Groups whose rows alternate, the second without huge rows of its own."""
    X, y = np.repeat(stream.X, 2, axis=0), np.repeat(stream.y, 2, axis=0)
    X[1::2] = np.random.default_rng(0).standard_normal(stream.X.shape)
    given = {name: np.repeat(values, 2) for name, values in stream.given.items()}
    by = np.tile([0, 1], len(stream.X))
    path = olsq.coefficient_path(X, y, by=by, **stream.options, **given)
    return path.coef[::2], path.intercept[::2]


def beside_a_target(stream, monkeypatch):
    """Another target, of other units, decides nothing."""
    Y = np.column_stack([1e8 * stream.X.sum(1) - stream.y, stream.y])
    path = olsq.coefficient_path(stream.X, Y, **stream.options, **stream.given)
    return path.coef[:, 1], path.intercept[:, 1]


def by_polars(stream, monkeypatch):
    names = [f"x{j}" for j in range(stream.X.shape[1])]
    frame = pl.DataFrame(dict(zip(names, stream.X.T, strict=True)) | stream.given).with_columns(
        y=stream.y
    )
    options = stream.options | {name: pl.col(name) for name in stream.given}
    fitted = pl.col("y").olsq.rolling(*names, **options)
    found = frame.select(fitted=fitted).unnest("fitted")
    coef = found.select(names).to_numpy()
    return coef, found["intercept"].to_numpy() if stream.intercept else np.zeros(len(coef))


DOORS = [
    by_path, row_by_row, in_pieces, saved_between, by_groups, beside_a_target, by_polars,
]  # fmt: skip
CASES = [(door, "white") for door in DOORS]
CASES += [(by_path, design) for design in departed.DESIGNS if design != "white"]
CASES += [(in_pieces, "complex"), (in_pieces, "offset"), (row_by_row, "nearly collinear")]


@pytest.mark.slow
@pytest.mark.parametrize(("door", "design"), CASES)
def test_departed_rows_leave_no_trace(door, design, monkeypatch, tmp_path):
    more = (tmp_path,) if door is saved_between else ()
    count = 0
    for kind, seed, forget in itertools.product(departed.KINDS, range(4), (1.0, 0.93)):
        stream = departed.make(seed, kind, design, forget=forget)
        found = departed.errors(stream, *door(stream, monkeypatch, *more))
        count += found.size
        assert (found < ALLOWED).all(), (kind, seed, forget, found.max())
    assert count > 30


@pytest.mark.full
@pytest.mark.parametrize(
    "door", [by_path, row_by_row, in_pieces, saved_between, by_groups, by_polars]
)
def test_windows_of_fewer_rows_than_coefficients(door, monkeypatch, tmp_path):
    more = (tmp_path,) if door is saved_between else ()
    count = 0
    for kind in departed.KINDS:
        for seed in range(6):
            stream = departed.make(seed, kind, few=True, forget=(1.0, 0.93)[seed % 2])
            found = departed.errors(stream, *door(stream, monkeypatch, *more))
            count += found.size
            assert (found < 1e-12).all(), (kind, seed, found.max())
    assert count > 30


@pytest.mark.full
@pytest.mark.parametrize("few", [False, True])
def test_single_rows_are_those_of_one_call(few):
    """Also with copies, files and readings between them."""
    for kind in departed.KINDS:
        for seed in range(4):
            stream = departed.make(seed, kind, few=few)
            whole = olsq.RollingLeastSquares(**stream.options)
            whole.fit(stream.X, stream.y, **stream.given)
            est = olsq.RollingLeastSquares(**stream.options)
            for t in range(len(stream.X)):
                row = slice(t, t + 1)
                given = {name: values[row] for name, values in stream.given.items()}
                est.partial_fit(stream.X[row], stream.y[row], **given)
                assert est.residual_[0] == whole.residual_[t]
                if t % 3 == 0 and t > 12:
                    assert np.isfinite(est.coef_).all()
                if t % 5 == 0:
                    est = copy.copy(est)
                if t % 7 == 0:
                    est = olsq.loads(est.to_bytes())
            np.testing.assert_array_equal(est.coef_, whole.coef_)


@pytest.mark.parametrize("door", [by_path, row_by_row, by_groups, by_polars])
def test_a_slope_that_rationals_give(door, monkeypatch):
    stream = departed.example()
    coef, intercept = door(stream, monkeypatch)[:2]
    assert coef[59, 0] == pytest.approx(-26 / 71, rel=1e-12)
    assert (departed.errors(stream, coef, intercept) < 1e-13).all()


@pytest.mark.full
@pytest.mark.parametrize("d", [32, 60])
def test_many_coefficients(d, monkeypatch):
    stream = departed.make(d, "row", "white", d, rows=4)
    assert (departed.errors(stream, *by_path(stream, monkeypatch)) < ALLOWED).all()
    found = departed.errors(stream, *in_pieces(stream, monkeypatch))
    assert found.size
    assert (found < ALLOWED).all()


def test_errors_of_variances_and_noise_leave_too(monkeypatch):
    for kind in departed.KINDS:
        stream = departed.make(1, kind)
        path = olsq.coefficient_path(stream.X, stream.y, **stream.options, **stream.given)
        for t in stream.judged()[::3]:
            rows = stream.inside(t)
            A = stream.X[rows]
            A = np.column_stack([np.ones(len(A)), A]) if stream.intercept else A
            w = np.ones(len(A)) if stream.weights is None else stream.weights[rows]
            root = np.sqrt(w)[:, None]
            theta, _ = departed.solve(root * A, root[:, 0] * stream.y[rows])
            loss = w @ (stream.y[rows] - A @ theta.astype(float)) ** 2
            sigma2 = loss / (len(A) - A.shape[1])
            P = np.linalg.inv((root * A).T @ (root * A))
            stderr = np.sqrt(sigma2 * np.diagonal(P))[int(stream.intercept) :]
            np.testing.assert_allclose(path.sigma2[t], sigma2, rtol=1e-8)
            np.testing.assert_allclose(path.stderr[t], stderr, rtol=1e-8)


@pytest.mark.parametrize("size", [1e1, 1e3, 1e5, 1e9])
@pytest.mark.parametrize("d", [3, 12])
def test_the_recursive_residual_of_a_huge_row(d, size):
    """That of a row of any leverage is its error over ``sqrt(1 + x.P x)``."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, d)), rng.standard_normal(60)
    X[50] *= size
    path = olsq.coefficient_path(X, y, window=30, ridge=0.01)
    before = X[20:50]
    P = np.linalg.inv(before.T @ before + 0.01 * np.eye(d))
    expected = (y[50] - X[50] @ P @ before.T @ y[20:50]) / np.sqrt(1 + X[50] @ P @ X[50])
    assert path.recursive_residual[50] == pytest.approx(expected, rel=1e-9)

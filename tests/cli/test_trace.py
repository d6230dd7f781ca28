"""The thinned path of a figure depends on the rows, not on how they were cut into chunks."""

import json

import numpy as np
import polars as pl
import pytest

import olsq
from olsq.cli.fit import figures as module
from olsq.cli.fit.figures import Trace
from olsq.stability import cusum


def make(n, seed=0):
    rng = np.random.default_rng(seed)
    coef, residual = rng.standard_normal((n, 2)), rng.standard_normal(n)
    residual[rng.random(n) < 0.2] = np.nan
    return coef, np.abs(coef), residual, residual * 0.9


def feed(arrays, cuts):
    trace = Trace(["p", "q"])
    for start, stop in zip([0, *cuts], [*cuts, len(arrays[0])], strict=True):
        if start < stop:
            trace.update(start, *(array[start:stop] for array in arrays))
    return trace


@pytest.mark.parametrize("n", [1, 7, 8, 9, 100, 1000])
def test_buckets_do_not_depend_on_the_chunks(n, monkeypatch):
    monkeypatch.setattr(module, "BUCKETS", 8)
    arrays = make(n)
    whole = feed(arrays, [])
    for cuts in ([1], [3, 5], [4, 64, 65], list(range(0, 1000, 13))):
        other = feed(arrays, [cut for cut in cuts if cut < n])
        for a, b in zip(whole.curves(bounds=True), other.curves(bounds=True), strict=True):
            if isinstance(a, np.ndarray):
                np.testing.assert_allclose(a, b, rtol=1e-12)


def test_buckets_hold_extremes_means_and_last_values(monkeypatch):
    monkeypatch.setattr(module, "BUCKETS", 8)
    coef, stderr, residual, recursive = arrays = make(50)
    curves = feed(arrays, [20, 21]).curves(bounds=True)
    stride = 8
    for k, at in enumerate(range(0, 50, stride)):
        part = residual[at : at + stride]
        assert curves.low[k] == np.nanmin(part)
        assert curves.high[k] == np.nanmax(part)
        assert curves.square[k] == pytest.approx(np.nanmean(part**2))
        last = min(at + stride, 50) - 1
        np.testing.assert_array_equal(curves.coef[k], coef[last])
        np.testing.assert_array_equal(curves.stderr[k], stderr[last])
        assert curves.x[k] == last + 1
    tested = recursive[np.isfinite(recursive)]
    assert curves.cusum[-1] == pytest.approx(tested.sum() / tested.std(ddof=1))
    assert curves.bound[-1] == pytest.approx(3 * 0.948 * np.sqrt(len(tested)))


def test_samples_are_of_their_bucket_and_spread_over_it(monkeypatch):
    monkeypatch.setattr(module, "BUCKETS", 8)
    n = 4096
    coef, stderr, _, recursive = make(n)
    row = np.arange(n, dtype=float)
    row[100:110] = np.nan
    curves = feed((coef, stderr, row, recursive), [1, 700, 701]).curves(bounds=True)
    for k, values in enumerate(curves.sample):
        assert ((values // 512) == k).all()
        assert len(set(values)) == module.SAMPLES
    assert abs(np.mean(curves.sample % 512) - 256) < 60


def test_no_lines_no_cusum():
    arrays = make(50)
    curves = feed(arrays, []).curves(bounds=False)
    assert curves.cusum is None
    assert curves.bound is None


def test_saved_and_restored_goes_on_the_same(monkeypatch):
    monkeypatch.setattr(module, "BUCKETS", 8)
    arrays = make(300)
    whole = feed(arrays, [137])
    half = feed([array[:137] for array in arrays], [])
    half = Trace.from_dict(["p", "q"], json.loads(json.dumps(half.as_dict())))
    half.update(137, *(array[137:] for array in arrays))
    assert half.as_dict() == whole.as_dict()


def test_all_missing_and_never_determined_can_be_drawn():
    from olsq.plot.drawing import draw_fit

    nothing = np.full(5, np.nan)
    trace = Trace(["p"])
    trace.update(0, np.zeros((5, 1)), np.full((5, 1), np.inf), nothing, nothing)
    draw_fit(trace.curves(bounds=True)).canvas.draw()


def test_the_figure_of_a_late_start_has_the_cusum_of_the_path(tmp_path, olsq_command, monkeypatch):
    """Of a regressor that is constant at first, and with a ridge, which leaves out the first k."""
    drawn = []
    curves = Trace.curves
    monkeypatch.setattr(Trace, "curves", lambda *a, **o: drawn.append(curves(*a, **o)) or drawn[-1])
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 2))
    X[:30, 1] = 2.0
    y = X @ [1.0, 2.0] + 3.0 + rng.standard_normal(200)
    pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}).write_csv(tmp_path / "t.csv")
    for ridge in (0.0, 1e-9):
        figure = ("--plot", tmp_path / "f.png", "--ridge", ridge)
        assert olsq_command("fit", tmp_path / "t.csv", "--target", "y", *figure)[0] == 0
        test = cusum(olsq.coefficient_path(X, y, fit_intercept=True, ridge=ridge))
        assert len(test.row) == 197
        np.testing.assert_allclose(drawn[-1].cusum[test.row], test.value, rtol=1e-6)

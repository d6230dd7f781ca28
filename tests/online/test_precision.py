"""Errors of float32 data: rounding of the data, never of the sums."""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from benchmarks.support import collinear_cases as collinear

RLS = olsq.RecursiveLeastSquares
EPS32 = float(np.finfo(np.float32).eps)
TRUTH = np.array([1.0, -2.0, 0.5])


def rows(n, offset, seed=0):
    """White float32 regressors around ``offset``, in chunks; y = 3 + x . TRUTH + noise."""
    rng = np.random.default_rng(seed)
    for start in range(0, n, 100_000):
        size = min(100_000, n - start)
        X = (rng.standard_normal((size, 3)) + offset).astype(np.float32)
        y = 3 + X.astype(np.float64) @ TRUTH + rng.standard_normal(size)
        yield X, y.astype(np.float32)


@pytest.mark.full
@pytest.mark.parametrize("forget", [1.0, 0.99999])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("method", ["covariance", "sqrt", "information"])
def test_a_long_memory_of_float32_rows_is_that_of_the_same_rows_in_float64(method, forget, offset):
    """A million rows; benchmarks/reports/long_float32.py has the ten million."""
    narrow, wide = (RLS(forget=forget, method=method, residuals=False) for _ in range(2))
    for X, y in rows(1_000_000, offset):
        narrow.partial_fit(X, y)
        wide.partial_fit(X.astype(np.float64), y.astype(np.float64))
    assert narrow.coef_.dtype == np.float32
    assert narrow._engine.form.loss.dtype == np.float64
    # The same state, rounded once when it is read; to the last bit, but in the square-root form,
    # which takes what is left of a float32 regressor below its own rounding for nothing.
    a, b = ({**est._engine.arrays()} for est in (narrow, wide))
    if method != "sqrt":
        assert all(a[name].tobytes() == b[name].tobytes() for name in b)
    few = 1e-3 if method == "sqrt" else 0.0
    for x, y, error in [
        (narrow.coef_, wide.coef_, wide.coef_stderr_),
        (narrow.intercept_, wide.intercept_, wide.intercept_stderr_),
    ]:
        assert (np.abs(x - y) <= EPS32 * np.abs(y) + few * error).all()
    assert (np.abs(wide.coef_ - TRUTH) < 5 * wide.coef_stderr_).all()
    assert abs(wide.intercept_ - 3) < 5 * wide.intercept_stderr_


@pytest.mark.parametrize("make", [
    lambda: RLS(forget=0.999), lambda: RLS(method="sqrt"), lambda: RLS(method="information"),
    lambda: RLS(ridge_mode="fixed", forget=0.99), lambda: olsq.RollingLeastSquares(window=300),
])  # fmt: skip
def test_every_way_to_ask_gives_float64s_answer_rounded(make, tmp_path):
    """Path, parts, save and load, merge, moments, predictions and statistics of offset rows."""
    X, y = next(rows(2000, 1000.0))
    both = []
    for dtype in (np.float32, np.float64):
        A, b = X.astype(dtype), y.astype(dtype)
        est = make()
        path = est.partial_fit_path(A[:1500], b[:1500])
        est.save(tmp_path / "state.olsq")
        est = olsq.load(tmp_path / "state.olsq").partial_fit(A[1500:], b[1500:])
        merged = olsq.merge(make().fit(A[:700], b[:700]), make().fit(A[700:], b[700:]))
        found = {
            "path": path.coef, "path residual": path.residual, "coef": est.coef_,
            "intercept": est.intercept_, "residual": est.residual_, "prediction": est.predict(A),
            "merged": merged.coef_,
        }  # fmt: skip
        assert all(a.dtype == dtype for a in found.values())
        found |= {"sigma2": est.sigma2_, "stderr": est.coef_stderr_, "gram": est.moments().gram}
        both.append(found)
    errors = both[1]["stderr"].min()  # far from the intercept's, which is 1000 times as large
    for name, want in both[1].items():
        got = both[0][name]
        # The square-root form, in which windows fill and moments begin, takes leftovers below
        # float32's rounding for nothing.
        by_rotations = make().get_params().get("method", "sqrt") in ("sqrt", "information")
        few = 0.02 * errors * 1000 if by_rotations else 0.0
        np.testing.assert_allclose(got, want, rtol=EPS32, atol=few, err_msg=name)


@pytest.mark.full
def test_float32_rows_are_not_copied_whole():
    import tracemalloc

    X = np.ones((400_000, 8), np.float32)
    X[:] = np.arange(8) + np.arange(400_000)[:, None] % 7
    y = X[:, 0].copy()
    est = RLS().fit(X[:10], y[:10])
    tracemalloc.start()
    est.partial_fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Gates and weights, residuals, and a block: not the 25 MB of a float64 copy.
    assert peak < 15e6


# -- dependent columns --------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("seed", range(40))
def test_float32_rows_with_dependent_columns(seed):
    """40 seeds; benchmarks/reports/collinear_float32.py has the thousand."""
    case = collinear.draw(seed)
    assert not collinear.complaints(case), case.parameters


@pytest.mark.parametrize("seed", range(4))
def test_float32_columns_are_told_apart_above_a_few_units_of_rounding(seed):
    """Two units in the last place are rounding and sixteen are a direction: in between is free."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(1, 2, 40).astype(np.float32)
    for units, rank in ((0, 2), (2, 2), (16, 3)):
        other = 3.0 * x.astype(float) * (1 + units * EPS32 * rng.choice([-1, 1], 40))
        est = RLS(ridge=0.0).fit(np.column_stack([x, other.astype(np.float32)]), x)
        assert est.rank_ == rank, units


@pytest.mark.parametrize("method", ["sqrt", "information"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_minimum_norm_does_not_follow_rounding_errors_into_faint_columns(method, dtype):
    """A copied column beside one 1e10 times fainter: the copies share what one would get."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 3)) * [1e5, 1e-5, 1.0]
    X = np.column_stack([X, 0.3 * X[:, 0]]).astype(dtype)
    y = X.astype(np.float64) @ [1e-5, 1e5, 1.0, 0.0] + 0.1 * rng.standard_normal(500)
    est = RLS(ridge=0.0, method=method, fit_intercept=False).fit(X, y.astype(dtype))
    assert est.determined_.tolist() == [False, True, True, False]
    units = [1e5, 1e-5, 1.0]
    alone = np.linalg.lstsq(X[:, :3].astype(np.float64) / units, y, rcond=None)[0] / units
    share = alone[0] / (1 + 0.3**2)
    want = [share, alone[1], alone[2], 0.3 * share]
    eps = float(np.finfo(dtype).eps)
    error = np.abs((est.coef_ - want) * [1e5, 1e-5, 1.0, 3e4])
    assert error.max() < max(2e3 * eps, 1e-10)  # the norm is 1e10 times the fainter coefficients

"""Constant coefficients: tests against statsmodels, strucchange's published numbers and loops."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.stats.diagnostic import (
    breaks_cusumolsresid,
    linear_harvey_collier,
    recursive_olsresiduals,
)

import olsq
from olsq.datasets import nile, us_macro
from olsq.stability import (
    break_test,
    chow_test,
    cusum,
    cusum_squares,
    harvey_collier,
    ols_cusum,
    one_step_scores,
    recursive_residuals,
)
from olsq.stability.breaks import _tail_probability


def broken(n=120, d=2, at=70, jump=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 2.0
    coef = np.where(np.arange(n)[:, None] < at, 1.0, 1.0 + jump)
    return X, (X * coef).sum(axis=1) + 3.0 + rng.standard_normal(n)


def dense_rss(A, y):
    theta = np.linalg.lstsq(A, y, rcond=None)[0]
    return float(np.sum((y - A @ theta) ** 2))


CASES = {
    "prices": lambda: (us_macro()["m1"][:, None], us_macro()["cpi"], True),
    "the nile": lambda: (np.ones((100, 1)), nile()["volume"], False),
    "a break": lambda: (*broken(), True),
}


@pytest.mark.parametrize("case", CASES)
def test_recursive_residuals_and_cusum_are_those_of_statsmodels(case):
    X, y, intercept = CASES[case]()
    A = sm.add_constant(X) if intercept else X
    k = A.shape[1]
    theirs = recursive_olsresiduals(sm.OLS(y, A).fit(), skip=k)
    path = olsq.coefficient_path(X, y, fit_intercept=intercept)
    row, value = recursive_residuals(path)
    assert row.tolist() == list(range(k, len(y)))
    scale = np.abs(theirs[4][k:]).max()
    np.testing.assert_allclose(value, theirs[4][k:], rtol=1e-10, atol=1e-10 * scale)
    w = theirs[4][k:]
    result = cusum(path)
    np.testing.assert_allclose(result.value, np.cumsum(w) / w.std(ddof=1), rtol=1e-10, atol=1e-9)
    squares = cusum_squares(path)
    np.testing.assert_allclose(squares.value, np.cumsum(w**2) / np.sum(w**2), atol=1e-12)
    assert squares.value[-1] == pytest.approx(1.0, rel=1e-14)


def singular_starts():
    """Regressors (intercept included) whose rank grows late, with targets."""
    rng = np.random.default_rng(3)
    x, y, ones, at = rng.standard_normal(40), rng.standard_normal(40), np.ones(40), np.arange(40)
    late, tied = (at >= 25) * 1.0, np.round(x)
    return {
        "a dummy begins late": (np.column_stack([ones, x, late]), y),
        "the start is constant": (np.column_stack([ones, np.where(at < 10, 1.0, x)]), y),
        "the start is zero": (np.where(at < 7, 0.0, x)[:, None], y),
        "ties": (np.column_stack([ones, tied, tied**2]), y),
        "collinear": (np.column_stack([ones, x, 2 * x]), y),
        "missing": (np.column_stack([ones, late]), np.where(at == 2, np.nan, y)),
        "the start fits exactly": (np.column_stack([ones, late]), np.where(at < 30, 1.0, y)),
        "twice late after an exact start": (
            np.column_stack([ones, at > 5, at > 5, at > 9]), np.where(at < 12, 0.0, y)
        ),
    }  # fmt: skip


@pytest.mark.parametrize("case", singular_starts())
def test_the_rows_that_determine_a_coefficient_have_no_recursive_residual(case):
    """n - k residuals are left, whose squares add up to the residual sum of squares."""
    A, y = singular_starts()[case]
    path = olsq.coefficient_path(A, y)
    row, value = recursive_residuals(path)
    whole = np.isfinite(y)
    rank = np.linalg.matrix_rank(A[whole])
    assert row.size == whole.sum() - rank
    assert value @ value == pytest.approx(dense_rss(A[whole], y[whole]), rel=1e-12)
    ranks = [np.linalg.matrix_rank(A[: t + 1][whole[: t + 1]]) for t in range(len(y))]
    raised = np.flatnonzero(np.diff(ranks, prepend=0))
    if "exact" not in case:  # which of many zeros it was is not known
        assert row.tolist() == np.setdiff1d(np.flatnonzero(whole), raised).tolist()
    assert cusum(path).row.tolist() == cusum_squares(path).row.tolist() == row.tolist()
    assert cusum_squares(path).value[-1] == pytest.approx(1.0, rel=1e-13)


def test_squares_of_a_stream_that_one_dummy_determines_last():
    """Eight rows, the dummy's first the last but one: six residuals, enough for the lines."""
    A = np.column_stack([np.ones(8), np.arange(8) >= 6])
    y = np.random.default_rng(0).standard_normal(8)
    assert cusum_squares(olsq.coefficient_path(A, y)).row.tolist() == [1, 2, 3, 4, 5, 7]


def test_harvey_and_collier_is_that_of_statsmodels():
    """Which drops three residuals whatever k is, and so agrees at k = 3."""
    X, y = broken(jump=0.1)
    theirs = linear_harvey_collier(sm.OLS(y, sm.add_constant(X)).fit(), skip=3)
    found = harvey_collier(olsq.coefficient_path(X, y, fit_intercept=True))
    assert found.statistic == pytest.approx(theirs.statistic, rel=1e-9)
    assert found.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
    assert found.freedom == 116


def test_regressors_far_from_zero_cost_no_digits():
    """The intercept takes up a shift, exactly; normal equations, as statsmodels', lose 6 digits."""
    X, y = broken()
    far = X + 1e3
    one, other = (
        recursive_residuals(olsq.coefficient_path(A, y, fit_intercept=True))[1]
        for A in (far - 1e3, far)
    )
    np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


def test_residuals_and_sums_are_those_of_exact_arithmetic():
    data = us_macro()
    path = olsq.coefficient_path(data["m1"][:, None], data["cpi"], fit_intercept=True)
    wanted, n, sx, sxx, sy, sxy = [], *map(Fraction, (0, 0, 0, 0, 0))
    for x, y in zip(map(Fraction, data["m1"]), map(Fraction, data["cpi"]), strict=True):
        if n >= 2:
            det = n * sxx - sx * sx
            slope = (n * sxy - sx * sy) / det
            error = y - (sy - slope * sx) / n - slope * x
            wanted.append(float(error) / float(1 + (sxx - 2 * sx * x + n * x * x) / det) ** 0.5)
        n, sx, sxx, sy, sxy = n + 1, sx + x, sxx + x * x, sy + y, sxy + x * y
    exact = np.array(wanted)
    found = path.recursive_residual[2:]
    np.testing.assert_allclose(found, exact, rtol=0, atol=5e-14 * np.abs(exact).max())
    sums = np.cumsum(exact) / exact.std(ddof=1)
    np.testing.assert_allclose(cusum(path).value, sums, rtol=0, atol=1e-12 * np.abs(sums).max())


@pytest.mark.parametrize("level", [0.01, 0.05, 0.10, 0.02, 0.20])
def test_lines_are_those_of_statsmodels(level):
    data = us_macro()
    reference = sm.RecursiveLS(data["cpi"], sm.add_constant(data["m1"])).fit()
    path = olsq.coefficient_path(data["m1"][:, None], data["cpi"], fit_intercept=True)
    squares = cusum_squares(path, level=level)
    lower, upper = reference._cusum_squares_significance_bounds(level, points=squares.row + 1)
    np.testing.assert_allclose(squares.lower, lower, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(squares.upper, upper, rtol=1e-12)
    np.testing.assert_allclose(squares.value, reference.cusum_squares, rtol=0, atol=1e-11)
    if level in (0.01, 0.05):  # at 10 % statsmodels has .950 for Brown, Durbin and Evans' .850
        result = cusum(path, level=level)
        lower, upper = reference._cusum_significance_bounds(level, points=result.row + 1)
        np.testing.assert_allclose(result.bound, upper, rtol=1e-12)
    if level == 0.10:
        result = cusum(path, level=level)
        np.testing.assert_allclose(result.bound / cusum(path).bound, 0.850 / 0.948, rtol=1e-12)


@pytest.mark.full
def test_levels_are_kept_and_breaks_found():
    """The tests accuse constant coefficients about as often as they say; few rows: less often."""
    accused = np.zeros(3)
    runs = 300
    rng = np.random.default_rng(0)
    for _ in range(runs):
        X = rng.standard_normal((100, 1))
        y = X[:, 0] + 1.0 + rng.standard_normal(100)
        path = olsq.coefficient_path(X, y, fit_intercept=True)
        accused += [
            cusum(path).first_crossing is not None,
            cusum_squares(path).first_crossing is not None,
            break_test(X, y, fit_intercept=True).p_value < 0.05,
        ]
    assert (accused <= (0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)) * runs).all()
    X, y = broken(jump=2.0)
    path = olsq.coefficient_path(X, y, fit_intercept=True)
    assert 70 <= cusum(path).first_crossing < 110
    y[60:] += 4 * np.random.default_rng(1).standard_normal(60)
    assert cusum_squares(olsq.coefficient_path(X, y, fit_intercept=True)).first_crossing < 120


# -- strucchange's Nile: the examples of ?breakpoints and of ?Fstats in R --------------------------


def test_the_nile_fell_after_1898():
    data = nile()
    found = break_test(np.ones((100, 1)), data["volume"])
    assert data["year"][found.row - 1] == 1898  # strucchange: breakpoint 28, breakdate 1898
    assert found.row == 28
    assert found.statistic == pytest.approx(75.93, abs=0.005)  # sctest(Fstats(Nile ~ 1))
    assert found.p_value < 1e-15
    # summary(breakpoints(Nile ~ 1)): RSS with no break and with one
    assert found.rss.min() == pytest.approx(1597457.194, abs=6e-4)
    whole = dense_rss(np.ones((100, 1)), data["volume"])
    assert whole == pytest.approx(2835156.750, abs=6e-4)
    assert found.rows[0] == 15
    assert found.rows[-1] == 85


def test_the_nile_is_that_of_statsmodels():
    source = sm.datasets.nile.load_pandas().data
    np.testing.assert_array_equal(nile()["volume"], source["volume"])
    np.testing.assert_array_equal(nile()["year"], source["year"])


# Andrews (2003), corrected table 1, trim .15: critical values at 10, 5 and 1 %.
ANDREWS = {1: (7.12, 8.68, 12.16), 2: (10.00, 11.72, 15.56), 5: (16.20, 18.35, 22.49)}


@pytest.mark.parametrize("d", ANDREWS)
def test_p_values_are_those_of_andrews_table(d):
    for level, critical in zip((0.10, 0.05, 0.01), ANDREWS[d], strict=True):
        assert _tail_probability(critical, d, (0.85 / 0.15) ** 2) == pytest.approx(level, rel=0.2)
    assert _tail_probability(0.5 * d, d, 32.1) == 1.0
    assert _tail_probability(math.inf, d, 32.1) == 0.0


# -- breaks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_every_place_is_two_regressions(intercept, shift):
    X, y = broken(60, 3, 40)
    X, y = X + shift, y + shift
    found = break_test(X, y, trim=0.2, fit_intercept=intercept)
    A = sm.add_constant(X) if intercept else X
    whole, k = dense_rss(A, y), A.shape[1]
    rss = np.array([dense_rss(A[:t], y[:t]) + dense_rss(A[t:], y[t:]) for t in found.rows])
    tolerance = 1e-10 if shift == 0 else 1e-7
    np.testing.assert_allclose(found.rss, rss, rtol=tolerance)
    np.testing.assert_allclose(
        found.value, (whole - rss) / k / (rss / (60 - 2 * k)), rtol=100 * tolerance, atol=1e-6
    )
    assert found.rows.tolist() == list(range(12, 49))
    assert found.row == found.rows[np.argmin(rss)]
    for t in (20, 40):
        test = chow_test(X, y, t, fit_intercept=intercept)
        assert test.statistic == pytest.approx(found.value[t - 12], rel=1e-6)
    best = chow_test(X, y, found.row, fit_intercept=intercept)
    assert best.statistic == pytest.approx(found.statistic, rel=1e-6)
    # Andrews' statistic is as many times Chow's F as there are coefficients.
    ratio = ((60 - 12) / 12) ** 2
    assert found.p_value == _tail_probability(k * found.statistic, k, ratio)


def test_chows_test_is_that_of_nested_regressions():
    X, y = broken()
    A = sm.add_constant(X)
    late = np.arange(120) >= 50
    full = sm.OLS(y, np.hstack([A, A * late[:, None]])).fit()
    statistic, p_value, more = full.compare_f_test(sm.OLS(y, A).fit())
    test = chow_test(X, y, 50, fit_intercept=True)
    assert test.statistic == pytest.approx(statistic, rel=1e-10)
    assert test.p_value == pytest.approx(p_value, rel=1e-8)
    assert test.df == (more, 120 - 6)
    assert test.row == 50


def test_a_column_that_is_constant_in_one_part():
    X, y = broken()
    X[:50, 1] = 0.0
    test = chow_test(X, y, 50, fit_intercept=True)
    assert test.df == (2, 120 - 5)
    with pytest.raises(ValueError, match="rank 3, but 2 in the first"):
        break_test(X, y, fit_intercept=True)


def test_missing_rows_are_left_out_and_rows_keep_their_numbers():
    X, y = broken(jump=3.0)
    gaps = np.insert(y, [10, 70, 70, 100], np.nan)
    rows = np.insert(X, [10, 70, 70, 100], 7.0, axis=0)
    one, other = (
        break_test(X, y, fit_intercept=True), break_test(rows, gaps, fit_intercept=True)
    )  # fmt: skip
    assert (one.row, other.row) == (70, 73)
    assert other.statistic == one.statistic
    assert (
        chow_test(rows, gaps, 72, fit_intercept=True)[:3]
        == chow_test(X, y, 70, fit_intercept=True)[:3]
    )


def test_breaks_do_not_depend_on_units():
    X, y = broken()
    one = break_test(X, y, fit_intercept=True)
    for a, b in ((2.0**-200, 1.0), (1.0, 2.0**200)):
        other = break_test(X * a, y * b, fit_intercept=True)
        assert other.row == one.row
        assert other.statistic == pytest.approx(one.statistic, rel=1e-9)


def test_exact_fits():
    X = np.ones((40, 1))
    assert break_test(X, np.zeros(40)).statistic == 0.0
    assert break_test(X, np.zeros(40)).p_value == 1.0
    step = np.repeat([0.0, 1.0], 20)
    found = break_test(X, step)
    assert found.row == 20
    assert found.p_value < 1e-6
    assert chow_test(X, np.zeros(40), 20).statistic == 0.0


def test_the_cusum_of_ols_residuals_is_that_of_statsmodels():
    X, y = broken()
    residual = sm.OLS(y, sm.add_constant(X)).fit().resid
    for ddof in (0, 3):
        statistic, p_value, _ = breaks_cusumolsresid(residual, ddof=ddof)
        test = ols_cusum(X, y, fit_intercept=True, ddof=ddof)
        assert test.statistic == pytest.approx(statistic, rel=1e-10)
        assert test.p_value == pytest.approx(p_value, rel=1e-8)
    default = ols_cusum(X, y, fit_intercept=True)
    assert default.statistic == test.statistic
    assert default.p_value == pytest.approx(stats.kstwobign.sf(default.statistic), rel=1e-12)
    assert abs(default.value[-1]) < 1e-10


# -- scores ---------------------------------------------------------------------------------------


def test_scores_are_their_definitions():
    X, y = broken()
    y[[5, 50]] = np.nan
    path = olsq.coefficient_path(X, y, forget=0.95, fit_intercept=True)
    scores = one_step_scores(path, y)
    errors, naive, seen = [], [], []
    for t in range(120):
        if np.isnan(y[t]):
            continue
        if len(seen) >= 3:
            errors.append(path.residual[t])
            naive.append(y[t] - np.mean(seen))
        seen.append(y[t])
    errors, naive = np.array(errors), np.array(naive)
    assert scores.n == len(errors) == 115
    assert scores.mse == pytest.approx(np.mean(errors**2), rel=1e-12)
    assert scores.rmse == pytest.approx(math.sqrt(scores.mse), rel=1e-12)
    assert scores.mae == pytest.approx(np.mean(np.abs(errors)), rel=1e-12)
    assert scores.r2 == pytest.approx(1 - np.mean(errors**2) / np.mean(naive**2), rel=1e-12)
    Y = np.column_stack([y, -2 * y])
    both = one_step_scores(
        olsq.coefficient_path(X, Y, forget=0.95, fit_intercept=True), Y, burn_in=3
    )
    np.testing.assert_allclose(both.mse, [scores.mse, 4 * scores.mse], rtol=1e-9)
    np.testing.assert_array_equal(both.n, [115, 115])
    # the same loss as tune's
    tuned = olsq.tune(X, y, forget=0.95, ridge=0.0)
    assert tuned.loss == pytest.approx(scores.mse, rel=1e-9)


@pytest.mark.parametrize("ridge", [1e-9, 1e-3, 10.0])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("constant", [0, 30])
@pytest.mark.parametrize("noise", [None, 2.0])
def test_under_a_ridge_all_but_the_first_k_rows_are_tested(ridge, intercept, constant, noise):
    X, y = broken()
    X[:constant, -1] = 2.0
    options = {"fit_intercept": intercept, "noise_variance": noise}
    path = olsq.coefficient_path(X, y, ridge=ridge, **options)
    row, _ = recursive_residuals(path)
    np.testing.assert_array_equal(row, np.arange(X.shape[1] + intercept, len(y)))


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("constant", [0, 30])
def test_a_known_noise_variance_changes_no_recursive_residual(intercept, constant):
    X, y = broken()
    X[:constant, -1] = 2.0
    paths = [
        olsq.coefficient_path(X, y, fit_intercept=intercept, noise_variance=noise)
        for noise in (None, 2.0)
    ]
    for own, other in zip(*map(recursive_residuals, paths), strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("zeros", [0, 1, 5])
def test_a_row_of_zeros_before_the_first_is_an_error_of_its_own(zeros):
    X, y = broken()
    X = X[:, 1:2].copy()
    X[:zeros] = 0
    for noise in (None, 2.0):
        row, value = recursive_residuals(olsq.coefficient_path(X, y, noise_variance=noise))
        np.testing.assert_array_equal(row, np.delete(np.arange(len(y)), zeros))
        np.testing.assert_array_equal(value[:zeros], y[:zeros])


def test_bad_arguments_are_named():
    X, y = broken()
    path = olsq.coefficient_path(X, y)
    by_group = olsq.coefficient_path(X, y, by=["a", "b"] * (len(y) // 2))
    for call, message in (
        (lambda: cusum(path, level=0.5), "level must be one of"),
        (lambda: cusum_squares(path, level=0.3), "level must be one of"),
        (lambda: cusum(olsq.coefficient_path(X, np.stack([y, y], 1))), "must have one target"),
        (lambda: recursive_residuals(olsq.coefficient_path(X[:3], y[:3])), "must have two rows"),
        (lambda: cusum_squares(olsq.coefficient_path(X[:5], y[:5])), "must have five rows"),
        (lambda: chow_test(X, y, 0), "row must have complete rows before it"),
        (lambda: chow_test(X, y, 120), "row must have complete rows before it"),
        (lambda: chow_test(X, y, 5.0), "row must be an integer"),
        (lambda: chow_test(X[:4], y[:4], 2, fit_intercept=True), "degrees of freedom"),
        (lambda: break_test(X, y, trim=0.5), "trim must lie"),
        (lambda: break_test(X[:12], y[:12]), "of 12 rows at an end"),
        (lambda: break_test(X, np.stack([y, y], 1)), "one target"),
        (lambda: break_test(X * np.nan, y), "X and y must have a complete row"),
        (lambda: ols_cusum(X[:2], y[:2]), "must have more complete rows than the"),
        (lambda: ols_cusum(X, y, ddof=1.5), "ddof must be an integer >= 0 or None, got 1.5"),
        (lambda: ols_cusum(X, y, ddof=-1), "ddof must be an integer >= 0 or None, got -1"),
        *(
            (lambda test=test: test(by_group), r"2 groups.*path.of_group\('a'\)")
            for test in (cusum, cusum_squares, harvey_collier, recursive_residuals)
        ),
        *(
            (lambda test=test: test(olsq.coefficient_path(X, 1j * y)), "must be real")
            for test in (cusum, cusum_squares, harvey_collier, recursive_residuals)
        ),
        (lambda: one_step_scores(by_group, y), "2 groups"),
        (lambda: one_step_scores(path, y[:-1]), "shape of path.residual"),
        (lambda: one_step_scores(path, y, burn_in=-1), "burn_in must be"),
        (lambda: one_step_scores(path, y, burn_in=120), "none is left to score"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_the_pages_blocks_print_what_it_shows(capsys):
    page = (Path(__file__).parents[1] / "docs" / "inference.md").read_text()
    section = page.split("## Testing for structural breaks")[1]
    blocks = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", section, flags=re.DOTALL)
    assert len(blocks) == 5
    names = {"np": np, "olsq": olsq}
    for code, shown in blocks:
        exec(code, names)
        assert capsys.readouterr().out == shown


@pytest.mark.parametrize("shift", [0.0, 0.1, 5.0])
@pytest.mark.parametrize("intercept", [False, True])
def test_rows_that_are_predicted_exactly_count(shift, intercept):
    """Silent starts and counts have recursive residuals of 0, which the test is made of too."""
    y = np.array([0.0] * 10 + [1.0, 0.0, 2.0, 0.0, 1.0]) + shift
    X = np.zeros((15, 1)) if intercept else np.ones((15, 1))
    t = np.arange(1, 15)  # of a mean: (y_t - mean before) / sqrt(1 + 1 / t)
    want = np.array([y[i] - y[:i].mean() for i in t]) / np.sqrt(1 + 1 / t)
    path = olsq.coefficient_path(X, y, fit_intercept=intercept)
    if intercept:
        path = path._replace(coef=path.coef[:, :0], stderr=path.stderr[:, :0])
    row, found = recursive_residuals(path)
    first = 15 - len(row)
    assert first == 1 or (intercept and shift == 0.0)
    np.testing.assert_allclose(found, want[first - 1 :], atol=1e-12)
    np.testing.assert_allclose(cusum(path).value, np.cumsum(found) / found.std(ddof=1), rtol=1e-9)


def test_a_row_that_determines_a_coefficient_late_does_not_count():
    rng = np.random.default_rng(0)
    X, y = np.ones((30, 2)), rng.standard_normal(30)
    X[:20, 1], X[20:, 1] = 0.0, rng.standard_normal(10)
    row = recursive_residuals(olsq.coefficient_path(X, y))[0]
    assert row.tolist() == [*range(1, 20), *range(21, 30)]

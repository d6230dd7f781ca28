"""Plots: the CUSUM against statsmodels, and figures that cope with every path."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import olsq
from olsq.datasets import mauna_loa_co2, us_macro
from olsq.plot import (
    cusum,
    plot_break_test,
    plot_cusum,
    plot_cusum_squares,
    plot_fit,
    plot_path,
    plot_residuals,
)
from olsq.stability import break_test, cusum_squares

mpl.use("agg")


def macro_path(**options):
    data = us_macro()
    return olsq.coefficient_path(data["m1"][:, None], data["cpi"], fit_intercept=True, **options)


def drawn(figure):
    """Render, which is when matplotlib finds most faults."""
    figure.canvas.draw()
    return figure


def texts(figure):
    """Every text on the figure and its axes."""
    own = [text.get_text() for text in figure.texts]
    for ax in figure.axes:
        own += [ax.get_title(loc=side) for side in ("left", "center", "right")]
        own += [text.get_text() for text in ax.texts]
    return own


def test_cusum_equals_statsmodels():
    import statsmodels.api as sm

    data = us_macro()
    reference = sm.RecursiveLS(data["cpi"], sm.add_constant(data["m1"])).fit()
    result = cusum(macro_path())
    np.testing.assert_array_equal(result.row, np.arange(2, 203))
    size = np.abs(result.value).max()  # near zero few digits of statsmodels' are left
    np.testing.assert_allclose(result.value, reference.cusum, rtol=0, atol=1e-10 * size)
    _, upper = reference._cusum_significance_bounds(0.05, points=result.row + 1)
    np.testing.assert_allclose(result.bound, upper, rtol=1e-12)


@pytest.mark.full
def test_cusum_rarely_accuses_a_stable_regression_and_finds_a_broken_one():
    accused = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((120, 2))
        y = X @ [1.0, -1.0] + 2.0 + rng.standard_normal(120)
        accused += cusum(olsq.coefficient_path(X, y, fit_intercept=True)).first_crossing is not None
        y[60:] += 4.0
        crossing = cusum(olsq.coefficient_path(X, y, fit_intercept=True)).first_crossing
        assert crossing is not None
    assert accused <= 0.08 * 150


def test_cusum_skips_missing_rows_and_duplicated_regressors():
    rng = np.random.default_rng(1)
    x = rng.standard_normal(60)
    X, y = np.column_stack([x, 2 * x]), x + rng.standard_normal(60)
    y[20:25] = np.nan
    result = cusum(olsq.coefficient_path(X, y))
    assert not set(range(20, 25)) & set(result.row.tolist())
    assert np.isfinite(result.value).all()


def test_cusum_refuses_what_it_cannot_cumulate():
    with pytest.raises(ValueError, match="must have two rows"):
        cusum(olsq.coefficient_path(np.eye(2), [1.0, 2.0]))
    with pytest.raises(ValueError, match="must have one target"):
        cusum(olsq.coefficient_path(np.eye(3), np.ones((3, 2))))


def test_fit_page_names_coefficients_and_the_crossing():
    figure = drawn(plot_fit(macro_path(), names=["m1"], x=us_macro()["time"], title="cpi ~ 1 + m1"))
    words = texts(figure)
    for expected in ("cpi ~ 1 + m1", "intercept", "m1", "5 % lines: crossed at 1993"):
        assert any(expected in word for word in words), expected
    assert any(word.startswith("0.133 ± 0.00") for word in words)


def test_dates_missing_values_and_forgetting():
    data = mauna_loa_co2()
    X = np.column_stack([np.cos(2 * np.pi * data["year"]), data["year"] - 1980])
    path = olsq.coefficient_path(X, data["co2"], fit_intercept=True, half_life=52)
    drawn(plot_path(path, x=data["date"]))
    drawn(plot_residuals(path, x=data["date"]))
    drawn(plot_cusum(cusum(path), x=data["year"]))


def test_undetermined_coefficients_have_a_line_but_no_band():
    X = np.column_stack([np.arange(8.0), 2 * np.arange(8.0)])
    path = olsq.coefficient_path(X, np.arange(8.0))
    assert np.isinf(path.stderr).any()
    figure = drawn(plot_path(path))
    assert all("±" not in word for word in texts(figure))


def test_one_row_and_many_rows():
    drawn(plot_path(olsq.coefficient_path(np.ones((1, 1)), [2.0])))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 1))
    path = olsq.coefficient_path(X, X[:, 0])
    figure = drawn(plot_path(path))
    assert len(figure.axes[0].lines[0].get_xdata()) <= 4000
    assert figure.axes[0].lines[0].get_xdata()[-1] == 20_000


def test_many_coefficients_show_the_best_determined_six():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 9))
    path = olsq.coefficient_path(X, X[:, 8] * 5 + rng.standard_normal(200))
    words = texts(drawn(plot_fit(path, names=[f"x{j}" for j in range(9)])))
    assert "x8" in words
    assert any("6 of 9 coefficients" in word for word in words)


@pytest.mark.parametrize("draw", [plot_path, plot_residuals, plot_fit])
def test_several_targets_are_refused(draw):
    path = olsq.coefficient_path(np.eye(4), np.ones((4, 2)))
    with pytest.raises(ValueError, match="one target"):
        draw(path)


def test_names_and_positions_must_fit():
    with pytest.raises(ValueError, match="one entry for each coefficient, 1, got 2"):
        plot_path(macro_path(), names=["a", "b"])
    with pytest.raises(ValueError, match=r"x must have shape \(203,\)"):
        plot_path(macro_path(), x=np.arange(5))


DAYS = pd.date_range("2024-02-01", periods=40, tz="Europe/Berlin")


@pytest.mark.parametrize(
    ("x", "place"),
    [
        (pd.Series(DAYS), "2024-02-29"),
        ([day.date() for day in DAYS], "2024-02-29"),
        ([day.to_pydatetime().replace(hour=6) for day in DAYS], "2024-02-29 06:00"),
        (pd.period_range("2021-11", periods=40, freq="M"), "2024-03-01"),
        (np.arange(40, dtype=object), "28"),
        (1_234_500 + np.arange(40), "1,234,528"),
        (2000 + np.arange(40) / 8, "2003.5"),
        ([f"$_{i}" for i in range(40)], r"\$_28"),
    ],
)
def test_positions_are_numbers_and_dates_of_every_kind(x, place):
    y = np.where(np.arange(40) < 28, 0, 1e3) + np.arange(40) % 2
    path = olsq.coefficient_path(np.ones((40, 1)), y)
    found = plot_break_test(break_test(np.ones((40, 1)), y), x=x)
    assert f"new coefficients from {place}, p < 0.001" in texts(drawn(found))
    drawn(plot_path(path, x=x))
    drawn(plot_residuals(path, x=x))
    squares = plot_cusum_squares(cusum_squares(path), x=x)
    for figure in (plot_cusum(cusum(path), x=x), plot_fit(path, x=x), squares):
        assert any("crossed at " in text for text in texts(drawn(figure)))


def test_positions_in_any_order_are_all_inside_the_figure():
    path = macro_path()
    x = np.random.default_rng(0).permutation(203)
    assert plot_fit(path, x=x).axes[0].get_xlim() == (0, 202)


@pytest.mark.parametrize("x", [np.arange(40) * np.timedelta64(1, "h"), [1j] * 40, [None] * 40])
def test_other_positions_are_refused(x):
    path = olsq.coefficient_path(np.ones((40, 1)), np.arange(40.0))
    for draw in (
        lambda: plot_path(path, x=x),
        lambda: plot_residuals(path, x=x),
        lambda: plot_fit(path, x=x),
        lambda: plot_cusum(cusum(path), x=x),
        lambda: plot_cusum_squares(cusum_squares(path), x=x),
        lambda: plot_break_test(break_test(np.ones((40, 1)), np.arange(40.0)), x=x),
    ):
        with pytest.raises(ValueError, match="x must contain numbers or dates"):
            draw()


def test_what_cannot_be_drawn_is_named():
    est = olsq.RecursiveLeastSquares().partial_fit(np.eye(3), np.ones(3))
    none = est.partial_fit_path(np.ones((0, 3)), np.ones(0))
    unreal = olsq.coefficient_path(np.eye(3) * 1j, np.ones(3))
    for draw in (plot_path, plot_residuals):
        with pytest.raises(ValueError, match="path must have a row"):
            draw(none)
        with pytest.raises(ValueError, match="must be real"):
            draw(unreal)
    with pytest.raises(ValueError, match="at least 203 rows of the data"):
        plot_cusum(cusum(macro_path()), x=np.arange(202))


def test_dollars_in_names_of_columns_are_no_mathematics():
    frame = pd.DataFrame({"x$_$": [1.0, 2.0, 3.0]})
    figure = olsq.coefficient_path(frame, [1.0, 2.0, 4.0]).plot()
    assert drawn(figure).axes[0].get_title(loc="left") == r"x\$_\$"


@pytest.mark.full
def test_importing_the_module_does_not_import_matplotlib():
    code = "import sys, olsq.plot, olsq.datasets; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("dates", [False, True])
def test_breaks_and_squares_are_drawn(dates):
    from olsq.datasets import nile

    y, X = nile()["volume"], np.ones((100, 1))
    x = nile()["year"].astype(int)
    if dates:
        x = (x - 1970).astype("datetime64[Y]").astype("datetime64[D]")
    found = plot_break_test(break_test(X, y), x=x)
    first = "1899-01-01" if dates else "1899"
    assert f"new coefficients from {first}, p < 0.001" in texts(drawn(found))
    constant = plot_break_test(break_test(X, np.arange(100) % 2), x=x)
    assert any(text.endswith("p = 1.000") for text in texts(drawn(constant)))
    y[50:] = y[50:] * 9
    wild = drawn(plot_cusum_squares(cusum_squares(olsq.coefficient_path(X, y), level=0.01), x=x))
    assert any(text.startswith("1 % lines: crossed at 1") for text in texts(wild))


def test_lines_are_labelled_with_their_level():
    result = cusum(macro_path(), level=0.01)
    assert any(text.startswith("1 % lines") for text in texts(drawn(plot_cusum(result))))


def test_values_are_rounded_to_their_error():
    from olsq.plot.numbers import rounded

    for value, error, shown in (
        (2.99961, 0.00213, "3.000 ± 0.002"),
        (0.13312, 0.0134, "0.133 ± 0.013"),
        (1.0, 0.0995, "1.00 ± 0.10"),
        (1.0, 0.195, "1.0 ± 0.2"),
        (-0.0001, 0.5, "0.0 ± 0.5"),
        (-3340.4, 212.0, "−3300 ± 200"),
        (3.0, 9.6, "3 ± 10"),
        (12345678.0, 10.0, "1.2345678e+07 ± 1.0e+01"),
        (1.04e-9, 3e-10, "1.0e-09 ± 3e-10"),
        (5.0, np.inf, "5"),
        (5.0, 0.0, "5 ± 0"),
    ):
        assert rounded(value, error) == shown


def test_running_quantiles_are_those_of_the_rows_around():
    from olsq.plot.numbers import running_quantiles

    rng = np.random.default_rng(0)
    sample = rng.standard_normal((1000, 8)) * np.linspace(1, 3, 1000)[:, None]
    sample[::7, 3:] = np.nan
    found = running_quantiles(sample)
    normal = np.array([-1.645, -0.674, 0.674, 1.645])
    size = np.linspace(1, 3, 1000)[:, None]
    for part in (slice(300), slice(350, 650), slice(700, 1000)):
        np.testing.assert_allclose((found / size)[part].mean(axis=0), normal, rtol=0.12)
    assert running_quantiles(np.full((900, 2), np.nan)) is None


def test_many_errors_are_bands_and_few_are_bars():
    rng = np.random.default_rng(0)
    for n, kind in ((500, "± running RMS"), (3000, "range, 90 %, 50 %; ± running RMS")):
        X = rng.standard_normal((n, 1))
        path = olsq.coefficient_path(X, X[:, 0] + rng.standard_normal(n))
        (ax,) = drawn(plot_residuals(path)).axes
        assert ax.get_title(loc="right") == kind


def test_panels_share_their_axis_and_dates_are_dates():
    data = mauna_loa_co2()
    X = np.column_stack([np.cos(2 * np.pi * data["year"]), data["year"] - 1980])
    path = olsq.coefficient_path(X, data["co2"], fit_intercept=True)
    figure = drawn(plot_fit(path, x=data["date"]))
    assert len({ax.get_xlim() for ax in figure.axes}) == 1
    edges = [ax.get_position() for ax in figure.axes]
    assert len({round(edge.x0, 6) for edge in edges}) == 2
    labels = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
    assert any(label.isdigit() and 1950 < int(label) < 2020 for label in labels)

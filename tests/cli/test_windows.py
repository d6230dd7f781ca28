"""``olsq fit --window``: by group, and what a number of rows counts."""

import numpy as np
import polars as pl
import pytest

import olsq

WINDOW, N = 12, 420
STOCKS = ["ACME", "BETA", "GAMA", None]


def panel(seed=0):
    """Daily rows of three stocks whose betas move; cells, labels and targets are missing."""
    rng = np.random.default_rng(seed)
    stock = rng.choice(np.array(STOCKS, object), N, p=[0.4, 0.3, 0.27, 0.03])
    market, x = rng.standard_normal((2, N)) * 0.01
    beta = np.array([STOCKS.index(label) for label in stock]) + np.arange(N) / N
    y = beta * market - 0.5 * x + 0.002 * rng.standard_normal(N)
    market[::11], y[5::9], y[200:240] = np.nan, np.nan, np.nan
    days = np.datetime64("2024-01-01") + np.arange(N) // 3
    return pl.DataFrame(
        {"day": days, "stock": list(stock), "market": market, "x": x, "y": y}, nan_to_null=True
    )


def arrays(frame):
    numbers = [frame[name].cast(float).to_numpy() for name in ("market", "x", "y")]
    return np.column_stack(numbers[:2]), numbers[2], np.array(frame["stock"].to_list(), object)


@pytest.fixture
def table(tmp_path):
    frame = panel()
    frame.write_csv(tmp_path / "d.csv")
    frame.write_parquet(tmp_path / "d.parquet")
    return tmp_path, frame


KINDS = {
    "samples": (("--window", WINDOW), {"window": WINDOW}),
    "positions": (
        ("--window", WINDOW, "--window-of", "positions"),
        {"window": WINDOW, "window_of": "positions"},
    ),
    "time": (("--window", "20D"), {"window": "20D"}),
    "fading": (("--window", WINDOW, "--half-life", 9), {"window": WINDOW, "half_life": 9}),
    "fading positions": (
        ("--window", WINDOW, "--forget", 0.95, "--window-of", "positions"),
        {"window": WINDOW, "forget": 0.95, "window_of": "positions"},
    ),
    "fading in time": (
        ("--window", "20D", "--half-life", "8D"), {"window": "20D", "half_life": "8D"},
    ),
    "half-life in time": (
        ("--window", WINDOW, "--half-life", "8D"), {"window": WINDOW, "half_life": "8D"},
    ),
}  # fmt: skip


def command_line(folder, suffix, kind, by, out, *more):
    grouped = ("--by", "stock") if by else ("--exclude", "stock")
    return (
        "fit", folder / f"d{suffix}", "--target", "y", "--time", "day", *grouped, *KINDS[kind][0],
        "--ridge", 0, "--chunk-rows", 50, "--out", out, "--state", f"{out}.state",
        "--columns", "prediction,interval,residual,coef,stderr,sigma", *more,
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_out_is_the_path_of_the_windows(kind, by, suffix, table, olsq_command):
    folder, frame = table
    out = folder / "o.parquet"
    code, text, err = olsq_command(*command_line(folder, suffix, kind, by, out))
    assert (code, err) == (0, "")
    X, y, stock = arrays(frame)
    path = olsq.coefficient_path(
        X, y, ridge=0.0, fit_intercept=True, times=frame["day"].to_numpy(),
        **({"by": stock} if by else {}), **KINDS[kind][1],
    )  # fmt: skip
    found = pl.read_parquet(out)
    for name, wanted in (
        ("residual", path.residual), ("coef_market", path.coef[:, 0]), ("coef_x", path.coef[:, 1]),
        ("intercept", path.intercept),
    ):  # fmt: skip
        values = found[name].cast(float).to_numpy()
        known = np.isfinite(wanted) & np.isfinite(path.sigma2)
        np.testing.assert_allclose(values[known], wanted[known], rtol=1e-6, atol=1e-9)
    order = np.argsort([str(label) for label in stock], kind="stable") if by else np.arange(N)
    before, rows = order[:-1], order[1:]  # each row and the one before it, of its group
    same = (stock[rows] == stock[before]) | (not by)
    before, rows = before[same], rows[same]
    predicted = path.intercept[before] + (path.coef[before] * X[rows]).sum(axis=1)
    known = np.isfinite(predicted) & np.isfinite(path.sigma2[before])
    values = found["prediction"].cast(float).to_numpy()[rows]
    np.testing.assert_allclose(values[known], predicted[known], rtol=1e-6, atol=1e-9)
    assert np.isnan(y[rows][known]).any()  # also where only the target is missing
    assert f"{np.isfinite(path.residual).sum()} rows learned" in text
    if by:
        assert sorted(olsq.load(f"{out}.state")) == STOCKS[:3]
    code, text, err = olsq_command(
        "predict", f"{out}.state", folder / f"d{suffix}", "--level", 0.9, "--time", "day"
    )
    assert (code, err) == (0, "")
    cells = [line.split(",") for line in text.splitlines()[1:]]
    state = olsq.load(f"{out}.state")
    more = {"by": stock} if by else {}
    usable = np.isfinite(X).all(axis=1) & (stock != None if by else True)  # noqa: E711
    more = {name: labels[usable] for name, labels in more.items()}
    predicted = [float(row[-3]) for row, there in zip(cells, usable, strict=True) if there]
    np.testing.assert_allclose(predicted, state.predict(X[usable], **more), rtol=1e-9)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["samples", "positions", "fading", "fading positions"])
def test_intervals_count_the_rows_in_the_window(kind, table, olsq_command):
    """Row by row: the interval of an estimator that has learned the rows before."""
    folder, frame = table
    out = folder / "o.parquet"
    assert olsq_command(*command_line(folder, ".csv", kind, True, out))[0] == 0
    found = pl.read_parquet(out)
    X, y, stock = arrays(frame)
    groups = olsq.GroupedRollingLeastSquares(ridge=0.0, **KINDS[kind][1])
    checked = 0
    # What is known of the coefficients has been forgotten by the row's own factor.
    gate = {"fading": 2 ** (-1 / 9), "fading positions": 0.95}.get(kind, 1.0)
    for t in range(N):
        one = slice(t, t + 1)
        if stock[t] in groups and np.isfinite([*X[t], y[t]]).all():
            lower, upper = groups.predict_interval(X[one], by=stock[one])
            low, high = groups.predict_interval(X[one], kind="mean", by=stock[one])
            if np.isfinite(lower).all():
                middle, reach = (lower + upper) / 2, (upper - lower) / 2
                reach = np.sqrt(reach**2 + (1 / gate - 1) * ((high - low) / 2) ** 2)
                lower, upper = middle - reach, middle + reach
            if np.isfinite(lower).all() and np.isfinite(found["lower"].cast(float)[t] or np.nan):
                assert found["lower"][t] == pytest.approx(lower[0], rel=1e-6)
                assert found["upper"][t] == pytest.approx(upper[0], rel=1e-6)
                checked += 1
        groups.partial_fit(X[one], y[one], by=stock[one])
    assert checked > 150


@pytest.mark.full
@pytest.mark.parametrize(("kind", "by"), [(kind, by) for kind in KINDS for by in (False, True)])
def test_a_run_that_goes_on_ends_with_the_same_bytes(kind, by, table, olsq_command):
    folder, _ = table
    assert olsq_command(*command_line(folder, ".csv", kind, by, folder / "whole.csv"))[0] == 0
    lines = (folder / "d.csv").read_bytes().splitlines(keepends=True)
    for rows in (150, 300, N):  # at the end of a chunk each time
        (folder / "d.csv").write_bytes(b"".join(lines[: rows + 1]))
        more = ["--resume"] if rows > 150 else []
        code, _, err = olsq_command(
            *command_line(folder, ".csv", kind, by, folder / "parts.csv", *more)
        )
        assert (code, err) == (0, "")
    assert (folder / "parts.csv").read_bytes() == (folder / "whole.csv").read_bytes()


@pytest.mark.full
def test_a_window_that_has_run_empty_has_no_coefficients(tmp_path, olsq_command):
    n = 40
    x = np.arange(n) % 5
    y = np.where(np.arange(n) < 30, x + 1.0 + np.arange(n) % 3, np.nan)
    frame = pl.DataFrame({"k": ["a", "b"] * 20, "x": x, "y": y}, nan_to_null=True)
    frame = pl.concat([frame, pl.DataFrame({"k": ["c"] * 5, "x": [0, 1, 2, 3, 4], "y": [1.0] * 5})])
    options = ("--target", "y", "--window", 4, "--window-of", "positions")
    frame[:n].write_csv(tmp_path / "d.csv")
    code, text, err = olsq_command("fit", tmp_path / "d.csv", *options, "--features", "x")
    assert (code, err) == (0, "")
    assert "no row at the end" in text
    for table, empty in ((frame, False), (frame[:n], True)):  # those of some groups, and of all
        table.write_csv(tmp_path / "d.csv")
        code, text, err = olsq_command(
            "fit", tmp_path / "d.csv", *options, "--by", "k", "--plot", tmp_path / "p.png"
        )
        assert (code, err) == (0, "")
        assert "nan" not in text
        assert ("No window holds a row at the end" in text) == empty
        assert "Not determined" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--window-of", "positions"), "--window-of says what a number of rows counts"),
        (("--window", "9D", "--time", "day", "--window-of", "samples"), "--window-of says what"),
        (("--window", 9, "--window-of", "rows"), "--window-of must be samples or positions"),
        (("--window", 9, "--by", "stock", "--method", "sqrt"), "do not apply to --window"),
    ],
)
def test_what_is_refused(options, message, table, olsq_command):
    folder, _ = table
    code, _, err = olsq_command("fit", folder / "d.csv", "--target", "y", *options)
    assert code == 2
    assert message in err


def test_the_state_keeps_what_windows_count(table, olsq_command):
    folder, _ = table
    run = command_line(folder, ".csv", "positions", True, folder / "o.csv")
    assert olsq_command(*run)[0] == 0
    assert olsq.load(folder / "o.csv.state").window_of == "positions"
    other = command_line(folder, ".csv", "samples", True, folder / "o.csv", "--resume")
    code, _, err = olsq_command(*other)
    assert code == 2
    assert "--window-of was positions and is not given" in err


def test_statistics_of_every_row_are_the_paths(table, olsq_command):
    folder, frame = table
    X, y, _ = arrays(frame)
    options = "--features", "market,x", "--window", WINDOW, "--ridge", 0, "--level", 0.9
    out = folder / "out.csv"
    code, _, err = olsq_command(
        "fit", folder / "d.csv", "--target", "y", *options, "--out", out, "--statistics"
    )
    assert code == 0, err
    path = olsq.coefficient_path(X, y, window=WINDOW, fit_intercept=True)
    found = pl.read_csv(out)
    for name in ("r_squared", "adj_r_squared", "n_rows", "in_sample_residual"):
        got = found[name].cast(float).fill_null(np.nan)
        np.testing.assert_allclose(got, getattr(path, name), 1e-9, 1e-12, err_msg=name)
    rows = slice(10, None)
    np.testing.assert_allclose(found["pvalue_x"][rows], path.pvalues[rows, 1], 1e-9)
    np.testing.assert_allclose(found["upper_market"][rows], path.conf_int(0.9)[1][rows, 0], 1e-9)
    assert "coef_x" in found.columns
    code, _, err = olsq_command("fit", folder / "d.csv", "--target", "y", "--statistics")
    assert code != 0
    assert "--out" in err

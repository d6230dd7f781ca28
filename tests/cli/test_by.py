"""``olsq fit --by`` is each group's own regression, and goes on where it stopped."""

import numpy as np
import polars as pl
import pytest

import olsq
from olsq.cli.fit.checkpoint import pack
from olsq.cli.fit.scores import LEARNED, ROWS, TARGETS, Baselines, Known, Scores
from olsq.cli.sources.grouping import GroupedRows

SHOPS = ["north", "south", "a,b", '"west"']
FIT = ("--target", "y", "--by", "shop", "--chunk-rows", 50)


def rows_by_shop(n=330, seed=0):
    """Rows of four shops, one of which comes late; labels, targets and regressors are missing."""
    rng = np.random.default_rng(seed)
    shop = rng.choice(SHOPS[:3], n).astype(object)
    shop[200::3] = SHOPS[3]
    x = rng.standard_normal(n)
    slope = np.array([SHOPS.index(label) for label in shop]) - 1.5
    y = np.zeros(n)
    last = dict.fromkeys(SHOPS, 0.0)
    for t in range(n):
        y[t] = last[shop[t]] = 2 * slope[t] * x[t] + 0.5 * last[shop[t]] + rng.normal() / 9
    shop[::17], y[5::23], x[7::29] = None, np.nan, np.nan
    y[200:208] = np.nan  # the first rows of the late shop: its prediction is not known yet
    return pl.DataFrame({"shop": list(shop), "x": x, "y": y}, nan_to_null=True)


def arrays(frame):
    return *(frame[name].to_numpy().astype(float) for name in "xy"), frame["shop"].to_numpy()


@pytest.fixture
def table(tmp_path):
    frame = rows_by_shop()
    frame.write_csv(tmp_path / "d.csv")
    frame.write_parquet(tmp_path / "d.parquet")
    return tmp_path, frame


def fit(olsq_command, *arguments):
    code, out, err = olsq_command("fit", *arguments)
    assert (code, err) == (0, ""), err
    return out


@pytest.mark.full
def test_out_is_the_path_of_each_group(table, olsq_command):
    folder, frame = table
    x, y, shop = arrays(frame)
    state, out = folder / "s.olsq", folder / "o.csv"
    options = ("--forget", 0.95, "--columns", "prediction,residual,coef,stderr,sigma")
    text = fit(olsq_command, folder / "d.csv", *FIT, *options, "--out", out, "--state", state)
    given = {"forget": 0.95, "cov": "sandwich", "fit_intercept": True}
    path = olsq.coefficient_path(x[:, None], y, by=shop, **given)
    found = pl.read_csv(out)
    assert found["shop"].to_list() == list(shop)
    for name, wanted in (("residual", path.residual), ("coef_x", path.coef[:, 0])):
        values = found[name].cast(pl.Float64).to_numpy()
        begun = np.isfinite(values)
        known = np.isfinite(wanted) & np.isfinite(path.sigma2)
        np.testing.assert_allclose(values[begun], wanted[begun], rtol=1e-9, atol=1e-10)
        assert not (known & ~begun).any()
    sigma = found["sigma"].cast(pl.Float64).to_numpy()
    known = np.isfinite(path.sigma2)
    np.testing.assert_allclose(sigma[known], np.sqrt(path.sigma2[known]), rtol=1e-7)
    prediction = found["prediction"].cast(pl.Float64).to_numpy()
    only_target = np.isnan(y) & np.isfinite(x) & (shop != None)  # noqa: E711
    late = np.flatnonzero((shop == SHOPS[3]) & only_target)[0]
    assert np.isnan(prediction[late])  # nothing is known of that shop yet
    t = np.flatnonzero(only_target & (shop == "north") & (np.arange(len(x)) > 100))[0]
    fitted = path.intercept[t] + path.coef[t, 0] * x[t]
    assert prediction[t] == pytest.approx(fitted, rel=1e-9)
    groups = olsq.load(state)
    assert sorted(groups) == sorted(SHOPS)
    used = np.isfinite(path.residual)
    assert f"{used.sum()} rows learned" in text
    for label in SHOPS:
        last = np.flatnonzero(used & (shop == label))[-1]
        np.testing.assert_allclose(groups[label].coef_, path.coef[last], rtol=1e-9)
        assert f" {label} " in text
    # The table's numbers are the state's.
    row = next(line for line in text.splitlines() if line.startswith(" south"))
    assert int(row.split()[1]) == groups["south"].n_samples_seen_
    assert float(row.split()[-2]) == pytest.approx(groups["south"].coef_[0], abs=0.01)


@pytest.mark.full
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_run_that_goes_on_ends_with_the_same_bytes(suffix, table, olsq_command):
    folder, frame = table
    outs = {name: folder / f"{name}{suffix}" for name in ("whole", "parts")}
    data = folder / "grows.csv"
    common = (*FIT, "--lags", 1, "--half-life", 40)
    fit(olsq_command, folder / "d.csv", *common, "--out", outs["whole"], "--state", folder / "w.s")
    whole = (folder / "d.csv").read_bytes().splitlines(keepends=True)
    for rows in (150, 250, 330):  # at the end of a chunk each time
        data.write_bytes(b"".join(whole[: rows + 1]))
        fit(
            olsq_command, data, *common, "--out", outs["parts"], "--state", folder / "p.s",
            *(["--resume"] if rows > 150 else []),
        )  # fmt: skip
    assert outs["parts"].read_bytes() == outs["whole"].read_bytes()
    one, other = (olsq.load(folder / f"{name}.s") for name in "wp")
    np.testing.assert_array_equal(one.coef_stderr_, other.coef_stderr_)
    notes = [each.metadata_["olsq fit"] for each in (one, other)]
    assert {k: v for k, v in notes[0].items() if k != "input"} == {
        k: v for k, v in notes[1].items() if k != "input"
    }
    assert len(frame) == one.metadata_["olsq fit"]["position"]["rows"]


def lagged(frame, lags):
    """Earlier targets of the same shop, NaN where there are none; by a loop over rows."""
    x, y, shop = arrays(frame)
    past = {label: [np.nan] * lags for label in SHOPS}
    X = np.full((len(x), 1 + lags), np.nan)
    for t, label in enumerate(shop):
        if label is not None:
            X[t] = x[t], *past[label][::-1][:lags]
            past[label].append(y[t])
    return X


def test_lags_are_those_of_the_group_and_predictions_follow_them(table, olsq_command):
    folder, frame = table
    n, X, (_, y, shop) = 280, lagged(frame, 2), arrays(frame)
    frame.head(n).write_csv(folder / "head.csv")
    frame[n:].write_parquet(folder / "tail.parquet")
    state = folder / "s.olsq"
    fit(olsq_command, folder / "head.csv", *FIT, "--lags", 2, "--state", state)
    groups = olsq.GroupedLeastSquares().partial_fit(X[:n], y[:n], by=shop[:n])
    learned = olsq.load(state)
    np.testing.assert_allclose(learned.coef_, groups.coef_, rtol=1e-8)
    y[n:] = np.nan_to_num(y[n:])
    frame[n:].with_columns(pl.Series("y", y[n:])).write_csv(folder / "tail.csv")
    out = folder / "o.csv"
    level = ("--level", 0.9)
    code, _, err = olsq_command("predict", state, folder / "tail.csv", "--out", out, *level)
    assert (code, err) == (0, "")
    found = pl.read_csv(out)
    X = lagged(pl.DataFrame({"shop": list(shop), "x": X[:, 0], "y": y}), 2)[n:]
    wanted = learned.predict(X, by=shop[n:])
    np.testing.assert_allclose(found["prediction"].cast(float).to_numpy(), wanted, rtol=1e-9)
    lower, upper = learned.predict_interval(X, 0.9, by=shop[n:])
    np.testing.assert_allclose(found["lower"].cast(float).to_numpy(), lower, rtol=1e-9)
    np.testing.assert_allclose(found["upper"].cast(float).to_numpy(), upper, rtol=1e-9)
    # Without the targets predictions take their place, each in its own group.
    frame[n:].drop("y").write_csv(folder / "tail.csv")
    assert olsq_command("predict", state, folder / "tail.csv", "--out", out)[0] == 0
    forecast = pl.read_csv(out)["prediction"].cast(float).to_numpy()
    first = np.flatnonzero((shop[n:] == "north") & np.isfinite(X).all(axis=1))[:1]
    np.testing.assert_allclose(forecast[first], wanted[first], rtol=1e-9)


def test_half_lives_in_time_are_those_of_each_group(tmp_path, olsq_command):
    """Irregular days, a night of 300 half-lives, chunks, resumed in the middle."""
    frame = rows_by_shop()
    days = np.cumsum(np.random.default_rng(1).integers(0, 3, len(frame)))
    days[200:] += 9000
    frame = frame.with_columns(day=pl.Series(np.datetime64("1990-01-01") + days))
    frame[:180].write_csv(tmp_path / "first.csv")
    frame.write_csv(tmp_path / "d.csv")
    out, state = tmp_path / "o.parquet", tmp_path / "s.olsq"
    options = ("--time", "day", "--half-life", "30D", "--state", state, "--out", out)
    fit(olsq_command, tmp_path / "first.csv", *FIT, *options)
    fit(olsq_command, tmp_path / "d.csv", *FIT, *options, "--resume")
    x, y, shop = arrays(frame)
    path = olsq.coefficient_path(
        x[:, None], y, by=shop, times=frame["day"].to_numpy(), half_life="30D",
        fit_intercept=True, cov="sandwich",
    )  # fmt: skip
    known = np.isfinite(path.residual) & np.isfinite(path.sigma2)
    for name, wanted in (("coef_x", path.coef[:, 0]), ("residual", path.residual)):
        found = pl.read_parquet(out)[name].to_numpy()
        np.testing.assert_allclose(found[known], wanted[known], rtol=1e-9, atol=1e-10)
    assert olsq.load(state).half_life == "30D"


def test_groups_that_were_never_learned_have_no_prediction(table, olsq_command):
    folder, _ = table
    state = folder / "s.olsq"
    fit(olsq_command, folder / "d.parquet", *FIT, "--state", state)
    (folder / "new.csv").write_text("shop,x\nnorth,1\nmars,1\n,1\n venus ,1\nmars,2\n")
    code, text, err = olsq_command("predict", state, folder / "new.csv")
    assert code == 0
    cells = [line.split(",") for line in text.splitlines()[1:]]
    assert [cell[0] for cell in cells] == ["north", "mars", "", "venus", "mars"]
    assert [bool(cell[2]) for cell in cells] == [True, False, False, False, False]
    assert "3 rows of 2 groups that the state does not know ('mars', 'venus')" in err


def scored(y, error, used, codes, cuts):
    """The scores of two targets, y and -y, learned in chunks."""
    baselines, scores = Baselines(2), [Scores(burn_in=3), Scores(burn_in=3)]
    for rows in np.split(np.arange(len(y)), cuts):
        groups = GroupedRows.of(codes[rows], len(rows))
        both = np.column_stack([y[rows], -y[rows]])
        before, after = baselines.advance(
            np.where(used[rows, None], both, np.nan), used[rows], groups
        )
        learned = before[:, LEARNED]
        for t, count in zip(rows, learned, strict=True):
            of_group = codes[:t] == codes[t]
            assert count == used[:t][of_group].sum() * (codes[t] >= 0)
            assert before[t - rows[0], ROWS] == of_group.sum() * (codes[t] >= 0)
        np.testing.assert_array_equal(after[:, LEARNED], learned + used[rows])
        bases = Known.of(before[:, TARGETS:], learned, used[rows] & (learned >= 3))
        for sign, one, basis in zip((1, -1), scores, bases, strict=True):
            one.update(sign * y[rows], sign * error[rows], used[rows], basis)
        baselines.restore({"baselines": baselines.as_text()})
        scores = [Scores.from_dict(one.as_dict()) for one in scores]
    return scores


def test_errors_are_scored_beside_the_baselines_of_each_group():
    rng = np.random.default_rng(0)
    codes = rng.integers(-1, 5, 400)
    y, error = rng.standard_normal((2, 400)) + codes * 1e3
    used = (rng.random(400) < 0.9) & (codes >= 0)
    together, other = scored(y, error, used, codes, [1, 3, 10, 200])
    sums = dict.fromkeys(("scored", "square", "mean_absolute", "last_square", "mean_square"), 0.0)
    for code in range(5):
        past = y[used & (codes == code)]
        errors = error[used & (codes == code)]
        for t in range(3, len(past)):
            sums["scored"] += 1
            sums["square"] += errors[t] ** 2
            sums["mean_absolute"] += abs(past[t] - past[:t].mean())
            sums["mean_square"] += (past[t] - past[:t].mean()) ** 2
            sums["last_square"] += (past[t] - past[t - 1]) ** 2
    for name, total in sums.items():
        assert getattr(together, name) == pytest.approx(total, rel=1e-12)
        assert getattr(other, name) == pytest.approx(total, rel=1e-12)
    assert (together.rows, together.used) == (400, used.sum())


def test_scores_of_earlier_states_go_on():
    """They kept what is known of the groups with the errors of each target."""
    past = np.array([[3.0, 1.0, 2.5, 0.5], [1.0, 7.0, 7.0, 0.0]])
    baselines = Baselines(2)
    baselines.restore({"scores": [{"past": pack(past)}, {"past": pack(-past * [-1, 1, 1, 1])}]})
    np.testing.assert_array_equal(baselines.past[:, LEARNED], [3, 1])
    np.testing.assert_array_equal(
        baselines.past[:, TARGETS:], np.hstack([past[:, 1:], -past[:, 1:]])
    )
    alone = Baselines(1)
    old = {"used": 2, "first": 1.0, "last": "nan", "shifted_sum": 0.5, "burn_in": 3}
    alone.restore({"scores": [old]})
    np.testing.assert_array_equal(alone.past, [[2, 2, 1, np.nan, 0.5]])
    assert Scores.from_dict(old).used == 2


@pytest.mark.full
def test_many_groups_are_summed_up(tmp_path, olsq_command):
    rng = np.random.default_rng(0)
    shop, x = np.arange(600) % 60, rng.standard_normal(600)
    X = {f"x{j}": rng.standard_normal(600) for j in range(9)}
    pl.DataFrame({"shop": shop, **X, "y": x + shop}).write_parquet(tmp_path / "d.parquet")
    text = fit(
        olsq_command, tmp_path / "d.parquet", *FIT, "--ridge", 0, "--plot", tmp_path / "p.png"
    )
    assert "60 groups" in text
    assert "... and 40 more" in text
    assert "more" in text.splitlines()[5]  # coefficients
    assert "Coefficients over 60 groups" in text
    assert "one of smallest norm" not in text  # ten rows, ten coefficients
    assert (tmp_path / "p.png").stat().st_size > 10_000


@pytest.mark.parametrize("width", [50, 60, 80, 100])
def test_tables_show_numbers_whole_at_any_width(width, tmp_path, olsq_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    rng, n = np.random.default_rng(0), 1200
    shop = np.arange(n) % 60
    X = {name: rng.standard_normal(n) for name in ("a", "temperature_of_the_north_sea_buoy")}
    y = sum(X.values()) * 10.0 ** rng.integers(-6, 7, 60)[shop] + rng.standard_normal(n)
    pl.DataFrame({"shop": shop, **X, "y": y}).write_parquet(tmp_path / "d.parquet")
    text = fit(olsq_command, tmp_path / "d.parquet", *FIT)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    quantiles = text.split("Coefficients over 60 groups")[1].split("One-step")[0].splitlines()
    head, first = (next(line.split() for line in quantiles if line.startswith(f" {name}"))
                   for name in ("coefficient", "intercept"))  # fmt: skip
    numbers = [float(cell) for cell in first[1:]]
    assert numbers == sorted(numbers)
    few, some = "least 50 % most", "least 25 % 50 % 75 % most"
    every = "least 5 % 25 % 50 % 75 % 95 % most"
    assert " ".join(head[1:]) == {50: few, 60: few, 80: some, 100: every}[width]
    assert len(numbers) == len([name for name in head[1:] if name != "%"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--ridge-mode", "fixed"), "--by and --ridge-mode fixed cannot be combined"),
        (("--features", "shop,x"), "column 'shop' is used twice"),
        (("--missing", "raise"), "row 1 has no value in column 'shop'"),
        (("--by", "shp"), "no column 'shp' in the data; did you mean 'shop'?"),
    ],
)
def test_what_is_refused(options, message, table, olsq_command):
    folder, _ = table
    code, _, err = olsq_command("fit", folder / "d.csv", *FIT, *options)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_times_go_up_within_a_group(tmp_path, olsq_command):
    days = ["2024-01-02", "2024-01-05", "2024-01-01", "2024-01-03", "2024-01-04"]
    lines = ["day,shop,x,y", *(f"{d},{s},{i},{i * i}" for i, (d, s) in enumerate(
        zip(days, "aabbb", strict=True)))]  # fmt: skip
    data, out = tmp_path / "d.csv", tmp_path / "o.csv"
    data.write_text("\n".join(lines) + "\n")
    options = ("--target", "y", "--by", "shop", "--time", "day", "--chunk-rows", 2)
    fit(olsq_command, data, *options, "--out", out, "--state", tmp_path / "s.olsq")
    assert pl.read_csv(out).columns[:3] == ["day", "shop", "row"]
    data.write_text("\n".join([*lines, "2024-01-03,b,1,2"]) + "\n")
    code, _, err = olsq_command(
        "fit", data, *options, "--out", out, "--state", tmp_path / "s.olsq", "--resume"
    )
    assert code == 2
    assert "row 6" in err
    assert "is earlier than the one above it of its group (2024-01-04)" in err

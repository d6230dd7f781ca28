"""``olsq fit --horizon``: forecasts that know only the targets of their time."""

import numpy as np
import polars as pl
import pytest

import olsq

N = 240
HOURS = np.cumsum(np.random.default_rng(9).integers(0, 3, N))
COMMON = ("--target", "y,z", "--features", "a,b", "--time", "t", "--weight", "w")
COLUMNS = "prediction,interval,residual,coef"
MODELS = {
    "all": ((), {}),
    "forgetting": (("--half-life", 20), {"half_life": 20}),
    "window": (("--window", 25), {"window": 25}),
}


@pytest.fixture(scope="module")
def frame():
    """Two targets with gaps, uneven hours, weights and three groups, one row without a label."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 2))
    Y = X @ [[1.0, 0.5], [2.0, -1.0]] + [100, 0] + rng.standard_normal((N, 2))
    X[60, 1], Y[0], Y[30, 0], Y[100:103] = np.nan, np.nan, np.nan, np.nan
    group = rng.choice(np.array(["u", "v", "w"], object), N)
    group[50] = None
    times = np.datetime64("2026-01-01T00:00:00", "us") + HOURS * np.timedelta64(1, "h")
    columns = {"t": times, "a": X[:, 0], "b": X[:, 1], "y": Y[:, 0], "z": Y[:, 1]}
    columns |= {"g": list(group), "w": rng.random(N) + 0.5, "n": np.arange(N)}
    return pl.DataFrame(columns, nan_to_null=True)


@pytest.fixture
def folder(frame, tmp_path):
    frame.write_csv(tmp_path / "d.csv", datetime_format="%Y-%m-%d %H:%M")
    return tmp_path


def command(folder, name, horizon, by, *more):
    return (
        "fit", folder / "d.csv", *COMMON, "--horizon", horizon, *(("--by", "g") if by else ()),
        "--chunk-rows", 60, "--columns", COLUMNS, "--level", 0.9, "--out", folder / f"{name}.csv",
        "--state", folder / f"{name}.olsq", *more,
    )  # fmt: skip


def arrays(frame):
    """Regressors, targets (NaN in incomplete rows), weights and labels."""
    X, Y = frame[["a", "b"]].to_numpy().astype(float), frame[["y", "z"]].to_numpy().astype(float)
    group = np.array(frame["g"].to_list(), object)
    complete = np.isfinite(X).all(axis=1) & np.isfinite(Y).all(axis=1)
    return X, np.where(complete[:, None], Y, np.nan), frame["w"].to_numpy(), group


def forecasts_by_hand(frame, horizon, by, parameters):
    """Predictions (n, 2), each by an estimator that has learned the rows known by then."""
    X, Y, weight, group = arrays(frame)
    found = np.full(Y.shape, np.nan)
    for key in "uvw" if by else [None]:
        rows = np.flatnonzero(group == key) if by else np.arange(N)
        for place, row in enumerate(rows):
            known = rows[: max(place - horizon + 1, 0)] if isinstance(horizon, int) else None
            if known is None:
                known = rows[HOURS[rows] <= HOURS[row] - int(horizon[:-1])]
            if not np.isfinite(Y[known, 0]).any():
                found[row] = 0.0 if np.isfinite(Y[row, 0]) else np.nan
                continue
            kind = olsq.RollingLeastSquares if parameters.get("window") else None
            est = (kind or olsq.RecursiveLeastSquares)(**parameters)
            est.fit(X[known], Y[known], weight[known])
            found[row] = est.coef_ @ X[row] + est.intercept_
    return found


@pytest.mark.full
@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("horizon", [5, "4h"])
@pytest.mark.parametrize("model", MODELS)
def test_forecasts_know_only_the_targets_of_their_time(
    model, horizon, by, frame, folder, olsq_command
):
    options, parameters = MODELS[model]
    code, text, err = olsq_command(*command(folder, "o", horizon, by, *options))
    assert (code, err) == (0, "")
    ahead = horizon if isinstance(horizon, str) else f"{horizon}-row"
    assert f"{ahead}-ahead errors of z over" in text
    found = pl.read_csv(folder / "o.csv")
    X, Y, weight, group = arrays(frame)
    wanted = forecasts_by_hand(frame, horizon, by, parameters)
    complete = np.isfinite(Y[:, 0]) & ((group != None) | (not by))  # noqa: E711
    for j, name in enumerate("yz"):
        got, lower, upper = (
            found[f"{what}_{name}"].to_numpy().astype(float)
            for what in ("prediction", "lower", "upper")
        )
        np.testing.assert_allclose(got, wanted[:, j], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(
            found[f"residual_{name}"].to_numpy().astype(float)[complete],
            (Y - wanted)[complete, j],
            rtol=1e-6,
            atol=1e-9,
        )
        if horizon != 5:
            continue
        path = olsq.coefficient_path(
            X,
            Y[:, j],
            sample_weight=weight,
            fit_intercept=True,
            horizon=horizon,
            by=list(group) if by else None,
            **parameters,
        )
        scores = olsq.score_forecasts(path, Y[:, j], level=0.9, burn_in=3 * horizon)
        assert f"over {scores.n_scored} rows" in text
        assert f"{scores.rmse:.4g}" in text
        for bound, expected in ((lower, scores.lower), (upper, scores.upper)):
            # Empty where an interval is infinite, below one degree of freedom.
            finite = np.where(np.isfinite(expected), expected, np.nan)
            np.testing.assert_allclose(bound[complete], finite[complete], rtol=1e-7)


def test_baselines_know_no_more_than_the_forecasts(frame, folder, olsq_command):
    code, text, _ = olsq_command(*command(folder, "o", 5, False))
    assert code == 0
    _, Y, _, _ = arrays(frame)
    y, known = Y[:, 1], np.isfinite(Y[:, 1])
    last, mean = np.full(N, np.nan), np.full(N, np.nan)
    scored = np.zeros(N, bool)
    for t in np.flatnonzero(known):
        before = y[: max(t - 4, 0)][known[: max(t - 4, 0)]]
        if before.size:
            last[t], mean[t], scored[t] = before[-1], before.mean(), before.size >= 15
    table = text.split("errors of z")[1]
    for name, baseline in (("last value", last), ("mean so far", mean)):
        errors = (y - baseline)[scored]
        line = next(line for line in table.splitlines() if line.strip().startswith(name))
        assert f"{np.abs(errors).mean():.4g}" in line
        assert f"{np.sqrt((errors**2).mean()):.4g}" in line


@pytest.mark.full
@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("horizon", [5, "4h", 100])
def test_a_run_that_goes_on_ends_with_the_same_bytes(horizon, by, folder, olsq_command):
    assert olsq_command(*command(folder, "whole", horizon, by))[0] == 0
    lines = (folder / "d.csv").read_bytes().splitlines(keepends=True)
    for rows in (60, 180, N):  # at the end of a chunk each time
        (folder / "d.csv").write_bytes(b"".join(lines[: rows + 1]))
        more = ["--resume"] if rows > 60 else []
        code, _, err = olsq_command(*command(folder, "parts", horizon, by, *more))
        assert (code, err) == (0, "")
    assert (folder / "parts.csv").read_bytes() == (folder / "whole.csv").read_bytes()
    code, _, err = olsq_command(*command(folder, "parts", 6, by, "--resume"))
    assert code == 2
    assert f"--horizon was {horizon} and is 6" in err


def test_states_that_count_no_rows_of_groups_are_refused(folder, olsq_command):
    """Those of a version between 0.2 and 0.3: the overlap of errors would be wrong."""
    state = folder / "h.olsq"
    run = ("fit", folder / "d.csv", *COMMON, "--horizon", 5, "--state", state)
    assert olsq_command(*run)[0] == 0
    estimator = olsq.load(state)
    notes = estimator.metadata_["olsq fit"]
    del notes["baselines"]
    estimator.save(state, metadata={"olsq fit": notes})
    code, _, err = olsq_command(*run, "--resume")
    assert code == 2
    assert "was written by another version of olsq fit: start again" in err


@pytest.mark.parametrize("by", [False, True])
@pytest.mark.parametrize("options", [
    {"window": 40, "min_samples": 30}, {"min_samples": 30}, {"window": 3, "window_of": "positions"},
], ids=str)  # fmt: skip
def test_forecasts_without_an_estimate_spoil_no_score(options, by, frame, folder, olsq_command):
    """They are those of a path: none below min_samples, and 0 where a window is empty."""
    more = [part for name, v in options.items() for part in ("--" + name.replace("_", "-"), v)]
    code, text, err = olsq_command(*command(folder, "o", 3, by, *more))
    assert (code, err) == (0, "")
    assert "nan" not in text
    table = pl.read_csv(folder / "o.csv")
    X, Y, weight, group = arrays(frame)
    given = {"sample_weight": weight, "fit_intercept": True, "horizon": 3, **options}
    path = olsq.coefficient_path(X, Y, by=group if by else None, **given)
    found = table[["residual_y", "residual_z"]].to_numpy()
    np.testing.assert_allclose(found, path.residual, atol=1e-8)
    assert table["lower_y"].tail(60).is_not_null().any()


def test_scores_do_not_need_an_output(folder, olsq_command):
    texts = []
    for more in ((), ("--out", folder / "o.csv")):
        code, text, err = olsq_command("fit", folder / "d.csv", *COMMON, "--horizon", 5, *more)
        assert (code, err) == (0, "")
        texts.append(text.split("every row")[0])
    assert texts[0] == texts[1]


def test_a_horizon_beyond_the_rows_has_no_errors_and_says_so(folder, olsq_command):
    code, text, _ = olsq_command("fit", folder / "d.csv", *COMMON, "--horizon", 100_000)
    assert code == 0
    assert "No 100,000-row-ahead errors: no forecast rests on enough rows" in text


def test_the_next_row_is_no_horizon(folder, olsq_command):
    outs = [folder / "plain.csv", folder / "one.csv"]
    for out, more in zip(outs, ((), ("--horizon", 1)), strict=True):
        assert olsq_command("fit", folder / "d.csv", *COMMON, "--out", out, *more)[0] == 0
    assert outs[0].read_bytes() == outs[1].read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--horizon", 0), "--horizon must be at least 1 row, got 0"),
        (("--horizon", "2.5"), "--horizon must be a whole number of rows, or a span of time"),
        (("--horizon", "1M", "--time", "t"), "--horizon='1M': months"),
        (("--horizon", "4h"), "--horizon 4h is a span of time: give --time"),
        (("--horizon", "4h", "--time", "n"), "--horizon 4h is a span between dates, but column"),
        (("--horizon", 3, "--lags", 1), "--lags are the targets of the rows just before"),
    ],
)
def test_what_is_refused(options, message, folder, olsq_command):
    code, _, err = olsq_command(
        "fit", folder / "d.csv", "--target", "y", "--features", "b", *options
    )
    assert code == 2
    assert message in " ".join(err.split())

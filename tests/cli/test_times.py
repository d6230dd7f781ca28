"""Times that would be misread are refused: short years, gaps before forecasts, set-back clocks."""

import datetime
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest

from .test_cells import refused

DAY, HOUR = datetime.timedelta(days=1), datetime.timedelta(hours=1)


def write(path, times, seed=0, by=None):
    """Write a table t, x, y (and g) whose y follows its past, as text; return the path."""
    rng = np.random.default_rng(seed)
    x, noise = rng.standard_normal((2, len(times)))
    y = np.zeros(len(times))
    for i in range(len(times)):
        y[i] = 0.6 * y[i - 1] * (i > 0) + x[i] + 0.1 * noise[i]
    labels = [""] * len(times) if by is None else [f",{label}" for label in by]
    rows = [f"{t},{a:.5f},{b:.5f}{g}" for t, a, b, g in zip(times, x, y, labels, strict=True)]
    path.write_text("\n".join(["t,x,y" + ",g" * (by is not None), *rows]) + "\n")
    return path


def dates(start, n, step=DAY):
    return [datetime.datetime.fromisoformat(start) + step * i for i in range(n)]


# -- years of two digits ---------------------------------------------------------------------------

SHORT = [
    ("%y-%m-%d", 60), ("%d.%m.%y", 60), ("%y/%m/%d", 60), ("%d/%m/%y", 60), ("%m/%d/%y", 60),
    ("%-m/%-d/%y", 60), ("%-d.%-m.%y", 9), ("%y-%m", 9), ("%-m/%-d/%y %H:%M", 60),
    ("%y-%m-%dT%H:%M:%S", 60), ("%d.%m.%y %H:%M", 20),
]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("written", "n"), SHORT)
@pytest.mark.parametrize("start", ["2024-01-01", "1999-12-20"])
def test_years_of_two_digits_need_a_format(written, n, start, tmp_path, olsq_command):
    step = 31 * DAY if "%d" not in written.replace("-d", "d") else DAY
    times = dates(start, n, step)
    data = write(tmp_path / "d.csv", [time.strftime(written) for time in times])
    options = ("--target", "y", "--time", "t")
    refused(olsq_command("fit", data, *options), "--time", "'t'", "--time-format", "%y")
    full = written.replace("-", "").replace("%y", "%Y") if "%-" in written else None
    full = full or written.replace("%y", "%Y")
    result = olsq_command("fit", data, *options, "--time-format", full)
    refused(result, "row 1 of ", "which is not a time written as")
    out = tmp_path / "o.csv"
    if "%-" in written or step > DAY:
        return
    code, _, err = olsq_command("fit", data, *options, "--time-format", written, "--out", out)
    assert (code, err) == (0, "")
    assert pl.read_csv(out)["t"][0][:10] == start


def test_a_later_short_year_is_refused(tmp_path, olsq_command):
    """Also as the first row of its group, which none is before."""
    times = [f"{time:%d.%m.%Y}" for time in dates("2024-01-01", 40)]
    times[30] = times[30][:6] + "24"
    data = write(tmp_path / "d.csv", times, by=["b" if i == 30 else "a" for i in range(40)])
    options = ("--target", "y", "--time", "t", "--by", "g", "--chunk-rows", 8)
    refused(olsq_command("fit", data, *options), "row 31 of ", "'31.01.24'")


def test_early_years_of_four_digits_are_years(tmp_path, olsq_command):
    times = [f"{24 + i:04d}-01-31" for i in range(30)]
    out = tmp_path / "o.csv"
    data = write(tmp_path / "d.csv", times)
    assert olsq_command("fit", data, "--target", "y", "--time", "t", "--out", out)[0] == 0
    assert pl.read_csv(out)["t"].to_list() == times


# -- forecasts with lags follow the rows that were learned -----------------------------------------

STEPS = {
    "days": ("2024-01-01", DAY, "%Y-%m-%d", "1 day"),
    "hours": ("2024-01-01T05:00", HOUR, "%Y-%m-%d %H:%M", "1 hour"),
    "quarters of hours": ("2024-01-01", HOUR / 4, "%Y-%m-%dT%H:%M:%S", "15 minutes"),
    "weeks": ("2024-01-01", 7 * DAY, "%d.%m.%Y", "7 days"),
}


@pytest.fixture(params=STEPS)
def learned(request, tmp_path, olsq_command):
    """A state of 64 rows with lags, what a time is written like, and what comes after the last."""
    start, step, written, said = STEPS[request.param]
    times = dates(start, 80, step)
    data = write(tmp_path / "d.csv", [time.strftime(written) for time in times[:64]])
    state = tmp_path / "s.olsq"
    options = ("--target", "y", "--time", "t", "--lags", 2, "--state", state)
    assert olsq_command("fit", data, *options)[0] == 0

    def predict(*steps):
        places = [times[63] + step * k for k in steps]
        new = write(tmp_path / "n.csv", [time.strftime(written) for time in places], seed=1)
        return olsq_command("predict", state, new, "--time", "t")

    return predict, said


@pytest.mark.full
def test_forecasts_begin_with_the_next_step(learned):
    predict, said = learned
    code, text, err = predict(1, 2, 3)
    assert (code, err) == (0, "")
    assert len(text.splitlines()) == 4
    for step in (0, -1, -63, -400):
        refused(predict(step), "row 1 of ", "is not later than the last row that was learned")
    for steps, row, missing in (
        ((2,), 1, "1 row between them is missing"),
        ((5, 6), 1, "4 rows between them are missing"),
        ((303,), 1, "302 rows between them are missing"),
        ((1, 2, 4), 3, "1 row between them is missing"),
        ((1, 2, 3, 20), 4, "16 rows between them are missing"),
    ):
        refused(predict(*steps), f"row {row} of ", missing, f"in steps of {said}")
    refused(predict(1, 2, 1), "row 3 of ", "is earlier than the one above it")


def test_missing_rows_are_forecast_over_where_they_are_added(tmp_path, olsq_command):
    times = [f"{time:%Y-%m-%d}" for time in dates("2024-01-01", 70)]
    data, state = write(tmp_path / "d.csv", times[:64]), tmp_path / "s.olsq"
    options = ("--target", "y", "--time", "t", "--lags", 1, "--exclude", "x", "--state", state)
    assert olsq_command("fit", data, *options)[0] == 0
    (tmp_path / "n.csv").write_text("t,y\n" + "".join(f"{time},\n" for time in times[64:]))
    code, text, _ = olsq_command("predict", state, tmp_path / "n.csv", "--time", "t")
    assert code == 0
    found = [float(line.split(",")[-1]) for line in text.splitlines()[1:]]
    (tmp_path / "n.csv").write_text(f"t,y\n{times[69]},\n")
    refused(olsq_command("predict", state, tmp_path / "n.csv", "--time", "t"), "5 rows between")
    code, text, _ = olsq_command("predict", state, tmp_path / "n.csv")
    assert (code, float(text.splitlines()[1].split(",")[1])) == (0, found[0])


def test_gaps_that_were_learned_are_no_gaps(tmp_path, olsq_command):
    """Trading days: Monday follows Friday.  Months have 28 to 31 days."""
    days = [time for time in dates("2024-01-01", 120) if time.weekday() < 5]
    months = [datetime.date(2015 + i // 12, 1 + i % 12, 1) for i in range(99)]
    for times, cut, bad in (
        (days, 65, 72),  # 1 April is a Monday
        (months, 62, 64),
    ):
        texts = [f"{time:%Y-%m-%d}" for time in times]
        data, state = write(tmp_path / "d.csv", texts[:cut]), tmp_path / f"{cut}.olsq"
        options = ("--target", "y", "--time", "t", "--lags", 1, "--state", state)
        assert olsq_command("fit", data, *options)[0] == 0
        new = write(tmp_path / "n.csv", texts[cut : cut + 9])
        assert olsq_command("predict", state, new, "--time", "t")[0] == 0
        new = write(tmp_path / "n.csv", texts[bad : bad + 2])
        refused(olsq_command("predict", state, new, "--time", "t"), "row 1 of ", "missing")


def test_one_hole_does_not_allow_another(tmp_path, olsq_command):
    times = [time for i, time in enumerate(dates("2024-01-01", 400, HOUR)) if not 100 <= i < 130]
    texts = [f"{time:%Y-%m-%d %H:%M}" for time in times]
    data, state = write(tmp_path / "d.csv", texts[:350]), tmp_path / "s.olsq"
    options = ("--target", "y", "--time", "t", "--lags", 24, "--state", state)
    assert olsq_command("fit", data, *options)[0] == 0
    new = write(tmp_path / "n.csv", texts[355:])
    refused(olsq_command("predict", state, new, "--time", "t"), "5 rows between them are missing")


@pytest.mark.parametrize("numbers", [False, True])
def test_forecasts_of_groups_follow_their_own_rows(numbers, tmp_path, olsq_command):
    """Group a ends five steps before b; a new group begins anywhere."""
    times = list(range(40)) if numbers else [f"{t:%Y-%m-%d}" for t in dates("2024-01-01", 40)]
    learned = [(time, g) for i, time in enumerate(times[:30]) for g in "ab" if i < 25 or g == "b"]
    data = write(tmp_path / "d.csv", [t for t, _ in learned], by=[g for _, g in learned])
    state = tmp_path / "s.olsq"
    options = ("--target", "y", "--time", "t", "--by", "g", "--lags", 1, "--state", state)
    assert olsq_command("fit", data, *options)[0] == 0
    for rows, message in (
        ([(25, "a"), (30, "b"), (26, "a"), (2, "c"), (31, "b")], None),
        ([(30, "b"), (30, "a")], "row 2 of "),
        ([(25, "a"), (29, "b")], "row 2 of "),
        ([(25, "a"), (31, "b")], "1 row between them is missing"),
    ):
        new = write(tmp_path / "n.csv", [times[i] for i, _ in rows], by=[g for _, g in rows])
        result = olsq_command("predict", state, new, "--time", "t")
        if message is None:
            assert result[0] == 0
        else:
            refused(result, message)


def test_forecasts_without_lags_are_of_any_time(tmp_path, olsq_command):
    data = write(tmp_path / "d.csv", [f"{t:%Y-%m-%d}" for t in dates("2024-01-01", 40)])
    state = tmp_path / "s.olsq"
    assert olsq_command("fit", data, "--target", "y", "--time", "t", "--state", state)[0] == 0
    new = write(tmp_path / "n.csv", ["2023-01-01", "2029-01-01"])
    assert olsq_command("predict", state, new, "--time", "t")[0] == 0


# -- clocks that are set back ----------------------------------------------------------------------

# The moment (UTC) at which clocks are set back.
SET_BACK = {
    "Europe/Berlin": "2024-10-27T01:00",
    "Europe/London": "2023-10-29T01:00",
    "Europe/Helsinki": "2021-10-31T01:00",
    "America/New_York": "2024-11-03T06:00",
    "America/Los_Angeles": "2024-11-03T09:00",
    "America/Santiago": "2023-04-02T03:00",
    "Australia/Sydney": "2024-04-06T16:00",
    "Pacific/Auckland": "2024-04-06T14:00",
}


def clock_times(zone, moments, written="%Y-%m-%d %H:%M"):
    """What clocks of the zone show at moments (UTC)."""
    return [
        moment.replace(tzinfo=datetime.UTC).astimezone(ZoneInfo(zone)).strftime(written)
        for moment in moments
    ]


@pytest.mark.full
@pytest.mark.parametrize(
    ("zone", "minutes", "end"),
    [
        *((zone, 60, "csv") for zone in SET_BACK),
        *(("Europe/Berlin", minutes, "csv") for minutes in (30, 7)),
        ("America/New_York", 15, "csv"),
        ("Europe/Berlin", 60, "parquet"),
    ],
)
def test_clocks_that_are_set_back_need_their_zone(zone, minutes, end, tmp_path, olsq_command):
    step = datetime.timedelta(minutes=minutes)
    moments = dates(SET_BACK[zone], 120, step)
    moments = [moment - 57 * step for moment in moments]
    local = write(tmp_path / "local.csv", clock_times(zone, moments))
    utc = write(tmp_path / "utc.csv", [f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in moments])
    if end == "parquet":
        frame = pl.read_csv(local).with_columns(pl.col("t").str.to_datetime("%Y-%m-%d %H:%M"))
        local = local.with_suffix(".parquet")
        frame.write_parquet(local)
    outs = [tmp_path / "1.csv", tmp_path / "2.csv"]
    options = ("--target", "y", "--time", "t", "--half-life", "90min", "--chunk-rows", 9)
    refused(olsq_command("fit", local, *options), "--time: row ", "--time-zone")
    for data, out, more in zip((local, utc), outs, [("--time-zone", zone), ()], strict=True):
        code, _, err = olsq_command("fit", data, *options, *more, "--out", out)
        assert (code, err) == (0, "")
    found, right = (pl.read_csv(out) for out in outs)
    assert found.drop("t").equals(right.drop("t"))
    moment = pl.col("t").str.to_datetime("%Y-%m-%d %H:%M:%S%z", time_unit="us")
    assert found.select(moment.dt.replace_time_zone(None))["t"].to_list() == moments
    assert found["t"].str.slice(0, 16).to_list() == clock_times(zone, moments)


@pytest.mark.full
@pytest.mark.parametrize("by", [False, True])
def test_a_table_may_begin_in_the_second_hour(by, tmp_path, olsq_command):
    """02:00 twice, once at the end of a table and once at the beginning of the next."""
    moments = dates("2024-10-25T00:00", 49, HOUR)
    moments += [moments[-1] + HOUR * i for i in range(1, 30)]
    cut = moments.index(datetime.datetime.fromisoformat("2024-10-27T01:00"))
    texts = [text for text in clock_times("Europe/Berlin", moments) for _ in range(1 + by)]
    labels = ["ab"[i % 2] for i in range(len(texts))] if by else None
    cut *= 1 + by
    first = write(tmp_path / "1.csv", texts[:cut], by=labels and labels[:cut])
    second = write(tmp_path / "2.csv", texts[cut:], seed=1, by=labels and labels[cut:])
    options = ("--target", "y", "--time", "t", "--half-life", "9h", *(("--by", "g") * by))
    for state, more in ((tmp_path / "s", ()), (tmp_path / "z", ("--time-zone", "Europe/Berlin"))):
        assert olsq_command("fit", first, *options, "--state", state, *more)[0] == 0
        result = olsq_command("fit", second, "--continue", "--state", state)
        if more:
            assert result[0] == 0
        else:
            refused(result, "row 1 of ", "--time-zone")


def test_several_rows_at_one_time_are_no_clock_change(tmp_path, olsq_command):
    """Two sensors a moment, in UTC: their hours come twice on every day."""
    texts = [f"{t:%Y-%m-%d %H:%M}" for t in dates("2024-10-26", 72, HOUR) for _ in range(2)]
    data = write(tmp_path / "d.csv", texts)
    assert olsq_command("fit", data, "--target", "y", "--time", "t")[0] == 0
    single = [text for i, text in enumerate(texts) if i % 2 == 0 or i == 61]
    data = write(tmp_path / "d.csv", single)  # one hour twice, which clocks show once
    assert olsq_command("fit", data, "--target", "y", "--time", "t")[0] == 0
    single = [text for i, text in enumerate(texts) if i % 2 == 0 or "10-27 02" in text]
    data = write(tmp_path / "d.csv", single)
    options = ("--target", "y", "--time", "t")
    refused(olsq_command("fit", data, *options), "--time-zone UTC if no clock was")
    assert olsq_command("fit", data, *options, "--time-zone", "UTC")[0] == 0


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (["2024-03-31 01:00", "2024-03-31 02:30"], ("Europe/Berlin",), "the clocks of Europe/Ber"),
        (["2024-03-30", "2024-03-31"], ("Europe/Berlin",), "holds dates without a time of day"),
        (["1", "2"], ("UTC",), "holds numbers: leave --time-zone out"),
        (["2024-03-31 01:00"] * 2, ("Europe/Berln",), "--time-zone 'Europe/Berln' is not known"),
    ],
)
def test_zones_that_do_not_fit(texts, options, message, tmp_path, olsq_command):
    data = write(tmp_path / "d.csv", texts)
    common = ("fit", data, "--target", "y", "--time-zone", *options)
    refused(olsq_command(*common, "--time", "t"), message)
    refused(olsq_command(*common, "--exclude", "t"), "--time-zone needs --time")


def test_a_run_in_a_zone_resumes_to_the_same_bytes(tmp_path, olsq_command):
    moments = dates("2024-10-26T12:00", 200, HOUR / 4)
    texts = clock_times("Europe/Berlin", moments)
    options = ("--target", "y", "--time", "t", "--lags", 1, "--half-life", "9h", "--chunk-rows", 5)
    options += ("--time-zone", "Europe/Berlin", "--state")
    data, whole, state = write(tmp_path / "d.csv", texts), tmp_path / "w", tmp_path / "s"
    assert olsq_command("fit", data, *options, whole)[0] == 0
    rows = data.read_text().splitlines(keepends=True)
    data.write_text("".join(rows[:51]))  # in the middle of the hour that comes twice
    assert olsq_command("fit", data, *options, state)[0] == 0
    data.write_text("".join(rows))
    assert olsq_command("fit", data, *options, state, "--resume")[0] == 0
    predicted = []
    new = clock_times("Europe/Berlin", [moments[-1] + HOUR / 4])
    for path in (whole, state):
        table = write(tmp_path / "n.csv", new)
        code, text, _ = olsq_command("predict", path, table, "--time", "t")
        assert code == 0
        predicted.append(text)
    assert predicted[0].splitlines()[1][:25] == "2024-10-28 15:00:00+01:00"
    assert predicted[0][:40] == predicted[1][:40]


@pytest.mark.full
@pytest.mark.parametrize("by", [None, "ab"], ids=["one", "groups"])
def test_a_new_table_begins_after_the_last_time_learned(by, tmp_path, olsq_command):
    """Also where it overlaps in one row, equal or corrected; not where rows often have one time."""
    times = [f"{time:%Y-%m-%d}" for time in dates("2024-01-01", 40)]
    labels = None if by is None else [by[i % 2] for i in range(40)]
    more = () if by is None else ("--by", "g")

    def table(name, rows, seed=0):
        chosen = None if labels is None else [labels[i] for i in rows]
        return write(tmp_path / name, [times[i] for i in rows], by=chosen, seed=seed)

    options = ("--target", "y", "--time", "t", *more)
    learned = tmp_path / "learned.olsq"
    assert olsq_command("fit", table("d.csv", range(30)), *options, "--state", learned)[0] == 0
    state = tmp_path / "s.olsq"
    for rows, seed in (([29, 30, 31], 0), ([29, 31], 1), ([29], 2)):
        state.write_bytes(learned.read_bytes())
        new = table("n.csv", rows, seed)
        where = " of its group" if by else ""
        refused(
            olsq_command("fit", new, "--continue", "--state", state),
            "row 1 of ",
            f"has the time of the last row that was learned{where} (2024-01-30)",
        )
        assert state.read_bytes() == learned.read_bytes()
    new = table("n.csv", [30, 31, 32])
    assert olsq_command("fit", new, "--continue", "--state", state)[0] == 0
    if by is None:  # ticks: some rows have the time of the one before
        times[:] = [f"2024-01-{1 + i // 3:02d}" for i in range(40)]
        state.unlink()
        assert olsq_command("fit", table("d.csv", range(29)), *options, "--state", state)[0] == 0
        new = table("n.csv", [29, 30, 31], 1)
        assert olsq_command("fit", new, "--continue", "--state", state)[0] == 0


def test_forecasts_whose_times_are_not_checked_say_so(tmp_path, olsq_command):
    times = [f"{time:%Y-%m-%d}" for time in dates("2024-01-01", 40)]
    data, state = write(tmp_path / "d.csv", times[:30]), tmp_path / "s.olsq"
    options = ("--target", "y", "--time", "t", "--lags", 1, "--state", state)
    assert olsq_command("fit", data, *options)[0] == 0
    new = write(tmp_path / "n.csv", times[35:37])
    code, _, err = olsq_command("predict", state, new)
    assert code == 0
    assert "whatever column 't' holds: give --time t to have it checked" in err
    new = write(tmp_path / "n.csv", times[30:32])
    assert olsq_command("predict", state, new, "--time", "t")[2] == ""


# -- what cannot be read is named, and what was read is written as it was --------------------------


@pytest.mark.parametrize(
    ("wrong", "rest", "pattern"),
    [
        ("2024-02-30", "%Y-%m-%d", "%Y-%m-%d"),
        ("31.04.2024", "%d.%m.%Y", "%d.%m.%Y"),
        ("2024-01-20 24:00", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M"),
        ("2024-01-20", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S"),
        ("20.01.2024", "%m/%d/%Y", "%m/%d/%Y"),
    ],
)
def test_a_cell_that_is_no_date_is_named(wrong, rest, pattern, tmp_path, olsq_command):
    """Not the first one of the column, which is a date."""
    texts = [f"{time:{rest}}" for time in dates("2024-01-01", 40)]
    texts[19] = wrong
    data = write(tmp_path / "d.csv", texts)
    result = olsq_command("fit", data, "--target", "y", "--time", "t")
    refused(result, "row 20 of ", repr(wrong), f"not a time written as {pattern}")


@pytest.mark.parametrize("end", ["csv", "parquet"])
@pytest.mark.parametrize("offset", ["Z", "+02:00", "-0530"])
def test_times_with_a_zone_keep_one(offset, end, tmp_path, olsq_command):
    """As UTC: rows of --out and of the table at the same time are found again."""
    texts = [f"{time:%Y-%m-%dT%H:%M:%S}{offset}" for time in dates("2024-01-01", 30)]
    data, out = write(tmp_path / "d.csv", texts), tmp_path / f"o.{end}"
    parse = pl.col("t").str.to_datetime("%Y-%m-%dT%H:%M:%S%#z")
    moments = pl.read_csv(data).select(parse)["t"]
    if end == "parquet":
        data = tmp_path / "d.parquet"
        frame = pl.read_csv(data.with_suffix(".csv")).with_columns(parse)
        frame.with_columns(pl.col("t").dt.convert_time_zone("Asia/Tokyo")).write_parquet(data)
    options = ("--target", "y", "--time", "t", "--half-life", "5D")
    code, _, err = olsq_command("fit", data, *options, "--out", out)
    assert (code, err) == (0, "")
    if end == "parquet":
        assert pl.read_parquet(out)["t"].to_list() == moments.to_list()
    else:
        found = pl.read_csv(out)["t"]
        assert found.str.ends_with("+00:00").all()
        assert found.str.to_datetime("%Y-%m-%d %H:%M:%S%:z").to_list() == moments.to_list()


def test_times_in_messages_differ_where_they_do(tmp_path, olsq_command):
    data = write(tmp_path / "d.csv", [*range(1_000_000, 1_000_030), 1_000_010.5])
    result = olsq_command("fit", data, "--target", "y", "--time", "t")
    refused(result, "row 31 of ", "(1000010.5) is earlier than the one above it (1000029)")


def test_a_time_zone_has_a_name(tmp_path, olsq_command):
    data = write(tmp_path / "d.csv", [f"{t:%Y-%m-%d %H:%M}" for t in dates("2024-01-01", 9)])
    refused(olsq_command("fit", data, "--target", "y", "--time", "t", "--time-zone", ""), "known")

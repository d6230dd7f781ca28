"""``olsq fit --continue`` learns a new table as the rows that follow those of the state."""

import io
import re
import shlex
import signal
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import olsq
from olsq.cli.sources.csv import CsvSource

DOCS = Path(__file__).parents[2] / "docs"
N, CUT = 500, 330
KINDS = {
    "plain": ("--exclude", "day,shop,weight"),
    "lags, levels, dates, weights": (
        "--categorical", "shop", "--lags", 2, "--time", "day", "--half-life", "40D",
        "--weight", "weight",
    ),
    "groups": ("--by", "shop", "--lags", 1, "--features", "x", "--forget", 0.97),
    "window": ("--features", "x", "--window", 30, "--no-intercept"),
    "windows by group": ("--by", "shop", "--features", "x", "--window", "60D", "--time", "day"),
    "positions": ("--features", "x", "--window", 30, "--window-of", "positions"),
    "horizon": ("--features", "x", "--horizon", 7, "--half-life", 40),
    "horizons by group": ("--by", "shop", "--features", "x", "--horizon", "9D", "--time", "day"),
}  # fmt: skip


def rows(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(N)
    y = np.linspace(1, 3, N) * x + 0.3 * rng.standard_normal(N)
    y[::13], x[5::17] = np.nan, np.nan
    return pl.DataFrame(
        {
            "day": np.datetime64("2024-01-01") + np.arange(N) // 2,
            "shop": rng.choice(["north", "south", "west"], N), "x": x,
            "weight": rng.random(N) + 0.5, "y": y,
        },
        nan_to_null=True,
    )  # fmt: skip


def write(frame, path):
    (frame.write_csv if path.suffix == ".csv" else frame.write_parquet)(path)


@pytest.fixture
def tables(tmp_path):
    frame = rows()
    write(frame, tmp_path / "whole.csv")
    write(frame[:CUT], tmp_path / "first.csv")
    # Another kind of file, whose columns have another order.
    write(frame[CUT:].select(frame.columns[::-1]), tmp_path / "second.parquet")
    return tmp_path, frame


def same_states(one, other):
    for name in ("coef_", "n_samples_seen_", "coef_stderr_", "sigma2_"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9)
    first, second = (each.metadata_["olsq fit"]["scores"][0] for each in (one, other))
    for name in ("rows", "used", "scored"):
        assert first[name] == second[name]
    assert first["square"] == pytest.approx(second["square"], rel=1e-9)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_two_tables_are_one_run(kind, tables, olsq_command):
    folder, _ = tables
    what = "prediction,interval,residual,coef,stderr,sigma"
    common = ("--target", "y", *KINDS[kind])
    for data, out in (("whole", "whole"), ("first", "parts")):
        code, _, err = olsq_command(
            "fit", folder / f"{data}.csv", *common, "--out", folder / f"{out}.out.parquet",
            "--columns", what, "--state", folder / f"{out}.olsq",
        )  # fmt: skip
        assert (code, err) == (0, "")
    # Nothing is said about the regression, or what was said before.
    second = (
        "fit", folder / "second.parquet", "--continue", "--state", folder / "parts.olsq",
        "--out", folder / "second.out.parquet", "--columns", what, *common * (kind == "groups"),
    )  # fmt: skip
    code, text, err = olsq_command(*second)
    assert (code, err) == (0, "")
    assert "rows learned" in text
    same_states(*(olsq.load(folder / f"{name}.olsq") for name in ("whole", "parts")))
    whole, found = (pl.read_parquet(folder / f"{n}.out.parquet") for n in ("whole", "second"))
    assert found["row"].to_list() == list(range(1, N - CUT + 1))
    for name in whole.columns:
        if whole[name].dtype == pl.Float64:
            expected, values = whole[name][CUT:].to_numpy(), found[name].to_numpy()
            np.testing.assert_allclose(values, expected, rtol=1e-8, atol=1e-12)


def test_a_stop_in_the_new_table_is_resumed(tables, olsq_command, monkeypatch):
    folder, frame = tables
    write(frame[CUT:], folder / "second.csv")
    options = ("--target", "y", *KINDS["groups"], "--chunk-rows", 40)
    for name in ("one", "two"):
        state = folder / f"{name}.olsq"
        assert olsq_command("fit", folder / "first.csv", *options, "--state", state)[0] == 0
    go_on = ("fit", folder / "second.csv", "--checkpoint-every", 0)
    outs = [folder / "one.csv", folder / "two.csv"]
    code, _, _ = olsq_command(
        *go_on, "--continue", "--state", folder / "one.olsq", "--out", outs[0]
    )
    assert code == 0
    # The second run meets half of the table.
    whole = (folder / "second.csv").read_bytes()
    lines = whole.splitlines(keepends=True)
    (folder / "second.csv").write_bytes(b"".join(lines[:81]))
    more = ("--state", folder / "two.olsq", "--out", outs[1])
    assert olsq_command(*go_on, "--continue", *more)[0] == 0
    (folder / "second.csv").write_bytes(whole)
    code, _, err = olsq_command(*go_on, "--continue", *more)
    assert code == 2
    assert "begins with the 80 rows" in err
    assert "--resume" in err
    code, _, err = olsq_command(*go_on, "--resume", *more)
    assert (code, err) == (0, "")
    same_states(*(olsq.load(folder / f"{name}.olsq") for name in ("one", "two")))
    assert outs[0].read_bytes() == outs[1].read_bytes()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--half-life", "30D"), "--half-life of the state is '40D', got '30D'"),
        (("--target", "x"), "--target of the state is ('y',), got ('x',)"),
        (("--resume",), "give one of them"),
        (("--state", "none.olsq"), "there is no state none.olsq"),
    ],
)
def test_what_is_refused(change, message, tables, olsq_command):
    folder, _ = tables
    state = folder / "s.olsq"
    common = ("--target", "y", *KINDS["lags, levels, dates, weights"], "--state", state)
    assert olsq_command("fit", folder / "first.csv", *common)[0] == 0
    before = state.read_bytes()
    go_on = ("fit", folder / "second.parquet", "--continue", "--state", state)
    code, _, err = olsq_command(*go_on, *change)
    assert code == 2
    assert message in err
    assert state.read_bytes() == before


@pytest.mark.full
@pytest.mark.parametrize(
    ("saved", "default"),
    [
        (("--missing", "raise"), ("--missing", "skip")),
        (("--ridge-mode", "fixed"), ("--ridge-mode", "discounted")),
        (("--method", "sqrt"), ("--method", "auto")),
        (("--lags", 2), ("--lags", 0)),
        (("--forget", 0.9), ("--forget", 1)),
        (("--ridge", 0.5), ("--ridge", 0)),
    ],
)
def test_a_default_that_is_given_is_given(saved, default, tables, olsq_command):
    folder, frame = tables
    state = folder / "s.olsq"
    for name, part in (("first", frame[:CUT]), ("second", frame[CUT:])):
        write(part.drop_nulls(), folder / f"{name}.csv")
    common = ("--features", "x", "--state", state)
    assert olsq_command("fit", folder / "first.csv", "--target", "y", *common, *saved)[0] == 0
    before = state.read_bytes()
    for go_on in (("second.csv", "--continue"), ("first.csv", "--resume")):
        more = (*go_on[1:], "--state", state, *default)
        code, _, err = olsq_command("fit", folder / go_on[0], *more)
        assert code == 2
        assert f"cannot continue: {saved[0]} of the state is" in err
        assert state.read_bytes() == before
    again = ("--continue", "--state", state, *saved)
    assert olsq_command("fit", folder / "second.csv", *again)[0] == 0


@pytest.mark.parametrize(
    ("saved", "said"),
    [((), ("--forget", 1)), (("--forget", 1), ()), (("--window", 9), ("--window-of", "samples"))],
)
def test_another_word_for_what_the_state_has(saved, said, tables, olsq_command):
    folder, frame = tables
    state = folder / "s.olsq"
    for name, part in (("first", frame[:CUT]), ("second", frame[CUT:])):
        write(part.drop_nulls(), folder / f"{name}.csv")
    common = ("--target", "y", "--features", "x", "--state", state)
    assert olsq_command("fit", folder / "first.csv", *common, *saved)[0] == 0
    go_on = ("--continue", "--state", state, *said)
    assert olsq_command("fit", folder / "second.csv", *go_on)[0] == 0


def test_the_new_table_may_be_written_with_the_default(tables, olsq_command):
    """A state of decimal commas goes on with a table of decimal points."""
    folder, frame = tables
    state, whole = folder / "s.olsq", folder / "whole.olsq"
    text = frame.select(pl.col("x", "y").round(3).cast(pl.String))
    text.select(pl.all().str.replace(".", ",", literal=True))[:CUT].write_csv(
        folder / "first.csv", separator=";"
    )
    text[CUT:].write_csv(folder / "second.csv", separator=";")
    text.write_csv(folder / "all.csv", separator=";")
    separator = ("--target", "y", "--separator", ";", "--state")
    assert olsq_command("fit", folder / "all.csv", *separator, whole)[0] == 0
    assert olsq_command("fit", folder / "first.csv", *separator, state, "--decimal", ",")[0] == 0
    go_on = ("--continue", "--state", state, "--decimal", ".")
    assert olsq_command("fit", folder / "second.csv", *go_on)[0] == 0
    same_states(olsq.load(whole), olsq.load(state))


def test_tables_that_do_not_follow_are_refused(tables, olsq_command):
    folder, frame = tables
    state = folder / "s.olsq"
    common = ("--target", "y", *KINDS["lags, levels, dates, weights"], "--state", state)
    assert olsq_command("fit", folder / "first.csv", *common)[0] == 0
    before = state.read_bytes()
    new = folder / "new.csv"
    for table, message in (
        (frame[:CUT], "begins with the 330 rows"),
        (frame[100:200], "is earlier than the one above it"),
        (frame[CUT:].with_columns(day=pl.int_range(pl.len())), "holds numbers, and that of"),
        (frame[CUT:].with_columns(shop=pl.lit("east")), "column 'shop'"),
        (frame[CUT:CUT], "no rows"),
        (frame[CUT:].drop("x"), "no column 'x'"),
    ):
        write(table, new)
        code, _, err = olsq_command("fit", new, "--continue", "--state", state)
        assert code == 2, message
        assert message in err
        assert state.read_bytes() == before
    code, _, err = olsq_command("fit", new, "--continue")
    assert code == 2
    assert "--continue needs --state" in err


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["csv", "parquet", "stdin"])
def test_a_table_that_begins_with_rows_learned_last_is_refused(
    kind, end, tables, olsq_command, monkeypatch
):
    folder, frame = tables
    state = folder / "s.olsq"
    common = ("--target", "y", *KINDS[kind], "--state", state)
    assert olsq_command("fit", folder / "first.csv", *common)[0] == 0
    before = state.read_bytes()
    timed = "--time" in KINDS[kind]
    for overlap in (4, 20, 50, CUT - 1, CUT):
        table = frame[CUT - overlap :]
        new = folder / f"new.{'csv' if end == 'stdin' else end}"
        write(table, new)
        if end == "stdin":
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(new.read_bytes())))
        for more in ((), ("--chunk-rows", 3))[: 1 + (end != "stdin")]:
            data = "-" if end == "stdin" else new
            code, _, err = olsq_command("fit", data, "--continue", "--state", state, *more)
            assert code == 2
            whole = f"begins with the {CUT} rows"
            late = "is earlier than the one above it"
            assert f"the first {overlap} rows" in err or whole in err or (timed and late in err)
            assert state.read_bytes() == before
    write(frame[CUT:], folder / "new.csv")
    assert olsq_command("fit", folder / "new.csv", "--continue", "--state", state)[0] == 0


def test_a_stream_in_small_chunks_saves_nothing_before_it_is_known_to_be_new(
    tables, olsq_command, monkeypatch
):
    folder, frame = tables
    state = folder / "s.olsq"
    common = ("--target", "y", "--features", "x", "--state", state)
    assert olsq_command("fit", folder / "first.csv", *common)[0] == 0
    before = state.read_bytes()
    more = ("--chunk-rows", 3, "--checkpoint-every", 0)
    text = frame[CUT - 50 :].write_csv()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    code, _, err = olsq_command("fit", "-", "--continue", "--state", state, *more)
    assert code == 2
    assert "the first 50 rows of standard input are the last that" in err
    assert state.read_bytes() == before


@pytest.mark.full
@pytest.mark.parametrize(
    "column",
    [
        lambda rng, n: np.ones(n),  # a sensor that stands still
        lambda rng, n: np.arange(n) % 24,  # days without noise
        lambda rng, n: rng.integers(0, 2, n),
    ],
)
def test_rows_that_are_equal_by_chance_are_learned(column, tmp_path, olsq_command):
    rng = np.random.default_rng(0)
    n = 480
    frame = pl.DataFrame({"x": column(rng, n), "y": np.arange(n) % 24 // 12})
    state = tmp_path / "s.olsq"
    write(frame[:240], tmp_path / "1.csv")
    assert olsq_command("fit", tmp_path / "1.csv", "--target", "y", "--state", state)[0] == 0
    for begin in range(241, 265):
        write(frame[begin:], tmp_path / "2.csv")
        kept = state.read_bytes()
        code, _, err = olsq_command("fit", tmp_path / "2.csv", "--continue", "--state", state)
        assert (code, err) == (0, "")
        state.write_bytes(kept)


@pytest.mark.parametrize("page", ["many-machines.md", "cli.md"])
def test_the_commands_of_the_pages_run(page, tmp_path, olsq_command, monkeypatch):
    """Those of the block with ``--continue``, in order, on tables of the files' names."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```", (DOCS / page).read_text(), re.S | re.M)
    (block,) = (block for block in blocks if "--continue" in block)
    frame = rows().select("x", "weight", "y")
    learned = 0
    for number, line in enumerate(block.splitlines()):
        words = shlex.split(line, comments=True)
        assert words[:2] == ["olsq", "fit"]
        data = Path(words[2])
        if not data.exists():
            part = frame[: N // 2] if number == 0 else frame[N // 2 :]
            write(part, data)
            learned += len(part)
        code, _, err = olsq_command(*words[1:])
        assert (code, err) == (0, ""), line
        state = Path(words[words.index("--state") + 1])
        assert olsq.load(state).metadata_["olsq fit"]["scores"][0]["rows"] == learned
    assert learned == N


@pytest.mark.full
@pytest.mark.parametrize("end", ["csv", "parquet"])
@pytest.mark.parametrize("zoned", [False, True])
def test_times_do_not_lose_or_gain_a_zone(zoned, end, tmp_path, olsq_command):
    frame = rows().with_columns(pl.col("day").cast(pl.Datetime("us")))
    with_zone = frame.with_columns(pl.col("day").dt.replace_time_zone("Europe/Berlin"))
    first, second = (with_zone, frame) if zoned else (frame, with_zone)
    if end == "csv":  # as 2024-01-01T00:00:00+0100
        first, second = (
            f.with_columns(pl.col("day").dt.strftime(f"%Y-%m-%dT%H:%M:%S{'%z' * (f is with_zone)}"))
            for f in (first, second)
        )
    write(first[:CUT], tmp_path / f"first.{end}")
    write(second[CUT:], tmp_path / f"second.{end}")
    write(first[CUT:], tmp_path / f"right.{end}")
    state = tmp_path / "state.olsq"
    options = ("--features", "x", "--time", "day", "--half-life", "40D", "--state", state)
    assert olsq_command("fit", tmp_path / f"first.{end}", "--target", "y", *options)[0] == 0
    before = state.read_bytes()
    go_on = ("--continue", "--state", state)
    code, _, err = olsq_command("fit", tmp_path / f"second.{end}", *go_on)
    assert code == 2
    assert "time zone, and those of the rows before" in " ".join(err.split())
    assert state.read_bytes() == before
    assert olsq_command("fit", tmp_path / f"right.{end}", *go_on)[0] == 0


@pytest.mark.parametrize("part", ["table", "design", "columns", "options", "position", "scores"])
@pytest.mark.parametrize("damage", [{}, [], None, 3])
def test_notes_that_are_damaged_are_refused(part, damage, tables, olsq_command):
    """An edited state is no traceback, whatever it holds, and stays as it is."""
    folder, _ = tables
    state, options = folder / "s.olsq", ("--target", "y", "--by", "shop", "--features", "x")
    assert olsq_command("fit", folder / "first.csv", *options, "--state", state)[0] == 0
    estimator = olsq.load(state)
    notes = estimator.metadata_["olsq fit"] | {part: damage}
    estimator.save(state, metadata={"olsq fit": notes})
    before = state.read_bytes()
    for command in (
        ("predict", state, folder / "second.parquet"),
        ("fit", folder / "second.parquet", "--continue", "--state", state),
        ("fit", folder / "first.csv", "--resume", "--state", state, *options),
    ):
        code, _, err = olsq_command(*command)
        assert code in (0, 2)
        if code:
            assert err.startswith("olsq: ")
            assert err.count("\n") == 1
            assert state.read_bytes() == before
        else:
            state.write_bytes(before)


def test_rows_that_a_stop_left_are_said(tables, olsq_command, monkeypatch):
    folder, _ = tables
    state = folder / "s.olsq"
    options = ("--target", "y", "--features", "x", "--chunk-rows", 50, "--state", state)
    chunks = CsvSource.chunks

    def interrupted(source):
        for number, chunk in enumerate(chunks(source)):
            if number == 2:
                signal.raise_signal(signal.SIGINT)
            yield chunk

    with monkeypatch.context() as patch:
        patch.setattr(CsvSource, "chunks", interrupted)
        assert olsq_command("fit", folder / "first.csv", *options)[0] == 130
    kept = state.read_bytes()
    code, _, err = olsq_command("fit", folder / "second.parquet", "--continue", "--state", state)
    assert code == 0
    assert "the run before stopped after row 100 of its table" in err
    state.write_bytes(kept)
    assert olsq_command("fit", folder / "first.csv", *options, "--resume")[2] == ""
    code, _, err = olsq_command("fit", folder / "second.parquet", "--continue", "--state", state)
    assert (code, err) == (0, "")

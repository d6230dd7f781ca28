"""Levels and labels of groups are values, whatever their spelling and the kind of file."""

import numpy as np
import polars as pl
import pytest

import olsq

NUMBERS, TRUTHS = [1, 2, 3], [False, True]
# The same values as other tools and types write them.
SPELLINGS = {
    "1": ["1", "1.0", "1.", "1e0", " 1 ", "10E-1"],
    "-2.5": ["-2.5", "-2.50", "-25e-1"],
    "0.5": [".5", "0.5"],
    "true": ["true", "True", "TRUE"],
    "9007199254740993": ["9007199254740993", "9007199254740993.0"],
}
DISTINCT = ["1", "01", "007", "7", "1_0", "10", "9007199254740993", "9007199254740992", "true", "t"]


def rows(n=240, seed=0):
    rng = np.random.default_rng(seed)
    level, truth, x = rng.choice(NUMBERS, n), rng.random(n) < 0.5, rng.standard_normal(n)
    y = 10.0 * level + 5.0 * truth + x
    return pl.DataFrame({"level": level, "truth": truth, "x": x, "y": y})


# Columns of new rows with the levels 1, 2, 3 and true, false, as other types write them.
NEW = {
    "integers": ([1, 2, 3], [True, False, True]),
    "floating, as beside a missing value": ([1.0, 2.0, 3.0], [True, False, True]),
    "text": (["1", "2.0", "3"], ["True", "FALSE", "true"]),
}


@pytest.mark.full
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("kind", NEW)
@pytest.mark.parametrize("how", ["categorical", "by"])
def test_new_rows_find_the_levels_that_were_learned(kind, how, suffix, tmp_path, olsq_command):
    levels, truths = NEW[kind]
    frame, new = rows(), pl.DataFrame({"level": levels, "truth": truths, "x": [0.0] * 3})
    wanted = [15.0, 20.0, 35.0]
    if how == "by":
        frame, wanted = frame.with_columns(y=10.0 * pl.col("level") + pl.col("x")), [10, 20, 30]
        options = ("--by", "level", "--features", "x")
    else:
        options = ("--categorical", "level,truth")
    frame.write_csv(tmp_path / "d.csv")
    for file in (tmp_path / "n.csv", tmp_path / "n.parquet"):
        (new.write_csv if file.suffix == ".csv" else new.write_parquet)(file)
    state, out = tmp_path / "s.olsq", tmp_path / "o.csv"
    code, _, err = olsq_command(
        "fit", tmp_path / "d.csv", "--target", "y", "--ridge", 0, *options, "--state", state
    )
    assert (code, err) == (0, "")
    code, _, err = olsq_command("predict", state, tmp_path / f"n{suffix}", "--out", out)
    assert (code, err) == (0, "")
    np.testing.assert_allclose(pl.read_csv(out)["prediction"].to_numpy(), wanted, rtol=1e-9)


@pytest.mark.full
@pytest.mark.parametrize("how", ["categorical", "by"])
@pytest.mark.parametrize("value", SPELLINGS)
def test_spellings_of_a_value_are_one_level(value, how, tmp_path, olsq_command):
    spelled = [SPELLINGS[value][i % len(SPELLINGS[value])] for i in range(60)]
    x = np.arange(60.0) % 7
    frame = pl.DataFrame({"k": [*spelled, *["b"] * 60], "x": [*x, *x], "y": [*(x + 3), *x]})
    frame.write_csv(tmp_path / "d.csv", quote_style="non_numeric")
    state = tmp_path / "s.olsq"
    options = ("--chunk-rows", 10, "--features", "x,k" if how == "categorical" else "x")
    code, text, err = olsq_command(
        "fit", tmp_path / "d.csv", "--target", "y", f"--{how}", "k", *options, "--state", state
    )
    assert (code, err) == (0, ""), err
    table = olsq.load(state).metadata_["olsq fit"]["table"]
    if how == "by":
        assert len(table["groups"]["labels"]) == 2
        assert "2 groups" in text
    else:
        assert len(table["categories"]["levels"]["k"]) == 1  # b comes later: it is "other"


def test_codes_and_large_integers_stay_apart(tmp_path, olsq_command):
    frame = pl.DataFrame({"k": DISTINCT * 6, "x": np.arange(60.0) % 7, "y": np.arange(60.0)})
    frame.write_csv(tmp_path / "d.csv")
    text = olsq_command("fit", tmp_path / "d.csv", "--target", "y", "--by", "k")[1]
    assert f"{len(DISTINCT)} groups" in text


def test_decimal_commas_are_numbers_in_labels(tmp_path, olsq_command):
    (tmp_path / "d.csv").write_text("k;x;y\n" + "1,5;1;2\n1,50;2;3\n2;1,5;7\n2,0;3;9\n" * 9)
    state = tmp_path / "s.olsq"
    options = ("--target", "y", "--decimal", ",", "--categorical", "k=1,5|2|*")
    assert olsq_command("fit", tmp_path / "d.csv", *options, "--state", state)[0] == 0
    pl.DataFrame({"k": [1.5, 2.0], "x": [1.0, 1.5]}).write_parquet(tmp_path / "n.parquet")
    (tmp_path / "n.csv").write_text("k;x\n1,5;1\n2,00;1,5\n")
    for new in (("n.parquet",), ("n.csv", "--decimal", ",")):
        text = olsq_command("predict", state, tmp_path / new[0], *new[1:])[1]
        predictions = [float(line.split(",")[1]) for line in text.splitlines()[1:]]
        np.testing.assert_allclose(predictions, [2, 7], atol=0.2)


@pytest.mark.full
@pytest.mark.parametrize("how", ["categorical", "by"])
@pytest.mark.parametrize("rows", [1, 16_384])  # of a chunk
def test_a_point_beside_a_decimal_comma_is_no_comma(how, rows, tmp_path, olsq_command):
    """1.5 is a number in one spelling of a label and a text in the other."""
    lines = [f"{'ab'[i % 2]};{i % 5};{i % 7}" for i in range(30)]

    def run(*labels):
        path = tmp_path / "d.csv"
        path.write_text("\n".join(["k;x;y", *lines, *(f"{label};1;2" for label in labels)]))
        named = {"categorical": "k=a|b|*", "by": "k"}[how]
        options = ("--target", "y", f"--{how}", named, "--chunk-rows", rows)
        return olsq_command("fit", path, *options, "--decimal", ",")

    for labels in (("1,5", "1.5"), ("1.50", "x", "1,5"), ("1,299", "1.299")):
        code, _, err = run(*labels)
        assert code == 2
        assert "column 'k' holds the labels 1," in err
        assert "which --decimal , cannot tell apart" in err
    for labels in (("1,5", "1,50"), ("1.5", "1.6"), ("1,5", "1.6"), ("1.5.2024", "1,5")):
        code, _, err = run(*labels)
        assert (code, err) == (0, "")


@pytest.mark.parametrize("how", ["categorical", "by"])
@pytest.mark.parametrize("out", [True, False])
def test_a_table_without_one_known_level_is_refused(how, out, tmp_path, olsq_command):
    rows().write_csv(tmp_path / "d.csv")
    state = tmp_path / "s.olsq"
    options = ("--categorical", "level") if how == "categorical" else ("--by", "level")
    olsq_command(
        "fit", tmp_path / "d.csv", "--target", "y", "--exclude", "truth", *options,
        "--state", state,
    )  # fmt: skip
    new = pl.DataFrame({"level": ["one", None, "two"] * 5, "x": [0.0] * 15})
    new.write_csv(tmp_path / "n.csv")
    files = ("--out", tmp_path / "o.csv") if out else ()
    code, text, err = olsq_command("predict", state, tmp_path / "n.csv", *files)
    assert code == 2
    assert "'level'" in err
    assert "'one'" in err
    assert "not one" in err
    assert "--categorical" not in err  # which `olsq predict` does not take
    assert not (tmp_path / "o.csv").exists()
    assert "row" not in text.splitlines()[1:]
    assert len(text.splitlines()) <= 1  # nothing but the header
    # With one row of a known level, and with no label at all, there is a result.
    pl.concat([new, pl.DataFrame({"level": ["2"], "x": [0.0]})]).write_csv(tmp_path / "n.csv")
    assert olsq_command("predict", state, tmp_path / "n.csv", *files)[0] == 0
    new.with_columns(level=pl.lit(None)).write_csv(tmp_path / "n.csv")
    assert olsq_command("predict", state, tmp_path / "n.csv", *files)[0] == 0


def test_a_fit_without_one_of_the_listed_levels_is_refused(tmp_path, olsq_command):
    rows().write_csv(tmp_path / "d.csv")
    state = tmp_path / "s.olsq"
    code, _, err = olsq_command(
        "fit", tmp_path / "d.csv", "--target", "y", "--exclude", "truth", "--categorical",
        "level=one|two|*", "--state", state, "--checkpoint-every", 0, "--chunk-rows", 20,
    )  # fmt: skip
    assert code == 2
    assert "column 'level'" in err
    assert err.strip().endswith("or list them with --categorical")
    assert not state.exists()


COUNTRIES = ["NA", "None", "null", "DE", None]


def countries(folder):
    x = np.arange(100.0) % 7
    frame = pl.DataFrame({"c": COUNTRIES * 20, "x": x, "y": x + np.arange(100) % 5})
    frame.write_csv(folder / "d.csv")
    frame.write_parquet(folder / "d.parquet")


@pytest.mark.full
@pytest.mark.parametrize("how", ["categorical", "by"])
@pytest.mark.parametrize(
    ("suffix", "words", "levels"),
    [
        (".csv", None, ["DE"]),
        (".csv", "", ["DE", "NA", "None", "null"]),
        (".csv", "null,DE", ["NA", "None"]),
        (".parquet", None, ["DE", "NA", "None", "null"]),
        (".parquet", "NA", ["DE", "None", "null"]),
    ],
)
def test_words_are_missing_values_in_csv_only(suffix, words, levels, how, tmp_path, olsq_command):
    countries(tmp_path)
    state = tmp_path / "s.olsq"
    options = () if words is None else ("--missing-words", words)
    code, _, err = olsq_command(
        "fit", tmp_path / f"d{suffix}", "--target", "y", "--features",
        "x,c" if how == "categorical" else "x", f"--{how}", "c", *options, "--state", state,
    )  # fmt: skip
    assert (code, err) == (0, "")
    table = olsq.load(state).metadata_["olsq fit"]["table"]
    found = table["groups"]["labels"] if how == "by" else table["categories"]["levels"]["c"]
    assert sorted(found) == levels
    assert olsq.load(state).metadata_["olsq fit"]["scores"][0]["used"] == 20 * len(levels)


def test_missing_words_of_numbers_and_of_listed_levels(tmp_path, olsq_command):
    countries(tmp_path)
    fit = ("fit", tmp_path / "d.csv", "--target", "y")
    code, _, err = olsq_command(*fit, "--categorical", "c=NA|DE|*")
    assert code == 2
    assert "'NA' is a level of 'c' and a word for a missing value" in err
    assert olsq_command(*fit, "--categorical", "c=NA|DE|*", "--missing-words", "")[0] == 0
    (tmp_path / "d.csv").write_text("x,y\n1,2\nNA,3\n3,1\n4,9\n")
    assert "1 skipped" in olsq_command(*fit)[1]
    code, _, err = olsq_command(*fit, "--missing-words", "-")
    assert code == 2
    assert "holds 'NA'" in err
    assert "differ" in olsq_command(*fit, "--categorical", "x=1|1.0")[2]


@pytest.mark.parametrize("levels", [["a", "*", "b"], ["*", "b", "c"], ["a|b", "c=d", "*"]])
@pytest.mark.parametrize("intercept", [True, False])
def test_levels_may_be_spelled_like_options(levels, intercept, tmp_path, olsq_command):
    """An asterisk in the data is a level: in a list it stands for all others."""
    n = 60
    x, number = np.arange(n) % 7.0, np.arange(n) % 3
    frame = pl.DataFrame({"k": [levels[i] for i in number], "x": x, "y": x + 10.0 * number})
    data, state, out = (tmp_path / name for name in ("d.csv", "s.olsq", "o.csv"))
    frame.write_csv(data)
    options = ("--target", "y", "--categorical", "k", *["--no-intercept"] * (not intercept))
    assert olsq_command("fit", data, *options, "--state", state)[0] == 0
    assert olsq_command("predict", state, data, "--out", out)[0] == 0
    np.testing.assert_allclose(pl.read_csv(out)["prediction"].to_numpy(), frame["y"], atol=1e-8)


def test_a_level_called_other_is_listed(tmp_path, olsq_command):
    rows = [f"{['a', 'b', 'other'][i % 3]},{i % 7},{i % 5}" for i in range(60)]
    (tmp_path / "d.csv").write_text("\n".join(["k,x,y", *rows]))
    fit = ("fit", tmp_path / "d.csv", "--target", "y", "--categorical")
    code, _, err = olsq_command(*fit, "k")
    assert code == 2
    assert "'k=other'" in err
    assert "list the levels without *" in err
    assert olsq_command(*fit, "k=a|b|other")[0] == 0


def test_a_level_that_became_a_missing_word_is_refused(tmp_path, olsq_command):
    """Rows of it would be skipped without a word."""
    countries(tmp_path)
    state = tmp_path / "s.olsq"
    fit = ("fit", tmp_path / "d.csv", "--target", "y", "--categorical", "c", "--missing-words", "")
    assert olsq_command(*fit, "--state", state)[0] == 0
    for command in (
        ("predict", state, tmp_path / "d.csv"),
        ("fit", tmp_path / "d.csv", "--continue", "--state", state, "--missing-words", "NA"),
    ):
        code, _, err = olsq_command(*command)
        assert code == 2
        assert "'NA' is a level of 'c' and a word for a missing value" in err

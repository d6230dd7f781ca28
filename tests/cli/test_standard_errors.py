"""--cov, --maxlags and --min-samples are coefficient_path's arguments of these names."""

import numpy as np
import polars as pl
import pytest

import olsq

from .conftest import csv_text, make_rows

CHOICES = {
    "HC0": (("--window", 80, "--cov", "HC0"), {"window": 80, "cov": "HC0"}),
    "HC3": (("--window", 80, "--cov", "hc3"), {"window": 80, "cov": "HC3"}),
    "HAC": (("--window", 80, "--cov", "HAC"), {"window": 80, "cov": "HAC"}),
    "HAC, lags": (
        ("--window", 80, "--half-life", 30, "--cov", "HAC", "--maxlags", 5),
        {"window": 80, "half_life": 30, "cov": "HAC", "maxlags": 5},
    ),
    "sandwich": (("--cov", "sandwich"), {"cov": "sandwich"}),
    "nonrobust": (
        ("--half-life", 50, "--cov", "nonrobust"),
        {"half_life": 50, "cov": "posterior"},
    ),
    "few": (("--min-samples", 40), {"min_samples": 40}),
    "few in a window": (
        ("--window", 60, "--min-samples", 40),
        {"window": 60, "min_samples": 40},
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("by", [False, True])
def test_paths_are_those_of_coefficient_path(choice, by, tmp_path, olsq_command):
    asked, options = CHOICES[choice]
    X, y = make_rows(400)
    labels = np.arange(400) % 3
    lines = csv_text(X, y).splitlines()
    lines = [f"{line},{g}" for line, g in zip(lines, ["g", *labels], strict=True)]
    data, out = tmp_path / "d.csv", tmp_path / "o.csv"
    data.write_text("\n".join(lines) + "\n")
    groups = ("--by", "g") if by else ("--exclude", "g")
    code, text, err = olsq_command(
        "fit", data, "--target", "y", *asked, *groups, "--columns", "coef,stderr,residual,sigma",
        "--out", out, "--chunk-rows", 100,
    )  # fmt: skip
    if by and options.get("cov", "").startswith("H"):
        assert code == 2
        assert "--by and --cov" in err
        return
    assert (code, err) == (0, "")
    more = {"by": labels} if by else {}
    path = olsq.coefficient_path(X, y, fit_intercept=True, **options, **more)
    read = pl.read_csv(out, infer_schema_length=None)
    begun = np.isfinite(read["coef_a"].to_numpy())
    assert begun.any()
    if "min_samples" in options:
        np.testing.assert_array_equal(begun, np.isfinite(path.coef[:, 0]))
        np.testing.assert_array_equal(
            np.isfinite(read["residual"].to_numpy()), np.isfinite(path.residual)
        )
    for j, name in enumerate("abc"):
        for array, column in ((path.coef, "coef"), (path.stderr, "stderr")):
            values = read[f"{column}_{name}"].to_numpy()
            expected = np.where(np.isfinite(array[:, j]), array[:, j], np.nan)
            np.testing.assert_allclose(values[begun], expected[begun], rtol=1e-7, atol=1e-9)
    if not by:  # the summary has the last row's
        shown = next(words for line in text.splitlines() if (words := line.split())[:1] == ["a"])
        np.testing.assert_allclose(float(shown[2]), path.stderr[-1, 0], rtol=6e-3)


REFUSED = {
    "--cov HC0": "--cov must be nonrobust or posterior or sandwich without --window, got 'HC0'",
    "--cov sandwich --window 9": "HAC with --window, got 'sandwich'",
    "--maxlags 3": "--maxlags is for --cov HAC",
    "--maxlags 3 --cov HC0 --window 9": "--maxlags is for --cov HAC",
    "--maxlags 9 --cov HAC --window 9": "--maxlags must be a number of rows, fewer than --window",
    "--min-samples 0": "--min-samples must be at least 1 row",
    "--min-samples 10 --window 9": "--min-samples (10) must not exceed --window (9)",
}


@pytest.mark.parametrize("options", REFUSED)
def test_what_cannot_be_is_refused(options, table, olsq_command):
    code, out, err = olsq_command("fit", table[0], "--target", "y", *options.split())
    assert (code, out) == (2, "")
    assert REFUSED[options] in err


def test_a_state_keeps_them(table, tmp_path, olsq_command):
    state = tmp_path / "s.olsq"
    options = ("--target", "y", "--window", 60, "--cov", "HAC", "--maxlags", 4, "--state", state)
    assert olsq_command("fit", table[0], *options, "--min-samples", 30)[0] == 0
    code, _, err = olsq_command("fit", table[0], *options, "--min-samples", 20, "--resume")
    assert code == 2
    assert "--min-samples was 30 and is 20" in err
    code, _, err = olsq_command("fit", table[0], "--continue", "--state", state, "--maxlags", 5)
    assert code == 2
    assert "--maxlags of the state is 4" in err


def test_too_few_rows_have_a_summary(tmp_path, olsq_command):
    X, y = make_rows(20)
    (tmp_path / "d.csv").write_text(csv_text(X, y))
    options = ("--target", "y", "--window", 60, "--min-samples", 50)
    code, out, _ = olsq_command("fit", tmp_path / "d.csv", *options)
    assert code == 0
    assert "fewer than 50 rows" in out

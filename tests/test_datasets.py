"""The bundled data: right shape, same numbers as the source they were copied from."""

import hashlib

import numpy as np
import pytest

from olsq import datasets


def test_macro_equals_the_statsmodels_copy():
    from statsmodels.datasets import macrodata

    source = macrodata.load_pandas().data
    data = datasets.us_macro()
    assert len(data) == 203
    for name in source.columns:
        np.testing.assert_array_equal(data[name], source[name].to_numpy())
    assert data["time"][0] == 1959.0
    assert np.all(np.diff(data["time"]) == 0.25)


def test_grunfeld_equals_the_statsmodels_copy():
    from statsmodels.datasets import grunfeld

    source = grunfeld.load_pandas().data
    data = datasets.grunfeld()
    assert len(data) == 220
    for name in source.columns:
        np.testing.assert_array_equal(data[name], source[name].to_numpy())


def test_co2_equals_the_statsmodels_copy():
    from statsmodels.datasets import co2

    source = co2.load_pandas().data
    data = datasets.mauna_loa_co2()
    assert len(data) == 2284
    assert np.isnan(data["co2"]).sum() == 59
    np.testing.assert_array_equal(data["co2"], source["co2"].to_numpy())
    np.testing.assert_array_equal(data["date"], source.index.to_numpy().astype("datetime64[D]"))


def test_co2_weeks_are_seven_days_apart_and_year_follows_date():
    data = datasets.mauna_loa_co2()
    assert np.all(np.diff(data["date"]) == np.timedelta64(7, "D"))
    start = data["date"].astype("datetime64[Y]")
    first, end = (x.astype("datetime64[D]") for x in (start, start + np.timedelta64(1, "Y")))
    decimal = 1970 + start.astype(float) + (data["date"] - first) / (end - first)
    np.testing.assert_allclose(data["year"], decimal, atol=5.1e-5)


def test_unknown_column_names_the_known_ones():
    with pytest.raises(KeyError, match=r"no column 'cpj'.*cpi"):
        datasets.us_macro()["cpj"]


def test_path_is_the_csv_itself():
    for data in (datasets.us_macro(), datasets.mauna_loa_co2(), datasets.grunfeld()):
        assert data.path.read_text(encoding="utf-8").count("\n") == len(data) + 1


def test_text_is_the_one_the_readme_describes():
    text = datasets.austen()
    readme = (datasets.us_macro().path.parent / "README.md").read_text(encoding="utf-8")
    assert hashlib.sha256(text.encode()).hexdigest() in readme
    assert f"{len(text):,} bytes" in readme
    assert text.startswith("PRIDE AND PREJUDICE")
    assert text.rstrip().endswith("THE END")
    for word in ("gutenberg", "copyright", "license", "\r", "\t"):
        assert word not in text.lower()

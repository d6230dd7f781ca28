"""The page "From 0.2 to 0.3": its errors are those that a program of 0.2 gets."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import olsq

from .test_earlier_states import STATES

PAGE = (Path(__file__).parents[2] / "docs" / "start" / "from-0-2.md").read_text(encoding="utf-8")
X, Y = np.arange(12.0).reshape(6, 2) ** 2, np.arange(6.0)


def learn_zones():
    days = pd.date_range("2020-01-01", periods=6)
    est = olsq.RecursiveLeastSquares(half_life="2D").partial_fit(X, Y, times=days)
    est.partial_fit(X, Y, times=days.tz_localize("UTC") + pd.Timedelta("30D"))


@pytest.mark.parametrize(
    ("says", "call"),
    [
        (
            "unexpected keyword argument 'state_dtype'",
            lambda: olsq.RecursiveLeastSquares(state_dtype="float32"),
        ),
        (
            "times have a time zone, and those of the rows before this call have none",
            learn_zones,
        ),
        (
            "X must have one column of each name",
            lambda: olsq.RecursiveLeastSquares().fit(pd.DataFrame(X, columns=["a", "a"]), Y),
        ),
    ],
)
def test_errors_of_python(says, call):
    assert says in PAGE
    with pytest.raises((TypeError, ValueError), match=says):
        call()


@pytest.mark.parametrize(
    ("says", "arguments", "table"),
    [
        ("No such command 'train'", ["train"], b""),
        ("No such option", ["fit", "data.csv", "--comment", "#"], b""),
        (
            "row 2 of data.csv has 3 cells, the header has 2",
            ["fit", "data.csv", "--target", "y"],
            b"a,y\n1,2\n3,4,5\n",
        ),
        (
            "column 'y' is not UTF-8 text",
            ["fit", "data.csv", "--target", "y"],
            b"a,y\n1,2\n3,4\xe9\n",
        ),
        (
            "cannot read '01.02.20' in column 't' as a date",
            ["fit", "data.csv", "--target", "y", "--time", "t"],
            b"t,a,y\n01.02.20,1,2\n02.02.20,2,3\n",
        ),
    ],
)
def test_errors_of_the_command(says, arguments, table, tmp_path, monkeypatch, olsq_command):
    monkeypatch.chdir(tmp_path)
    Path("data.csv").write_bytes(table)
    code, *printed = olsq_command(*arguments)
    assert says in PAGE
    assert code == 2
    assert says in "".join(map(str, printed))


def test_a_table_that_changed_since_0_2_is_not_resumed(tmp_path, olsq_command):
    state, table = tmp_path / "s.olsq", tmp_path / "all.csv"
    state.write_bytes(base64.b64decode(STATES["command"]["window"]["state"]))
    table.write_text(STATES["csv"])
    options = ("--target", "y", "--features", "a,b", "--window", "10", "--state", state)
    code, *printed = olsq_command("fit", table, *options, "--resume")
    assert code == 2
    said = "".join(map(str, printed))
    assert "an earlier version of olsq wrote" in said
    assert "it cannot be checked" in said
    assert "an earlier version of olsq wrote ..., and it cannot be checked" in PAGE

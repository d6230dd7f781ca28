"""States that ``olsq fit`` of version 0.2.0 saved predict the same, and learn on."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest

import olsq

GOLDEN = Path(__file__).parent.parent / "golden" / "version_0_2_0_numbers.json"
STATES = json.loads(GOLDEN.read_text())


@pytest.mark.parametrize("name", STATES["command"])
def test_a_state_of_olsq_fit_0_2_0_gives_its_predictions(name, tmp_path, olsq_command):
    state, table, out = (tmp_path / name for name in ("s.olsq", "table.csv", "out.csv"))
    state.write_bytes(base64.b64decode(STATES["command"][name]["state"]))
    table.write_text(STATES["csv"])
    result = olsq_command("predict", state, table, "--out", out)
    assert result[0] == 0, result
    found = [line.split(",")[-1] for line in out.read_text().splitlines()[1:]]
    wanted = np.array(STATES["command"][name]["predictions"], float)
    np.testing.assert_allclose([float(value or "nan") for value in found], wanted, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("forget", lambda: olsq.RecursiveLeastSquares(forget=0.95, ridge=1e-3)),
        ("window", lambda: olsq.RollingLeastSquares(window=10, ridge=1e-3)),
    ],
)
def test_a_state_of_olsq_fit_0_2_0_learns_a_new_table(name, make, tmp_path, olsq_command):
    header, *lines = STATES["csv"].splitlines()
    state, table = tmp_path / "s.olsq", tmp_path / "new.csv"
    state.write_bytes(base64.b64decode(STATES["command"][name]["state"]))
    table.write_text("\n".join([header, *lines[30:]]) + "\n")
    result = olsq_command("fit", table, "--continue", "--state", state)
    assert result[0] == 0, result
    rows = np.array([line.split(",") for line in lines])
    whole = make().fit(rows[:, :2].astype(float), rows[:, 3].astype(float))
    np.testing.assert_allclose(olsq.load(state).coef_, whole.coef_, rtol=1e-9)

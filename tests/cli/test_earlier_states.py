"""States that ``olsq fit`` of version 0.2.0 saved: ``olsq predict`` gives the same predictions."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest

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

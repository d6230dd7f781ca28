"""State files that version 0.2.0 wrote can be loaded, and learn on.

``version_0_2_0.json`` holds them in base64: every kind of estimator after 30 rows of two
regressors, whose numbers are multiples of an eighth.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest

import olsq

KEPT = json.loads((Path(__file__).parent / "version_0_2_0.json").read_text())
CASES = [(way, name) for way, items in KEPT.items() for name in items]


def rows():
    rng = np.random.default_rng(0)
    X = rng.integers(-4, 5, (30, 2)) / 4
    return X, X @ [1.0, -2.0] + rng.integers(-4, 5, 30) / 8


def learn_again(estimator, name):
    X, y = rows()
    if name == "bank":
        return estimator.partial_fit(np.ones((3, 2)), np.ones(3))
    if name == "groups":
        return estimator.partial_fit(X, y, by=np.arange(30) % 3)
    return estimator.partial_fit(X, y)


@pytest.mark.parametrize(("way", "name"), CASES)
def test_what_0_2_0_wrote_loads_and_learns_on(way, name):
    data = base64.b64decode(KEPT[way][name])
    loaded = olsq.loads(data)
    again = learn_again(loaded, name)
    assert olsq.loads(again.to_bytes()).to_bytes() == again.to_bytes()

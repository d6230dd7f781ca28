"""Data with numbers from outside; nothing here is computed by olsq."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest


class Certified(NamedTuple):
    """A data set with NIST's certified results; the intercept comes first in both vectors."""

    X: np.ndarray
    y: np.ndarray
    coef: np.ndarray
    stderr: np.ndarray
    residual_sd: float


@pytest.fixture(scope="session")
def nist() -> dict[str, Certified]:
    """NIST's linear least-squares data sets, by name."""
    data = json.loads((Path(__file__).parent / "nist.json").read_text(encoding="utf-8"))
    arrays = {
        name: Certified(
            *(np.array(data[name][key]) for key in ("X", "y", "coef", "stderr")),
            data[name]["residual_sd"],
        )
        for name in ("longley", "norris")
    }
    # Wampler1 and Wampler2 are defined by formula: exact polynomials on 0..20.
    x = np.arange(21.0)
    powers = x[:, None] ** np.arange(1, 6)
    for name, base in (("wampler1", 1.0), ("wampler2", 0.1)):
        coef = base ** np.arange(6)
        arrays[name] = Certified(powers, coef[0] + powers @ coef[1:], coef, np.zeros(6), 0.0)
    return arrays

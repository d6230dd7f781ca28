"""Forecast CO2 at Mauna Loa a year ahead, every week, with intervals that hold.

    python examples/streams/seasonal_forecast.py [--figure co2.png]

The level, a trend and two harmonics of the year, forgotten with a half-life of three years, at the
dates of the weeks that were measured: weeks are missing, and nothing is filled in.
"""

from __future__ import annotations

import figures
import numpy as np

import olsq
from olsq import features
from olsq.datasets import mauna_loa_co2


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    data = mauna_loa_co2()
    print(data.keys())


if __name__ == "__main__":
    main()

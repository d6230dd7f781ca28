"""Keep a drifting sensor calibrated against a reference that is read now and then.

    python examples/gallery/sensor_calibration.py [--figure sensor.png]

A pressure sensor's gain and offset drift with the months, and jump once when it is remounted.  A
reference instrument is at hand for one reading in twenty.  The factory's calibration is wrong
after weeks; recursive least squares with a half-life in time follows, and says how sure it is.
"""

from __future__ import annotations

import figures
import numpy as np

import olsq

HOURS, REMOUNTED = 24 * 180, 24 * 100


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    rng = np.random.default_rng(0)
    hours = np.arange(HOURS)
    pressure = 10 + 2 * np.sin(hours / 37) + rng.standard_normal(HOURS)
    gain = 1 + 0.05 * np.sin(hours / 900) + 0.04 * (hours > REMOUNTED)
    offset = 0.3 * np.sin(hours / 1300)
    raw = (pressure - offset) / gain + 0.01 * rng.standard_normal(HOURS)
    reference = np.where(hours % 20 == 0, pressure + 0.02 * rng.standard_normal(HOURS), np.nan)
    # [use]
    est = olsq.RecursiveLeastSquares(half_life=24 * 5.0)  # five days, in the unit of times
    shown, lower, upper = np.full((3, HOURS), np.nan)
    for t in range(HOURS):
        x = raw[t : t + 1, None]
        if t >= 60:  # three readings of the reference
            shown[t] = est.predict(x)[0]
            lower[t], upper[t] = np.ravel(est.predict_interval(x, level=0.95, kind="mean"))
        est.partial_fit(x, reference[t : t + 1], times=hours[t : t + 1])  # skipped where missing
    # [end]
    known = np.arange(HOURS) >= 24 * 10
    calm = known & ((hours < REMOUNTED) | (hours > REMOUNTED + 24 * 15))
    factory, ours = np.abs(raw - pressure), np.abs(shown - pressure)
    print(f"mean error, as it left the factory: {factory[known].mean():.3f}")
    print(f"mean error, calibrated as it runs:  {ours[known].mean():.3f}")
    assert ours[calm].mean() < factory[calm].mean() / 5
    # After the jump the interval is honest about the line, not about a line that has just moved.
    assert ours[calm].max() < 0.6

    def draw(axes):
        days = hours / 24
        axes[0].plot(days, raw - pressure, color="#d9730d", lw=0.5)
        axes[0].set_title("Error as it left the factory", loc="left")
        axes[1].fill_between(days, lower - pressure, upper - pressure, color="#2166ac", alpha=0.3)
        axes[1].plot(days, shown - pressure, color="#2166ac", lw=0.5)
        axes[1].set_title("Error of the running calibration, 95 % band of the line", loc="left")
        axes[1].set_ylim(-0.5, 0.5)
        axes[1].set_xlabel("day")

    figures.save(options.figure, draw, rows=2)


if __name__ == "__main__":
    main()

"""Draw docs/img/local-least-squares.png: four estimators of one noisy curve, by one function.

    python -m benchmarks.reports.local_figure

Global or local is the scale of the weights, constant or linear is the ridge of the slopes.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import olsq
from olsq.plot.labels import label_lines

PICTURE = Path(__file__).parents[2] / "docs" / "img" / "local-least-squares.png"
BANDWIDTH, NOISE, ROWS = 0.08, 0.25, 150
CONSTANT, LINEAR = 1e9, 1e-6  # ridges


def curve(x: np.ndarray) -> np.ndarray:
    """The mean of the data."""
    return np.sin(5 * x) + 1.5 * x


def fit(x: np.ndarray, y: np.ndarray, grid: np.ndarray, scale: float, ridge: float) -> np.ndarray:
    """The estimate on a grid, with a Gaussian kernel of bandwidth ``scale**-0.5``."""
    return olsq.local_lstsq(
        x[:, None], y[:, None], grid[:, None], ridge=ridge, scale=scale,
        log_weight=-scale / 2 * x**2, causal=False,
    ).value[:, 0]  # fmt: skip


def main() -> None:
    """Draw it."""
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(0, 1, ROWS))
    y = curve(x) + NOISE * rng.standard_normal(ROWS)
    grid = np.linspace(0, 1, 300)
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.2), sharey=True, layout="constrained")
    for ax, name, scale in zip(axes, ("global", "local"), (0.0, BANDWIDTH**-2), strict=True):
        ax.plot(x, y, ".", color="0.75", markersize=4, label="_data")
        ax.plot(grid, curve(grid), color="0.3", linewidth=1, linestyle="--", label="truth")
        for kind, ridge, colour in (("constant", CONSTANT, "C1"), ("linear", LINEAR, "C0")):
            estimate = fit(x, y, grid, scale, ridge)
            error = np.sqrt(np.mean((estimate - curve(grid)) ** 2))
            print(f"{name} {kind}: root mean squared error {error:.3f}")
            ax.plot(grid, estimate, color=colour, linewidth=1.8, label=f"{kind}, {error:.2f}")
        told = f"keys within about {BANDWIDTH} count" if scale else "every key counts the same"
        ax.set_title(f"{name}: {told}", fontsize=9, loc="left")
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xlim(0, 1)
    for ax in axes:
        ax.set_xlabel("key and query", fontsize=8)
    figure.canvas.draw()
    for ax in axes:
        label_lines(ax)
    figure.savefig(PICTURE, dpi=140)


if __name__ == "__main__":
    main()

"""Draw docs/img/family-map.png: what rules fit, global or local, constant or linear.

    python -m benchmarks.reports.attention_map

One curve, and what each kind of rule says at one query: where it is, its neighbours lie on one
side only, as those of a causal stream do.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from olsq.attention.registry import METHODS, RULES

PICTURE = Path(__file__).parents[2] / "docs" / "img" / "family-map.png"
QUERY, BANDWIDTH, NOISE, ROWS = 1.0, 0.12, 0.12, 60
TITLES = {
    ("global", "constant"): "one average of all tokens",
    ("global", "linear"): "one linear map for all tokens",
    ("local", "constant"): "an average of tokens like the query",
    ("local", "linear"): "a linear map near the query",
}


def curve(x: Any) -> Any:
    """The mean of the values."""
    return 0.5 * np.sin(5 * x) + 2.2 * x**2


def weights(x: np.ndarray, where: str) -> np.ndarray:
    """The weight of every key, the largest 1."""
    return np.ones_like(x) if where == "global" else np.exp(-(((x - QUERY) / BANDWIDTH) ** 2) / 2)


def fit(x: np.ndarray, y: np.ndarray, weight: np.ndarray, what: str) -> tuple[float, float]:
    """Value at the query, and slope."""
    columns = [np.ones_like(x), x - QUERY][: 1 + (what == "linear")]
    root = np.sqrt(weight)
    found = np.linalg.lstsq(np.stack(columns, 1) * root[:, None], y * root, rcond=None)[0]
    return found[0], found[1] if what == "linear" else 0.0


def names(corner: tuple[str, str]) -> str:
    """The rules of a corner, those that solve first."""
    rules = [r for r in RULES if r.corner == corner]
    exact = METHODS[-1]
    solved = ", ".join(r.name for r in rules if r.place[1] == exact)
    others = ", ".join(r.name for r in rules if r.place[1] != exact)
    lines = [f"exact: {solved}"] if solved else []
    lines += [f"by steps: {others}"] if others else []
    return "\n".join(textwrap.fill(line, 56) for line in lines)


def main(path: Path = PICTURE) -> None:
    """Draw it."""
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(0, QUERY, ROWS))
    y = curve(x) + NOISE * rng.standard_normal(ROWS)
    grid = np.linspace(0, QUERY, 200)
    figure, axes = plt.subplots(2, 2, figsize=(8.36, 8.2), sharex=True, sharey=True)
    for row, where in enumerate(("global", "local")):
        for column, what in enumerate(("constant", "linear")):
            ax, weight = axes[row, column], weights(x, where)
            at, slope = fit(x, y, weight, what)
            ax.plot(grid, curve(grid), color="0.55", linewidth=1, linestyle="--")
            ax.scatter(x, y, s=4 + 26 * weight, color="0.35", alpha=0.55, linewidths=0)
            reach = grid if where == "global" else grid[grid > QUERY - 2.5 * BANDWIDTH]
            ax.plot(reach, at + slope * (reach - QUERY), color="#2166ac", linewidth=2)
            ax.plot(QUERY, at, "o", color="#c0362c", markersize=7)
            ax.plot(QUERY, curve(QUERY), "o", color="0.3", markersize=7, fillstyle="none")
            error = abs(at - curve(QUERY))
            ax.set_title(f"{where}, {what}: {TITLES[where, what]}", fontsize=9.5, loc="left")
            ax.text(0.03, 0.94, f"error at the query {error:.2f}", transform=ax.transAxes,
                    fontsize=8.5, va="top", color="#c0362c")  # fmt: skip
            ax.text(0, -0.06, names((where, what)), transform=ax.transAxes, fontsize=8, va="top",
                    family="monospace")  # fmt: skip
            ax.set(xticks=[], yticks=[])
            ax.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("values", fontsize=8.5)
    axes[1, 0].set_ylabel("values", fontsize=8.5)
    figure.subplots_adjust(left=0.04, right=0.98, top=0.96, bottom=0.08, hspace=0.56, wspace=0.06)
    figure.savefig(path, dpi=140)
    plt.close(figure)


if __name__ == "__main__":
    main()

"""Tables and figure of ``docs/measurements/rows.md``, from what ``forgetting.py`` stored."""

from __future__ import annotations

import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from ..support.machine import sentence
from .forgetting_streams import PHASE, PHASES
from .numerics_figures import BLUE, DOCS, GREY, STYLE
from .registry import write_blocks

FIGURE = DOCS / "img" / "forgetting.png"
USUAL = "Exponential(.99)"
PEERS = ("padasip", "filterpy")


def table(columns: list[str], rows: list[tuple[str, list[float]]]) -> str:
    """Numbers by row and column, the least of each column in bold."""
    values = np.array([v for _, v in rows])
    best = values.round(3).min(0)
    lines = [f"| | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for label, own in rows:
        cells = [
            f"**{v:.3f}**" if round(v, 3) == b else f"{v:.3f}"
            for v, b in zip(own, best, strict=True)
        ]
        lines.append(f"| `{label}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def phases(result: dict) -> list[tuple[str, list[float]]]:
    """The root mean square by phase, of all rows of it but the first 200 of the stream."""
    found = []
    for label, pieces in result["one_stream"].items():
        squares = np.array(pieces).reshape(len(PHASES), -1) ** 2
        means = [squares[0, 10:].mean(), *squares[1:].mean(1)]
        found.append((label, [float(np.sqrt(v)) for v in means]))
    return found


def time_text(result: dict) -> str:
    """Times of a row in a block and alone: by a factor, by a random walk, by the others."""
    ours = {label: entry for label, entry in result["times"].items() if "block" in entry}
    alone = {label: f"{entry['row']:.1f} us" for label, entry in result["times"].items()}
    factor, walk = (ours.pop(label) for label in (USUAL, "RandomWalk(1e-4)"))
    ours.pop("none (forget=1)")
    blocks, rows = ([entry[key] for entry in ours.values()] for key in ("block", "row"))
    padasip, filterpy = (alone[label] for label in alone if label.split()[0] in PEERS)
    return (
        f"A row of a block takes {factor['block']:.2f} us with a factor, {walk['block']:.2f} us "
        f"with `RandomWalk`, and {min(blocks):.2f} to {max(blocks):.2f} us with the other "
        f"strategies. `step` takes {factor['row']:.1f} us with a factor, {walk['row']:.1f} us with "
        f"`RandomWalk`, and {min(rows):.1f} to {max(rows):.1f} us with the others; padasip takes "
        f"{padasip} and filterpy {filterpy}."
    )


def draw(result: dict) -> None:
    """Each strategy along the one stream, beside exponential forgetting."""
    lines = result["one_stream"]
    labels = [label for label in lines if label != USUAL]  # that one is in every panel
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            -(-len(labels) // 2), 2, figsize=(8.4, 0.85 * len(labels)), sharex=True, sharey=True,
            layout="constrained",
        )  # fmt: skip
        axes = grid.T.ravel()  # down the left column, then down the right
        at = 20 * np.arange(len(lines[USUAL])) + 10
        for axis, label in zip(axes, labels, strict=True):
            for k in range(1, len(PHASES), 2):
                axis.axvspan(k * PHASE, (k + 1) * PHASE, color="0.94", lw=0)
            axis.semilogy(at, lines[USUAL], color=GREY, lw=0.8)
            axis.semilogy(at, lines[label], color=BLUE, lw=0.9)
            grey = f"; grey: {USUAL}" if label == labels[0] else ""
            axis.set_title(with_zeros(label + grey), loc="left", fontsize=8.5)
            axis.set_ylim(0.03, 40)
            axis.grid(axis="x", visible=False)
        for k, phase in enumerate(PHASES):
            for axis in grid[0]:
                axis.text(
                    (k + 0.5) * PHASE, 32 if k % 2 else 12, phase.replace("after a ", ""),
                    ha="center", va="top", fontsize=8, color="0.35",
                )  # fmt: skip
        for axis in grid[-1]:
            axis.set_xlabel("row")
        figure.supylabel("RMS of prediction less signal (noise 1)", fontsize=9)
        figure.savefig(FIGURE)
        plt.close(figure)


def with_zeros(text: str) -> str:
    """Write decimals with a zero before the point: 0.99 for .99."""
    return re.sub(r"(?<![\w.])\.(?=\d)", "0.", text)


def tables(result: dict) -> dict[str, str]:
    """The marked parts of the page."""
    facts = (
        f"`{result['command']}`, seed {result['seed']}, {result['seeds']} streams each. "
        f"{sentence(result['machine'], 'padasip', 'filterpy')}"
    )
    return {
        "one-stream": with_zeros(table(list(PHASES), phases(result))),
        "times": time_text(result),
        "measured": facts,
    }


def write_page(result: dict) -> None:
    """Rewrite the marked parts of the page and its figure."""
    write_blocks("forgetting", result)
    draw(result)

"""Figures of ``when_to_solve.py``, from as many runs as there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, NullFormatter
from panels import COLOURS, colour_of, in_house_style, label_lines, label_points, line, panels
from solving_found import (
    NAME,
    SOLVING,
    Comparison,
    all_right,
    compared,
    comparison,
    found_on,
    recalls,
    regresses,
    sizes_of,
    title_of,
    waiting_for,
)
from solving_tasks import TASKS

WIDEST = 12.0  # a ratio beyond is drawn here, as an arrow
RECALL = "mqar-8-pairs-4-wide"  # the task of recall that is shown beside its cost


def draw_figures(results: dict[str, Any], where: Path) -> None:
    """The pictures of the section, of those tasks that have something to show."""
    names = compared(results)
    shown = [name for name in names if not recalls(name) or name == RECALL]
    whole = [name for name in names if not waiting_for(results, name)]
    if told := [row for name in whole for row in told_of(results, name)]:
        save(answer_figure(told), where / f"{NAME}-answer.png")
    timed = [name for name in shown if any(row.cost for row in found_on(results, name))]
    if timed:
        save(cost_figure(results, timed), where / f"{NAME}.png")
    known = results.get("references", {})
    if drifting := [name for name in names if "Bayes" in known.get(name, {})]:
        save(position_figure(results, drifting), where / f"{NAME}-positions.png")
    if sweeps := swept(names):
        save(capacity_figure(results, sweeps), where / f"{NAME}-capacity.png")


def told_of(results: dict[str, Any], name: str) -> list[tuple[str, Comparison]]:
    """What solves beside the best that does not, and beside the best whose state does not grow."""
    title = title_of(name).partition(" (")[0]
    rows: list[tuple[str, Comparison]] = []
    for fixed in (False, True):
        found = comparison(results, name, fixed)
        if found is None or all_right(name, found) or any(found == row for _, row in rows):
            continue
        rows.append((f"{title}, states of fixed size" if fixed else title, found))
    return rows


def swept(names: list[str]) -> dict[int, dict[int, str]]:
    """Tasks of recall by pairs and by width of a key, where two widths or more can be compared."""
    sweeps: dict[int, dict[int, str]] = {}
    for name in filter(recalls, names):
        pairs, wide = sizes_of(name)
        sweeps.setdefault(pairs, {})[wide] = name
    return {p: dict(sorted(s.items())) for p, s in sorted(sweeps.items()) if len(s) > 1}


def save(figure: Any, path: Path) -> None:
    """Write and close."""
    figure.savefig(path, dpi=150)
    plt.close(figure)


@in_house_style
def answer_figure(known: list[tuple[str, Comparison]]) -> Any:
    """Error of what solves over that of what does not: a row a task, a bar what its seeds allow."""
    figure, ax = panels(1, height=0.9 + 0.3 * len(known), width=8.0)
    for row, (title, found) in enumerate(known):
        colour = COLOURS[0] if found.separate else "0.55"
        ends = np.clip([*found.ratios, found.ratio], 1 / WIDEST, WIDEST)
        ax.plot(ends[:2], [-row, -row], color=colour, lw=1.6, solid_capstyle="butt")
        face = colour if found.separate else "white"
        beyond = "o" if ends[2] == found.ratio else ">" if found.ratio > 1 else "<"
        ax.plot(ends[2], -row, beyond, color=colour, ms=5, mfc=face)
        price = f", {found.price:.1f} × time" if found.price else ""
        about = f"{title}: {found.ours.mixer} / {found.theirs.mixer}{price}"
        ax.annotate(
            about, (0, -row), (0, 7), xycoords=("axes fraction", "data"),
            textcoords="offset points", fontsize=8, color="0.3", va="bottom",
            in_layout=False, bbox={"color": "white", "pad": 1},
        )  # fmt: skip
    ax.axvline(1.0, color="0.4", lw=0.8, ls=(0, (4, 3)))
    ax.set_yticks([])
    ax.set_ylim(0.6 - len(known), 0.8)
    ax.set_xscale("log")
    ax.set_xlabel("error of what solves / of what does not")
    ax.xaxis.set_major_locator(
        plt.FixedLocator([1e-3, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100, 1000])
    )
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    return figure


@in_house_style
def cost_figure(results: dict[str, Any], names: list[str]) -> Any:
    """Error against the time of a step: a panel a task, a small dot a seed, a name a mixer."""
    figure, axes = panels(len(names), height=3.6, squeeze=False, sharex=True)
    for ax, name in zip(axes[:, 0], names, strict=True):
        rows = [row for row in found_on(results, name) if row.cost and row.runs]
        for row in rows:
            colour = colour_of(row.mixer)
            face = colour if row.mixer in SOLVING else "white"
            ax.plot([row.cost] * len(row.runs), row.scores, "_", color=colour, ms=8, mew=0.8)
            ax.plot(row.cost, row.mean, "o", color=colour, mfc=face, ms=5, mew=1.4)
        highest = max(max(row.scores) for row in rows)
        lowest = min(min(row.scores) for row in rows)
        if regresses(name):
            heights = {
                what: np.mean(found["by_position"][TASKS[name].scored])
                for what, found in results["references"][name].items()
            }
            for what, height in heights.items():
                if height < 1.1 * highest:
                    label = "the best any predictor can do" if what == "Bayes" else f"{what}, tuned"
                    crowded = any(1 < other / height < 1.06 for other in heights.values())
                    line(ax, height, label, below=crowded)
                    lowest = min(lowest, height)
            ax.set_yscale("log")
            ax.set_ylim(0.87 * lowest, 1.12 * highest)
            ax.yaxis.set_major_locator(plt.MaxNLocator(5))
            ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
            ax.yaxis.set_minor_formatter(NullFormatter())
            ax.set_ylabel("squared error")
        else:
            room = max(0.1 * (highest - lowest), 0.05)
            ax.set_ylim(max(lowest - room, -0.03), highest + room)
            ax.set_ylabel("share wrong")
        ax.set_title(title_of(name))
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(plt.FixedLocator([0.5, 1, 2, 4, 8]))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    costs = [row.cost for name in names for row in found_on(results, name) if row.cost]
    axes[0, 0].set_xlim(0.6 * min(costs), 1.7 * max(costs))  # names need room
    for ax in axes[-2:, 0]:
        ax.set_xlabel("time of a training step, in units of gla's")
    for ax, name in zip(axes[:, 0], names, strict=True):
        rows = [row for row in found_on(results, name) if row.cost and row.runs]
        label_points(ax, [(row.cost, row.mean, row.mixer, colour_of(row.mixer)) for row in rows])
    return figure


@in_house_style
def position_figure(results: dict[str, Any], names: list[str]) -> Any:
    """Error over that of Bayes along the sequence: a panel a task, a thin line a seed."""
    figure, axes = panels(len(names), height=2.75, squeeze=False, sharex=True)
    for ax, name in zip(axes[:, 0], names, strict=True):
        floor = np.array(results["references"][name]["Bayes"]["by_position"])
        ends = []
        for row in found_on(results, name):
            for i, run in enumerate(row.runs):
                ratio = smoothed(np.array(run["by_position"]) / floor)
                (drawn,) = ax.plot(
                    np.arange(1, len(ratio) + 1), ratio, lw=0.9, color=colour_of(row.mixer),
                    label=row.mixer,
                )  # fmt: skip
                if i == 0:
                    ends.append(drawn)
        ax.axhline(1.0, color="0.4", lw=0.8, ls=(0, (4, 3)))
        ax.set_title(title_of(name))
        ax.set_ylabel("error / best possible")
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(plt.FixedLocator([1, 1.5, 2, 3, 5, 10, 20]))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.margins(x=0)
        ax.ends = ends
    for ax in axes[-2:, 0]:
        ax.set_xlabel("pairs read")
    for ax in axes[:, 0]:
        label_lines(ax, ax.ends)
    return figure


@in_house_style
def capacity_figure(results: dict[str, Any], sweeps: dict[int, dict[int, str]]) -> Any:
    """Share wrong against the width of a key: a panel a number of pairs, a dash a seed."""
    figure, axes = panels(len(sweeps), height=3.0, squeeze=False, sharex=True)
    for ax, (pairs, tasks) in zip(axes[:, 0], sweeps.items(), strict=True):
        found = {wide: found_on(results, name) for wide, name in tasks.items()}
        ends = []
        for mixer in dict.fromkeys(row.mixer for rows in found.values() for row in rows):
            own = {w: r for w, rows in found.items() for r in rows if r.mixer == mixer and r.runs}
            colour = colour_of(mixer)
            for wide, row in own.items():
                ax.plot([wide] * len(row.runs), row.scores, "_", color=colour, ms=6, mew=0.8)
            (drawn,) = ax.plot(
                list(own), [row.mean for row in own.values()], "o-", color=colour, lw=1.2, ms=4,
                mfc=colour if mixer in SOLVING else "white", label=mixer,
            )  # fmt: skip
            ends.append(drawn)
        ax.set_title(f"Recall of {pairs} pairs")
        ax.set_ylabel("share wrong")
        ax.set_ylim(-0.05, 1.05)
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_locator(plt.FixedLocator(list(tasks)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.ends = ends
    for ax in axes[-2:, 0]:
        ax.set_xlabel("width of a key, two heads")
    for ax in axes[:, 0]:
        label_lines(ax, ax.ends)
    return figure


def smoothed(values: np.ndarray, width: int = 5) -> np.ndarray:
    """A running mean whose window shrinks towards both ends."""
    half = [min(i, len(values) - 1 - i, width // 2) for i in range(len(values))]
    return np.array([values[i - h : i + h + 1].mean() for i, h in enumerate(half)])

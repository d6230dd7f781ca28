"""Local least squares beside the other estimators of test-time regression, without any training.

    python examples/experiments/local_estimators.py            # minutes; resumes
    python examples/experiments/local_estimators.py --figures  # from what is there
    python examples/experiments/local_estimators.py --quick    # small, asserted

Every estimator predicts y_t from the pairs before t, with hyperparameters tuned on 64 streams of
one kind; errors are of 256 other streams, of the same kind or, out of distribution, of another.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import FuncFormatter, NullFormatter
from nonlinear_regression import (
    ESTIMATORS,
    Target,
    dense_errors,
    draw,
    local_errors,
    scored,
    tune,
)
from panels import COLOURS, in_house_style, panels
from task_training import RESULTS, add_result, load_results

NAME = "local-estimators"
SEED, STREAMS, TUNING, LENGTH, LAST = 3_000_000, 256, 64, 128, 64
OURS = "local least squares"
DRIFT, FAST = 1 - 1 / 64, 1 - 1 / 32
# condition -> the streams that hyperparameters are tuned on, and those that errors are of
CONDITIONS: dict[str, tuple[Target, Target]] = {
    "Linear": (Target("linear"), Target("linear")),
    "Linear, drifting": (Target("linear", DRIFT), Target("linear", DRIFT)),
    "Piecewise linear": (Target("piecewise"), Target("piecewise")),
    "Piecewise linear, drifting": (Target("piecewise", DRIFT), Target("piecewise", DRIFT)),
    "Random network": (Target("network"), Target("network")),
    "Random network, drifting": (Target("network", DRIFT), Target("network", DRIFT)),
    "Tuned on a network: it drifts": (Target("network"), Target("network", FAST)),
    "Tuned on a network: inputs twice as large": (Target("network"), Target("network", size=2.0)),
    "Tuned on a network: inputs half as large": (Target("network"), Target("network", size=0.5)),
    "Tuned on a line: network": (Target("linear"), Target("network")),
}
SHORT = dict(zip(ESTIMATORS, COLOURS, strict=False))


def measure(
    name: str, tuned: Target, tested: Target, streams: int = STREAMS, tuning: int = TUNING,
    length: int = LENGTH, last: int = LAST,
) -> dict[str, Any]:  # fmt: skip
    """Tune an estimator on streams of one kind and score it on streams of another."""
    given = tune(name, tuned, SEED, tuning, length, last)
    x, y = draw(np.random.default_rng([SEED, 0]), tested, streams, length)
    return {**scored(name, given, x, y, last), "date": time.strftime("%Y-%m-%d")}


def against(found: dict[str, Any], other: str) -> tuple[float, float]:
    """Mean difference of local least squares' error from another's, and its standard error.

    Paired by stream: all estimators read the same ones.
    """
    off = np.subtract(found[OURS]["by_stream"], found[other]["by_stream"])
    return float(off.mean()), float(off.std(ddof=1) / np.sqrt(len(off)))


def complete(results: dict[str, Any]) -> list[str]:
    """Conditions of which every estimator has been measured."""
    return [name for name in CONDITIONS if set(results.get(name, {})) >= set(ESTIMATORS)]


def verdict(found: dict[str, Any]) -> tuple[str, str, float]:
    """Verdict on local least squares, the best other estimator, and the ratio of their errors.

    Three standard errors of the paired difference are needed for any but "inconclusive".
    """
    means = {name: np.mean(found[name]["by_stream"]) for name in ESTIMATORS}
    other = min((name for name in ESTIMATORS if name != OURS), key=lambda name: means[name])
    off, error = against(found, other)
    word = "inconclusive" if abs(off) < 3 * error else "lower" if off < 0 else "higher"
    return word, other, float(means[OURS] / means[other])


@in_house_style
def figure(results: dict[str, Any]) -> Any:
    """Error of every estimator, a row a condition; bars are two standard errors either side."""
    names = complete(results)
    drawn, ax = panels(1, height=1.3 + 0.36 * len(names), width=8.0)
    for row, condition in enumerate(names):
        found = results[condition]
        for estimator, colour in SHORT.items():
            errors = np.array(found[estimator]["by_stream"])
            mean, spread = errors.mean(), errors.std(ddof=1) / np.sqrt(len(errors))
            face = colour if estimator == OURS else "white"
            ax.plot([mean - 2 * spread, mean + 2 * spread], [-row, -row], color=colour, lw=1.4)
            ax.plot(mean, -row, "o", color=colour, mfc=face, ms=5, mew=1.4,
                    label=estimator if row == 0 else None)  # fmt: skip
        ax.annotate(
            condition, (0, -row), (0, 6), xycoords=("axes fraction", "data"),
            textcoords="offset points", fontsize=8, color="0.3", va="bottom",
            in_layout=False, bbox={"color": "white", "pad": 1},
        )  # fmt: skip
    ax.set_yticks([])
    ax.set_ylim(0.6 - len(names), 0.9)
    ax.set_xscale("log")
    ax.set_xlabel("squared error; noise alone is 0.01")
    ax.xaxis.set_major_locator(plt.FixedLocator([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False)
    return drawn


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER")
    parser.add_argument("--figures", action="store_true", help="draw only")
    parser.add_argument("--quick", action="store_true", help="small, asserted")
    args = parser.parse_args(argv)
    if args.quick:
        return quick()
    for condition, (tuned, tested) in CONDITIONS.items() if not args.figures else ():
        for name in ESTIMATORS:
            if name in load_results(NAME, args.results).get(condition, {}):
                continue
            found = measure(name, tuned, tested)
            add_result(NAME, (condition, name), found, args.results)
            print(condition, name, found["given"], np.mean(found["by_stream"]), flush=True)
    if complete(results := load_results(NAME, args.results)):
        drawn = figure(results)
        drawn.savefig(args.results / f"{NAME}.png", dpi=150)
        plt.close(drawn)
    return None


def quick() -> None:
    """Few streams: the estimator that fits the target wins, and a picture can be drawn."""
    sizes = {"streams": 8, "tuning": 4, "length": 48, "last": 24}
    results = {
        kind: {name: measure(name, Target(target), Target(target), **sizes) for name in ESTIMATORS}
        for kind, target in (("Linear", "linear"), ("Random network", "network"))
    }
    means = {
        kind: {name: np.mean(found["by_stream"]) for name, found in rows.items()}
        for kind, rows in results.items()
    }
    assert means["Linear"]["least squares"] < 0.03, means
    assert min(means["Random network"], key=means["Random network"].get) == OURS, means
    assert verdict(results["Linear"])[1] == "least squares"
    x, y = draw(np.random.default_rng(0), Target("network"), 3, 24)
    for ridge in (1e-3, 0.1):  # the two ways to the same errors
        own = local_errors(x, y, 0.9, 4.0, ridge)[:, 12:].mean(1)
        assert np.allclose(dense_errors(x, y, 0.9, 4.0, (ridge,), 12)[0], own, rtol=1e-6)
    figure(results).canvas.draw()


if __name__ == "__main__":
    main()

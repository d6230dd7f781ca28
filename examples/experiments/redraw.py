"""Every picture of docs/results from the results that are stored: nothing is trained.

    python examples/experiments/redraw.py                   # all
    python examples/experiments/redraw.py parity regbench   # some
    python examples/experiments/redraw.py --quick           # two, written nowhere
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import language_models
import matplotlib.pyplot as plt
import noisy_recall
import parity
import regbench
import solving_report
from task_training import RESULTS, load_results

PICTURES: dict[str, Callable[[], Any]] = {
    "language-models": lambda: language_models.figure(load_results("language-models")),
    "noisy-recall": lambda: noisy_recall.figure(load_results("noisy-recall")),
    "parity": lambda: parity.figure(load_results("parity")["runs"]),
    "regbench": lambda: regbench.figure(load_results("regbench")),
}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="PICTURE", help=", ".join(PICTURES))
    parser.add_argument("--quick", action="store_true", help="draw two and write nothing")
    args = parser.parse_args(argv)
    if unknown := set(args.names) - set(PICTURES):
        parser.error(f"no picture is called {', '.join(sorted(unknown))}")
    for name in ("parity", "regbench") if args.quick else args.names or PICTURES:
        figure = PICTURES[name]()
        if args.quick:
            figure.canvas.draw()
        else:
            figure.savefig(RESULTS / f"{name}.png", dpi=150)
        plt.close(figure)
    if not args.quick and not args.names:
        solving_report.draw_figures(load_results(solving_report.NAME), RESULTS)


if __name__ == "__main__":
    main()

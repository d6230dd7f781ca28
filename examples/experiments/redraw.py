"""Pictures of docs/results from the results that are stored: nothing is trained.

Two show matrices, which are not stored: sander_population.py makes them again in minutes.

    python examples/experiments/redraw.py                   # all
    python examples/experiments/redraw.py parity regbench   # some
    python examples/experiments/redraw.py --quick           # two, written nowhere
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import dynamics_deep
import dynamics_few_shot
import dynamics_one_layer
import gate_start
import gdpp
import heads_over_training
import language_models
import language_models_3m
import local_estimators
import matplotlib.pyplot as plt
import meta_learning_report
import noisy_recall
import one_step_gd
import parallax_direction
import parity
import regbench
import sander_trained
import sine_regression
import softmax_heads
import solving_figures
import stable_training
import test_time_compute
from task_training import RESULTS, load_results


def read(draw: Callable[..., Any], name: str, *keys: str, **options: Any) -> Callable[[], Any]:
    """A picture of what is stored under a name, or of its parts."""

    def picture() -> Any:
        results = load_results(name)
        return draw(*([results[key] for key in keys] or [results]), **options)

    return picture


def of_rows(draw: Callable[[list[Any]], Any], name: str, part: str = "runs") -> Callable[[], Any]:
    """A picture of the list of runs, or of those of a part."""
    return lambda: draw(list(load_results(name)[part].values()))


PICTURES: dict[str, Callable[[], Any]] = {
    "dynamics-deep": read(dynamics_deep.figure, "dynamics-deep"),
    "dynamics-few-shot": read(dynamics_few_shot.figure, "dynamics-few-shot"),
    "dynamics-one-layer": read(dynamics_one_layer.figure, "dynamics-one-layer", "controls", "runs"),
    "gate-start": read(gate_start.figure, "gate-start"),
    "gdpp": read(gdpp.figure, "gdpp"),
    "heads-over-training": read(heads_over_training.figure, "heads-over-training", "runs"),
    "language-models-3m": read(language_models_3m.figure, "language-models-3m", "runs"),
    "local-estimators": read(local_estimators.figure, "local-estimators"),
    "parallax-direction": read(parallax_direction.figure, "parallax-direction"),
    "meta-learning": read(meta_learning_report.figure, "meta-learning", "methods"),
    "one-step-gd": of_rows(one_step_gd.figure, "one-step-gd"),
    **{
        f"sander-{part}": of_rows(draw, "sander-trained", part)
        for part, (_, _, draw) in sander_trained.PARTS.items()
    },
    "sine-regression": of_rows(sine_regression.figure, "sine-regression"),
    "stable-training": read(stable_training.figure, "stable-training"),
    "softmax-heads": read(softmax_heads.figure, "softmax-heads", "runs"),
    "test-time-compute-language": read(
        test_time_compute.figure, "test-time-compute", "language", trained=256
    ),
    "test-time-compute-recall": read(
        test_time_compute.figure, "test-time-compute", "noisy recall", trained=127
    ),
    "language-models": read(language_models.figure, "language-models"),
    "noisy-recall": read(noisy_recall.figure, "noisy-recall"),
    "parity": read(parity.figure, "parity", "runs"),
    "regbench": read(regbench.figure, "regbench"),
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
        solving_figures.draw_figures(load_results(solving_figures.NAME), RESULTS)


if __name__ == "__main__":
    main()

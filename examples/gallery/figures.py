"""What the scripts share: one option, and one figure of a size that a page can hold."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def options(
    description: str | None, arguments: list[str] | None, **sizes: int
) -> argparse.Namespace:
    """The parsed command line; ``sizes`` are whole numbers by name, with their defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--figure", help="where to save the picture; none by default")
    for name, default in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default {default}")
    return parser.parse_args(arguments)


def save(path: str | None, draw: Callable[[Any], None], rows: int = 1) -> None:
    """Draw on ``rows`` axes under each other and save, if there is a path."""
    if path is None:
        return
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    from olsq.plot.labels import label_lines

    # 5.4 inches: a page shows it at 375 pixels with letters that can be read.
    figure, axes = plt.subplots(
        rows, figsize=(5.4, 1.6 + 1.6 * rows), layout="constrained", sharex=rows > 1
    )
    draw(axes)
    for one in axes if rows > 1 else [axes]:
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(axis="x", labelsize=8)  # room for years and large numbers
    for one in axes if rows > 1 else [axes]:
        label_lines(one)  # those that have a name
    figure.savefig(path, dpi=150)
    plt.close(figure)

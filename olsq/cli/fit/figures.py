"""The figure of every target at the end of ``olsq fit``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from olsq.cli.fit.options import FitOptions
from olsq.cli.fit.trace import Trace
from olsq.cli.sources.times import TimeColumn


def figure_paths(plot: Path | None, targets: Sequence[str]) -> list[Path]:
    """Names of the figures: with several targets each has its own, fit.y1.png for y1."""
    if plot is None or len(targets) == 1:
        return [] if plot is None else [plot]
    return [plot.with_name(f"{plot.stem}.{target}{plot.suffix}") for target in targets]


def draw(
    trace: Trace, options: FitOptions, target: str, time: TimeColumn | None, path: Path
) -> None:
    """Draw one target's figure; the CUSUM only where its lines hold."""
    from olsq.plot.drawing import draw_fit

    constant = options.window is None and options.half_life is None
    constant &= options.forget in (None, 1.0) and options.weight is None
    curves = trace.curves(bounds=constant)
    x = curves.x.astype(int) if time is None else time.positions(curves.x)
    figure = draw_fit(
        curves._replace(x=x),
        title=f"{target}   ({options.describe()})",
        xlabel="row" if time is None else time.name,
    )
    figure.savefig(path, dpi=150)

"""Draw the figure of every target at the end of ``olsq fit``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from olsq.cli.fit.group_report import coefficients_of
from olsq.cli.fit.options import FitOptions
from olsq.cli.fit.trace import Trace
from olsq.cli.sources.times import TimeColumn
from olsq.cli.terminal import label
from olsq.online import GroupedLeastSquares
from olsq.plot.drawing import save_figure


def draw_by_group(
    groups: GroupedLeastSquares, features: Sequence[str], target: int, options: FitOptions,
    path: Path,
) -> None:  # fmt: skip
    """Draw the coefficients of all groups for one target."""
    from olsq.plot.groups import draw_groups

    learned = groups.n_samples_seen_ > 0
    names, coef, stderr = coefficients_of(groups, features, target)
    labels = [label(str(key)) for key, there in zip(groups.keys(), learned, strict=True) if there]
    figure = draw_groups(
        labels, coef[learned], stderr[learned], [label(name) for name in names],
        title=label(f"{options.targets[target]} by {options.by}   ({options.describe()})"),
    )  # fmt: skip
    save_figure(figure, path, dpi=150)


def draw(
    trace: Trace, options: FitOptions, target: str, time: TimeColumn | None, path: Path
) -> None:
    """Draw the figure of one target; the CUSUM only where its lines are valid."""
    from olsq.plot.drawing import draw_fit

    # the CUSUM's lines assume that all rows count the same
    constant = options.window is None and options.half_life is None
    constant &= options.forget in (None, 1.0) and options.weight is None
    curves = trace.curves(bounds=constant)
    x = curves.x.astype(int) if time is None else time.positions(curves.x)
    figure = draw_fit(
        curves._replace(x=x, names=[label(name) for name in curves.names]),
        title=label(f"{target}   ({options.describe()})"),
        xlabel="row" if time is None else label(time.name),
    )
    save_figure(figure, path, dpi=150)

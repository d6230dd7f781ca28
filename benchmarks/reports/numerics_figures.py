"""The figures of ``docs/measurements/accuracy.md``: drift and wind-up, drawn from fresh runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from olsq.plot.labels import label_lines

from ..suites import streams
from ..support.peers import (
    Filterpy,
    Olsq,
    Padasip,
    Textbook,
    TextbookReuse,
)
from ..support.reference import checkpoints, solve_at
from ..support.stability_cases import RIDGE, D

DOCS = Path(__file__).parents[2] / "docs"
STYLE = {
    "figure.dpi": 140,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}
# Okabe and Ito's colours, told apart by everyone; olsq is always blue or green.
BLUE, GREEN, RED, ORANGE, GREY = "#0072B2", "#009E73", "#D55E00", "#E69F00", "#777777"


def _trajectory(
    make: type, stream: streams.Stream, forget: float, points: list[int], read: Callable
) -> list:
    model, previous, values = make(D, forget, RIDGE), 0, []
    with np.errstate(all="ignore"):
        for n in points:
            model.run(stream.X[previous:n], stream.y[previous:n])
            values.append(read(model))
            previous = n
    return values


def drift() -> None:
    """Fit error of four methods on one stream, and the asymmetry that ends the textbook's."""
    n, forget = 100_000, 0.99
    stream = streams.conditioned(n, D, 1e6)
    points = [p for p in checkpoints(n) if p >= 2 * D]
    exact = solve_at(stream.X, stream.y, points, forget, RIDGE)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")
    for label, make, colour in (
        ("textbook,\nP x reused", TextbookReuse, RED),
        ("padasip", Padasip, ORANGE),
        ("filterpy\n(Joseph)", Filterpy, GREY),
        ("olsq", Olsq, BLUE),
    ):
        coefs = _trajectory(make, stream, forget, points, lambda m: np.array(m.coef()))
        errors = [
            s.fit_error(c) / stream.noise if np.all(np.isfinite(c)) else np.nan
            for s, c in zip(exact, coefs, strict=True)
        ]
        left.loglog(points, np.clip(errors, 1e-16, 1e10), color=colour, label=label, lw=1.3)
    left.axhline(1, color="black", lw=0.8, ls="--")
    left.text(points[0], 1.6, "as large as the noise", fontsize=8)
    left.set(
        xlabel="rows",
        ylabel="fit error / noise",
        title="forget 0.99, condition number 1e6, float64",
    )
    label_lines(left)

    # on a linear axis of logarithms: the growth law is a straight line, and may pass 1e308
    for forget, colour in ((0.95, RED), (0.99, ORANGE), (0.999, GREY)):
        white = streams.conditioned(45_000, D, 1.0)
        rows = np.arange(250, len(white.y) + 1, 250)
        asymmetry = np.log10(_trajectory(TextbookReuse, white, forget, list(rows), _asymmetry))
        right.plot(rows / 1000, asymmetry, color=colour, lw=1.6, label=f"forget {forget}")
        law = asymmetry[0] - (rows - rows[0]) * np.log10(forget)
        right.plot(rows / 1000, law, color="black", lw=1.0, ls=":")
    right.set(
        xlim=(0, 45),
        ylim=(-18, 6),
        xlabel="thousand rows",
        ylabel="log$_{10}$ of the largest entry of |P - P'|",
        title="P x reused: asymmetry as forget$^{-t}$ (dotted)",
    )
    label_lines(right)
    figure.savefig(DOCS / "img" / "numerics-drift.png")
    plt.close(figure)


def _asymmetry(model: TextbookReuse) -> float:
    return float(np.max(np.abs(model.P - model.P.T)))


def windup() -> None:
    """What zero and what faint regressors do to P and to the coefficients."""
    import olsq

    forget = 0.98
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.2), layout="constrained")

    stream = streams.silence(2_000, 40_000, 2_000, D)
    points = list(range(500, len(stream.y) + 1, 500))
    # logarithms again: the textbook's P passes 1e308
    for make, read, label, colour, style in (
        (Textbook, _largest_entry, "textbook\n(NaN at the end)", RED, "-"),
        (Olsq, _largest_variance, "olsq", BLUE, "-"),
    ):
        values = np.log10(_trajectory(make, stream, forget, points, read))
        left.plot(np.array(points) / 1000, values, color=colour, ls=style, label=label)
    left.axvspan(2, 42, color="black", alpha=0.06, lw=0)
    left.text(22, 8, "regressors are zero", fontsize=8, ha="center")
    left.set(
        xlabel="thousand rows",
        ylabel="log$_{10}$ of the largest P$_{jj}$",
        title="40,000 zero regressors, forget 0.98",
    )
    label_lines(left)

    faint = streams.conditioned(3_000, D, seed=1)
    silent = slice(1_000, 2_000)
    faint.y[silent] -= (1 - 1e-3) * faint.X[silent] @ faint.coef
    faint.X[silent] *= 1e-3
    for mode, colour in (("discounted", GREEN), ("fixed", BLUE)):
        est = olsq.RecursiveLeastSquares(
            forget=forget, ridge=0.1, ridge_mode=mode, fit_intercept=False
        )
        path = est.partial_fit_path(faint.X, faint.y)
        distance = np.linalg.norm(path.coef - faint.coef, axis=1)
        right.semilogy(distance, color=colour, lw=1.2, label=f'ridge_mode=\n"{mode}"')
    right.axvspan(1_000, 2_000, color="black", alpha=0.06, lw=0)
    right.text(1_500, 0.004, "regressors\n1000 times fainter", fontsize=8, ha="center")
    right.set(
        ylim=(2e-3, 3e2),
        xlabel="rows",
        ylabel="distance to the true coefficients",
        title="faint regressors: an exact answer can be a bad one",
    )
    label_lines(right)
    figure.savefig(DOCS / "img" / "numerics-windup.png")
    plt.close(figure)


def _largest_entry(model: Textbook) -> float:
    return float(np.max(np.diag(model.P)))


def _largest_variance(model: Olsq) -> float:
    """Largest diagonal entry of P, from what the estimator makes public."""
    return float(np.max(model.model.coef_stderr_**2 / model.model.sigma2_))


def draw() -> None:
    """Draw all figures."""
    (DOCS / "img").mkdir(exist_ok=True)
    with plt.rc_context(STYLE):
        drift()
        windup()

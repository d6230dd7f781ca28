"""Draw the two printable pages: which estimator to use, and a cheat sheet of everything.

    python docs/sheets.py          # writes which-estimator.png, cheat-sheet.png and .pdf in img/

Every line of code on the sheet is run by the tests, section by section, in one session.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from olsq.plot.drawing import BLUE, GRID, INK, MUTED, ORANGE, house_style, new_figure

IMAGES = Path(__file__).parent / "img"

# Question, answer and a word about it, in the order in which they are asked.
QUESTIONS = [
    ("Many streams at once?", "FilterBank(n)", "arrays, one filter each"),
    ("Groups, and only the last rows?", "GroupedRollingLeastSquares(window=)", "a window each"),
    ("Rows with labels of groups?", "GroupedLeastSquares()", "panels: .pooled(), .within()"),
    ("Outliers in the targets?", "RobustLeastSquares()", "Huber or Student weights"),
    ("Bounds or equations on coefficients?", "ConstrainedLeastSquares()", "exact at every row"),
    ("Few of many regressors matter?", "OnlineElasticNet()", "with a duality gap"),
    ("Errors in the regressors, too?", "TotalLeastSquares()", "the SVD of all rows"),
    ("Not linear in the regressors?", "KernelLeastSquares()", "or features.RandomFourier first"),
    ("Only the last rows count?", "RollingLeastSquares(window=)", "rows or a length of time"),
    ("Targets known only later?", "DelayedTargets(est, horizon=)", "or horizon= of a path"),
    ("Coefficients that wander?", "time_varying(X, y)", "drift found, smoothed, tested"),
    ("Sudden breaks?", "RecursiveLeastSquares(forget=ResetOnBreak())", "olsq.forgetting"),
    ("Older rows count less?", "RecursiveLeastSquares(half_life=)", "or forget=, in rows or time"),
]
OTHERWISE = ("RecursiveLeastSquares()", "all rows count alike; complex numbers too")
BESIDE = [
    "Coefficients after every row of a table: coefficient_path(X, y, ...) with the same options",
    "Every token of a sequence: online_lstsq(keys, values, queries), olsq.attention, olsq.nn",
    "Elsewhere: olsq.polars, olsq.distributed (Dask), olsq.compiled (Numba), olsq.torch, olsq fit",
]

SETUP = """
import io, tempfile, os
import numpy as np, olsq
rng = np.random.default_rng(0)
X = rng.standard_normal((300, 2)); y = X @ [1.0, -2.0] + 3 + 0.1 * rng.standard_normal(300)
labels, days = np.arange(300) % 6, np.arange(300) // 6
x_t, y_t, X_new = X[0], y[0], X[:4]
"""

# Heading, and lines of code with a word about each.
SHEET = [
    (
        "Learn",
        [
            ("est = olsq.RecursiveLeastSquares()", "ordinary least squares"),
            ("est.partial_fit(X[:200], y[:200])", "pieces of any size"),
            ("yhat, error = est.step(x_t, y_t)", "predict, then learn, one row"),
            ("est.partial_fit(X, y, sample_weight=np.ones(300))", "weights"),
            ("est.fit(X, y)", "start again"),
        ],
    ),
    (
        "Forget",
        [
            ("olsq.RecursiveLeastSquares(forget=0.99)", "a factor per row"),
            ("olsq.RecursiveLeastSquares(half_life=50)", "rows, or '30D'"),
            ("olsq.RollingLeastSquares(window=60)", "the last 60 rows"),
            ("olsq.RecursiveLeastSquares(forget=olsq.forgetting.RandomWalk(0.01))", "drift"),
            ("olsq.tune(X, y).forget", "the best factor"),
        ],
    ),
    (
        "Regularise",
        [
            ("olsq.RecursiveLeastSquares(ridge=1e-3)", "none by default"),
            ("olsq.RecursiveLeastSquares(prior=(np.zeros(3), np.eye(3)))", "mean, covariance"),
            ("olsq.ConstrainedLeastSquares(bounds=(0, None))", "positive"),
            ("olsq.OnlineElasticNet(alpha=0.1)", "sparse"),
        ],
    ),
    (
        "Read",
        [
            ("est.coef_, est.intercept_, est.coef_stderr_", ""),
            ("est.predict(X_new, return_std=True)", ""),
            ("est.predict_interval(X_new, level=0.9)", "lower, upper"),
            ("est.summary()", "the table of a regression"),
            ("est.cov_params('HC3', data=(X, y))", "robust; 'hac', lags=5"),
            ("est.sample_coef(rng, size=10)", "posterior draws"),
        ],
    ),
    (
        "Paths",
        [
            ("path = olsq.coefficient_path(X, y, fit_intercept=True)", "after every row"),
            ("path.coef, path.intercept, path.stderr, path.residual", "one step ahead"),
            ("path.r_squared, path.tvalues, path.pvalues, path.conf_int()", "every row"),
            ("olsq.coefficient_path(X, y, window=60, half_life=20)", "rolling, fading"),
            ("olsq.coefficient_path(X, y, window=60, cov='HAC')", "robust errors"),
            ("olsq.coefficient_path(X, y, by=labels, horizon=5)", "groups; 5 rows ahead"),
            ("path.to_frame(), path.plot()", ""),
        ],
    ),
    (
        "Keep",
        [
            ("est.save(path_of_state)", "atomic, no pickle"),
            ("again = olsq.load(path_of_state)", "goes on bit for bit"),
            ("olsq.merge(est, again)", "two streams as one"),
        ],
    ),
    (
        "Many",
        [
            ("bank = olsq.FilterBank(6)", "filters side by side"),
            ("bank.partial_fit(X.reshape(6, 50, 2), y.reshape(6, 50))", ""),
            ("groups = olsq.GroupedLeastSquares().fit(X, y, by=labels)", ""),
            ("groups[3].coef_, groups.keys()", "one group's estimator"),
            ("groups.within(cov='cluster').summary()", "panel, fixed effects"),
            ("olsq.fama_macbeth(X, y, by=days, lags=2)", "a regression a date"),
        ],
    ),
    (
        "Features",
        [
            ("from olsq import features", ""),
            ("features.Lags(3), features.ARX(2, 1)", "autoregression"),
            ("features.Fourier(period=24, order=3), features.Trend()", "seasons"),
            ("features.RandomFourier(100, gamma=0.5)", "kernels at a fixed size"),
        ],
    ),
    (
        "Test",
        [
            ("from olsq import stability", ""),
            ("stability.cusum(path).first_crossing, stability.cusum_squares(path)", "constant?"),
            ("stability.harvey_collier(path).p_value", "linear?"),
            ("stability.break_test(X, y), stability.chow_test(X, y, 150)", "a break"),
        ],
    ),
    (
        "Drift",
        [
            ("fit = olsq.time_varying(X, y)", "by maximum likelihood"),
            ("fit.coef, fit.stderr, fit.drift", "smoothed"),
            ("fit.forecast(X_new)", "mean, std"),
            ("fit.likelihood_ratio().p_value, fit.estimator", "a test; goes on online"),
        ],
    ),
    (
        "Sequences",
        [
            ("sol = olsq.online_lstsq(X, y[:, None], X, ridge=1e-3)", "every token solved"),
            ("sol.value, sol.state, sol.stats.bound", "certified"),
            ("olsq.local_lstsq(X, y[:, None], X, ridge=1e-2)", "kernel-weighted"),
        ],
    ),
    (
        "Shell",
        [
            ("$ olsq fit data.csv --target y --half-life 50 --out path.csv --plot fit.png", ""),
            ("$ olsq fit data.parquet --target y --by stock --window 60", ""),
            ("$ olsq predict state.olsq new.csv", ""),
            ("$ olsq compile --all", "kernels beforehand"),
        ],
    ),
]


def draw_questions() -> Any:
    """Draw the questions one below the other, each with its answer to the right."""
    from matplotlib.patches import FancyBboxPatch

    rows = len(QUESTIONS) + 1
    figure = new_figure(8.6, 0.47 * rows + 1.25, layout=None)
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axes.set_axis_off()
    axes.set(xlim=(0, 100), ylim=(-rows - 2.1, 0.9))
    box = {"boxstyle": "round,pad=0.32", "linewidth": 0.8}
    answer = box | {"facecolor": "#eef4fb", "edgecolor": BLUE}
    arrow = {"arrowstyle": "-|>", "color": MUTED, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
    axes.text(1, 0.35, "Which estimator?", fontsize=11, weight="bold", va="center")
    for i, (question, name, word) in enumerate(QUESTIONS):
        y = -i - 0.6
        axes.add_patch(
            FancyBboxPatch(
                (2, y - 0.3),
                30,
                0.6,
                "round,pad=0,rounding_size=0.2",
                mutation_aspect=0.2,
                facecolor="white",
                edgecolor=MUTED,
                linewidth=0.8,
            )
        )
        axes.text(17, y, question, ha="center", va="center", fontsize=8.5)
        axes.annotate("", (39.5, y), (32, y), arrowprops=arrow)
        axes.text(36, y + 0.2, "yes", ha="center", va="bottom", fontsize=8, color=MUTED)
        axes.text(40.5, y, name, va="center", bbox=answer, fontsize=8, family="monospace")
        axes.text(99, y, word, ha="right", va="center", fontsize=8, color=MUTED)
        axes.annotate("", (17, y - 0.7), (17, y - 0.3), arrowprops=arrow)
        axes.text(18, y - 0.5, "no", va="center", fontsize=8, color=MUTED)
    y = -rows + 0.4
    axes.text(17, y, OTHERWISE[0], ha="center", va="center", bbox=answer, fontsize=8,
              family="monospace")  # fmt: skip
    axes.text(40.5, y, OTHERWISE[1], va="center", fontsize=8, color=MUTED)
    for i, line in enumerate(BESIDE):
        axes.text(1, -rows - 0.5 - 0.62 * i, line, va="center", fontsize=8, color=INK)
    return figure


def draw_sheet() -> Any:
    """Draw all sections in three columns of a landscape A4 page."""
    figure = new_figure(11.69, 8.27, layout=None)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, 11.69), ylim=(8.27, 0))
    axes.text(0.4, 0.42, "olsq: online least squares", fontsize=14, weight="bold", va="center")
    axes.text(11.29, 0.42, "import numpy as np, olsq",
              fontsize=8, family="monospace", ha="right", va="center", color=MUTED)  # fmt: skip
    line, gap, width, bottom = 0.168, 0.2, 5.55, 8.1
    x, y = 0.4, 0.85
    for heading, code in SHEET:
        height = line * (len(code) + 1) + gap
        if y + height > bottom:
            x, y = x + width, 0.85
        axes.text(x, y, heading, fontsize=9, weight="bold", va="center", color=ORANGE)
        axes.plot([x, x + width - 0.25], [y + 0.1, y + 0.1], color=GRID, linewidth=0.8)
        for text, word in code:
            y += line
            axes.text(x, y + 0.03, text, fontsize=6.2, family="monospace", va="center")
            axes.text(x + width - 0.25, y + 0.03, word, fontsize=6.2, ha="right", va="center",
                      color=MUTED)  # fmt: skip
        y += line + gap
    return figure


def main() -> None:
    """Write the images."""
    with house_style():
        draw_questions().savefig(IMAGES / "which-estimator.png", dpi=150)
        sheet = draw_sheet()
        sheet.savefig(IMAGES / "cheat-sheet.png", dpi=150)
        sheet.savefig(IMAGES / "cheat-sheet.pdf", metadata={"CreationDate": None})


if __name__ == "__main__":
    main()

"""Least squares and its variants on streams that tell them apart, with outside solvers beside.

    python -m benchmarks.reports.variants [--seeds 2]

Writes ``benchmarks/results/variants.json``, ``docs/img/variants.png`` and the table of
docs/measurements/rows.md.  Every estimator forgets by the same factor.  An outside solver has no
recursion: it is fitted again every ``REFIT`` rows to all rows so far, with the same weights, and
its time is that of one fit: what being up to date costs.  Errors are of predictions made before
the row, against the target without its noise; times are processor time.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

import olsq

from ..support.machine import describe, sentence
from .registry import write_blocks

RESULT = Path(__file__).parents[1] / "results" / "variants.json"
DOCS = Path(__file__).parents[2] / "docs"
N, FORGET, NOISE, BURN, REFIT = 800, 0.98, 0.5, 100, 20
TRUTH = np.array([1.0, 0.6, 0.4, 0.0, 0.0, 0.0])
STREAMS = ("steady", "drift", "jump", "quiet stretch", "outliers", "collinear", "errors in X")
LAST = "errors in X"  # judged by its coefficients


def stream(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (n, d), y, and the targets without their noise."""
    rng = np.random.default_rng([seed, STREAMS.index(name)])
    X, noise = rng.standard_normal((N, TRUTH.size)), NOISE * rng.standard_normal(N)
    coef = np.tile(TRUTH, (N, 1))
    if name == "drift":
        coef = np.abs(coef + np.cumsum(0.03 * rng.standard_normal(coef.shape), axis=0))
    elif name == "jump":
        coef[N // 2 :] = TRUTH[::-1]
    elif name == "quiet stretch":
        X[N // 3 : 2 * N // 3] *= 1e-3
    elif name == "outliers":
        bad = rng.random(N) < 0.1
        noise[bad] += 10 * rng.standard_normal(bad.sum())
    elif name == "collinear":
        X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    clean = 2.0 + (X * coef).sum(1)
    if name == LAST:
        X = X + NOISE * rng.standard_normal(X.shape)
    return X, clean + noise, clean


def centred(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, ...]:
    """Rows about their weighted means, times the roots of the weights; and these means."""
    mx, my, root = w @ X / w.sum(), w @ y / w.sum(), np.sqrt(w)
    return (X - mx) * root[:, None], (y - my) * root, mx, my


def by_coefficients(solve: Callable) -> Callable:
    """A fit that gives coefficients, as one that gives a function."""

    def fit(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[Callable, np.ndarray]:
        A, b, mx, my = centred(X, y, w)
        coef = solve(A, b, w.sum())
        return (lambda Z: my + (Z - mx) @ coef), coef

    return fit


def nnls(A: np.ndarray, b: np.ndarray, total: float) -> np.ndarray:
    from scipy.optimize import nnls

    return nnls(A, b)[0]


def svd(A: np.ndarray, b: np.ndarray, total: float) -> np.ndarray:
    v = np.linalg.svd(np.column_stack([A, b]), full_matrices=False)[2][-1]
    return -v[:-1] / v[-1]


def lstsq(A: np.ndarray, b: np.ndarray, total: float) -> np.ndarray:
    return np.linalg.lstsq(A, b, rcond=None)[0]


def sklearn_fit(make: Callable) -> Callable:
    """A fit by a scikit-learn regressor that takes weights."""

    def fit(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[Callable, np.ndarray | None]:
        model = make().fit(X, y, sample_weight=w)
        return model.predict, getattr(model, "coef_", None)

    return fit


def rlm(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> tuple[Callable, np.ndarray]:
    """statsmodels' RLM, which takes no weights, on the rows within the memory of forgetting."""
    import statsmodels.api as sm

    rows = slice(-int(2 / (1 - FORGET)), None)
    theta = sm.RLM(y[rows], sm.add_constant(X[rows], has_constant="add")).fit().params
    return (lambda Z: theta[0] + Z @ theta[1:]), theta[1:]


def makers() -> dict[str, tuple[Callable, dict[str, Callable]]]:
    """Each estimator, and the outside solvers of its problem."""
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.linear_model import ElasticNet, HuberRegressor

    kernel = {"gamma": 0.05, "ridge": 0.1, "fit_intercept": True}
    return {
        "RecursiveLeastSquares": (
            lambda: olsq.RecursiveLeastSquares(forget=FORGET),
            {"NumPy lstsq": by_coefficients(lstsq)},
        ),
        "RobustLeastSquares, Huber": (
            lambda: olsq.RobustLeastSquares(forget=FORGET),
            {
                "scikit-learn HuberRegressor": sklearn_fit(lambda: HuberRegressor(max_iter=1000)),
                "statsmodels RLM, last 100 rows": rlm,
            },
        ),
        "RobustLeastSquares, Student": (
            lambda: olsq.RobustLeastSquares(loss="student", forget=FORGET),
            {},
        ),
        "ConstrainedLeastSquares, >= 0": (
            lambda: olsq.ConstrainedLeastSquares(bounds="nonnegative", forget=FORGET),
            {"SciPy nnls": by_coefficients(nnls)},
        ),
        "OnlineElasticNet": (
            lambda: olsq.OnlineElasticNet(0.02, l1_ratio=0.9, forget=FORGET),
            {"scikit-learn ElasticNet": sklearn_fit(lambda: ElasticNet(0.02, l1_ratio=0.9))},
        ),
        "TotalLeastSquares": (
            lambda: olsq.TotalLeastSquares(forget=FORGET),
            {"NumPy svd": by_coefficients(svd)},
        ),
        "KernelLeastSquares": (
            lambda: olsq.KernelLeastSquares(forget=FORGET, budget=20, **kernel),
            {
                "scikit-learn KernelRidge": sklearn_fit(
                    lambda: KernelRidge(kernel="rbf", gamma=0.05, alpha=0.1)
                )
            },
        ),
    }


def run_online(make: Callable, name: str, seed: int) -> tuple[float, float]:
    """The error, and seconds per row."""
    X, y, clean = stream(name, seed)
    est = make().partial_fit(X[:2], y[:2])
    predicted = np.full(N, np.nan)
    start = time.process_time()
    for t in range(2, N):
        predicted[t] = est.step(X[t], y[t])[0]
    seconds = (time.process_time() - start) / (N - 2)
    return judged(name, predicted, clean, getattr(est, "coef_", None)), seconds


def path_seconds(make: Callable) -> float | None:
    """Seconds a row of a path, coefficients after every row in one call; None where there is none.

    The least of some runs: a few milliseconds are easily disturbed.
    """
    X, y, _ = stream("steady", 0)
    try:
        make().partial_fit_path(X, y)
    except NotImplementedError:
        return None
    found = []
    for _ in range(5):
        est, start = make(), time.process_time()
        est.partial_fit_path(X, y)
        found.append((time.process_time() - start) / N)
    return min(found)


def run_again(fit: Callable, name: str, seed: int) -> tuple[float, float]:
    """The same for a solver that is fitted again and again; seconds are those of a fit."""
    X, y, clean = stream(name, seed)
    predicted, spent, fits, coef = np.full(N, np.nan), 0.0, 0, None
    for t in range(BURN, N, REFIT):
        weights = FORGET ** np.arange(t - 1, -1, -1.0)
        start = time.process_time()
        predict, coef = fit(X[:t], y[:t], weights)
        spent += time.process_time() - start
        fits += 1
        predicted[t : t + REFIT] = predict(X[t : t + REFIT])
    return judged(name, predicted, clean, coef), spent / fits


def judged(name: str, predicted: np.ndarray, clean: np.ndarray, coef: np.ndarray | None) -> float:
    """Root mean square, of predictions or, with errors in X, of the last coefficients."""
    if name == LAST:
        return np.nan if coef is None else float(np.sqrt(np.mean((coef - TRUTH) ** 2)))
    return float(np.sqrt(np.mean((predicted - clean)[BURN:] ** 2)))


def measure(seeds: int) -> dict[str, dict]:
    """Errors by stream, and microseconds per row, of each method."""
    found: dict[str, dict] = {}

    def note(label: str, of: str, run: Callable, path: float | None = None) -> None:
        errors, times = {}, []
        for name in STREAMS:
            both = [run(name, seed) for seed in range(seeds)]
            errors[name] = float(np.mean([error for error, _ in both]))
            times += [seconds for _, seconds in both]
        found[label] = {"of": of, "errors": errors, "microseconds": 1e6 * float(np.median(times)),
                        "path_microseconds": None if path is None else 1e6 * path}  # fmt: skip
        print(label, {k: round(v, 3) for k, v in errors.items()}, flush=True)

    for label, (make, others) in makers().items():
        run_online(make, "steady", 99)  # compiles
        path = path_seconds(make)
        note(label, label, lambda name, seed, make=make: run_online(make, name, seed), path)
        for other, fit in others.items():
            note(other, label, lambda name, seed, fit=fit: run_again(fit, name, seed))
    return found


def table(found: dict[str, dict]) -> str:
    """The page's table; outside solvers in italics under the estimator of their problem."""
    lines = ["| | " + " | ".join(STREAMS) + " | µs per step | µs per row of a path |"]
    lines.append("| --- |" + " ---: |" * (len(STREAMS) + 2))
    for label, row in found.items():
        shown = f"`{label}`".replace(", ", "`, ", 1).removesuffix("`" if ", " in label else "\0")
        name = shown if row["of"] == label else f"*{label}*"
        cells = ["–" if np.isnan(e) else f"{e:.3f}" for e in row["errors"].values()]
        path = row.get("path_microseconds")
        cells += [f"{row['microseconds']:,.0f}", "–" if path is None else f"{path:.1f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figure(found: dict[str, dict]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from olsq.plot.labels import label_lines

    colours = ["#555555", "#0072B2", "#2f9bd6", "#00805c", "#b37a00", "#b3498a", "#D55E00"]
    own = [label for label, row in found.items() if row["of"] == label]
    fig, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
    for i, label in enumerate(own):
        places = np.arange(len(STREAMS)) + 0.06 * (i - 3)
        values = list(found[label]["errors"].values())
        name = label.replace("LeastSquares", "\nLeastSquares")
        axes.plot(places, values, "o-", color=colours[i], label=name, markersize=4, lw=0.6)
        for other, row in found.items():
            if row["of"] == label != other:
                values = list(row["errors"].values())
                axes.plot(places, values, "_", color=colours[i], markersize=8, mew=1.5)
    axes.set(yscale="log", ylabel="error, root mean square")
    names = [*STREAMS[:-1], "errors in X\n(coefficients)"]
    axes.set_xticks(range(len(STREAMS)), names, rotation=40, ha="right")
    axes.grid(axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    label_lines(axes, edge=True)
    fig.savefig(DOCS / "img" / "variants.png", dpi=140)


def text(found: dict) -> str:
    """The block of the page: the table, and what it was measured on."""
    said = sentence(found["machine"], "scipy", "scikit-learn", "statsmodels")
    return f"{table(found['methods'])}\n\n{said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    seeds = parser.parse_args().seeds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of outside solvers that stop before they converge
        found = measure(seeds)
    stored = {"machine": describe(), "methods": found}
    RESULT.write_text(json.dumps(stored, indent=1) + "\n")
    write_blocks("variants", stored)
    figure(found)


if __name__ == "__main__":
    main()

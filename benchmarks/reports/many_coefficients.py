"""Regressions of many coefficients compared with LAPACK's routines: a table and a figure.

    python -m benchmarks.reports.many_coefficients [--rows 1024]

Calls of 256 rows to a state that is under way, forget = 1, no intercept.  In each size all methods
take turns with tpqrt (the QR update of a triangle), dsyrk (one symmetric product) and the NumPy
that people write by hand, ``H += X.T @ X``, in one process, and the least of several processor
times counts: ratios then mean something on a busy machine.  Run it with one BLAS thread
(OMP_NUM_THREADS=1): processor times of threads add up.  In brackets: the error of the
coefficients against a dense solve of all rows, over their size.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from scipy.linalg import get_blas_funcs, get_lapack_funcs

import olsq

from .numerics_figures import DOCS

SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
ROWS = 256
SECONDS = 1.5  # of processor time, for the turns of one size


def measured(d: int, n: int = ROWS) -> dict[str, list[float]]:
    """Measure microseconds of processor time per row, and (without bounds) the error, by method."""
    rng = np.random.default_rng(d)
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    (tpqrt,) = get_lapack_funcs(("tpqrt",), dtype=np.float64)
    (dsyrk,) = get_blas_funcs(("syrk",), dtype=np.float64)
    R, columns = np.asfortranarray(np.eye(d) * 2 * np.sqrt(d)), np.asfortranarray(X)
    sums, H, g = np.zeros((d, d), order="F"), 4.0 * d * np.eye(d), np.zeros(d)

    def by_hand() -> None:
        nonlocal H, g
        H += X.T @ X
        g += X.T @ y

    prior = np.zeros(d), np.full(d, 1 / (4 * d))
    ours = olsq.RecursiveLeastSquares(fit_intercept=False, prior=prior)
    calls = {
        "tpqrt": lambda: tpqrt(0, min(32, d), R, columns, overwrite_a=True),
        "dsyrk": lambda: dsyrk(1.0, X.T, beta=1.0, c=sums, overwrite_c=True),
        "NumPy, X.T @ X": by_hand,
        "olsq": lambda: ours.partial_fit(X, y),
    }
    for call in calls.values():
        call()
    best, turns, began = dict.fromkeys(calls, np.inf), 0, time.process_time()
    while turns < 3 or time.process_time() - began < SECONDS:
        turns += 1
        for name, call in calls.items():
            start = time.process_time()
            call()
            best[name] = min(best[name], time.process_time() - start)
    times = turns + 1
    theta = np.linalg.solve(4.0 * d * np.eye(d) + times * (X.T @ X), times * (X.T @ y))
    found = {"olsq": ours.coef_, "NumPy, X.T @ X": np.linalg.solve(H, g)}
    errors = {k: float(np.abs(v - theta).max() / np.abs(theta).max()) for k, v in found.items()}
    return {k: [v / n * 1e6, *([errors[k]] if k in errors else [])] for k, v in best.items()}


def table(results: dict[str, dict]) -> str:
    """Markdown: microseconds per row, the ratio to its bound, and the error."""
    names = list(next(iter(results.values())))
    lines = ["| d | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for d, row in results.items():
        cells = []
        for name in names:
            time_per_row, *error = row[name]
            bound = row["dsyrk" if "NumPy" in name else "tpqrt"][0]
            ratio = f", {time_per_row / bound:.1f} times" if error else ""
            cells.append(f"{time_per_row:.3g}{ratio}" + (f" ({error[0]:.0e})" if error else ""))
        lines.append(f"| {d} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(results: dict[str, dict], gflops: float, gigabytes: float) -> None:
    """Time per row against d, with the bounds of memory (a pass per row) and of arithmetic."""
    import matplotlib.pyplot as plt

    from olsq.plot.labels import label_lines

    sizes = np.array([int(d) for d in results], float)
    figure, axes = plt.subplots(figsize=(5.4, 4.2))
    axes.loglog(sizes, [row["olsq"][0] for row in results.values()], label="olsq")
    arithmetic = 2 * sizes**2 / gflops * 1e-3
    memory = 8 * sizes**2 / gigabytes * 1e-3  # read and write one triangle
    axes.loglog(sizes, arithmetic, "k--", lw=1, label="arithmetic of QR")
    axes.loglog(sizes, memory, "k:", lw=1, label="memory, by rows")
    axes.set_xlabel("coefficients")
    axes.set_ylabel("microseconds per row")
    axes.spines[["top", "right"]].set_visible(False)
    figure.subplots_adjust(0.13, 0.13, 0.68, 0.97)
    label_lines(axes)
    figure.savefig(DOCS / "img" / "many-coefficients.png", dpi=150)


def rates() -> tuple[float, float]:
    """GF/s of a product of 1024 by 1024, and GB/s of reading and writing an array in memory."""
    A = np.ones((1024, 1024))
    big = np.ones(2**24)
    product = move = np.inf
    for _ in range(5):
        start = time.process_time()
        A @ A
        product = min(product, time.process_time() - start)
        start = time.process_time()
        big *= 1.0
        move = min(move, time.process_time() - start)
    return 2 * 1024**3 / product * 1e-9, 2 * big.nbytes / move * 1e-9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--rows", type=int, default=ROWS, help="of a call; others draw nothing")
    options = parser.parse_args()
    gflops, gigabytes = rates()
    results = {str(d): measured(d, options.rows) for d in options.sizes}
    print(table(results))
    if options.rows == ROWS:
        draw(results, gflops, gigabytes)


if __name__ == "__main__":
    main()

"""Fit a file larger than memory: block by block, in the memory of a block.

    python examples/gallery/larger_than_memory.py [--rows 20000000] [--figure memory.png]

The rows lie in a file that is mapped, never read whole.  The estimator is fed with blocks; what it
keeps does not grow.  Half-way the estimator is saved and loaded, and the fit goes on.
"""

from __future__ import annotations

import tempfile
import tracemalloc
from pathlib import Path

import figures
import numpy as np

import olsq

COLUMNS, BLOCK = 9, 50_000  # eight regressors and the target
TRUE = np.linspace(-1, 1, COLUMNS - 1)


def write(path: Path, rows: int) -> None:
    """A file of float32 rows: regressors of very different sizes, and a target."""
    rng = np.random.default_rng(0)
    scale = np.logspace(-2, 2, COLUMNS - 1)
    with path.open("wb") as file:
        for start in range(0, rows, BLOCK):
            X = rng.standard_normal((min(BLOCK, rows - start), COLUMNS - 1))
            y = X @ TRUE + rng.standard_normal(len(X))
            file.write(np.column_stack([X * scale, y]).astype(np.float32).tobytes())


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments, rows=2_000_000)
    rows = options.rows
    with tempfile.TemporaryDirectory() as folder:
        file, state = Path(folder, "rows.f32"), Path(folder, "fit.olsq")
        write(file, rows)
        size = file.stat().st_size
        olsq.RecursiveLeastSquares().fit(np.eye(3), np.ones(3))  # compiled before memory is counted
        tracemalloc.start()
        seen, error = [], []
        # [use]
        table = np.memmap(file, np.float32, "r").reshape(-1, COLUMNS)
        est = olsq.RecursiveLeastSquares(ridge=0.0, residuals=False)
        for start in range(0, rows, BLOCK):
            if start == BLOCK * (rows // BLOCK // 2):  # say, the machine goes down here
                est.save(state)
                est = olsq.load(state)
            block = table[start : start + BLOCK]
            est.partial_fit(block[:, :-1], block[:, -1])
            # [end]
            seen.append(est.n_samples_seen_)
            error.append(np.abs(est.coef_ * np.logspace(-2, 2, COLUMNS - 1) - TRUE).max())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        del table, block
    print(f"{rows:,} rows, a file of {size / 1e6:.0f} MB, {peak / 1e6:.0f} MB of memory")
    print(f"largest error of a coefficient: {error[-1]:.1e}, one over root n: {rows**-0.5:.1e}")
    assert est.n_samples_seen_ == rows
    assert error[-1] < 5 / rows**0.5
    assert peak < 40e6  # some copies of one block in float64, whatever the file's size

    def draw(ax):
        ax.loglog(seen, error, color="#2166ac", label="largest error\nof a coefficient")
        ax.loglog(seen, np.array(seen) ** -0.5, color="#6b7785", lw=1, ls=":", label="1 / root n")
        ax.set_xlabel("rows read")

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()

"""Fit partitions on a Dask cluster: the same numbers as one machine, in the order of the rows.

    python examples/gallery/dask_cluster.py [--figure dask.png]

Rows lie in partitions.  Each is learned where it is, into a triangle of a few numbers, and the
triangles are merged in order along a tree, with forgetting.  The cluster here is one process with
threads; a `dask.distributed.Client` takes its place without another line.
"""

from __future__ import annotations

import dask
import dask.array as da
import figures
import numpy as np

import olsq

ROWS, PARTITION = 200_000, 20_000


def main(arguments: list[str] | None = None) -> None:
    options = figures.options(__doc__, arguments)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((ROWS, 4))
    drift = np.sin(np.arange(ROWS) / 20_000)[:, None] * [1.0, 0.5, 0.0, -0.5] + [0, 1, 2, 3]
    targets = (rows * drift).sum(1) + rng.standard_normal(ROWS)
    # [use]
    X = da.from_array(rows, chunks=(PARTITION, 4))  # or da.from_zarr, or a Dask data frame
    y = da.from_array(targets, chunks=PARTITION)
    with dask.config.set(scheduler="threads"):
        est = olsq.distributed.fit(X, y, half_life=5_000, ridge=1e-3)
        path = olsq.distributed.coefficient_path(X, y, half_life=5_000, ridge=1e-3)
        coef = path.coef[::500].compute()  # after every 500th row
    # [end]
    alone = olsq.RecursiveLeastSquares(half_life=5_000, ridge=1e-3).fit(rows, targets)
    print(f"{X.npartitions} partitions; largest difference to one machine: "
          f"{np.abs(est.coef_ - alone.coef_).max():.0e}")  # fmt: skip
    assert np.abs(est.coef_ - alone.coef_).max() < 1e-12
    assert np.abs(coef[50:] - drift[::500][50:]).max() < 0.4

    def draw(ax):
        at = np.arange(0, ROWS, 500)
        ax.plot(at, drift[::500], color="#9aa5b1", lw=1)
        ax.plot(at, coef, color="#2166ac", lw=0.8)
        for edge in range(0, ROWS, PARTITION):
            ax.axvline(edge, color="#e3e8ee", lw=0.7, zorder=0)
        ax.set_ylim(-2, 4)
        ax.set_xlabel("row; lines between partitions")
        ax.set_title("Coefficients, and the true ones (grey)", loc="left")

    figures.save(options.figure, draw)


if __name__ == "__main__":
    main()

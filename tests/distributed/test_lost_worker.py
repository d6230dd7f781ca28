"""A worker that dies in the middle of a fit changes nothing."""

from __future__ import annotations

import os

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

import olsq
from olsq import distributed


def block(path, seed):
    """The rows of a partition; who makes the third for the first time is killed."""
    if seed == 3 and not path.exists():
        path.touch()
        os._exit(1)  # as the kernel kills a process that is out of memory
    rng = np.random.default_rng(seed)
    return rng.standard_normal((50, 3))


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_changes_nothing(tmp_path):
    path = tmp_path / "killed"
    make = dask.delayed(block, pure=True)
    parts = [da.from_delayed(make(path, i), (50, 3), float) for i in range(6)]
    data = da.concatenate(parts)
    X, y = data[:, :2], data[:, 2]
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0",
        memory_limit=0, silence_logs=50, local_directory=str(tmp_path),
    )  # fmt: skip
    with cluster, Client(cluster) as client:
        future = client.compute(distributed.fit(X, y, forget=0.99, compute=False))
        found = future.result(timeout=300)
    assert path.exists()  # it was killed
    rows = np.concatenate([block(path, i) for i in range(6)])
    one = olsq.RecursiveLeastSquares(forget=0.99).fit(rows[:, :2], rows[:, 2])
    np.testing.assert_allclose(found.coef_, one.coef_, rtol=1e-12)
    np.testing.assert_allclose(found.sigma2_, one.sigma2_, rtol=1e-12)
    assert found.n_samples_seen_ == 300

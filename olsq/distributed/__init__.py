"""Least squares on Dask arrays and data frames, on many machines or larger than memory.

Every partition is reduced to a state of d^2 numbers, states merge in order along a tree, and the
result is that of one machine.  Needs the extra ``dask``.
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("dask") is None:  # pragma: no cover
    raise ImportError(
        "olsq.distributed needs Dask, which is not installed: pip install "
        '".[dask]" in a checkout of olsq'
    )

from olsq.distributed.fitting import fit, predict
from olsq.distributed.paths import DistributedPath, coefficient_path

__all__ = ["DistributedPath", "coefficient_path", "fit", "predict"]

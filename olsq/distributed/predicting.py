"""Predictions for Dask collections."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from olsq.distributed.partitions import new_array, partitions
from olsq.distributed.work import predict_partition


def predict(estimator: Any, X: Any, *, by: Any = None) -> da.Array:
    """Predict every row of X with a fitted estimator, lazily.

    Parameters
    ----------
    estimator : fitted estimator
        One of this package, as :func:`fit` returns it, or anything with ``predict``.
    X : Dask array or data frame (n, d)
    by : Dask array or series (n,), or name of a column of X, optional
        Labels of the groups of :class:`olsq.GroupedLeastSquares`.

    Returns
    -------
    dask.array.Array (n,) or (n, m)
        In X's partitions; NaN in rows with a missing value.

    Raises
    ------
    TypeError, ValueError
        If X is no Dask collection, has not the number of features that was fitted (where the
        estimator says it), or ``by`` has other partitions.

    Notes
    -----
    One task a partition; the estimator is in the graph once.  No derivatives.

    Examples
    --------
    >>> import dask.array as da, olsq.distributed
    >>> X = da.arange(6.0, chunks=2)[:, None]
    >>> est = olsq.distributed.fit(X, 2.0 * X[:, 0], ridge=0.0, fit_intercept=False)
    >>> olsq.distributed.predict(est, X).compute().round(6).tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    table = partitions(X, by=by)
    features = getattr(estimator, "n_features_in_", None)
    d = table.meta[0].shape[1]
    if features is not None and d != features:
        raise ValueError(f"X has {d} features, but the estimator is expecting {features}")
    like = np.asarray(estimator.coef_)
    groups = by is not None
    targets = like.shape[int(groups) : -1]
    token = uuid4().hex
    name, own = f"predict-{token}", f"estimator-{token}"
    task = partial(predict_partition, table.columns)
    rest = (0,) * len(targets)
    graph: dict[Any, Any] = {
        (name, i, *rest): (task, own, blocks[0], blocks[-1])
        for i, blocks in enumerate(table.blocks)
    }
    held = HighLevelGraph.from_collections(own, {own: estimator}, dependencies=())
    dependencies = [*table.dependencies, Delayed(own, held, layer=own)]
    layers = HighLevelGraph.from_collections(name, graph, dependencies=dependencies)
    rows = tuple(int(c) if c == c else c for c in table.rows)
    chunks = (rows, *((m,) for m in targets))
    return new_array(layers, name, chunks, meta=np.empty((0, *targets), like.dtype))

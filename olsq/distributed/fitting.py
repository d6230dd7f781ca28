"""Exact fits over partitions, one state per partition merged in order along a tree; predictions.

A merge is associative but does not commute, so neighbours are merged with neighbours: n - 1 merges
of depth log2 n for all, and at most as many again for the states before every partition (Blelloch
1990, the work-efficient exclusive scan).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from olsq.arrays.checks import check_flag
from olsq.distributed.partitions import new_array, partitions
from olsq.distributed.work import Work, predict_partition
from olsq.forgetting import Forgetting
from olsq.online import RecursiveLeastSquares, RollingLeastSquares
from olsq.online.pieces import pieces


def make_work(parameters: dict[str, Any], columns: dict[str, Any], by: bool, rolling: bool) -> Work:
    """Build the work on partitions from checked parameters.

    Raises TypeError for names that no estimator has, ValueError for values out of range and for
    parameters whose states do not merge.
    """
    kind = RollingLeastSquares if rolling else RecursiveLeastSquares
    allowed = set(inspect.signature(kind).parameters)
    unknown = sorted(parameters.keys() - allowed)
    if unknown:
        raise TypeError(f"{unknown[0]!r} is not a parameter of {kind.__name__}: {sorted(allowed)}")
    if not rolling and np.ndim(parameters.get("forget", 1.0)) > 0:
        raise ValueError("forget must be a number, or a Dask array with X's rows")
    estimator: Any = kind(**parameters)
    estimator._check_parameters()
    estimator._gates(None, 1)
    return Work(estimator.get_params(deep=False), columns, rolling, by)


def fit(
    X: Any,
    y: Any,
    *,
    sample_weight: Any = None,
    forget: Any = None,
    times: Any = None,
    by: Any = None,
    window: Any = None,
    compute: bool = True,
    **parameters: Any,
) -> Any:
    """Fit an estimator to all rows of Dask collections, in order.

    Parameters
    ----------
    X : dask.array.Array or dask.dataframe.DataFrame (n, d)
        Regressors in any partitions along the rows, also of unknown sizes and empty ones.
    y : Dask array or series (n,), array or frame (n, m), or name (or list of names)
        Targets, in X's partitions; of a data frame X also the column that holds them, which is
        read together with X.  Arrays of known sizes are brought into X's partitions, and
        in-memory arrays too.
    sample_weight, times : Dask array or series (n,), or name of a column, optional
        As in :meth:`olsq.RecursiveLeastSquares.partial_fit`.
    forget : float, or Dask array or series (n,), optional
        Forgetting factors.  Default 1.
    by : Dask array or series (n,), or name of a column, optional
        The label of every row: a regression for each, as in :class:`olsq.GroupedLeastSquares`.
    window : int, float, str or timedelta, optional
        Fit the last rows only, as :class:`olsq.RollingLeastSquares`.
    compute : bool, default True
        Whether to compute now, with Dask's current scheduler: that of a ``Client`` if there is
        one, else threads, else ``dask.config.set(scheduler="synchronous")``.  False: a
        :class:`dask.delayed.Delayed`, to be computed with others.
    **parameters
        Those of the estimator: ``half_life``, ``ridge``, ``ridge_mode``, ``fit_intercept``,
        ``method``, ``missing``, ``cov``, ``prior``, ``min_samples``, ...

    Returns
    -------
    RecursiveLeastSquares, RollingLeastSquares or GroupedLeastSquares
        As if it had learned the rows on one machine, and ready to go on: to predict, to be saved,
        merged, or fed.  ``residual_`` is empty.

    Raises
    ------
    TypeError, ValueError
        For collections that do not fit together and parameters out of range at once; for what is
        in the rows as ``fit`` does, when it is computed.  A parameter whose states have no
        associative merge is refused.

    Notes
    -----
    Each partition becomes the triangular factor of its rows by Householder reflections (TSQR;
    Demmel et al. 2012), with its forgetting and its weights; factors are stacked and rotated along
    a tree of depth log2 of the partitions; the ridge or the prior comes in once, at the end.  No
    moments are formed, so that conditioning is not squared.

    The result differs from one machine's by rounding: about 1e-15 times the condition number of X,
    relative.  Where wind-up protection held a coefficient on one machine, since all that was known
    of it was forgotten, it is undetermined here, as after :func:`olsq.merge`.

    O(n d^2) time, in matrix products; of each worker the memory of its partitions in progress and
    some states of 8 d^2 bytes; O(partitions) tasks, each a pure function, so that one that is lost
    with its worker runs again.  No derivatives.

    Examples
    --------
    >>> import dask.array as da, numpy as np, olsq.distributed
    >>> X = da.random.default_rng(0).standard_normal((10_000, 3), chunks=(1_000, 3))
    >>> y = X @ np.array([1.0, -2.0, 0.5]) + 3.0
    >>> est = olsq.distributed.fit(X, y)
    >>> est.coef_.round(6), round(float(est.intercept_), 6), est.n_samples_seen_
    (array([ 1. , -2. ,  0.5]), 3.0, 10000)
    """
    check_flag("compute", compute)
    per_row = {"y": y, "sample_weight": sample_weight, "times": times, "by": by}
    parameters, per_row = with_forget(parameters, per_row, forget)
    if window is not None:
        if by is not None:
            raise ValueError(
                "fit cannot combine by and window: olsq.distributed.coefficient_path(..., by=, "
                "window=) has, and its last row of each group is the fit"
            )
        parameters["window"] = window
    table = partitions(X, **per_row)
    if by is not None:
        pieces.check_groups(parameters)
    job = make_work(parameters, table.columns, by is not None, window is not None)
    token = tokenize("fit", table.blocks, parameters, table.columns, window)
    graph, levels = state_tree(job, table.blocks, token)
    name = f"fit-{token}"
    graph[name] = (job.build_estimator, levels[-1][0])
    layers = HighLevelGraph.from_collections(name, graph, dependencies=table.dependencies)
    delayed = Delayed(name, layers, layer=name)
    return delayed.compute() if compute else delayed


def with_forget(
    parameters: dict[str, Any], per_row: dict[str, Any], forget: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Add ``forget`` to the parameters if it is one number, else to what every row has.

    Raises ValueError for a forgetting strategy, and where there is no y.
    """
    if per_row["y"] is None:
        raise ValueError("y must be given: a Dask collection, or the name of a column of X")
    if isinstance(forget, Forgetting):
        raise ValueError(
            f"forget={type(forget).__name__}(...) cannot be merged from partitions: pass a "
            "number or half_life=, or feed the partitions in order to one estimator: for part in "
            "X.partitions: est.partial_fit(...)"
        )
    if isinstance(forget, (int, float)) or (hasattr(forget, "item") and forget.ndim == 0):
        return parameters | {"forget": forget}, per_row
    return parameters, per_row | {"forget": forget}


Graph = dict[Any, Any]


def state_tree(
    job: Work, blocks: list[tuple[Any, ...]], token: str
) -> tuple[Graph, list[list[Any]]]:
    """Return the tasks that learn and merge the partitions' states, and the keys by level."""
    learn = job.without_prior()
    graph: Graph = {(f"state-{token}", i): (learn.state, *part) for i, part in enumerate(blocks)}
    return graph, add_merge_tree(graph, list(graph), learn.merged, token)


def add_merge_tree(
    graph: Graph, keys: list[Any], merge: Callable[..., Any], name: str
) -> list[list[Any]]:
    """Add the tasks of the tree to ``graph``; return the keys of its levels, the root's last."""
    levels = [keys]
    while len(levels[-1]) > 1:
        below, level = levels[-1], []
        for i in range(0, len(below), 2):
            if i + 1 == len(below):
                level.append(below[i])
                continue
            key = (f"merged-{name}", len(levels), i // 2)
            graph[key] = (merge, below[i], below[i + 1])
            level.append(key)
        levels.append(level)
    return levels


def add_states_before(
    graph: Graph, levels: list[list[Any]], merge: Callable[..., Any], name: str
) -> list[Any]:
    """Return the keys of the states of all partitions before each, None before the first."""
    before: list[Any] = [None]
    for depth in range(len(levels) - 2, -1, -1):
        below, states = levels[depth], []
        for i, left in enumerate(before):
            states.append(left)
            if 2 * i + 1 == len(below):
                break
            if left is None:
                states.append(below[2 * i])
                continue
            key = (f"before-{name}", depth, 2 * i + 1)
            graph[key] = (merge, left, below[2 * i])
            states.append(key)
        before = states
    return before


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
    One task per partition; the estimator is in the graph once.  No derivatives.

    Examples
    --------
    >>> import dask.array as da, olsq.distributed
    >>> X = da.arange(6.0, chunks=2)[:, None]
    >>> est = olsq.distributed.fit(X, 2.0 * X[:, 0], fit_intercept=False)
    >>> olsq.distributed.predict(est, X).compute().round(6).tolist()
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    table = partitions(X, by=by)
    features = getattr(estimator, "n_features_in_", None)
    d = table.meta.X.shape[1]
    if features is not None and d != features:
        raise ValueError(f"X has {d} features, but the estimator is expecting {features}")
    like = np.asarray(estimator.coef_)
    groups = by is not None
    targets = like.shape[int(groups) : -1]
    token = uuid4().hex
    name, estimator_name = f"predict-{token}", f"estimator-{token}"
    no_rows = np.empty((0, *targets), like.dtype)
    task = partial(predict_partition, table.columns, no_rows)
    zeros = (0,) * len(targets)
    graph: dict[Any, Any] = {
        (name, i, *zeros): (task, estimator_name, blocks[0], blocks[-1])
        for i, blocks in enumerate(table.blocks)
    }
    held = HighLevelGraph.from_collections(
        estimator_name, {estimator_name: estimator}, dependencies=()
    )
    dependencies = [*table.dependencies, Delayed(estimator_name, held, layer=estimator_name)]
    layers = HighLevelGraph.from_collections(name, graph, dependencies=dependencies)
    rows = tuple(int(c) if c == c else c for c in table.rows)
    chunks = (rows, *((m,) for m in targets))
    return new_array(layers, name, chunks, meta=no_rows)

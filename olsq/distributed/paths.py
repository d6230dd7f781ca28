"""Coefficient paths over partitions: a scan of states, then each partition from its first state.

The second pass reads the rows again, one partition at a time.  Where two passes share a partition
in one graph, Dask keeps it from the first pass to the second, which starts when the first has
finished: all rows may be in memory at once.  So the tasks that lead to one partition alone (reading
a file, generating, slicing, cleaning) become part of the second pass's task of that partition and
run there again.  Sources that several partitions share (a shuffle, one array in memory), and data
that are in memory already (persisted partitions), remain arguments of the task.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.core import get, istask
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from olsq.arrays.checks import check_flag
from olsq.distributed.fitting import (
    Graph,
    add_merge_tree,
    add_states_before,
    make_work,
    state_tree,
    with_forget,
)
from olsq.distributed.horizon import Forecasting
from olsq.distributed.partitions import is_array, new_array, partitions
from olsq.online import CoefficientPath
from olsq.online import coefficient_path as whole_path
from olsq.online.forms.student import check_level
from olsq.online.horizon import longer_than_data
from olsq.online.inference.robust import errors_in_window, refuse_maxlags
from olsq.online.known_rows import HeldRows, check_horizon, without_estimate
from olsq.online.pieces import pieces
from olsq.online.rows.durations import Duration
from olsq.online.rows.times import times_or_index
from olsq.online.whole_array import check_fewest

SHARED = -1


class PathFields(NamedTuple):
    """Arrays of a :class:`DistributedPath`, which documents them."""

    coef: da.Array
    intercept: da.Array
    residual: da.Array
    recursive_residual: da.Array
    sigma2: da.Array
    stderr: da.Array
    intercept_stderr: da.Array


def _statistic(name: str) -> Any:
    """Make a property that collects the one of all partitions' paths."""

    def collect(self: DistributedPath) -> da.Array:
        return self._of_rows(name, operator.attrgetter(name))

    return property(collect, doc=getattr(CoefficientPath, name).__doc__)


def _bound(path: CoefficientPath, level: float, end: int) -> np.ndarray:
    return path.conf_int(level)[end]


class DistributedPath(PathFields):
    """A coefficient path as Dask arrays, lazily, in the partitions of X.

    The fields are those of :class:`olsq.CoefficientPath`: ``coef`` (n, d) or (n, m, d),
    ``intercept``, ``residual``, ``recursive_residual``, ``sigma2`` (n,) or (n, m), ``stderr`` as
    ``coef`` and ``intercept_stderr`` as ``intercept``.  Compute several at once with
    ``dask.compute(path.coef, path.stderr)``: each partition is learned once for all.  The
    statistics of every row (``r_squared``, ``tvalues``, ``conf_int`` and so on) are Dask arrays
    too.
    """

    partitions: list[Delayed]  # a CoefficientPath each
    meta: Any  # an empty one

    r_squared = _statistic("r_squared")
    adj_r_squared = _statistic("adj_r_squared")
    n_rows = _statistic("n_rows")
    in_sample_residual = _statistic("in_sample_residual")
    tvalues = _statistic("tvalues")
    pvalues = _statistic("pvalues")

    def conf_int(self, level: float = 0.95) -> tuple[da.Array, da.Array]:
        """Compute confidence intervals as :meth:`olsq.CoefficientPath.conf_int` does."""
        level = check_level(level)
        lower, upper = (
            self._of_rows(f"{end}-{level}", functools.partial(_bound, level=level, end=end))
            for end in (0, 1)
        )
        return lower, upper

    def _of_rows(self, name: str, read: Callable[[CoefficientPath], np.ndarray]) -> da.Array:
        """Collect what ``read`` gives of every partition's path into a Dask array."""
        part, rows = self.partitions[0], self.residual.chunks[0]
        return _array(part.dask, part.key[0], name, read, read(self.meta), rows)

    def to_frame(
        self,
        *,
        names: Sequence[str] | None = None,
        statistics: bool = False,
        index: bool = True,
    ) -> Any:
        """Convert the path to a Dask data frame of pandas frames.

        Parameters and columns are those of :meth:`olsq.CoefficientPath.to_frame`.  Without an index
        of the data the rows of every partition are numbered from 0.

        Examples
        --------
        >>> import dask.array as da, olsq.distributed
        >>> X = da.arange(1.0, 5.0, chunks=2)[:, None]
        >>> path = olsq.distributed.coefficient_path(X, 2.0 * X[:, 0])
        >>> path.to_frame()["x0"].compute().tolist()
        [2.0, 2.0, 2.0, 2.0]
        """
        import dask.dataframe as dd

        options = {"names": names, "kind": "pandas", "statistics": statistics, "index": index}
        meta = self.meta.to_frame(**options)
        frames = [part.to_frame(**options) for part in self.partitions]
        return dd.from_delayed(frames, meta=meta, verify_meta=False)


def coefficient_path(
    X: Any,
    y: Any,
    *,
    forget: Any = None,
    sample_weight: Any = None,
    times: Any = None,
    by: Any = None,
    window: Any = None,
    horizon: Any = 1,
    reread: bool = True,
    **parameters: Any,
) -> DistributedPath:
    """Compute coefficients after every row of Dask collections: expanding, exponential or rolling.

    Parameters
    ----------
    X, y, sample_weight, times, forget, by
        Dask collections, or names of columns of X, as in :func:`fit`.
    window : int, float, str or timedelta, optional
        Only the last ``window`` rows count, or those of the last "90D".
    horizon : int, float, str or timedelta, default 1
        After how many rows (of its group), or how long ("1D"), the target of a row is known, for
        ``residual``; see :func:`olsq.coefficient_path`.  Rows before which nothing is known are
        predicted by coefficients of 0.
    reread : bool, default True
        Whether the second pass reads (or generates) each partition again, so that none waits in
        memory between the passes; what makes the rows must make the same ones twice.  False: read
        once, where that costs more than the memory of all rows.  Partitions that are in memory
        already (``X.persist()``) and what several partitions come from (a shuffle) are never made
        again.
    **parameters
        The other ones of :func:`olsq.coefficient_path` except ``statistics``, with its defaults:
        no ridge and no intercept unless asked for.

    Returns
    -------
    DistributedPath
        Lazy.  The result is that of :func:`olsq.coefficient_path` of all rows on one machine,
        except for rounding; see the notes of :func:`fit`.

    Raises
    ------
    TypeError, ValueError
        As :func:`fit`.  Rows that cannot be learned read NaN in ``residual`` and the estimate
        before them, also where there is no row at all that can.

    Notes
    -----
    Two passes over the data: one to the states of partitions, whose exclusive scan along a tree (at
    most two merges a partition, depth 2 log2) is the state before each; a second from there, row
    by row.  A window takes, instead of states, the rows at the end of the partitions before it
    that it still holds.  O(n d^2) time, O(partitions) tasks; of each worker the memory of its
    partitions in progress, their paths, and states of 8 d^2 bytes, one a partition in all.  No
    derivatives.

    Examples
    --------
    >>> import dask.array as da, numpy as np, olsq.distributed
    >>> X = da.random.default_rng(0).standard_normal((500, 2), chunks=(100, 2))
    >>> y = X @ np.array([1.0, -2.0])
    >>> path = olsq.distributed.coefficient_path(X, y, forget=0.98)
    >>> path.coef.shape, path.coef.numblocks
    ((500, 2), (5, 1))
    >>> path.coef[-1].compute().round(6)
    array([ 1., -2.])
    """
    defaults = inspect.signature(whole_path).parameters
    unknown = sorted(parameters.keys() - defaults.keys())
    if unknown:
        raise TypeError(f"{unknown[0]!r} is not a parameter of coefficient_path")
    check_flag("reread", reread)
    if not check_flag("statistics", parameters.pop("statistics", True)):
        raise ValueError("statistics=False is not offered here: leave statistics out")
    length = check_horizon(horizon)
    if isinstance(length, Duration) and is_array(X):
        times_or_index(times, None, None, length, f"horizon={horizon!r}")
    per_row = {"y": y, "sample_weight": sample_weight, "times": times, "by": by}
    rolling, fewest = window is not None, None
    options, per_row = with_forget(parameters, per_row, forget)
    of_path = {"ridge": 0.0, "fit_intercept": False} | options
    if rolling:
        errors_in_window(parameters.get("cov", "posterior"), parameters.get("maxlags"), window)
        options = options | {"window": window}
        of_path["window"] = window
        # An estimator of windows has no such options: their ridge stays what it is.
        for name in ("ridge_mode", "method", "cov", "maxlags"):
            of_path.pop(name, None)
    else:
        fewest = of_path.pop("min_samples", None)
        if fewest is not None:
            check_fewest(fewest)
        if of_path.pop("maxlags", None) is not None:
            refuse_maxlags(parameters.get("cov"))
        if of_path.pop("window_of", None) is not None:
            raise ValueError("window_of needs window")
    table = partitions(X, **per_row)
    if by is None and not isinstance(length, Duration) and 1 < length >= sum(table.rows):
        raise longer_than_data(horizon)
    job = make_work(of_path, table.columns, by is not None, rolling)
    # A window leaves out by itself times that are labels, or for forecasts; a half-life is in time.
    learns_times = rolling or parameters.get("half_life") is not None
    job = replace(job, options=options, learns_times=learns_times, fewest=fewest)
    token = tokenize("path", table.blocks, of_path, options, table.columns, length, reread)
    graph, levels = state_tree(job, table.blocks, token)
    before = add_states_before(graph, levels, job.without_prior().merged, token)
    name = f"path-{token}"
    without = without_estimate(parameters.get("min_samples"))
    forecasting = None if length == 1 else Forecasting(job, horizon, length, without)
    work = job.path if forecasting is None else forecasting.path
    if reread:
        second = second_pass_tasks(work, before, table.blocks, table.dependencies)
    else:
        pairs = zip(before, table.blocks, strict=True)
        second = [(work, state, *blocks) for state, blocks in pairs]
    if forecasting is None:
        graph.update({(name, i): task for i, task in enumerate(second)})
    else:
        _add_forecasts(graph, forecasting, second, token, name)
    layers = HighLevelGraph.from_collections(name, graph, dependencies=table.dependencies)
    meta = pieces.blank(table.meta, job.parameters["fit_intercept"])
    arrays = [
        _array(layers, name, field, operator.attrgetter(field), array, table.rows)
        for field, array in zip(meta._fields, meta, strict=True)
    ]
    path = DistributedPath(*arrays)
    path.partitions = [Delayed((name, i), layers, layer=name) for i in range(len(table.blocks))]
    path.meta = meta
    return path


def _add_forecasts(
    graph: Graph, forecasting: Forecasting, paths: list[tuple[Any, ...]], token: str, name: str
) -> None:
    """Add the tasks of paths that are open at their beginning, and those that finish them."""
    every = range(len(paths))
    graph.update({(f"open-{token}", i): task for i, task in enumerate(paths)})
    held: list[Any] = [(f"held-{token}", i) for i in every]
    graph.update({held[i]: (operator.attrgetter("held"), (f"open-{token}", i)) for i in every})
    levels = add_merge_tree(graph, held, HeldRows.followed_by, f"held-{token}")
    before = add_states_before(graph, levels, HeldRows.followed_by, f"held-{token}")
    graph.update(
        {(name, i): (forecasting.finished, before[i], (f"open-{token}", i)) for i in every}
    )


def _array(
    layers: HighLevelGraph,
    name: str,
    field: str,
    read: Callable[[CoefficientPath], np.ndarray],
    meta: np.ndarray,
    rows: tuple[float, ...],
) -> da.Array:
    """Collect what ``read`` gives of all partitions' paths into a Dask array."""
    array_name = f"{field}-{name}"
    zeros = (0,) * (meta.ndim - 1)
    graph: Graph = {(array_name, i, *zeros): (read, (name, i)) for i in range(len(rows))}
    chunks = (rows, *((size,) for size in meta.shape[1:]))
    chunks = tuple(tuple(int(c) if c == c else c for c in axis) for axis in chunks)
    dependencies: list[Any] = [Delayed((name, 0), layers, layer=name)]
    every = HighLevelGraph.from_collections(array_name, graph, dependencies=dependencies)
    return new_array(every, array_name, chunks, meta=meta)


@dataclass(frozen=True)
class Reading:
    """The tasks that lead to one partition, and the work on it, as one task.

    ``graph`` holds the tasks by their keys, ``inputs`` the keys whose values a call receives,
    ``blocks`` the six keys or None whose values ``work`` receives after the state.
    """

    work: Callable[..., Any]
    graph: dict[Any, Any]
    inputs: tuple[Any, ...]
    blocks: tuple[Any, ...]

    def __call__(self, before: Any, *values: Any) -> Any:
        """Run ``work(before, *blocks)``, computing the blocks from the values of ``inputs``."""
        by_key = dict(zip(self.inputs, values, strict=True))
        inner = [key for key in self.blocks if key is not None and key not in by_key]
        # dask.get would call the callbacks of the outer computation: its progress bar would
        # restart.
        by_key.update(zip(inner, get(dict(self.graph), inner, dict(by_key)), strict=True))
        return self.work(before, *(None if key is None else by_key[key] for key in self.blocks))


def second_pass_tasks(
    work: Callable[..., Any],
    befores: list[Any],
    blocks: list[tuple[Any, ...]],
    dependencies: list[Any],
) -> list[tuple[Any, ...]]:
    """Build the tasks of the partitions: ``work`` after the state of key ``befores[i]``, rows
    reread.

    ``blocks`` and ``dependencies`` are those of :class:`Partitions`. O(tasks) of the whole graph.
    """
    layers = HighLevelGraph.from_collections("", {}, dependencies=dependencies)
    tasks, needs = dict(layers), layers.get_all_dependencies()
    owner: dict[Any, int] = {}
    for i, keys in enumerate(blocks):
        _claim_tasks(i, [key for key in keys if key is not None], tasks, needs, owner)
    readings = []
    for i, (before, keys) in enumerate(zip(befores, blocks, strict=True)):
        inner, inputs, ahead = {}, {}, [key for key in keys if key is not None]
        while ahead:
            key = ahead.pop()
            if owner[key] != i:
                inputs[key] = None
            elif key not in inner:
                inner[key] = tasks[key]
                ahead.extend(needs[key])
        reading = Reading(work, inner, tuple(inputs), keys)
        readings.append((reading, before, *inputs))
    return readings


def _claim_tasks(
    i: int, ahead: list[Any], tasks: dict[Any, Any], needs: Any, owner: dict[Any, int]
) -> None:
    """Record partition i as the owner of its tasks.

    Those that already have an owner become shared.
    """
    visited = set()
    while ahead:
        key = ahead.pop()
        if key in visited:
            continue
        visited.add(key)
        if _is_held(key, tasks, needs[key]) or owner.get(key, i) != i:
            if owner.get(key) == SHARED:
                continue
            owner[key] = SHARED
        else:
            owner[key] = i
        ahead.extend(needs[key])


def _is_held(key: Any, tasks: dict[Any, Any], needs: Any) -> bool:
    """Test whether this is in memory already, or computed directly from what is.

    A future of a cluster is a node that needs itself, or what a task needs without being a node.
    """
    outside = getattr(tasks[key], "dependencies", frozenset()) - tasks.keys()
    return bool(outside) or not (istask(tasks[key]) or needs - {key})

"""Dask collections as aligned partitions: X, y and the other arrays with one entry per row."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from olsq.online.many.labels import label_array
from olsq.online.pieces.pieces import PieceRows

PER_ROW = ("y", "sample_weight", "forget", "times", "by")


class Partitions(NamedTuple):
    """Blocks of X, y, sample_weight, forget, times and by, partition by partition.

    ``blocks`` holds a tuple of six keys or None for each partition; ``dependencies`` the
    collections they are keys of; ``rows`` the number of rows of each, NaN where unknown;
    ``columns`` which of the six are columns of X, by name; ``meta`` the six with no rows.
    """

    blocks: list[tuple[Any, ...]]
    dependencies: list[Any]
    rows: tuple[float, ...]
    columns: dict[str, Any]
    meta: PieceRows

    @property
    def frames(self) -> bool:
        """True if X is a data frame."""
        return hasattr(self.meta.X, "columns")


def is_frame(data: Any) -> bool:
    """Test whether data is a Dask data frame or series."""
    return hasattr(data, "npartitions") and hasattr(data, "divisions")


def is_array(data: Any) -> bool:
    """Test whether data is a Dask array."""
    return hasattr(data, "dask") and hasattr(data, "chunks") and hasattr(data, "rechunk")


def partitions(X: Any, **per_row: Any) -> Partitions:
    """Align X and the arrays given for its rows (``PER_ROW``; None: not given) as partitions.

    Raises TypeError for what is no Dask collection, ValueError for collections whose partitions do
    not fit together. Reads no data.
    """
    if is_array(X):
        if X.ndim != 2:
            raise ValueError(f"X must have two axes, got a Dask array of {X.ndim}")
        X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
        rows = tuple(map(float, X.chunks[0]))
    elif is_frame(X) and hasattr(X, "columns"):
        rows = (math.nan,) * X.npartitions
    else:
        raise TypeError(
            f"X must be a Dask array or data frame, got {type(X).__name__}; for data in memory "
            "use olsq.RecursiveLeastSquares or olsq.coefficient_path, or make partitions with "
            "dask.array.from_array(X, chunks=...)"
        )
    columns: dict[str, Any] = {}
    names, dependencies = _keys(X)
    parts = [names]
    metas = {}
    for name in PER_ROW:
        data = per_row.get(name)
        if data is not None and is_frame(X) and _names_columns(data):
            columns[name] = _column(X, name, data)
            data = None
        if data is None:
            parts.append([None] * len(rows))
            continue
        data = _aligned(name, data, X, rows)
        keys, more = _keys(data)
        metas[name] = data._meta
        parts.append(keys)
        dependencies += more
    meta_X: Any = X._meta if is_frame(X) else np.empty((0, X.shape[1]), X.dtype)
    metas |= {name: meta_X[column] for name, column in columns.items()}
    y_meta = metas.get("y")
    if y_meta is not None and not hasattr(y_meta, "iloc"):
        metas["y"] = np.empty((0, *per_row["y"].shape[1:]), y_meta.dtype)
    taken = [c for v in columns.values() for c in (v if isinstance(v, list) else [v])]
    if taken:
        meta_X = meta_X.drop(columns=taken)
    if meta_X.shape[1] == 0:
        raise ValueError("X has no column left to be a regressor")
    meta = PieceRows(meta_X, metas.pop("y", None), **metas)
    return Partitions(list(zip(*parts, strict=True)), dependencies, rows, columns, meta)


new_array: Any = da.Array  # a type checker resolves it to the __new__ of a subclass


def _names_columns(data: Any) -> bool:
    several = isinstance(data, list) and bool(data) and all(isinstance(d, str) for d in data)
    return isinstance(data, str) or several


def _column(X: Any, name: str, data: Any) -> Any:
    missing = [c for c in ([data] if isinstance(data, str) else data) if c not in X.columns]
    if missing:
        columns = ", ".join(map(str, X.columns))
        raise ValueError(
            f"{name}={data!r}: {missing[0]!r} is not a column of X, which has {columns}"
        )
    if isinstance(data, list) and name != "y":
        raise TypeError(f"{name} must be one column of X, got {data!r}")
    return data


def _keys(data: Any) -> tuple[list[Any], list[Any]]:
    """Return the key of every partition, and the collection that computes them."""
    if is_frame(data):
        delayed = data.to_delayed()
        return [part.key for part in delayed], delayed[:1]  # they share one graph
    keys: Any = data.__dask_keys__()
    return [key[0] if isinstance(key, list) else key for key in keys], [data]


def _aligned(name: str, data: Any, X: Any, rows: tuple[float, ...]) -> Any:
    """Bring the rows of ``data`` into X's partitions."""
    if not (is_array(data) or is_frame(data)):
        if isinstance(data, str):
            raise TypeError(f"{name}={data!r} names a column, but X is not a data frame")
        if not np.isfinite(rows).all():
            raise TypeError(
                f"{name} must be a Dask collection with X's partitions, got {type(data).__name__}: "
                "how many rows each partition of X has is not known"
            )
        data = label_array(data) if name == "by" else np.asarray(data)
        _check_rows(name, data.shape[:1], rows)
        chunks: Any = (tuple(map(int, rows)), *((-1,) * (data.ndim - 1)))
        data = da.from_array(data, chunks=chunks)
    if is_frame(data):
        if data.npartitions != len(rows):
            raise ValueError(
                f"{name} has {data.npartitions} partitions and X has {len(rows)}: repartition one "
                "of them, or give the name of a column of X"
            )
        has_divisions = is_frame(X) and X.known_divisions and data.known_divisions
        if has_divisions and tuple(X.divisions) != tuple(data.divisions):
            raise ValueError(
                f"the divisions of {name} and X differ: {name}.repartition(divisions="
                "X.divisions) brings them in line"
            )
        return data
    if data.ndim == 2 and data.numblocks[1] > 1:
        data = data.rechunk({1: -1})
    lengths = tuple(map(float, data.chunks[0]))
    if np.isfinite(rows).all() and np.isfinite(lengths).all():
        _check_rows(name, data.shape[:1], rows)
        return data if lengths == rows else data.rechunk({0: tuple(map(int, rows))})
    if len(lengths) != len(rows):
        raise ValueError(
            f"{name} has {len(lengths)} partitions and X has {len(rows)}; of unknown sizes they "
            "must be as many"
        )
    return data


def _check_rows(name: str, shape: tuple[Any, ...], rows: tuple[float, ...]) -> None:
    if not shape or shape[0] != sum(rows):
        raise ValueError(
            f"{name} must have one entry for each of X's {int(sum(rows))} rows, got "
            f"shape {tuple(shape)}"
        )

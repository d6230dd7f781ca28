"""Find the rows of a chunk that can be learned, and refuse or skip the others."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from olsq.cli.errors import InputError
from olsq.cli.sources.columns import Chunk, Columns


def usable_rows(
    chunk: Chunk, X: NDArray, columns: Columns, missing: str
) -> tuple[NDArray, NDArray | None, NDArray[np.bool_]]:
    """Return targets (NaN in rows that lack one), weights, and the mask of the rows to learn.

    Raises
    ------
    InputError
        If a weight is negative, or (``missing="raise"``) a value is missing.
    """
    y, weight = chunk.y, chunk.weight
    # A sum is much cheaper than a test of every cell, and finite only if all of them are.
    with np.errstate(over="ignore", invalid="ignore"):
        total = X.sum() + y.sum()
    labelled = chunk.by is None or bool((chunk.by >= 0).all())
    if weight is None and labelled and math.isfinite(total):
        return y, None, np.ones(len(y), np.bool_)
    if missing == "raise":
        _refuse_missing(chunk, columns)
    # Rows are skipped by the estimator for X and y: without all targets, none is learned.
    used = np.ones(len(y), np.bool_)
    for part in (X, y):
        used &= np.isfinite(part).all(axis=1)
    if chunk.by is not None:
        used &= chunk.by >= 0
        y = np.where(chunk.by[:, None] >= 0, y, np.nan)
    if weight is not None:
        used &= np.isfinite(weight)
        negative = np.flatnonzero(weight < 0)
        if negative.size:
            raise InputError(
                f"weight column {columns.weight!r} is negative in row "
                f"{chunk.start + negative[0] + 1:,}"
            )
        # A row without a weight has no usable target.
        y = np.where(np.isfinite(weight[:, None]), y, np.nan)
        weight = np.where(used, weight, 0.0)
    complete = np.logical_and.reduce(np.isfinite(y), axis=1, keepdims=True)
    y = np.where(complete, y, np.nan)
    return y, weight, used


def _refuse_missing(chunk: Chunk, columns: Columns) -> None:
    weight = [] if chunk.weight is None else [chunk.weight]
    label = [] if chunk.by is None else [np.where(chunk.by >= 0, 1.0, np.nan)]
    known = np.isfinite(np.column_stack([chunk.X, chunk.y, *weight, *label]))
    if known.all():
        return
    row = int(np.flatnonzero(~np.logical_and.reduce(known, axis=1))[0])
    weights = [] if columns.weight is None else [columns.weight]
    labels = [] if columns.by is None else [columns.by]
    names = [*columns.features, *columns.targets, *weights, *labels]
    column = names[int(np.flatnonzero(~known[row])[0])]
    raise InputError(
        f"row {chunk.start + row + 1:,} has no value in column {column!r} "
        "(--missing skip passes over such rows)"
    )

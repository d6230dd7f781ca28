"""Notes that a checkpoint keeps beside the estimator, and the check before resuming from it."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import olsq
from olsq.cli.errors import InputError
from olsq.cli.fit.estimators import Estimator
from olsq.cli.fit.options import FitOptions
from olsq.cli.fit.repeats import LastRows, Repetition, check_file
from olsq.cli.sources.opening import open_source
from olsq.cli.sources.source import Position, Source

KEY = "olsq fit"
VERSION = 3
_NOTES = {"version", "options", "chunk_rows", "input", "position", "columns", "table", "design"}


def load_state(path: Path) -> Any:
    """Load an estimator; InputError if there is no such file, or it is damaged or foreign."""
    try:
        return olsq.load(path)
    except FileNotFoundError:
        raise InputError(f"no such file: {path}") from None
    except olsq.StateFileError as error:
        raise InputError(str(error)) from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def load_checkpoint(path: Path) -> tuple[Estimator, dict[str, Any]] | None:
    """Load the estimator and the notes saved with it; None if there is no such file.

    Raises
    ------
    InputError
        If the file is damaged, foreign, or not a checkpoint of ``olsq fit``.
    """
    return check_notes(path, load_state(path)) if os.path.lexists(path) else None


@contextmanager
def reading_notes(path: object) -> Iterator[None]:
    """Raise InputError where the notes of a state are not as :func:`make_notes` writes them."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise InputError(
            f"the notes of olsq fit in {path} are damaged ({type(error).__name__}: {error}): "
            "start again"
        ) from None


def check_notes(path: Path, estimator: Any) -> tuple[Estimator, dict[str, Any]]:
    """Return the estimator loaded from ``path`` and its notes; InputError without usable ones."""
    notes = estimator.metadata_.get(KEY)
    if notes is None or not isinstance(estimator, Estimator):
        raise InputError(f"{path} holds an estimator, but was not written by olsq fit")
    if not isinstance(notes, dict) or not notes.keys() >= _NOTES:
        raise InputError(f"{path} holds an estimator, but not the notes that olsq fit writes")
    if notes["version"] != VERSION:
        raise InputError(f"{path} was written by another version of olsq fit: start again")
    return estimator, notes


def make_notes(
    options: FitOptions,
    source: Source,
    position: Position,
    parts: dict[str, Any],
    *,
    finished: bool,
) -> dict[str, Any]:
    """Return the notes for a checkpoint at ``position`` of ``source``, its end or not.

    Nothing in those of a finished run depends on the time or on how often checkpoints were made, so
    that one that was interrupted ends with the same bytes as one that was not.
    """
    return {
        KEY: {
            "version": VERSION,
            "options": options.for_comparison(),
            "chunk_rows": source.chunk_rows,
            "input": source.identity(),
            "position": position,
            "finished": finished,
            "columns": {
                "targets": list(source.columns.targets),
                "features": list(source.columns.features),
            },
            "table": source.table.as_dict(),
            **parts,
        }
    }


def keep_stored_ridge(options: FitOptions, notes: dict[str, Any]) -> FitOptions:
    """Return the options with the checkpoint's ridge where none was given.

    The default of version 0.2.0 was 1e-3, and its states go on with it.
    """
    if options.ridge is not None:
        return options
    return replace(options, ridge=notes["options"]["--ridge"])


def resume_source(options: FitOptions, source: Source, notes: dict[str, Any]) -> None:
    """Move ``source`` to the position of the checkpoint, after checking that nothing changed.

    Raises
    ------
    InputError
        If an option or the input is not what it was then.
    """
    before, now = notes["options"], options.for_comparison()
    for option in now:
        if before.get(option) != now[option]:
            raise InputError(
                f"cannot resume: {option} was {_format_value(before.get(option))} "
                f"and is {_format_value(now[option])}"
            )
    if options.chunk_rows is not None and options.chunk_rows != notes["chunk_rows"]:
        raise InputError(
            f"cannot resume: --chunk-rows was {notes['chunk_rows']} and is {options.chunk_rows}"
        )
    if notes["input"]["header"] != source.header:
        raise InputError(f"cannot resume: the columns of {source.name} have changed")
    source.chunk_rows = notes["chunk_rows"]
    source.table.restore(notes["table"])
    unchanged = source.path is not None and source.identity() == notes["input"]
    if not unchanged and notes["position"].keys() != source.position().keys():
        raise InputError(
            f"cannot resume: an earlier version of olsq wrote {options.state}, and it cannot be "
            f"checked that the rows of {source.name} are the same: --continue learns new rows"
        )
    rows = f"cannot resume: the first {notes['position']['rows']:,} rows of {source.name}"
    try:
        same = source.skip_to(notes["position"], trusted=unchanged)
    except InputError as error:
        raise InputError(
            f"{rows} cannot be compared with those the state was made from: {error}"
        ) from None
    if not same:
        raise InputError(f"{rows} are not those the state was made from")


def continue_source(options: FitOptions, source: Source, notes: dict[str, Any]) -> Repetition:
    """Prepare ``source``, a new table, to follow the rows that the state has learned.

    Returns what looks for the last of these in a stream, which cannot be read twice.

    Raises
    ------
    InputError
        If it begins with the table that the state was made from, or (a file) with the last rows
        learned, or its times are of another kind.
    """
    if source.path is not None and _begins_with_learned_rows(options, source, notes):
        raise InputError(
            f"cannot continue: {source.name} begins with the {notes['position']['rows']:,} rows "
            f"that {options.state} has learned already (--resume learns what was appended to them)"
        )
    # files of olsq 0.2 have no rows
    learned = LastRows(notes.get("last_rows", "")).hashes
    repetition = Repetition(learned, str(options.state), source.name)
    if source.path is not None and learned.size:
        with open_source(options.data, options.reading()) as again:
            again.table.continue_from(notes["table"])
            check_file(again, repetition)
        repetition.is_possible = False
    source.table.continue_from(notes["table"])
    return repetition


def _begins_with_learned_rows(options: FitOptions, source: Source, notes: dict[str, Any]) -> bool:
    same = notes["input"]["header"] == source.header
    if not same or notes["position"].keys() != source.position().keys():
        return False
    with open_source(options.data, options.reading()) as again:
        again.chunk_rows = notes["chunk_rows"]
        again.table.restore(notes["table"])
        try:
            return again.skip_to(notes["position"], trusted=False)
        except InputError:  # other cells than those of the state's table
            return False


def _format_value(value: Any) -> str:
    if value is None or value is False:
        return "not given"
    if value is True:
        return "given"
    return ",".join(value) if isinstance(value, list) else str(value)


def pack(values: NDArray[np.float64]) -> str:
    """Encode the values, whatever the shape, as text that holds every bit."""
    return base64.b64encode(values.astype("<f8").tobytes()).decode("ascii")


def unpack(text: str) -> NDArray[np.float64]:
    """Decode the text made by :func:`pack` into a vector."""
    return np.frombuffer(base64.b64decode(text), "<f8").astype(np.float64)

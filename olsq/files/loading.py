"""`load` for every file that olsq writes, and `loads` for the same content as bytes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from numpy.typing import NDArray


def load(path: str | os.PathLike[str]) -> Any:
    """Load what olsq saved: an estimator, a feature builder, or a model of :mod:`olsq.nn`.

    Parameters
    ----------
    path : path
        A state file (``est.save``, ``builder.save``) or a model's safetensors file
        (``olsq.nn.save``); told apart by their first bytes.

    Returns
    -------
    estimator, FeatureBuilder or olsq.nn.LanguageModel
        An estimator or a builder continues bit for bit as the saved one would have; its
        ``metadata_`` is the dictionary given to ``save``.  A model has the same outputs, bit for
        bit.

    Raises
    ------
    StateFileError
        If the file is truncated, damaged, neither of the two, of a newer format, or holds anything
        but what such a file holds; nothing has been built then.  It is a ValueError.
    OSError
        If it cannot be read.
    ImportError
        If it is a model's and the extra ``nn`` is not installed.

    Examples
    --------
    >>> import os, tempfile, numpy as np, olsq
    >>> est = olsq.RecursiveLeastSquares().fit(np.eye(3), [1.0, 2.0, 3.0])
    >>> name = os.path.join(tempfile.mkdtemp(), "run.olsq")
    >>> est.save(name, metadata={"rows": 3})
    >>> olsq.load(name).metadata_
    {'rows': 3}
    """
    name = os.fspath(path)
    with open(path, "rb") as file:
        start = file.read(9)
        if not file.seekable():  # a pipe, which can be read once only
            return _load_pipe(name, start, file)
    # safetensors: the length of a JSON object in 8 bytes, and the object
    if len(start) == 9 and start[8:] == b"{" and start[6:8] == b"\0\0":
        from olsq.nn.files import load as load_model

        return load_model(path)  # pyright: ignore[reportArgumentType]
    from olsq.online.files import format as files

    return _rebuild(name, *files.read(path))


def loads(data: bytes | bytearray | memoryview) -> Any:
    """Load what ``to_bytes`` of an estimator or a feature builder gave, or such a file's content.

    Parameters
    ----------
    data : bytes

    Returns
    -------
    estimator, FilterBank, GroupedLeastSquares, GroupedRollingLeastSquares or FeatureBuilder
        Whatever has ``to_bytes``: every estimator, bank, group and feature builder of olsq.  It
        continues bit for bit; its ``metadata_`` is the dictionary given to ``to_bytes``.

    Raises
    ------
    StateFileError
        As from :func:`load`: nothing has been built then.
    TypeError
        If ``data`` are no bytes.

    Examples
    --------
    >>> import numpy as np, olsq
    >>> est = olsq.RecursiveLeastSquares().fit(np.eye(3), [1.0, 2.0, 3.0])
    >>> olsq.loads(est.to_bytes()).n_samples_seen_
    3
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        advice = "; olsq.load reads files" if isinstance(data, (str, os.PathLike)) else ""
        raise TypeError(f"data must be bytes, got {type(data).__name__}{advice}")
    from olsq.online.files import format as files

    return _rebuild("data", *files.unpacked(bytes(data), "data"))


def _load_pipe(name: str, start: bytes, file: BinaryIO) -> Any:
    """Load the state that a pipe holds after ``start``; of anything else only that is read."""
    from olsq.online.files import format as files

    remainder = file.read() if start.startswith(files.MAGIC) else b""
    return _rebuild(name, *files.unpacked(start + remainder, name))


def _rebuild(name: str, header: dict[str, Any], arrays: dict[str, NDArray]) -> Any:
    """Rebuild the estimator or builder of a header and arrays; ``name`` is for errors."""
    if "features" in header:
        from olsq.features.files import restore as restore_builder

        return restore_builder(name, header, arrays)
    from olsq.online.loading import restore

    return restore(name, header, arrays)

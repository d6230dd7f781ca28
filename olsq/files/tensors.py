"""Safetensors files: arrays by name and text by key, with identical bytes for identical contents.

Models and checkpoints of their training are such files; each has a checksum of its own over its
arrays.  An estimator's state file is not one: it is read where safetensors is not installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from olsq.files import write_atomically

Path = str | os.PathLike[str]
Arrays = dict[str, NDArray]

DTYPES = {  # the format's names
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "complex64": "C64",
    "bool": "BOOL",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
}


class UnreadableError(ValueError):
    """A file that is truncated, damaged or not in the format."""


def write(path: Path, arrays: Mapping[str, NDArray], metadata: Mapping[str, str]) -> None:
    """Write arrays, in C order, and metadata; the file appears complete or not at all.

    Its bytes depend on the arguments only. (The library writes the metadata in an order that
    differs from one process to the next.)
    """
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))  # aligned, as theirs
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    pieces, offset = [], 0
    for name in order:
        array = arrays[name]
        header[name] = {
            "dtype": DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
        little = array.dtype.byteorder != ">" and sys.byteorder == "little"
        pieces.append(_as_bytes(array if little else array.byteswap()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    # the format wants the arrays to begin at a multiple of 8 bytes
    text += b" " * (-len(text) % 8)
    write_atomically(path, len(text).to_bytes(8, "little"), text, *pieces)


def read(
    path: Path, check: Callable[[list[str], dict[str, str]], object]
) -> tuple[Arrays, dict[str, str]]:
    """Read a file's arrays and metadata.

    Parameters
    ----------
    path : path
    check : callable
        Called with the arrays' names and the metadata before an array is read; it raises what a
        file of another kind deserves.

    Raises
    ------
    UnreadableError
        If the file is truncated, damaged or not in the format.
    FileNotFoundError
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            names, metadata = list(file.keys()), dict(file.metadata() or {})
            check(names, metadata)
            return {name: file.get_tensor(name) for name in names}, metadata
    except SafetensorError as error:
        raise UnreadableError(str(error)) from error


def metadata(path: Path) -> dict[str, str]:
    """Read a file's metadata alone; raises the errors of :func:`read`."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            return dict(file.metadata() or {})
    except SafetensorError as error:
        raise UnreadableError(str(error)) from error


def checksum(start: bytes, arrays: Mapping[str, NDArray], label: Callable[..., str]) -> str:
    """Compute the SHA-256 of ``start`` and, by name, of ``label(name, array)`` and every array's
    bytes.
    """
    total = hashlib.sha256(start)
    for name, array in sorted(arrays.items()):
        total.update(label(name, array).encode())
        total.update(_as_bytes(array))
    return total.hexdigest()


def _as_bytes(array: NDArray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data

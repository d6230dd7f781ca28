"""The state file: one documented file without pickle, versioned, checksummed, written atomically.

Layout, little-endian throughout::

    bytes 0-7     magic  89 4F 4C 53 51 0D 0A 1A  ("OLSQ" between bytes that text transfer breaks)
    bytes 8-11    format version, uint32 (this is version 2)
    bytes 12-19   length of the header, uint64
    header        JSON in UTF-8; "arrays" lists name, dtype, shape and offset of every array
    arrays        raw C-order data, each at its offset from the end of the header, 8-byte padded
    last 32 bytes SHA-256 of everything before them

A checksum says that a file is what was written, not that olsq wrote it: every field is checked
before anything is made from it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from olsq.files import write_atomically

MAGIC = b"\x89OLSQ\r\n\x1a"
VERSION = 2
_PREFIX = struct.Struct("<8sIQ")
_DIGEST = 32
DTYPES = ("<f4", "<f8", "<i8")
# What a header or arrays that olsq did not write may raise before they are refused.
UNUSABLE = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, MemoryError)


class StateFileError(ValueError):
    """A state file that is truncated, damaged, foreign, or of a newer version."""


@contextmanager
def refusing_foreign_content(name: str | os.PathLike[str]) -> Iterator[None]:
    """Raise StateFileError where what a file holds cannot be used; ``name`` is the file's."""
    try:
        yield
    except UNUSABLE as error:  # of JSON, of UTF-8, and our own
        raise StateFileError(
            f"{os.fspath(name)} is not a state file that olsq wrote, although its checksum is "
            f"correct: {str(error) or type(error).__name__}"
        ) from None


def write(path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, NDArray]) -> None:
    """Write header and arrays; the file appears under its name complete or not at all.

    Nothing is copied: the arrays must not change meanwhile.
    """
    write_atomically(path, *_pieces(header, arrays))


def packed(header: dict[str, Any], arrays: dict[str, NDArray]) -> bytes:
    """Return the bytes of the file."""
    return b"".join(_pieces(header, arrays))


def _pieces(header: dict[str, Any], arrays: dict[str, NDArray]) -> list[bytes | memoryview]:
    """Return the content of the file in pieces, of which arrays are views."""
    little = {k: np.ascontiguousarray(a, a.dtype.newbyteorder("<")) for k, a in arrays.items()}
    # Offsets depend on the header's length, which depends on the offsets' digits: relative to the
    # end of the header they do not.
    entries, position = [], 0
    for name, array in little.items():
        shape = arrays[name].shape
        entries.append({"name": name, "dtype": array.dtype.str, "shape": shape, "offset": position})
        position += -(-array.nbytes // 8) * 8
    text = json.dumps({**header, "arrays": entries}).encode()
    text += b" " * (-(len(text) + _PREFIX.size) % 8)
    pieces: list[bytes | memoryview] = [_PREFIX.pack(MAGIC, VERSION, len(text)) + text]
    for array in little.values():
        pieces += [array.reshape(-1).view(np.uint8).data, b"\0" * (-array.nbytes % 8)]
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return [*pieces, digest.digest()]


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return header and arrays of a state file; StateFileError if it cannot be trusted."""
    name = os.fspath(path)
    with open(path, "rb") as file:
        if (start := file.read(len(MAGIC))) != MAGIC:  # nothing else is read into memory then
            raise _foreign(name)
        try:
            return unpacked(_whole(file, start), name)
        except MemoryError:
            raise StateFileError(f"{name} does not fit into memory") from None


def _whole(file: BinaryIO, start: bytes) -> bytes | bytearray:
    """Return ``start`` and the rest of a file, in one buffer if its size is known."""
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        return start + file.read()
    content = bytearray(max(status.st_size, len(start)))
    content[: len(start)] = start
    filled, view = len(start), memoryview(content)
    while filled < len(content) and (count := file.readinto(view[filled:])):  # type: ignore[attr-defined]
        filled += count
    view.release()
    del content[filled:]  # of a file that has become shorter
    return content


def unpacked(content: bytes | bytearray, name: str) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Parse header and arrays from a file's bytes; ``name`` is the file's name in errors."""
    if len(content) < len(MAGIC) or content[: len(MAGIC)] != MAGIC:
        raise _foreign(name)
    if len(content) < _PREFIX.size + _DIGEST:
        raise StateFileError(f"{name} is truncated: it ends inside the header")
    _, version, length = _PREFIX.unpack_from(content)
    if version > VERSION:
        raise StateFileError(
            f"{name} has state format {version}; this olsq reads up to {VERSION}. Upgrade olsq."
        )
    if version < VERSION:
        raise StateFileError(
            f"{name} has state format {version}, of a version before the first release, which "
            "lacks what standard errors need. Fit again."
        )
    if hashlib.sha256(memoryview(content)[:-_DIGEST]).digest() != content[-_DIGEST:]:
        raise StateFileError(f"{name} is truncated or damaged: its checksum does not match")
    with refusing_foreign_content(name):
        return _parsed(memoryview(content)[:-_DIGEST], length)


def _foreign(name: str) -> StateFileError:
    return StateFileError(f"{name} is not an olsq state file")


def _parsed(content: memoryview, length: int) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Parse header and arrays; raise ValueError for anything undocumented before it is used."""
    base = _PREFIX.size + length
    if base > len(content):
        raise ValueError(f"the header is said to have {length} bytes, more than the file")
    header = json.loads(bytes(content[_PREFIX.size : base]))
    if not isinstance(header, dict) or not isinstance(header.get("arrays"), list):
        raise ValueError("the header must be an object with a list of arrays")
    data, arrays = content[base:], {}
    for entry in header.pop("arrays"):
        if not isinstance(entry, dict) or entry.keys() != {"name", "dtype", "shape", "offset"}:
            raise ValueError("an array must have name, dtype, shape and offset, and nothing else")
        name, dtype, shape, offset = (entry[k] for k in ("name", "dtype", "shape", "offset"))
        if not isinstance(name, str) or name in arrays:
            raise ValueError(f"array name {name!r} is not text, or occurs twice")
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise ValueError(f"array {name!r} has dtype {dtype!r}, not one of {DTYPES}")
        # An array without numbers may have a long axis beside one of 0, but none that overflows.
        valid_shape = isinstance(shape, list) and all(
            type(n) is int and 0 <= n < 2**48 for n in shape
        )
        if not valid_shape or len(shape) > 3:
            raise ValueError(f"array {name!r} has shape {shape!r}")
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if type(offset) is not int or offset < 0 or offset % 8 or offset + size > len(data):
            raise ValueError(
                f"array {name!r} of {size} bytes at {offset!r} is not within the {len(data)} bytes "
                "of data"
            )
        flat = np.frombuffer(data, dtype, math.prod(shape), offset) if size else np.empty(0, dtype)
        arrays[name] = flat.reshape(shape).astype(np.dtype(dtype).newbyteorder("="))
    return header, arrays

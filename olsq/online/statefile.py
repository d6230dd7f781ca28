"""The state file: one documented file without pickle, versioned, checksummed, written atomically.

Layout, little-endian throughout::

    bytes 0-7     magic  89 4F 4C 53 51 0D 0A 1A  ("OLSQ" between bytes that text transfer breaks)
    bytes 8-11    format version, uint32 (this is version 1)
    bytes 12-19   length of the header, uint64
    header        JSON in UTF-8; "arrays" lists name, dtype, shape and offset of every array
    arrays        raw C-order data, each at its offset from the end of the header, 8-byte padded
    last 32 bytes SHA-256 of everything before them
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"\x89OLSQ\r\n\x1a"
VERSION = 1
_PREFIX = struct.Struct("<8sIQ")
_DIGEST = 32


class StateFileError(ValueError):
    """A state file that cannot be used: truncated, damaged, foreign, or of a newer version."""


def write(path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, NDArray]) -> None:
    """Write header and arrays; the file appears under its name complete or not at all."""
    little = {k: np.ascontiguousarray(a, a.dtype.newbyteorder("<")) for k, a in arrays.items()}
    # Offsets depend on the header's length, which depends on the offsets' digits: relative to the
    # end of the header they do not.
    entries, position = [], 0
    for name, array in little.items():
        entries.append(
            {"name": name, "dtype": array.dtype.str, "shape": array.shape, "offset": position}
        )
        position += -(-array.nbytes // 8) * 8
    text = json.dumps({**header, "arrays": entries}).encode()
    text += b" " * (-(len(text) + _PREFIX.size) % 8)
    body = bytearray(_PREFIX.pack(MAGIC, VERSION, len(text)) + text)
    for array in little.values():
        body += array.tobytes()
        body += b"\0" * (-len(body) % 8)
    body += hashlib.sha256(body).digest()
    _replace(path, bytes(body))


def _replace(path: str | os.PathLike[str], content: bytes) -> None:
    target = os.path.abspath(os.fspath(path))
    temporary = target + ".tmp"  # one name, so that a killed process leaves at most one behind
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return header and arrays of a state file; StateFileError if it cannot be trusted."""
    with open(path, "rb") as file:
        content = file.read()
    name = os.fspath(path)
    if len(content) < len(MAGIC) or content[: len(MAGIC)] != MAGIC:
        raise StateFileError(f"{name} is not an olsq state file")
    if len(content) < _PREFIX.size + _DIGEST:
        raise StateFileError(f"{name} is truncated: it ends inside the header")
    _, version, length = _PREFIX.unpack_from(content)
    if version > VERSION:
        raise StateFileError(
            f"{name} has state format {version}; this olsq reads up to {VERSION}. Upgrade olsq."
        )
    if hashlib.sha256(content[:-_DIGEST]).digest() != content[-_DIGEST:]:
        raise StateFileError(f"{name} is truncated or damaged: its checksum does not match")
    base = _PREFIX.size + length
    header = json.loads(content[_PREFIX.size : base])
    arrays = {}
    for entry in header.pop("arrays"):
        dtype = np.dtype(entry["dtype"])
        count = int(np.prod(entry["shape"], dtype=np.int64))
        array = np.frombuffer(content, dtype, count, base + entry["offset"])
        arrays[entry["name"]] = array.reshape(entry["shape"]).astype(dtype.newbyteorder("="))
    return header, arrays

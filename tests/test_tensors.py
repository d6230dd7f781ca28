"""Safetensors files: what the library writes is read, what is written it reads, bit for bit."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from olsq.files import tensors

ARRAYS = {
    "half": np.arange(3, dtype=np.float16), "single": np.ones((2, 3), np.float32),
    "double": np.array(-0.0), "brain": np.array([1.5, np.inf], ml_dtypes.bfloat16),
    "count": np.array(7, np.int32), "bits": np.array([1, 2], np.uint16), "none": np.zeros((0, 4)),
}  # fmt: skip
METADATA = {"b": "two", "a": "{}", "ä": "é\n"}


def anything(names, metadata):
    """Any file is the one asked for."""


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_files_are_the_library_s(tmp_path):
    path = tmp_path / "a.safetensors"
    tensors.write(path, ARRAYS, METADATA)
    same(load_file(path), ARRAYS)
    whole = path.read_bytes()
    tensors.write(path, dict(reversed(ARRAYS.items())), dict(reversed(METADATA.items())))
    assert path.read_bytes() == whole
    save_file(ARRAYS, path, METADATA)
    arrays, metadata = tensors.read(path, anything)
    same(arrays, ARRAYS)
    assert metadata == METADATA


def test_a_file_of_another_kind_is_refused_before_its_arrays_are_read(tmp_path):
    path = tmp_path / "a.safetensors"
    tensors.write(path, ARRAYS, METADATA)

    def refuse(names, metadata):
        assert set(names) == set(ARRAYS)
        raise LookupError(metadata["b"])

    with pytest.raises(LookupError, match="two"):
        tensors.read(path, refuse)


@pytest.mark.parametrize("content", [b"", b"text" * 9, b'\x08\0\0\0\0\0\0\0{"a": 1}'])
def test_what_is_no_file_of_the_format_is_unreadable(tmp_path, content):
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    with pytest.raises(tensors.UnreadableError):
        tensors.read(path, anything)
    with pytest.raises(FileNotFoundError, match="none"):
        tensors.read(tmp_path / "none", anything)


def test_checksums_see_names_bytes_and_the_start():
    def checksum(start, arrays):
        return tensors.checksum(start, arrays, lambda name, x: f"{name} {x.shape}")

    found = checksum(b"", ARRAYS)
    assert checksum(b"", dict(reversed(ARRAYS.items()))) == found
    other = [(b"x", ARRAYS), (b"", {**ARRAYS, "double": np.array(0.0)}), (b"", {"a": np.ones(1)})]
    assert found not in {checksum(*given) for given in other}

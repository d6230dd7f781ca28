"""Turn a file or pipe into UTF-8 bytes: decompress, change the encoding."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from olsq.cli.errors import InputError

BUFFER_BYTES = 1 << 20
LONGEST_LINE = 32 << 20
MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
}


def _open_zstandard(raw: Any) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(raw, "zstd")


DECOMPRESSORS: dict[str, Callable[[Any], Any]] = {
    "gzip": lambda raw: gzip.GzipFile(fileobj=raw),
    "bzip2": bz2.BZ2File,
    "xz": lzma.LZMAFile,
    "Zstandard": _open_zstandard,
}


class ByteStream:
    """The text of one input as UTF-8 bytes.

    Parameters
    ----------
    path : Path or None
        The file; None reads standard input, which is taken as it is.
    name : str
        What to call it in messages.
    encoding : str or None
        A Python codec; None and UTF-8 pass the bytes on.
    pipe : Path, optional
        A named pipe or another file without positions, read in place of standard input.

    Attributes
    ----------
    text : io.BufferedReader
        The text, without a byte order mark.

    Raises
    ------
    InputError
        If there is no such encoding, or the beginning of the file is damaged.
    """

    def __init__(
        self,
        path: Path | None,
        name: str,
        encoding: str | None,
        pipe: Path | None = None,
    ) -> None:
        codec = check_encoding(encoding)
        self.name, self.encoding, self.is_pipe = name, encoding, path is None
        self._is_standard_input = path is None and pipe is None
        self.raw: Any = path.open("rb", buffering=0) if path else _open_pipe(pipe)
        try:
            with self.report_damage():
                self.text = self._open_text(codec)
        except BaseException:
            self.close()
            raise

    def _open_text(self, codec: str | None) -> Any:
        stream = self.raw
        if not self.is_pipe:
            compression = compression_of(self.raw.read(max(map(len, MAGIC))))
            self.raw.seek(0)
            if compression is not None:
                stream = DECOMPRESSORS[compression](self.raw)
        if codec is not None:
            import pyarrow as pa

            stream = pa.transcoding_input_stream(pa.PythonFile(stream, "r"), codec, "utf-8")
        text = io.BufferedReader(stream, BUFFER_BYTES)
        if text.peek(3).startswith(codecs.BOM_UTF8):
            text.read(3)
        return text

    @contextmanager
    def report_damage(self) -> Iterator[None]:
        """Raise InputError for what damaged files raise while they are read."""
        try:
            yield
        except UnicodeError as error:
            reason = getattr(error, "reason", str(error))
            raise InputError(
                f"{self.name} is not in the encoding {self.encoding}: {reason} "
                "(choose another --encoding)"
            ) from None
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            # decompressors raise it without an errno; an errno is the operating system's
            if getattr(error, "errno", None) is not None:
                raise
            raise InputError(f"{self.name} is damaged: {error}") from None

    def read_lines(self, n: int) -> bytes:
        """Return about ``n`` bytes of whole lines, of a pipe those that are there.

        None at the end; more than ``LONGEST_LINE`` without a line end are not whole.
        """
        lines = (self.text.read1 if self.is_pipe else self.text.read)(n)
        return lines if lines.endswith(b"\n") else lines + self.text.readline(LONGEST_LINE)

    def close(self) -> None:
        """Close the file, but not standard input."""
        if not self._is_standard_input:
            self.raw.close()


def check_encoding(encoding: str | None) -> str | None:
    """Return the codec's name, None for UTF-8; InputError if Python has no such text encoding."""
    if encoding is None:
        return None
    try:
        codec = codecs.lookup(encoding)
        if not codec._is_text_encoding:  # type: ignore[attr-defined]
            raise LookupError
    except (LookupError, ValueError):
        raise InputError(
            f"--encoding {encoding!r} is not known: latin-1, cp1252, utf-16 and shift_jis are, "
            "for example"
        ) from None
    return None if codec.name in ("utf-8", "utf-8-sig", "ascii") else codec.name


def compression_of(start: bytes) -> str | None:
    """Return the kind of compression that ``start``, the beginning of a file, shows; or None."""
    return next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)


def _open_pipe(pipe: Path | None) -> Any:
    """Open a pipe, or standard input for None: without its buffer, which waits until it is full."""
    if pipe is None:
        return getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
    return pipe.open("rb", buffering=0)

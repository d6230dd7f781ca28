"""Turn a file or pipe into UTF-8 bytes: decompress, change the encoding, drop comment lines."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from olsq.cli.errors import CommandError, InputError

READ_BYTES = 1 << 20
# longer than a block of records may be, so that its reader reports the line
LONGEST_LINE = 40 << 20
MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
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
    comment : str or None
        Lines that begin with this are left out (not inside quotation marks).
    pipe : Path, optional
        A named pipe or another file without positions, read in place of standard input.

    Attributes
    ----------
    seekable : bool
        Whether a position in the text is one in the file.

    Raises
    ------
    InputError
        If there is no such encoding.
    """

    def __init__(
        self,
        path: Path | None,
        name: str,
        encoding: str | None,
        comment: str | None,
        pipe: Path | None = None,
    ) -> None:
        codec = check_encoding(encoding)
        self.path, self.name, self.encoding = path, name, encoding
        opened = path or pipe
        self._closes = opened is not None
        self.raw: BinaryIO = sys.stdin.buffer if opened is None else opened.open("rb")
        try:
            self.compression = None if path is None else _detect_compression(self.raw)
            self.text: Any = _decompress(self.raw, self.compression, name)
        except BaseException:
            self.close()
            raise
        if codec is not None:
            self.text = io.BufferedReader(Transcoder(self.text, codec), READ_BYTES)
        if comment is not None:
            self.text = CommentFilter(self.text, comment.encode())
        self.seekable = path is not None and self.text is self.raw

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
        except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
            raise InputError(f"{self.name} is damaged: {error}") from None
        except OSError as error:
            # bz2 says so without an errno; an errno is the operating system's.
            if error.errno is not None:
                raise
            raise InputError(f"{self.name} is damaged: {error}") from None
        except Exception as error:
            if type(error).__name__ != "ZstdError":
                raise
            raise InputError(f"{self.name} is damaged: {error}") from None

    def close(self) -> None:
        """Close the file, but not standard input."""
        if self._closes:
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


def _detect_compression(raw: BinaryIO) -> str | None:
    start = raw.read(max(map(len, MAGIC)))
    raw.seek(0)
    return compression_of(start)


def compression_of(start: bytes) -> str | None:
    """Return the kind of compression that ``start``, the beginning of a file, shows; or None."""
    return next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), None)


def _decompress(raw: BinaryIO, compression: str | None, name: str) -> Any:
    if compression == "gzip":
        return gzip.GzipFile(fileobj=raw)
    if compression == "bzip2":
        return bz2.BZ2File(raw)
    if compression == "xz":
        return lzma.LZMAFile(raw)
    if compression == "Zstandard":
        return _open_zstandard(raw, name)
    return raw


def _open_zstandard(raw: BinaryIO, name: str) -> Any:
    try:
        if sys.version_info >= (3, 14):
            from compression.zstd import ZstdFile
        else:
            from backports.zstd import ZstdFile
    except ImportError:
        raise CommandError(
            f"{name} is compressed with Zstandard, which Python reads from 3.14 on: "
            "pip install backports.zstd"
        ) from None
    return ZstdFile(raw)


class Transcoder(io.RawIOBase):
    """A stream of text in any encoding, converted to UTF-8 bytes."""

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._left = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._left and not self._ended:
            block = self._stream.read1(READ_BYTES)
            self._ended = not block
            self._left = self._decoder.decode(block, final=self._ended).encode()
        view = memoryview(buffer).cast("B")
        n = min(len(view), len(self._left))
        view[:n] = self._left[:n]
        self._left = self._left[n:]
        return n


class CommentFilter:
    """A stream of UTF-8 bytes without the lines that begin with ``prefix``.

    A line inside a quoted field is not one of its own: it is kept, whatever it begins with.
    """

    def __init__(self, stream: Any, prefix: bytes) -> None:
        self._stream, self._prefix = stream, prefix
        self._ready = b""  # checked, not yet handed out
        self._line = b""  # the last line, not yet complete
        self._begun = False
        self._quoted = False
        self._ended = False

    def readinto(self, buffer: memoryview, /) -> int:
        """Fill ``buffer`` with the bytes that one read provides."""
        while not self._ready and not self._ended:
            block = self._stream.read1(min(READ_BYTES, len(buffer)))
            self._ended = not block
            text = self._line + block
            if not self._begun and (self._ended or len(text) >= len(codecs.BOM_UTF8)):
                # the mark of a file's beginning would hide that of a comment behind it
                text, self._begun = text.removeprefix(codecs.BOM_UTF8), True
            cut = len(text) if self._ended else text.rfind(b"\n") + 1
            if not cut and len(text) > LONGEST_LINE:
                cut = len(text)  # the reader of records refuses it
            self._ready, self._line = self._drop_comments(text[:cut]), text[cut:]
        n = min(len(buffer), len(self._ready))
        buffer[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n

    def _drop_comments(self, text: bytes) -> bytes:
        if not text.startswith(self._prefix) and b"\n" + self._prefix not in text:
            self._quoted ^= bool(text.count(b'"') % 2)
            return text
        kept = []
        for line in io.BytesIO(text):
            if not self._quoted and line.startswith(self._prefix):
                continue
            self._quoted ^= bool(line.count(b'"') % 2)
            kept.append(line)
        return b"".join(kept)

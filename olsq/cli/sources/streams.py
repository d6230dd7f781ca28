"""Turn a file or pipe into UTF-8 bytes: decompress, change the encoding, drop comment lines."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import math
import os
import select
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from olsq.cli.errors import InputError

BUFFER_BYTES = 1 << 20
LONGEST_LINE = 32 << 20
GATHERED_SECONDS = 0.05  # for which a pipe that has bytes is waited for more
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
    comment : str or None
        Lines that begin with this are left out (not inside quotation marks).
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
        comment: str | None,
        pipe: Path | None = None,
    ) -> None:
        codec = check_encoding(encoding)
        self.name, self.encoding, self.is_pipe = name, encoding, path is None
        self.raw: Any = path.open("rb", buffering=0) if path else _open_pipe(pipe)
        try:
            with self.report_damage():
                self.text = self._open_text(codec, comment)
        except BaseException:
            self.close()
            raise

    def _open_text(self, codec: str | None, comment: str | None) -> Any:
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
        if comment is not None:
            text = io.BufferedReader(CommentFilter(text, comment.encode()), BUFFER_BYTES)
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

    def interrupt(self) -> None:
        """End a read of a pipe that another thread waits in."""
        if isinstance(self.raw, Pipe):
            self.raw.interrupt()

    def close(self) -> None:
        """Close the file, but not standard input."""
        if self.raw is not getattr(sys.stdin, "buffer", None):
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


def read_lines(stream: io.BufferedReader, n: int) -> bytes:
    """Return about ``n`` bytes of whole lines, those that are there, and none at the end."""
    lines = stream.read1(n)
    return lines if lines.endswith(b"\n") else lines + stream.readline(LONGEST_LINE)


def _open_pipe(pipe: Path | None) -> Any:
    """Open a pipe, or standard input where there is None."""
    if pipe is None:
        try:
            descriptor = sys.stdin.fileno()
        except (OSError, ValueError):  # standard input is an object in memory
            return sys.stdin.buffer
    else:
        descriptor = os.open(pipe, os.O_RDONLY)
    if os.name != "posix":  # select takes sockets only
        return open(descriptor, "rb", buffering=0, closefd=pipe is not None)
    return Pipe(descriptor, closes=pipe is not None)


class Pipe(io.RawIOBase):
    """A pipe whose reads, in any thread, end when a signal comes.

    pyarrow reads in a thread of its own, and the main one, which answers signals, waits for it.
    """

    def __init__(self, descriptor: int, *, closes: bool) -> None:
        self._descriptor, self._closes = descriptor, closes
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        self._takes_signals = threading.current_thread() is threading.main_thread()
        if self._takes_signals:
            self._before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        view, read, seconds, end = memoryview(buffer), 0, None, math.inf
        while read < len(view):  # a writer's pieces are small beside what a call of pyarrow costs
            ready, _, _ = select.select([self._descriptor, self._woken], [], [], seconds)
            if self._woken in ready:
                raise KeyboardInterrupt
            if not ready or not (n := os.readv(self._descriptor, [view[read:]])):
                break
            read += n
            end = min(end, time.monotonic() + GATHERED_SECONDS)
            seconds = max(end - time.monotonic(), 0.0)
        return read

    def close(self) -> None:
        if self.closed:
            return
        if self._takes_signals:
            signal.set_wakeup_fd(self._before)
        for descriptor in (self._woken, self._wake, self._descriptor)[: 2 + self._closes]:
            os.close(descriptor)
        super().close()

    def interrupt(self) -> None:
        """End the read that another thread waits in, and all later ones."""
        with suppress(BlockingIOError):
            os.write(self._wake, b"\0")


class CommentFilter(io.RawIOBase):
    """A stream of UTF-8 bytes without the lines that begin with ``prefix``.

    A line inside a quoted field is not one of its own: it is kept, whatever it begins with.
    """

    def __init__(self, stream: io.BufferedReader, prefix: bytes) -> None:
        self._stream, self._prefix = stream, prefix
        self._ready = memoryview(b"")  # not yet handed out
        self._quoted = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._ready:
            lines = read_lines(self._stream, BUFFER_BYTES)
            if not lines:
                return 0
            self._ready = memoryview(self._drop_comments(lines))
        n = min(len(buffer), len(self._ready))
        buffer[:n] = self._ready[:n]
        self._ready = self._ready[n:]
        return n

    def _drop_comments(self, text: bytes) -> bytes:
        if self._prefix not in text:
            self._quoted ^= bool(text.count(b'"') % 2)
            return text
        kept = []
        for line in io.BytesIO(text):
            if self._quoted or not line.startswith(self._prefix):
                self._quoted ^= bool(line.count(b'"') % 2)
                kept.append(line)
        return b"".join(kept)

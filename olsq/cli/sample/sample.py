"""Run ``olsq sample``: print continuations of prompts as text, while drawn or one by one."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from olsq.cli.errors import InputError, check_libraries
from olsq.cli.sample.command import SampleOptions

if TYPE_CHECKING:
    from olsq.train import Run


def run_sample(options: SampleOptions, progress_console: Console) -> None:
    """Run ``olsq sample``; the text is printed on standard output.

    Raises
    ------
    InputError
        If the options, the prompt or the run must be changed.
    KeyboardInterrupt
        After Ctrl-C, with the line that was begun ended.
    """
    options.check()
    prompts = _read_prompts(options)
    run = _open_run(options)
    tokens = [_encode(run, prompt) for prompt in prompts]
    sampling = {"key": options.seed, **options.sampling(run.model.vocab_size)}
    if len(prompts) == 1 and options.samples == 1:
        with progress_console.status("reading"):
            stream = run.model.generate(tokens, options.tokens, stream=True, **sampling)
        _write(prompts[0])
        text = _print_stream(run, stream, options)
        if not text.endswith("\n"):
            _write("\n")
        return
    with progress_console.status("sampling"):
        continuations = run.model.generate(
            tokens, options.tokens, num_samples=options.samples, **sampling
        )
    for i, (prompt, rows) in enumerate(zip(prompts, np.asarray(continuations), strict=True), 1):
        for j, row in enumerate(rows, 1):
            _write(f"--- prompt {i}, sample {j}\n{prompt}")
            stream = TextStream(run.tokenizer, options.stop)
            text = "".join(stream.add(token) for token in row if not stream.ended) + stream.flush()
            _write(text if text.endswith("\n") else text + "\n")


def _open_run(options: SampleOptions) -> Run:
    """Load the model and the tokenizer of the run's directory.

    Raises
    ------
    CommandError
        If a library is missing.
    InputError
        If there is no such model.
    """
    check_libraries("sample", "equinox", "optax", "safetensors")
    from olsq.train import load_run

    try:
        return load_run(options.run)
    except (ValueError, FileNotFoundError) as error:
        raise InputError(str(error)) from None


def _encode(run: Run, text: str) -> Any:
    """Encode a text that is not empty as tokens (n,)."""
    # What a terminal could not decode goes back to the bytes that it was.
    return run.tokenizer.encode(text.encode("utf-8", errors="surrogateescape"))


def _print_stream(run: Run, stream: Iterable[Any], options: SampleOptions) -> str:
    """Print a row of tokens as text while they are drawn, and return the text."""
    text, shown = TextStream(run.tokenizer, options.stop), []
    try:
        for token in stream:
            shown.append(text.add(token[0]))
            _write(shown[-1])
            if text.ended:
                break
    except KeyboardInterrupt:
        _write("\n")
        raise
    shown.append(text.flush())
    _write(shown[-1])
    return "".join(shown)


def _write(text: str) -> None:
    """Print text at once, with a question mark for what standard output cannot encode."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="replace").decode(encoding))
    sys.stdout.flush()


def _read_prompts(options: SampleOptions) -> list[str]:
    arguments = list(options.prompt)
    if not arguments:
        if sys.stdin is None or sys.stdin.isatty():
            raise InputError("--prompt is needed, or a text on standard input")
        arguments = ["-"]
    if arguments.count("-") > 1:
        raise InputError("--prompt - can be given once: there is one standard input")
    prompts = [sys.stdin.read() if text == "-" else text for text in arguments]
    if "" in prompts:
        raise InputError("the prompt is empty: give at least one character")
    return prompts


class TextStream:
    """Decodes tokens one by one; a letter is returned when its last byte has arrived.

    Parameters
    ----------
    tokenizer : ByteTokenizer or BytePairTokenizer
    stop : sequence of str
        Texts after the first of which it has ended; nothing that follows is given.

    Attributes
    ----------
    ended : bool

    Examples
    --------
    >>> from olsq.train import ByteTokenizer
    >>> stream = TextStream(ByteTokenizer(), ["."])
    >>> [stream.add(token) for token in "é. a".encode()], stream.ended
    (['', 'é', '.', '', ''], True)
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = [text.encode() for text in stop]
        # a stop may have begun with as many of the last bytes
        self._most = max(map(len, self._stops), default=1) - 1
        self._tail = b""  # the last bytes, with which a stop may have begun
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.ended = False

    def add(self, token: Any) -> str:
        """Return the text that the token completes."""
        if self.ended:
            return ""
        piece = self._tokenizer.decode_bytes([token])
        joined, before = self._tail + piece, len(self._tail)
        places = [joined.find(stop) + len(stop) for stop in self._stops if stop in joined]
        if places:
            self.ended = True
            piece = piece[: max(0, min(places) - before)]
        self._tail = joined[len(joined) - min(self._most, len(joined)) :]
        return self._decoder.decode(piece, final=self.ended)

    def flush(self) -> str:
        """Return a replacement for a letter that was never completed, or nothing."""
        return self._decoder.decode(b"", final=True)

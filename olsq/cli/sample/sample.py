"""Run ``olsq sample``: print continuations of prompts, while they are drawn or one by one."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from olsq.cli.errors import InputError, check_libraries
from olsq.cli.sample.options import SampleOptions
from olsq.cli.sample.text import TextStream

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
    given = {"key": options.seed, **options.sampling(run.model.vocab_size)}
    if len(prompts) == 1 and options.samples == 1:
        with progress_console.status("reading"):
            stream = run.model.generate(tokens, options.tokens, stream=True, **given)
        _write(prompts[0])
        text = _print_stream(run, stream, options)
        if not text.endswith("\n"):
            _write("\n")
        return
    with progress_console.status("sampling"):
        found = run.model.generate(tokens, options.tokens, num_samples=options.samples, **given)
    for i, (prompt, rows) in enumerate(zip(prompts, np.asarray(found), strict=True), 1):
        for j, row in enumerate(rows, 1):
            _write(f"--- prompt {i}, sample {j}\n{prompt}")
            stream = TextStream(run.tokenizer, options.stop)
            text = "".join(stream.add(token) for token in row if not stream.ended) + stream.rest()
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
    shown.append(text.rest())
    _write(shown[-1])
    return "".join(shown)


def _write(text: str) -> None:
    """Print text at once, with a question mark for what standard output cannot encode."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="replace").decode(encoding))
    sys.stdout.flush()


def _read_prompts(options: SampleOptions) -> list[str]:
    given = list(options.prompt)
    if not given:
        if sys.stdin is None or sys.stdin.isatty():
            raise InputError("--prompt is needed, or a text on standard input")
        given = ["-"]
    if given.count("-") > 1:
        raise InputError("--prompt - can be given once: there is one standard input")
    prompts = [sys.stdin.read() if text == "-" else text for text in given]
    if "" in prompts:
        raise InputError("the prompt is empty: give at least one character")
    return prompts

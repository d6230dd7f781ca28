"""``olsq sample``: continuations of prompts, as they are drawn or one after the other."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from olsq.cli.errors import InputError
from olsq.cli.libraries import check_libraries
from olsq.cli.sample.options import SampleOptions
from olsq.cli.sample.text import TextStream

if TYPE_CHECKING:
    from olsq.train import Run


def run_sample(options: SampleOptions, progress_console: Console) -> None:
    """Do what ``olsq sample`` was asked; the text goes to standard output.

    Raises
    ------
    InputError
        If the options, the prompt or the run must be changed.
    KeyboardInterrupt
        After Ctrl-C, with the line that was begun ended.
    """
    options.check()
    prompts = _prompts(options)
    run = open_run("sample", options)
    tokens = [encode(run, prompt) for prompt in prompts]
    given = {"key": options.seed, **options.sampling(run.model.vocab_size)}
    if len(prompts) == 1 and options.samples == 1:
        with progress_console.status("reading"):
            stream = run.model.generate(tokens, options.tokens, stream=True, **given)
        write(prompts[0])
        _, text = print_stream(run, stream, options)
        if not text.endswith("\n"):
            write("\n")
        return
    with progress_console.status("sampling"):
        found = run.model.generate(tokens, options.tokens, num_samples=options.samples, **given)
    for i, (prompt, rows) in enumerate(zip(prompts, np.asarray(found), strict=True), 1):
        for j, row in enumerate(rows, 1):
            write(f"--- prompt {i}, sample {j}\n{prompt}")
            stream = TextStream(run.tokenizer, options.stop)
            text = "".join(stream.add(token) for token in row if not stream.ended) + stream.rest()
            write(text if text.endswith("\n") else text + "\n")


def open_run(command: str, options: SampleOptions) -> Run:
    """The model and tokenizer in the directory.

    Raises
    ------
    CommandError
        If a library is missing.
    InputError
        If there is no such model.
    """
    check_libraries(command, "equinox", "optax", "safetensors")
    from olsq.train import load_run

    try:
        return load_run(options.run)
    except (ValueError, FileNotFoundError) as error:
        raise InputError(str(error)) from None


def encode(run: Run, text: str) -> Any:
    """Tokens (n,) of a text that is not empty."""
    # What a terminal could not decode goes back to the bytes that it was.
    return run.tokenizer.encode(text.encode("utf-8", errors="surrogateescape"))


def print_stream(
    run: Run, stream: Iterable[Any], options: SampleOptions, stopped: Any = None
) -> tuple[Any, str]:
    """Print a row of tokens as text while they come; the stream, and what was printed.

    ``stopped()`` says whether to leave off after the token just printed.
    """
    text, shown = TextStream(run.tokenizer, options.stop), []
    try:
        for token in stream:
            shown.append(text.add(token[0]))
            write(shown[-1])
            if text.ended or (stopped is not None and stopped()):
                break
    except KeyboardInterrupt:
        write("\n")
        raise
    shown.append(text.rest())
    write(shown[-1])
    return stream, "".join(shown)


def write(text: str) -> None:
    """Show text at once; what standard output cannot encode as a question mark."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="replace").decode(encoding))
    sys.stdout.flush()


def _prompts(options: SampleOptions) -> list[str]:
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

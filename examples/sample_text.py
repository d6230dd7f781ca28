"""Continue a text with a model trained by examples/train_text.py.

    python examples/sample_text.py book --prompt "It is a truth" --tokens 200

Without --prompt it reads standard input.  One sample appears as it is drawn; several are printed
one after the other.
"""

from __future__ import annotations

import argparse
import codecs
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from olsq.train import load_run


class TextStream:
    """Decodes tokens one by one; a letter is returned when its last byte has arrived.

    Parameters
    ----------
    tokenizer : ByteTokenizer or BytePairTokenizer
    stop : sequence of str
        Texts after the first of which the stream has ended; nothing that follows is returned.

    Attributes
    ----------
    ended : bool
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


def make_parser() -> argparse.ArgumentParser:
    """Declare the options."""
    parser = argparse.ArgumentParser(
        "sample_text.py", description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    add = parser.add_argument
    add("run", type=Path, help="directory of a run: the --out of train_text.py")
    add("--prompt", action="append", help="text to continue; repeatable; - is standard input")
    add("--tokens", type=int, default=300, help="largest number of tokens of a sample")
    add("--samples", type=int, default=1, help="samples of each prompt")
    add("--stop", action="append", default=[], help="end a sample after this text; repeatable")
    add("--temperature", type=float, default=0.8, help="divides the logits; 0: the likeliest")
    add("--top-k", type=int, default=40, help="among this many of the likeliest tokens; 0: all")
    add("--top-p", type=float, help="among the fewest tokens with this probability together")
    add("--min-p", type=float, help="among tokens this many times as likely as the likeliest")
    add("--repetition-penalty", type=float, help="above 1: tokens that occurred are less likely")
    add("--seed", type=int, default=0, help="of the random draws")
    return parser


def read_prompts(given: list[str] | None) -> list[str]:
    """Return the prompts, one of which may be read from standard input."""
    prompts = [sys.stdin.read() if text == "-" else text for text in given or ["-"]]
    if "" in prompts:
        raise ValueError("the prompt is empty: give at least one character")
    return prompts


def write(text: str) -> None:
    """Print text at once, with a question mark for what standard output cannot encode."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="replace").decode(encoding))
    sys.stdout.flush()


def write_sample(stream: TextStream, tokens: Any) -> None:
    """Print a row of tokens as text while they are drawn, and end the line."""
    last = ""
    try:
        for token in tokens:
            text = stream.add(token)
            last = text or last
            write(text)
            if stream.ended:
                break
    finally:
        write(stream.flush())
        write("" if last.endswith("\n") else "\n")


def sample(options: argparse.Namespace) -> None:
    """Print the samples."""
    prompts = read_prompts(options.prompt)
    model, tokenizer = load_run(options.run)
    # What a terminal could not decode goes back to the bytes that it was.
    tokens = [tokenizer.encode(text.encode("utf-8", errors="surrogateescape")) for text in prompts]
    sampling = {
        "key": options.seed,
        "temperature": options.temperature,
        "top_k": min(options.top_k, model.vocab_size) or None,
        "top_p": options.top_p,
        "min_p": options.min_p,
        "repetition_penalty": options.repetition_penalty,
    }
    if len(prompts) == options.samples == 1:
        drawn = model.generate(tokens, options.tokens, stream=True, **sampling)
        write(prompts[0])
        write_sample(TextStream(tokenizer, options.stop), (row[0] for row in drawn))
        return
    drawn = model.generate(tokens, options.tokens, num_samples=options.samples, **sampling)
    for i, (prompt, rows) in enumerate(zip(prompts, np.asarray(drawn), strict=True), 1):
        for j, row in enumerate(rows, 1):
            write(f"--- prompt {i}, sample {j}\n{prompt}")
            write_sample(TextStream(tokenizer, options.stop), row)


def main(arguments: list[str] | None = None) -> int:
    """Run the script and return its exit code; what cannot be used is one line and code 2."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        sample(options)
    except (ValueError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

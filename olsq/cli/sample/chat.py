"""``olsq chat``: line by line with a model whose state goes from turn to turn."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from olsq.cli.errors import Interrupted
from olsq.cli.interrupts import Interrupts
from olsq.cli.sample.options import SampleOptions
from olsq.cli.sample.sample import encode, open_run, print_stream, write

if TYPE_CHECKING:
    from olsq.train import Run

PIECE = 32  # tokens read at once; those left over are read one by one, so two sizes are compiled


def run_chat(options: SampleOptions, progress_console: Console) -> None:
    """Do what ``olsq chat`` was asked, until the input ends.

    Raises
    ------
    InputError
        If the options or the run must be changed.
    Interrupted
        After Ctrl-C, unless it only ended an answer on a terminal.
    """
    options.check()
    conversation = Conversation(open_run("chat", options), options, progress_console)
    terminal = sys.stdin.isatty()
    if terminal:
        progress_console.print("Ctrl-C ends an answer, Ctrl-D the conversation.", style="dim")
    while (line := _line(terminal)) is not None:
        with Interrupts() as interrupts:
            conversation.turn(line, interrupts)
            if interrupts.signum is not None and not terminal:
                raise Interrupted("stopped", interrupts.signum)


def _line(terminal: bool) -> str | None:
    """The next line without its end; None after the last."""
    try:
        if terminal:
            return input("> ")
        line = sys.stdin.readline()
        return line.rstrip("\r\n") if line else None
    except EOFError:
        write("\n")
        return None
    except KeyboardInterrupt:
        write("\n")
        raise


class Conversation:
    """A text written in turns, and the state of the model after it.

    Attributes
    ----------
    state : tuple of MixerState or None
        After everything said so far.
    """

    def __init__(self, run: Run, options: SampleOptions, progress_console: Console) -> None:
        self._run, self._options, self._console = run, options, progress_console
        self._given = options.sampling(run.model.vocab_size)
        self._turns, self._begun = 0, False  # whether the last line has no end
        self.state: Any = None

    def turn(self, line: str, interrupts: Interrupts | None = None) -> None:
        """Read a line and print the answer."""
        import jax

        tokens = encode(self._run, ("\n" if self._begun else "") + line + "\n")
        key = jax.random.fold_in(jax.random.key(self._options.seed), self._turns)
        with self._console.status("reading"):
            self._read(tokens[:-1])
            stream = self._run.model.generate(
                tokens[None, -1:], self._options.tokens, key=key, state=self.state, stream=True,
                **self._given,
            )  # fmt: skip
        stopped = None if interrupts is None else (lambda: interrupts.signum is not None)
        stream, text = print_stream(self._run, stream, self._options, stopped)
        self.state = stream.state
        self._turns, self._begun = self._turns + 1, not text.endswith("\n")
        if self._begun:
            write("\n")

    def _read(self, tokens: Any) -> None:
        """Take in tokens (n,) by pieces of two sizes."""
        import jax.numpy as jnp

        from olsq.nn.generation import compiled_prefill

        whole = len(tokens) // PIECE * PIECE
        pieces = [*np.split(tokens[:whole], range(PIECE, whole, PIECE))] if whole else []
        backbone = self._run.model.backbone
        for piece in [*pieces, *tokens[whole:, None]]:
            capacity = backbone.capacity_for(self.state, len(piece))
            given = jnp.asarray(piece[None])
            _, self.state = compiled_prefill(self._run.model, given, None, self.state, capacity)

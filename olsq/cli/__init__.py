"""The command ``olsq``: demo, fit, predict, compile.

Needs the extra ``cli``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Instead of ``sys.argv[1:]``.

    Raises
    ------
    SystemExit
        Always: 0 done, 1 the run failed, 2 the command or the data must be changed, 130 stopped by
        Ctrl-C, 143 stopped by SIGTERM.
    """
    # Before NumPy is imported.  The matrices of one stream are small: a second BLAS thread only
    # waits for the first (measured on two busy cores: 20 times slower), and each holds a buffer.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _open_closed_streams()
    try:
        with _quiet_start():
            from olsq.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in {
            "matplotlib",
            "polars",
            "pyarrow",
            "rich",
            "typer",
        }:
            raise
        if list(sys.argv[1:] if arguments is None else arguments) == ["--version"]:
            from olsq import __version__

            print(f"olsq {__version__}")
            sys.exit(0)
        print(
            f"olsq: {error.name} is not installed; the command line needs "
            'pip install ".[cli]" in a checkout of olsq',
            file=sys.stderr,
        )
        sys.exit(1)
    code = run(sys.argv[1:] if arguments is None else list(arguments))
    # A KeyboardInterrupt that passes through ``exec`` of a text (a library that makes a named tuple
    # while it is imported, say) leaves a mark in CPython, by which ``python -m olsq.cli`` would die
    # of the signal although the interrupt was caught.  The next ``exec`` of a text takes it away.
    exec("")
    sys.exit(code)


def _open_closed_streams() -> None:
    """Give standard streams that the shell has closed (``>&-``) a descriptor that fails.

    The next file that is opened would get their number otherwise, and what libraries print
    would go into it.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            # Reading from, or writing to, the wrong end is an error; errors have nowhere to go.
            wrong_end = os.O_RDONLY if name == "stdout" else os.O_WRONLY
            opened = os.open(os.devnull, wrong_end)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(descriptor, mode, encoding="utf-8"))  # noqa: SIM115


@contextmanager
def _quiet_start() -> Iterator[None]:
    """Let a signal end the process with one line while libraries are imported.

    A KeyboardInterrupt may be raised anywhere in them, and there is nothing to save yet.
    """

    def stop(signum: int, frame: FrameType | None) -> None:
        os.write(2, b"olsq: stopped\n")
        os._exit(128 + signum)

    signals = [signal.SIGINT, signal.SIGTERM]
    if threading.current_thread() is not threading.main_thread():
        signals = []
    previous = {signum: signal.signal(signum, stop) for signum in signals}
    try:
        yield
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)

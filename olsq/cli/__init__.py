"""The command ``olsq``: demo, fit, predict, train, sample, chat.

Needs ``pip install "online-least-squares[cli]"``; the last three also the extra ``nn``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

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
    try:
        from olsq.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in {"matplotlib", "polars", "rich", "typer"}:
            raise
        if list(sys.argv[1:] if arguments is None else arguments) == ["--version"]:
            from olsq import __version__

            print(f"olsq {__version__}")
            sys.exit(0)
        print(
            f"olsq: {error.name} is not installed; the command line needs "
            'pip install "online-least-squares[cli]"',
            file=sys.stderr,
        )
        sys.exit(1)
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))

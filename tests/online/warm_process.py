"""Programs in processes of their own that have Numba loaded when they begin.

Starting Python, importing Numba and its first compilation take more than a second; a process that
is forked from one that has done all that begins in hundredths.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from pathlib import Path
from typing import NamedTuple


class Done(NamedTuple):
    """The exit code of a program, and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


def run_warm(program: str, folder: Path, environment: dict[str, str], output: Path) -> Done:
    """Run a program as ``python -W error -c`` does in ``folder``; its output goes through files."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([f"{__package__}.warm_kernels"])
    files = [f"{output}.stdout", f"{output}.stderr"]
    process = context.Process(target=_run, args=(program, str(folder), environment, files))
    process.start()
    process.join()
    return Done(process.exitcode, *(Path(file).read_text() for file in files))


def _run(program: str, folder: str, environment: dict[str, str], files: list[str]) -> None:
    for descriptor, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:0] = environment["PYTHONPATH"].split(os.pathsep)
    sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in environment

    from numba.core import config

    config.reload_config()
    warnings.simplefilter("error")
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    sys.stdout.flush()

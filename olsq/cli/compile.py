"""The command ``olsq compile``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from olsq.cli.errors import InputError


def compile_(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            help="streams, windows, variants, banks, sequences, compiled, polars.",
            show_default=False,
            metavar="PARTS",
        ),
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Every part whose libraries are installed.")
    ] = False,
) -> None:
    """Compile what first calls would, and keep it on disk.

    For images of containers and systems that cannot be written later; set NUMBA_CACHE_DIR for a
    folder of your choice. Name the parts that you use, or take --all.
    """
    from olsq.compiling import compile_kernels
    from olsq.progress import make_progress

    if bool(parts) == all_:
        raise InputError(
            "name parts or take --all, not both" if all_ else "name the parts to compile, or --all"
        )
    console = Console(stderr=True)
    with make_progress(console) as bar:
        task = bar.add_task("compiling", total=1)

        def show(name: str, done: int, steps: int) -> None:
            bar.update(task, description=name or "compiled", completed=done, total=steps)

        try:
            compiled = compile_kernels(*parts or (), progress=show)
        except (ValueError, ImportError) as error:
            raise InputError(str(error)) from None
    print(f"{compiled.files} files of compiled code in {compiled.folder}")

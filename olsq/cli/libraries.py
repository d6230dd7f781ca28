"""Check for the libraries that a command needs beyond the extra ``cli``."""

from __future__ import annotations

import importlib.util

from olsq.cli.errors import CommandError


def check_libraries(command: str, *names: str) -> None:
    """Raise CommandError, with what to install, if a library of the extra ``nn`` is missing."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise CommandError(
                f"{name} is not installed; olsq {command} needs "
                'pip install "online-least-squares[cli,nn]"'
            )

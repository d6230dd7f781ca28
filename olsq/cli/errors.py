"""Errors that a command reports in one line, and text made safe to print on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich import markup
from rich.console import Console


class CommandError(Exception):
    """An error that is reported to the user in one line, without a traceback."""

    exit_code = 1


class InputError(CommandError):
    """An error that the user must correct in the command line or in the data."""

    exit_code = 2


class Interrupted(CommandError):
    """A run that was stopped by a signal, after saving what could be saved.

    ``exit_code`` is 128 + the signal's number: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum


def option_name(field: str) -> str:
    """Return ``key_size`` as ``--key-size``, as it is written on the command line."""
    return "--" + field.replace("_", "-")


def printable(text: str) -> str:
    r"""Return ``text`` with control characters written as escapes, such as ``\\x1b``.

    A column's name must not move the cursor, change colours or hide what was printed before it.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escape(text: str) -> str:
    """Return printable ``text`` that Rich does not read as markup."""
    return markup.escape(printable(text))


def label(text: str) -> str:
    """Return printable ``text`` that matplotlib does not read as mathematics."""
    return printable(text).replace("$", r"\$")


def say(console: Console, text: str) -> None:
    """Print a remark as it is, however long, in one line."""
    console.print(printable(text), soft_wrap=True, markup=False, highlight=False)


@contextmanager
def writing(where: object) -> Iterator[None]:
    """Report in one line that nothing more can be written; a reader that has gone is no error."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(f"cannot write to {error.filename or where}: {error.strerror}") from None

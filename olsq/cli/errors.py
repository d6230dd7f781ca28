"""The two ways a command fails: the user's input is wrong, or running it did not work."""

from __future__ import annotations


class CommandError(Exception):
    """An error told to the user in one line, without a traceback."""

    exit_code = 1


class InputError(CommandError):
    """Something in the command line or in the data must be changed by the user."""

    exit_code = 2


class Interrupted(CommandError):
    """The run was stopped by a signal after saving what there was to save.

    ``exit_code`` is 128 + the signal's number: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + signum

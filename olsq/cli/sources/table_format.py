"""Options of ``olsq fit`` and ``olsq predict`` that describe how a table is written."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from olsq.cli.errors import InputError
from olsq.cli.sources.streams import check_encoding


@dataclass(frozen=True, kw_only=True)
class TableFormat:
    """The time column and the format of CSV cells; the names are those of the options."""

    time: str | None = None
    time_format: str | None = None
    separator: str | None = None
    decimal: str = "."
    encoding: str | None = None
    comment: str | None = None
    na_values: tuple[str, ...] = ()

    def format_options(self) -> dict[str, Any]:
        """Return these options alone, to pass them on."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(TableFormat)}

    def check_format(self) -> None:
        """Raise InputError, naming the option, if no table can be written in such a way."""
        if self.time_format is not None and self.time is None:
            raise InputError("--time-format needs --time, the column it is the format of")
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '"\r\n'):
            raise InputError(f"--separator must be one character, got {self.separator!r}")
        if self.decimal not in (".", ","):
            raise InputError(f"--decimal must be . or , got {self.decimal!r}")
        if self.decimal == self.separator == ",":
            raise InputError(
                "--decimal , needs another --separator than the comma: ';' for example"
            )
        comment = self.comment
        if comment is not None and (not comment or any(mark in comment for mark in '"\r\n')):
            raise InputError(
                f"--comment must be what comment lines begin with, # for example, got {comment!r}"
            )
        check_encoding(self.encoding)


def check_level(level: float | None) -> None:
    """Raise InputError unless ``--level`` is a probability, or not given."""
    if level is not None and not 0 < level < 1:
        raise InputError(f"--level must lie between 0 and 1, got {level:g}")

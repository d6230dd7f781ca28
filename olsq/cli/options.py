"""Options that several commands share, by their panel of ``--help``, and the parsing of values."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from inspect import Parameter, Signature, get_annotations
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from olsq.cli.errors import InputError, option_name
from olsq.online.rows.durations import parse_duration

# A name in quotation marks, as in CSV, or one without; what follows an equals sign are levels.
QUOTED = r'"(?:[^"]|"")*"'
CELLS = re.compile(rf"\s*({QUOTED}|[^,]*?)\s*(?:,|\Z)")
WITH_LEVELS = re.compile(rf"\s*({QUOTED}|[^=]*?)\s*=(.*)", re.DOTALL)
TIME_UNIT = re.compile(r"(\d+\.?\d*|\.\d+)\s*(ns|us|ms|s|sec|m|min|h|H|d|D|w|W|M|Q|y|Y)\w*")


def split_names(parts: list[str] | None) -> tuple[str, ...]:
    """Split names at commas, of one option or several; as in CSV, "a,b" is one name."""
    cells = (cell for part in parts or () for cell in CELLS.findall(part))
    return tuple(name for name in map(unquoted, cells) if name)


def unquoted(text: str | None) -> str | None:
    """Return a name that may be written in quotation marks, as in CSV; "a,b" is a,b."""
    if text is None or not re.fullmatch(rf"\s*{QUOTED}\s*", text):
        return text
    return text.strip()[1:-1].replace('""', '"')


def quoted(name: str) -> str:
    """Return a name as :func:`split_levels` reads it back."""
    if any(mark in name for mark in ',="\r\n') or name != name.strip():
        return '"' + name.replace('"', '""') + '"'
    return name


def split_names_if_any(parts: list[str] | None) -> tuple[str, ...] | None:
    """Split names as :func:`split_names` does; None where the option is left out."""
    return None if parts is None else split_names(parts)


def split_levels(parts: list[str] | None) -> dict[str, tuple[str, ...] | None]:
    """Parse categorical columns and their levels, None where the data decide them.

    Raises
    ------
    InputError
        If a column is named twice, or its levels are empty or twice the same.
    """
    from olsq.cli.sources.categories import level_of  # which imports Polars

    categorical: dict[str, tuple[str, ...] | None] = {}
    for part in parts or ():
        # Levels may hold commas: after a column with levels the next column is its own option.
        with_levels = WITH_LEVELS.fullmatch(part) if "=" in re.sub(QUOTED, "", part) else None
        names = [with_levels[1]] if with_levels else split_names([part])
        for text in names:
            name, levels = unquoted(text) if with_levels else text, None
            if not name:
                raise InputError(f"--categorical {part!r} names no column")
            if with_levels:
                levels = tuple(level.strip() for level in with_levels[2].split("|"))
                distinct = set(map(level_of, levels))
                if not all(levels) or len(distinct) < len(levels) or levels == ("*",):
                    raise InputError(
                        f"--categorical {part!r}: levels must differ and not be empty, as in "
                        f"'{quoted(name)}=a|b|*'"
                    )
            if name in categorical:
                raise InputError(f"--categorical names {name!r} twice")
            categorical[name] = levels
    return categorical


def number_of_rows(
    option: str, text: str | None, kind: type[int] | type[float]
) -> float | str | None:
    """Return the number in ``text``, or a span of time such as 30D as it is written.

    InputError says what is wrong with anything else.
    """
    if text is None:
        return None
    try:
        return kind(text)
    except ValueError:
        if TIME_UNIT.fullmatch(text.strip()):
            try:
                parse_duration(text, option)
            except ValueError as error:
                raise InputError(str(error)) from None
            return text
        what = "a whole number of rows" if kind is int else "a number of rows"
        message = f"{option} must be {what}, or a span of time such as 30D, got {text!r}"
        raise InputError(message) from None


def as_json(value: Any) -> Any:
    """Return what a state keeps of a value: a list of several names or of columns with levels."""
    if isinstance(value, dict):
        return [
            quoted(name) if levels is None else f"{quoted(name)}={'|'.join(levels)}"
            for name, levels in value.items()
        ] or None
    return list(value) if isinstance(value, tuple) else value


def listed(value: tuple[str, ...]) -> list[str] | None:
    """Return what a state keeps of several names, None where there are none."""
    return list(value) or None


class Rule(NamedTuple):
    """A condition on a number, in words after "must", and its test."""

    words: str
    holds: Callable[[Any], bool]


POSITIVE = Rule("be a positive number", lambda value: 0 < value < math.inf)
NOT_NEGATIVE = Rule("be finite and not negative", lambda value: 0 <= value < math.inf)
ONE_ROW = Rule("be at least 1 row", lambda value: value >= 1)
PROBABILITY = Rule("lie between 0 and 1", lambda value: 0 < value < 1)
FACTOR = Rule("lie between 0 and 1", lambda value: 0 <= value <= 1)
NO_ROW = Rule("be a number of rows, 0 or more", lambda value: value >= 0)
MOST_ROWS = 10**15  # of any table


@dataclass(frozen=True)
class Declaration:
    """Declaration of a field of a command's options: on the command line and in a state.

    Attributes
    ----------
    info : OptionInfo or ArgumentInfo
        What typer shows.
    argument : str or None
        Its name on the command line, where that is not the field's.
    parse : callable or None
        Makes the value of what was typed, ``text`` or several of it.
    text : type or None
        Of what was typed; None for the field's own.
    compared : callable or None
        Makes what a state keeps of the value, to be the same in a resumed run; None: nothing.
    same : tuple
        Values that mean the same.
    restored : callable or None
        Makes the value of what a state keeps, where that is not the default's None.
    choices, endings : tuple of str
        The values that there are, and the endings of files; empty: any.
    rule : Rule or None
        What a number must be.
    each_run : bool
        Whether each run chooses for itself, also one that goes on.
    """

    info: Any
    argument: str | None = None
    parse: Callable[[Any], Any] | None = None
    text: Any = None
    compared: Callable[[Any], Any] | None = as_json
    same: tuple[Any, ...] = ()
    restored: Callable[[Any], Any] | None = None
    choices: tuple[str, ...] = ()
    endings: tuple[str, ...] = ()
    rule: Rule | None = None
    each_run: bool = False

    def option_of(self, field: str) -> str:
        """Return the option of the field of this name, ``--half-life`` of half_life."""
        return next(iter(self.info.param_decls or ()), option_name(self.argument or field))


def option(
    default: Any,
    help: str,
    *flags: str,
    panel: str | None = None,
    several: bool = False,
    metavar: str | None = None,
    show_default: bool | str | None = None,
    **declaration: Any,
) -> Any:
    """Declare a field of a command's options: its default, help and :class:`Declaration`.

    A default that is a type is called.  What is parsed is text, ``several`` of it a list.
    """
    is_empty = default is None or default == () or isinstance(default, type)
    shown = not is_empty if show_default is None else show_default
    info = typer.Option(
        *flags, help=help, rich_help_panel=panel, metavar=metavar, show_default=shown
    )
    if "parse" in declaration:
        declaration.setdefault("text", list[str] | None if several else str | None)
    made: Any = {"default_factory" if isinstance(default, type) else "default": default}
    return field(**made, metadata={"declared": Declaration(info, **declaration)})


model_option = partial(option, panel="Model")
results_option = partial(option, panel="Results")
stopping_option = partial(option, panel="Stopping and resuming")
reading_option = partial(option, panel="Reading")


def argument(help: str, metavar: str) -> Any:
    """Declare a field that is an argument of the command."""
    info = typer.Argument(help=help, show_default=False, metavar=metavar)
    return field(metadata={"declared": Declaration(info, compared=None)})


def declared(options: Any) -> dict[str, Declaration]:
    """Return the declarations in a class of options, those of its bases last."""
    names = [name for kind in options.__mro__ for name in get_annotations(kind)]
    known = {f.name: f.metadata.get("declared") for f in fields(options)}
    return {name: how for name in names if (how := known[name]) is not None}


def check_values(options: Any) -> None:
    """Raise InputError, naming the option, for a value that its declaration does not allow."""
    for name, how in declared(type(options)).items():
        value, flag = getattr(options, name), how.option_of(name)
        if value is None:
            continue
        if how.choices and value not in how.choices:
            raise InputError(f"{flag} must be {' or '.join(how.choices)}, got {value!r}")
        if how.endings and value.suffix.lower() not in how.endings:
            endings = f"{', '.join(how.endings[:-1])} or {how.endings[-1]}"
            raise InputError(f"{flag} must end in {endings}, got {value.name}")
        if how.rule is None or isinstance(value, str):
            continue
        if not how.rule.holds(value):
            shown = value if isinstance(value, int) else f"{value:g}"
            raise InputError(f"{flag} must {how.rule.words}, got {shown}")
        if isinstance(value, int) and value > MOST_ROWS:
            raise InputError(f"{flag} must be at most {MOST_ROWS:,}, got {value}")


def restored_value(defaults: Any, name: str, kept: Any) -> Any:
    """Return the value of a field that a state keeps as ``kept``."""
    if kept is None:
        return getattr(defaults, name)
    restored = declared(type(defaults))[name].restored
    value = kept if restored is None else restored(kept)
    return tuple(value) if isinstance(value, list) else value


def takes(options: Any) -> Callable[[Any], Any]:
    """Make a command's parameters of the declarations in a class of options."""

    def decorate(command: Any) -> Any:
        hints, defaults = get_type_hints(options), {f.name: f.default for f in fields(options)}
        parameters = [Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)]
        for name, how in declared(options).items():
            kind, default = how.text or hints[name], defaults[name]
            if how.text is not None:
                default = False if kind is bool else None
            elif default is MISSING:
                default = Parameter.empty
            parameters.append(
                Parameter(
                    how.argument or name,
                    Parameter.KEYWORD_ONLY,
                    default=default,
                    annotation=Annotated[kind, how.info],
                )
            )
        command.__signature__ = Signature(parameters)
        return command

    return decorate


def parse_values(options: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a command as values of its options; InputError for wrong ones."""
    values = {}
    for name, how in declared(options).items():
        value = arguments[how.argument or name]
        values[name] = value if how.parse is None else how.parse(value)
    return values


def typed_fields(options: Any, context: typer.Context) -> frozenset[str]:
    """Return the fields that the command line names, be it with their default."""
    sources = {
        name: context.get_parameter_source(how.argument or name)
        for name, how in declared(options).items()
    }
    # By name, as typer comes with or without a click of its own.
    return frozenset(n for n, source in sources.items() if source and "DEFAULT" not in source.name)

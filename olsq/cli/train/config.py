"""Gather the options of ``olsq train`` from command line, TOML file and preset; write TOML."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

from olsq.cli.errors import InputError
from olsq.cli.train.options import TrainOptions

CONFIG = "config.toml"
NOT_WRITTEN = {"resume"}
# What a field may hold, by its annotation without "| None".
TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,), "float": (int, float), "str": (str,), "Path": (str,), "bool": (bool,),
    "dict[str, dict[str, Any]]": (dict,),
}  # fmt: skip
WORDS = {
    "int": "a whole number", "float": "a number", "str": "text", "Path": "a path as text",
    "bool": "true or false", "dict[str, dict[str, Any]]": "tables of options by mixer",
}  # fmt: skip
FIELDS = {field.name: field for field in dataclasses.fields(TrainOptions)}


def gather(given: dict[str, Any]) -> TrainOptions:
    """Gather all options: those ``given``, then those of ``given["config"]``, then the preset's.

    Parameters
    ----------
    given : dict
        Options of the command line, those only that were written there.

    Raises
    ------
    InputError
        If the file cannot be read, or has an option that is unknown or of another type.
    """
    given = dict(given)
    config, options = given.pop("config", None), given.pop("mixer_option", None)
    values = {} if config is None else read_config(config)
    if values.get("preset") is not None:
        values = {**preset_sizes(values["preset"]), **values}
    if given.get("preset") is not None:  # comes before the sizes in the file
        values |= preset_sizes(given["preset"])
    if options:
        tables = {name: dict(table) for name, table in values.get("mixer_options", {}).items()}
        for text in options:
            mixer, name, value = mixer_option(text)
            tables.setdefault(mixer, {})[name] = value
        given["mixer_options"] = tables
    return TrainOptions(**{**values, **given})


def read_config(path: Path) -> dict[str, Any]:
    """Read the options in a TOML file, checked by name and type."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    values = {}
    for name, value in found.items():
        field = FIELDS.get(name)
        if field is None:
            known = ", ".join(FIELDS)
            raise InputError(f"{path} has an unknown option {name!r}; known are {known}")
        kind = str(field.type).removesuffix(" | None")
        right = isinstance(value, TYPES[kind]) and (isinstance(value, bool) == (kind == "bool"))
        if kind.startswith("dict"):
            right = right and all(isinstance(table, dict) for table in value.values())
        if not right:
            raise InputError(f"{path}: {name} must be {WORDS[kind]}, got {value!r}")
        values[name] = Path(value) if kind == "Path" else value
    return values


def write_config(options: TrainOptions) -> str:
    """Write TOML from which :func:`read_config` reads these options; what was not given is left
    out.
    """
    lines = ["# Options of olsq train; make the run again with: olsq train --config config.toml"]
    tables = []
    for name in FIELDS:
        value = getattr(options, name)
        if name in NOT_WRITTEN or value is None:
            continue
        if name == "mixer_options":
            for mixer, table in value.items():
                inside = [f"{_toml_key(key)} = {_to_toml(each)}" for key, each in table.items()]
                tables += ["", f"[mixer_options.{_toml_key(mixer)}]", *inside]
            continue
        if isinstance(value, Path):  # of use from any directory
            value = str(value.absolute())
        elif name == "tokenizer" and value.endswith(".json"):
            value = str(Path(value).absolute())
        lines.append(f"{name} = {_to_toml(value)}")
    return "\n".join([*lines, *tables]) + "\n"


def mixer_option(text: str) -> tuple[str, str, Any]:
    """Parse ``mesa.ridge_floor=0.1`` into mixer, option and value: TOML's, or text as it is."""
    place, equals, value = text.partition("=")
    mixer, dot, name = place.strip().partition(".")
    if not (equals and dot and mixer and name and value.strip()):
        raise InputError(f"--mixer-option must look like mesa.ridge_floor=0.1, got {text!r}")
    try:
        return mixer, name, tomllib.loads(f"x = {value.strip()}")["x"]
    except tomllib.TOMLDecodeError:
        return mixer, name, value.strip()


def preset_sizes(name: str) -> dict[str, Any]:
    """Return the options that a preset stands for."""
    from olsq.cli.errors import check_libraries

    check_libraries("train", "equinox", "optax", "safetensors")
    from olsq.nn.presets import PRESETS

    if name not in PRESETS:
        raise InputError(f"--preset: unknown preset {name!r}; known are {', '.join(PRESETS)}")
    return dict(PRESETS[name])


def _toml_key(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name.isascii() else json.dumps(name)


def _to_toml(value: Any) -> str:
    """Format a value as TOML; JSON's strings, numbers and lists of these are TOML's too."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)  # also inf and nan, which JSON spells otherwise
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_key(k)} = {_to_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_to_toml(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)

"""Options of ``olsq train``, from command line, TOML file and preset, checked before it reads."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from olsq.cli.errors import InputError, option_name
from olsq.files import same_file

if TYPE_CHECKING:
    from olsq.train import TrainConfig

DTYPES = ("float32", "bfloat16")
REMAT = ("none", "dots", "full")
CONFIG = "config.toml"
NOT_WRITTEN = {"resume"}
WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "Path": "a path as text",
    "bool": "true or false",
    "dict[str, dict[str, Any]]": "tables of options by mixer",
}


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of ``olsq train`` under their names on the command line."""

    text: Path | None = None
    out: Path = Path("olsq-run")
    mixer: str = "mesa"
    mixer_options: dict[str, dict[str, Any]] = field(default_factory=dict)
    solver: str | None = None
    preset: str | None = None
    dim: int = 128
    blocks: int = 4
    heads: int = 4
    key_size: int | None = None
    dtype: str = "float32"
    dropout: float = 0.0
    remat: str = "none"
    tokenizer: str = "bytes"
    validation: float = 0.1
    length: int = 256
    batch: int = 16
    accumulate: int = 1
    devices: int = 1
    steps: int = 1000
    lr: float = 1e-3
    warmup: int | None = None
    weight_decay: float = 0.1
    clip: float = 1.0
    z_loss: float = 0.0
    average: float | None = None
    seed: int = 0
    evaluate_every: int | None = None
    sample: int = 300
    resume: bool = False
    checkpoint_every: float = 60.0

    @property
    def mixers(self) -> list[str]:
        """Names of the mixers, which take turns: ``hawk,mesa`` is two."""
        return [name.strip() for name in self.mixer.split(",")]

    def check(self) -> None:
        """Raise InputError, naming the option, for a value that cannot be used."""
        for name in ("dim", "blocks", "heads", "key_size", "devices"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{option_name(name)} must be at least 1, got {value}")
        if self.dtype not in DTYPES:
            raise InputError(f"--dtype must be {' or '.join(DTYPES)}, got {self.dtype!r}")
        if self.remat not in REMAT:
            raise InputError(f"--remat must be {', '.join(REMAT)}, got {self.remat!r}")
        if not 0 <= self.dropout < 1:
            raise InputError(f"--dropout must lie in [0, 1), got {self.dropout:g}")
        if self.batch % (self.accumulate * self.devices or 1):
            raise InputError(
                f"--batch must be a multiple of --accumulate times --devices, got {self.batch}, "
                f"{self.accumulate} and {self.devices}"
            )
        if not 0 < self.validation < 1:
            raise InputError(f"--validation must lie between 0 and 1, got {self.validation:g}")
        if self.sample < 0:
            raise InputError(f"--sample must not be negative, got {self.sample}")
        if not 0 <= self.checkpoint_every < math.inf:
            raise InputError(
                f"--checkpoint-every must be finite and not negative, got {self.checkpoint_every:g}"
            )
        if self.out.exists() and not self.out.is_dir():
            raise InputError(f"cannot write to {self.out}: it is not a directory")
        if not self.out.absolute().parent.is_dir():
            raise InputError(f"cannot create {self.out}: there is no directory {self.out.parent}")

    def check_files(self) -> None:
        """Raise InputError if a file that the run reads is one that it writes."""
        names = (
            "checkpoint.safetensors",
            "log.csv",
            "config.toml",
            "loss.png",
            "perplexity.png",
            "positions.csv",
            "model.safetensors",
            ".olsq-lock",
        )
        reads = [("the text", self.text)]
        if self.tokenizer.endswith(".json"):
            reads.append(("--tokenizer", Path(self.tokenizer)))
        for what, path in reads:
            for name in names:
                if path is not None and same_file(path, self.out / name):
                    raise InputError(f"{what} would be overwritten by the run: {path}")

    def read(self) -> bytes:
        """Read the text as bytes; without one, that of :func:`olsq.datasets.austen`."""
        if self.text is None:
            from olsq.datasets import austen

            return austen().encode()
        try:
            content = self.text.read_bytes()
        except OSError as error:
            raise InputError(f"cannot read {self.text}: {error.strerror}") from None
        if not content.strip():
            raise InputError(f"{self.text} is empty: there is no text to learn from")
        return content

    def config(self) -> TrainConfig:
        """Return the options of the training itself."""
        from olsq.train import TrainConfig

        names = (
            "steps",
            "batch",
            "length",
            "lr",
            "warmup",
            "weight_decay",
            "clip",
            "accumulate",
            "seed",
            "evaluate_every",
            "z_loss",
            "average",
        )
        try:
            return TrainConfig(**{name: getattr(self, name) for name in names})
        except ValueError as error:  # it begins with the name of the field
            name, reason = str(error).split(" ", 1)
            raise InputError(f"{option_name(name)} {reason}") from None

    def setup(self, solver: Any) -> dict[str, Any]:
        """Return the options that make the model and its tokens, compared when a run is resumed."""
        names = ("mixer", "dim", "blocks", "heads", "key_size", "dtype", "tokenizer", "validation")
        setup = {name: getattr(self, name) for name in names}
        setup["mixer"] = ",".join(self.mixers)
        # Checkpoints of runs without these do not name them.
        extra = {"dropout": self.dropout, "mixer_options": self.mixer_options}
        setup |= {name: value for name, value in extra.items() if value}
        return {**setup, "solver": None if solver is None else repr(solver)}

    def describe(self) -> str:
        """Describe the model in a few words, for headings."""
        solver = "" if self.solver is None else f", {self.solver}"
        return f"{self.mixer}{solver}, {self.blocks} blocks of {self.dim}"


# What a field may hold, by its annotation without "| None".
TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "Path": (str,),
    "bool": (bool,),
    "dict[str, dict[str, Any]]": (dict,),
}
FIELDS = {field.name: field for field in dataclasses.fields(TrainOptions)}


def gather(explicit: dict[str, Any]) -> TrainOptions:
    """Gather all options: the explicit ones, then the config file's, then the preset's.

    Parameters
    ----------
    explicit : dict
        Options of the command line, those only that were written there.

    Raises
    ------
    InputError
        If the file cannot be read, or has an option that is unknown or of another type.
    """
    explicit = dict(explicit)
    config, options = explicit.pop("config", None), explicit.pop("mixer_option", None)
    values = {} if config is None else read_config(config)
    if values.get("preset") is not None:
        values = {**preset_sizes(values["preset"]), **values}
    if explicit.get("preset") is not None:  # comes before the sizes in the file
        values |= preset_sizes(explicit["preset"])
    if options:
        tables = {name: dict(table) for name, table in values.get("mixer_options", {}).items()}
        for text in options:
            mixer, name, value = mixer_option(text)
            tables.setdefault(mixer, {})[name] = value
        explicit["mixer_options"] = tables
    return TrainOptions(**{**values, **explicit})


def read_config(path: Path) -> dict[str, Any]:
    """Read the options in a TOML file, checked by name and type."""
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    values = {}
    for name, value in written.items():
        field = FIELDS.get(name)
        if field is None:
            allowed = ", ".join(FIELDS)
            raise InputError(f"{path} has an unknown option {name!r}; known are {allowed}")
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

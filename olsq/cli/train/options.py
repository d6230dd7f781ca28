"""The options of ``olsq train``, checked before anything is read or written."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from olsq.cli.errors import InputError, option_name
from olsq.files import same_file

if TYPE_CHECKING:
    from olsq.train import TrainConfig

DTYPES = ("float32", "bfloat16")
REMAT = ("none", "dots", "full")


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
            "checkpoint.safetensors", "log.csv", "config.toml", "loss.png", "perplexity.png",
            "positions.csv", "model.safetensors", ".olsq-lock",
        )  # fmt: skip
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
            "steps", "batch", "length", "lr", "warmup", "weight_decay", "clip", "accumulate",
            "seed", "evaluate_every", "z_loss", "average",
        )  # fmt: skip
        try:
            return TrainConfig(**{name: getattr(self, name) for name in names})
        except ValueError as error:  # it begins with the name of the field
            name, rest = str(error).split(" ", 1)
            raise InputError(f"{option_name(name)} {rest}") from None

    def setup(self, solver: Any) -> dict[str, Any]:
        """Return the options that make the model and its tokens, compared when a run is resumed."""
        names = ("mixer", "dim", "blocks", "heads", "key_size", "dtype", "tokenizer", "validation")
        given = {name: getattr(self, name) for name in names}
        given["mixer"] = ",".join(self.mixers)
        # Checkpoints of runs without these do not name them.
        extra = {"dropout": self.dropout, "mixer_options": self.mixer_options}
        given |= {name: value for name, value in extra.items() if value}
        return {**given, "solver": None if solver is None else repr(solver)}

    def describe(self) -> str:
        """Describe the model in a few words, for headings."""
        solver = "" if self.solver is None else f", {self.solver}"
        return f"{self.mixer}{solver}, {self.blocks} blocks of {self.dim}"

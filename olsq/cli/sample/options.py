"""The options of ``olsq sample``, checked before a model is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from olsq.cli.errors import InputError, option_name


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Options of ``olsq sample`` under their names on the command line."""

    run: Path
    tokens: int = 300
    temperature: float = 0.8
    top_k: int = 40
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    stop: tuple[str, ...] = ()
    seed: int = 0
    prompt: tuple[str, ...] = ()
    samples: int = 1

    def check(self) -> None:
        """Raise InputError, naming the option, for a value that cannot be used."""
        for name, least in (("tokens", 1), ("samples", 1), ("seed", 0), ("top_k", 0)):
            if (value := getattr(self, name)) < least:
                raise InputError(f"{option_name(name)} must be at least {least}, got {value}")
        if not 0 <= self.temperature < math.inf:
            raise InputError(
                f"--temperature must be >= 0 and finite (0 takes the likeliest), got "
                f"{self.temperature:g}"
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError(f"--top-p must lie in (0, 1], got {self.top_p:g}")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise InputError(f"--min-p must lie in [0, 1], got {self.min_p:g}")
        penalty = self.repetition_penalty
        if penalty is not None and not 0 < penalty < math.inf:
            raise InputError(
                f"--repetition-penalty must be a positive number (1: none), got {penalty:g}"
            )
        if "" in self.stop:
            raise InputError("--stop must hold at least one character")
        if not self.run.is_dir():
            raise InputError(f"{self.run} is not a directory: give the --out of olsq train")

    def sampling(self, vocab_size: int) -> dict[str, Any]:
        """Return the options of :func:`olsq.nn.generate`."""
        return {
            "temperature": self.temperature,
            "top_k": min(self.top_k, vocab_size) or None,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
        }

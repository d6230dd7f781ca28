"""The options of ``olsq fit``, checked before any data are read."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from olsq.cli.errors import InputError
from olsq.cli.fit.output import FORMATS
from olsq.online import RecursiveLeastSquares, RollingLeastSquares
from olsq.online.form_switch import METHODS
from olsq.problem import RIDGE_MODES

FIGURES = (".png", ".pdf", ".svg", ".jpg", ".webp")
Estimator = RecursiveLeastSquares | RollingLeastSquares


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What the user asked ``olsq fit`` for; the names are those of the options."""

    data: str
    target: str
    features: tuple[str, ...] | None = None
    weight: str | None = None
    forget: float | None = None
    half_life: float | None = None
    window: int | None = None
    ridge: float = 1e-3
    ridge_mode: str = "discounted"
    intercept: bool = True
    method: str = "auto"
    missing: str = "skip"
    out: Path | None = None
    plot: Path | None = None
    state: Path | None = None
    resume: bool = False
    separator: str | None = None
    chunk_rows: int | None = None
    checkpoint_every: float = 5.0

    def check(self) -> None:
        """Raise InputError, naming the option, for a value that cannot be used."""
        self._check_numbers()
        self._check_words()
        self._check_files()

    def _check_numbers(self) -> None:
        given = [
            name
            for name, value in (
                ("--forget", self.forget),
                ("--half-life", self.half_life),
                ("--window", self.window),
            )
            if value is not None
        ]
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)} exclude each other: give one of them")
        if self.forget is not None and not 0 <= self.forget <= 1:
            raise InputError(f"--forget must lie between 0 and 1, got {self.forget:g}")
        if self.half_life is not None and not 0 < self.half_life < math.inf:
            raise InputError(f"--half-life must be a positive number, got {self.half_life:g}")
        if self.window is not None and self.window < 1:
            raise InputError(f"--window must be at least 1 row, got {self.window}")
        if not 0 <= self.ridge < math.inf:
            raise InputError(f"--ridge must be finite and not negative, got {self.ridge:g}")
        if self.chunk_rows is not None and self.chunk_rows < 1:
            raise InputError(f"--chunk-rows must be at least 1, got {self.chunk_rows}")
        if not 0 <= self.checkpoint_every < math.inf:
            raise InputError(
                f"--checkpoint-every must be finite and not negative, got {self.checkpoint_every:g}"
            )

    def _check_words(self) -> None:
        for option, value, choices in (
            ("--ridge-mode", self.ridge_mode, RIDGE_MODES),
            ("--method", self.method, ("auto", *METHODS)),
            ("--missing", self.missing, ("skip", "raise")),
        ):
            if value not in choices:
                raise InputError(f"{option} must be {' or '.join(choices)}, got {value!r}")
        if self.window is not None and (self.method != "auto" or self.ridge_mode != "discounted"):
            raise InputError("--window has one method and a fixed ridge: leave out the other two")
        forgets = self.half_life is not None or self.forget not in (None, 1.0)
        if self.ridge_mode == "fixed" and forgets and self.method in ("covariance", "sqrt"):
            raise InputError(
                f"--method {self.method} forgets the ridge with the data; "
                "--ridge-mode fixed needs --method information (or auto)"
            )
        if self.separator is not None and (len(self.separator) != 1 or self.separator in '"\r\n'):
            raise InputError(f"--separator must be one character, got {self.separator!r}")

    def _check_files(self) -> None:
        if self.resume and self.state is None:
            raise InputError("--resume needs --state, the file to resume from")
        if self.plot is not None and self.plot.suffix.lower() not in FIGURES:
            raise InputError(f"--plot must end in {', '.join(FIGURES)}, got {self.plot.name}")
        if self.out is not None and self.out.suffix not in FORMATS:
            raise InputError(f"--out must end in {' or '.join(FORMATS)}, got {self.out.name}")
        taken: dict[Path, str] = {}
        if self.data != "-":
            taken[Path(self.data).resolve()] = "the data"
        for option, path in (("--out", self.out), ("--plot", self.plot), ("--state", self.state)):
            if path is None:
                continue
            if path.resolve() in taken:
                raise InputError(f"{option} and {taken[path.resolve()]} are the same file: {path}")
            if not path.parent.is_dir():
                raise InputError(f"cannot write {path}: there is no directory {path.parent}")
            if path.is_dir():
                raise InputError(f"cannot write {path}: it is a directory")
            if not os.access(path if path.exists() else path.parent, os.W_OK):
                raise InputError(f"cannot write {path}: permission denied")
            taken[path.resolve()] = option
        if self.state is not None and self.state.exists() and not self.resume:
            raise InputError(
                f"{self.state} exists: add --resume to go on from it, or delete it to start again"
            )

    def estimator(self) -> Estimator:
        """Return a fresh estimator."""
        common: dict[str, Any] = {
            "ridge": self.ridge, "fit_intercept": self.intercept, "missing": self.missing,
        }  # fmt: skip
        if self.window is not None:
            return RollingLeastSquares(window=self.window, **common)
        return RecursiveLeastSquares(
            forget=1.0 if self.forget is None else self.forget, half_life=self.half_life,
            ridge_mode=self.ridge_mode, method=self.method, cov="sandwich", **common,
        )  # fmt: skip

    def for_comparison(self) -> dict[str, Any]:
        """What must be the same in a resumed run, by option name."""
        return {
            "--target": self.target,
            "--features": None if self.features is None else list(self.features),
            "--weight": self.weight,
            "--forget": self.forget,
            "--half-life": self.half_life,
            "--window": self.window,
            "--ridge": self.ridge,
            "--ridge-mode": self.ridge_mode,
            "--no-intercept": not self.intercept,
            "--method": self.method,
            "--missing": self.missing,
            "--separator": self.separator,
            "--out": None if self.out is None else self.out.suffix,
            "--plot": self.plot is not None,
        }

    def describe(self) -> str:
        """The regression in words, for headings."""
        if self.window is not None:
            memory = f"the last {self.window:,} rows"
        elif self.half_life is not None:
            memory = f"half-life {self.half_life:g} rows"
        elif self.forget is not None and self.forget < 1:
            memory = f"forgetting factor {self.forget:g}"
        else:
            memory = "all rows count the same"
        return memory

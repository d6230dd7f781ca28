"""The options of ``olsq fit``, checked before any data are read."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from olsq.cli.errors import InputError
from olsq.cli.fit.declared import DEFAULT_GROUPS, GROUPS, Declared
from olsq.cli.options import check_values, declared, parse_values, restored_value
from olsq.cli.paths import check_paths
from olsq.cli.sources.columns import Reading, TableFormat

# Standard errors, without a window and in one.
ERRORS = ("nonrobust", "posterior", "sandwich")
ROBUST = ("HC0", "HC1", "HC2", "HC3", "HAC")


@dataclass(frozen=True, kw_only=True)
class FitOptions(Declared):
    """Options of ``olsq fit`` under their names on the command line."""

    explicit: frozenset[str] = frozenset()  # fields that the command line names, be it the default

    @classmethod
    def from_arguments(cls, arguments: dict[str, Any], explicit: frozenset[str]) -> FitOptions:
        """Make the options from the command's arguments, of which some are ``explicit``.

        Raises
        ------
        InputError
            If the text of an option cannot be read.
        """
        values = parse_values(cls, arguments)
        if values["statistics"] and "statistics" not in values["columns"]:
            values["columns"] += ("statistics",)
        return cls(explicit=explicit, **values)

    def check(self) -> None:
        """Raise InputError, naming the option, for a value that cannot be used."""
        check_values(self)
        self._check_columns()
        self._check_spans()
        self._check_combinations()
        self._check_errors()
        self.check_format()
        self._check_files()

    @property
    def takes_options(self) -> bool:
        """True if options that are not given are those of the state."""
        return self.continued or (self.resume and not self.targets)

    def with_options_of(self, saved: dict[str, Any], features: Sequence[str]) -> FitOptions:
        """Return these options, with those of a state (:meth:`for_comparison`) where none is given.

        Raises
        ------
        InputError
            If one that the state depends on is given and differs.
        """
        written = TableFormat.__annotations__.keys() - {"time"}  # how this table is
        defaults = FitOptions(data=self.data)
        taken: dict[str, Any] = {}
        for name, how in declared(FitOptions).items():
            flag = how.option_of(name)
            if flag not in saved or how.each_run:
                continue
            value = restored_value(defaults, name, saved[flag])
            current, default = getattr(self, name), getattr(defaults, name)
            same = current == value or (current in how.same and value in how.same)
            if same or (current == default and name not in self.explicit):
                taken[name] = value
            elif name not in written:
                raise InputError(
                    f"cannot continue: {flag} of the state is {value!r}, got {current!r}: leave "
                    f"{flag} out, or fit anew"
                )
        if self.continued and taken.get("features", self.features) is None:
            taken |= {"features": tuple(features), "exclude": ()}
        return dataclasses.replace(self, **taken)

    def reading(self) -> Reading:
        """Return the columns to read from the input and how their cells are written."""
        names = {f.name for f in dataclasses.fields(Reading)} - {"targets_required"}
        return Reading(**{name: getattr(self, name) for name in names})

    def _check_columns(self) -> None:
        if self.continued and self.state is None:
            raise InputError("--continue needs --state, the file to go on from")
        if not self.targets:
            raise InputError("--target must name at least one column")
        if self.features is not None and self.exclude:
            raise InputError("--features and --exclude cannot be combined: give one of them")
        for group in self.columns or ("",):
            if group not in GROUPS:
                raise InputError(
                    f"--columns must be chosen from {', '.join(GROUPS)}, got {group!r}"
                )
        if self.columns != DEFAULT_GROUPS and self.out is None:
            raise InputError("--columns needs --out, the file it chooses the columns of")

    def _check_spans(self) -> None:
        for name, span in self._lengths():
            if isinstance(span, str) and self.time is None:
                raise InputError(
                    f"{name} {span} is a span of time: give --time, the column of dates, or a "
                    "number of rows"
                )
        fewest, rows = self.min_samples, self.window
        if fewest is not None and isinstance(rows, (int, float)) and fewest > rows:
            raise InputError(f"--min-samples ({fewest}) must not exceed --window ({rows})")
        if self.forecasts and self.lags:
            raise InputError(
                "--lags are the targets of the rows just before, which a forecast of "
                f"--horizon {self.horizon} does not know: leave --lags out, and make columns of "
                "earlier targets"
            )

    def _check_combinations(self) -> None:
        if self.forget is not None and self.half_life is not None:
            raise InputError("--forget and --half-life cannot be combined: give one of them")
        if self.window_of is not None and not isinstance(self.window, (int, float)):
            raise InputError(
                "--window-of says what a number of rows counts: give --window N, or leave it out"
            )
        if self.window is not None and (self.method != "auto" or self.ridge_mode != "discounted"):
            raise InputError("--method and --ridge-mode do not apply to --window: leave them out")
        if self.by is not None and self.ridge_mode == "fixed":
            raise InputError(
                "--by and --ridge-mode fixed cannot be combined: leave --ridge-mode fixed out"
            )

    def _check_errors(self) -> None:
        window = self.window
        choices = ERRORS if window is None else (*ERRORS[:2], *ROBUST)
        if self.cov is not None and self.cov.lower() not in map(str.lower, choices):
            raise InputError(
                f"--cov must be {' or '.join(choices)} with{'out' * (window is None)} --window, "
                f"got {self.cov!r}"
            )
        if self.by is not None and self.robust:
            raise InputError(
                f"--by and --cov {self.cov} cannot be combined: olsq.coefficient_path has both"
            )
        if self.maxlags is None:
            return
        if (self.cov or "").lower() != "hac":
            raise InputError("--maxlags is for --cov HAC: leave it out, or give both")
        most = window if isinstance(window, (int, float)) else math.inf
        if not 0 <= self.maxlags < most:
            raise InputError(
                f"--maxlags must be a number of rows, fewer than --window, got {self.maxlags}"
            )

    @property
    def robust(self) -> dict[str, Any]:
        """The options of a window's path for standard errors; empty for those of the estimator."""
        if (self.cov or "").upper() not in ROBUST:
            return {}
        return {"cov": self.cov, "maxlags": self.maxlags}

    def figures(self) -> list[Path]:
        """Return the names of the figures: with several targets each has its own, fit.y1.png for
        y1.
        """
        plot = self.plot
        if plot is None or len(self.targets) == 1:
            return [] if plot is None else [plot]
        try:
            return [plot.with_name(f"{plot.stem}.{name}{plot.suffix}") for name in self.targets]
        except ValueError:
            raise InputError(
                f"--plot: these targets cannot be used in file names: {', '.join(self.targets)}"
            ) from None

    def written(self) -> list[tuple[str, Path]]:
        """Return every file that the run writes, beside the option that asks for it."""
        named = [("--out", self.out), *(("--plot", path) for path in self.figures())]
        return [(what, path) for what, path in (*named, ("--state", self.state)) if path]

    def _check_files(self) -> None:
        if self.resume and self.state is None:
            raise InputError("--resume needs --state, the file to resume from")
        if self.resume and self.continued:
            raise InputError(
                "--resume goes on in the same table and --continue in a new one: give one of them"
            )
        reads = [] if self.data == "-" else [("the data", Path(self.data))]
        check_paths(reads, self.written())
        goes_on = self.resume or self.continued
        if self.state is not None and self.state.exists() and not goes_on:
            raise InputError(
                f"{self.state} exists: add --resume to go on in the same table, --continue to go "
                "on with a new one, or delete it to start again"
            )

    def _lengths(self) -> tuple[tuple[str, float | str | None], ...]:
        """Return the options that are a number of rows or a span of time, with their values."""
        return (
            ("--half-life", self.half_life),
            ("--window", self.window),
            ("--horizon", self.horizon),
        )

    @property
    def forecasts(self) -> bool:
        """True if rows are predicted more than one row ahead."""
        return self.horizon not in (None, 1)

    @property
    def ahead(self) -> str:
        """The horizon of the forecasts as an adjective, for the titles of tables."""
        if not self.forecasts:
            return "One-step-ahead"
        return (
            f"{self.horizon}-ahead"
            if isinstance(self.horizon, str)
            else (f"{self.horizon:,}-row-ahead")
        )

    @property
    def span(self) -> str | None:
        """The option of the estimator whose value is a span of time with that value, or None."""
        for name, value in self._lengths()[:2]:
            if isinstance(value, str):
                return f"{name} {value}"
        return None

    def for_comparison(self) -> dict[str, Any]:
        """Return the options that must be the same in a resumed run, by name."""
        kept = {
            how.option_of(name): how.compared(getattr(self, name))
            for name, how in declared(FitOptions).items()
            if how.compared is not None
        }
        if not {"interval", "statistics"} & set(self.columns):
            kept["--level"] = None
        return kept

    def describe(self) -> str:
        """Describe the memory of the regression in words, for headings."""
        memory = []
        if self.window is not None:
            rows = self.window if isinstance(self.window, str) else f"{self.window:,} rows"
            memory.append(f"the last {rows}")
            if self.window_of == "positions":
                memory.append("also those with a missing value")
        if self.half_life is not None:
            half = self.half_life
            memory.append(f"half-life {half if isinstance(half, str) else f'{half:g} rows'}")
        elif self.forget is not None and self.forget < 1:
            memory.append(f"forgetting factor {self.forget:g}")
        words = ", ".join(memory) or "all rows count the same"
        if self.forecasts:
            ahead = self.horizon if isinstance(self.horizon, str) else f"{self.horizon:,} rows"
            words += f", forecasts {ahead} ahead"
        return words

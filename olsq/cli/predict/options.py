"""The options of ``olsq predict``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from olsq.cli.errors import InputError
from olsq.cli.fit.declared import FORMATS
from olsq.cli.options import argument, option
from olsq.cli.paths import check_paths
from olsq.cli.sources.columns import TableFormat, check_level


@dataclass(frozen=True, kw_only=True)
class PredictOptions(TableFormat):
    """Options of ``olsq predict`` under their names on the command line."""

    state: Path = argument("State file that olsq fit --state wrote.", metavar="STATE")
    data: str = argument(
        "New rows: a file of a kind that olsq fit reads, or - for CSV on standard input.",
        metavar="DATA",
    )
    out: Path | None = option(
        None,
        "File for the predictions (.csv or .parquet).",
        show_default="CSV on the terminal",
    )
    level: float | None = option(
        None,
        "Add the interval in which an observation lies with this probability: 0.95, for example.",
    )

    def check(self) -> None:
        """Raise InputError, naming the option, for a value that cannot be used."""
        self.check_format()
        check_level(self.level)
        if self.out is None:
            return
        if self.out.suffix not in FORMATS:
            raise InputError(f"--out must end in {' or '.join(FORMATS)}, got {self.out.name}")
        reads = [] if self.data == "-" else [("the data", Path(self.data))]
        check_paths([*reads, ("the state", self.state)], [("--out", self.out)])

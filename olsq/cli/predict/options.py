"""The options of ``olsq predict``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from olsq.cli.fit.declared import FORMATS
from olsq.cli.options import PROBABILITY, argument, check_values, option
from olsq.cli.paths import check_paths
from olsq.cli.sources.columns import TableFormat


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
        endings=FORMATS,
    )
    level: float | None = option(
        None,
        "Add the interval in which an observation lies with this probability: 0.95, for example.",
        rule=PROBABILITY,
    )

    def check(self) -> None:
        """Raise InputError, naming the option, for a value that cannot be used."""
        check_values(self)
        self.check_format()
        if self.out is not None:
            reads = [] if self.data == "-" else [("the data", Path(self.data))]
            check_paths([*reads, ("the state", self.state)], [("--out", self.out)])

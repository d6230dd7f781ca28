"""Write predictions, residuals and coefficients so that a crash can never leave a wrong file.

Rows are appended to a draft beside the file; its name, length and checksum go into every
checkpoint.  A resumed run goes on with the draft only if it begins with what they describe, and
cuts off whatever was written after it.  Only a completed run gives the file its name.  For
Parquet, which cannot be appended to, the draft holds the rows as plain float64 numbers and is
converted, in constant memory, at the end.
"""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import polars as pl
import pyarrow.parquet as pq
from numpy.typing import NDArray

from olsq.cli.errors import InputError, writing
from olsq.cli.fit.declared import GROUPS
from olsq.cli.sources.categories import GroupColumn
from olsq.cli.sources.parquet import PIECEWISE, read_frames, reading_parquet, write_parquet
from olsq.cli.sources.times import TimeColumn
from olsq.files import Draft

READ_BYTES = 1 << 20  # of a draft, at once
ROW_GROUP_ROWS, GROUP_BYTES = 65_536, 64 << 20  # of a Parquet file, at most
GOODNESS = ("in_sample_residual", "r_squared", "adj_r_squared", "n_rows")
TESTS = ("tvalue", "pvalue", "lower", "upper")
Mark = dict[str, Any]  # bytes, crc, and the draft's name (None: of a finished file)


class Output:
    """An output file under construction.

    Parameters
    ----------
    path : Path
        Final name; ``.csv`` or ``.parquet``.
    names : sequence of str
        Columns after ``row``.
    time : TimeColumn or None
        The column before ``row``.
    mark : dict or None
        Where a checkpoint left the draft (:meth:`checkpoint`); None starts afresh.
    groups : GroupColumn, optional
        The column of labels before ``row``.

    Raises
    ------
    InputError
        If the name has another ending, the file cannot be written, or the draft does not begin
        with what the checkpoint says.
    """

    def __init__(
        self,
        path: Path,
        names: Sequence[str],
        time: TimeColumn | None,
        mark: Mark | None,
        groups: GroupColumn | None = None,
    ) -> None:
        self.path = path
        self._time, self._groups = time, groups
        first = [column.name for column in (time, groups) if column is not None]
        self._names = [*first, "row", *names]
        twice = [name for name, count in Counter(self._names).items() if count > 1]
        if twice:
            raise InputError(f"two columns of --out would be named {twice[0]!r}: rename a column")
        self._parquet = path.suffix.lower() == ".parquet"
        self._bytes = self._crc = 0
        self._draft: Draft | None = None
        self._recorded = False  # whether a state names the draft
        try:
            self._start() if mark is None else self._continue(mark)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from None
        except BaseException:
            self.close(discard=False)  # what a state names stays, be it another one's
            raise

    def _start(self) -> None:
        self._draft = Draft(self.path)
        if not self._parquet:
            self._write(self._header_line())

    def _header_line(self) -> bytes:
        return ",".join(map(_quote, self._names)).encode() + b"\n"

    def _continue(self, mark: Mark) -> None:
        length, crc = int(mark["bytes"]), int(mark["crc"])
        # Earlier versions kept the draft under this name.
        name = mark.get("part", self.path.name + ".part")
        if name is not None:
            try:
                self._draft = Draft.adopt(self.path, name)
                self.recorded()
            except FileNotFoundError:
                pass  # killed after the file had got its name, before the state said so
            except OSError as error:
                raise InputError(f"cannot resume: {name}: {error.strerror}") from None
        if self._draft is None:
            if not self.path.exists():
                gone = self.path if name is None else self.path.with_name(name)
                raise InputError(
                    f"cannot resume: {gone} is missing; delete the state to start again"
                )
            # The finished file stays as it is until the new one is complete.
            self._draft = Draft(self.path)
            self._copy_parquet() if self._parquet else self._copy_csv(length)
        present = name if self._recorded else self.path
        file = self._draft.file
        file.seek(0)
        while block := file.read(min(READ_BYTES, length - self._bytes)):
            self._crc = zlib.crc32(block, self._crc)
            self._bytes += len(block)
        if (self._bytes, self._crc) != (length, crc):
            raise InputError(f"cannot resume: {present} is not the file the state describes")
        self._draft.cut(length)

    def _copy_csv(self, most: int) -> None:
        """Copy the first bytes of the finished file into the draft."""
        assert self._draft is not None
        with self.path.open("rb") as file:
            while most > 0 and (block := file.read(min(READ_BYTES, most))):
                self._draft.write(block)
                most -= len(block)

    def _write(self, data: bytes) -> None:
        assert self._draft is not None
        self._draft.write(data)
        self._crc = zlib.crc32(data, self._crc)
        self._bytes += len(data)

    def append(
        self,
        start: int,
        values: NDArray[np.float64],
        time: NDArray[np.float64] | None,
        by: NDArray[np.int64] | None = None,
    ) -> None:
        """Append rows; ``values`` (n, k) in the order of the names, ``start`` rows precede them."""
        row = np.arange(start + 1.0, start + 1.0 + len(values))
        first = [column for column in (time, by) if column is not None]
        table = np.column_stack([*first, row, values])
        # One NaN only (of the many bit patterns), so that a rebuilt part file has the same bytes.
        table = np.where(np.isnan(table), np.nan, table)
        if self._parquet:
            self._write(table.tobytes())
        else:
            zone = "" if self._time is None or self._time.shown_zone is None else "%:z"
            text = self._make_frame(table).write_csv(
                include_header=False, datetime_format=f"%Y-%m-%d %H:%M:%S%.f{zone}"
            )
            self._write(text.encode())

    def _make_frame(self, table: NDArray[np.float64]) -> pl.DataFrame:
        columns = {
            name: pl.Series(name, np.ascontiguousarray(table[:, j]), nan_to_null=True)
            for j, name in enumerate(self._names)
        }
        columns["row"] = columns["row"].cast(pl.Int64)
        if self._time is not None:
            columns[self._time.name] = self._time.series(table[:, 0])
        if self._groups is not None:
            place = 0 if self._time is None else 1
            columns[self._groups.name] = self._groups.series(table[:, place])
        return pl.DataFrame(columns)

    def checkpoint(self) -> Mark:
        """Force the appended rows onto the disk; return the draft's length, checksum and name.

        Call :meth:`recorded` once a state holds it.
        """
        mark: Mark = {"bytes": self._bytes, "crc": self._crc, "part": None}
        if self._draft is not None:  # it is no longer there once the file is finished
            self._draft.sync()
            mark["part"] = self._draft.kept_name
        return mark

    def recorded(self) -> None:
        """Keep the draft when the run stops, since a state names it now."""
        if self._draft is not None:
            self._recorded = True
            self._draft.keep()

    def finish(self) -> None:
        """Complete the file and give it its final name."""
        assert self._draft is not None
        if self._parquet:
            with Draft(self.path) as written:
                write_parquet(self.path, written.file, self._read_draft())
                written.commit()
            self._draft.discard()
        else:
            self._draft.commit()
        self._draft = None

    def close(self, *, discard: bool) -> None:
        """Stop writing without finishing.

        With ``discard`` nothing is left behind, nor is a draft that no state names.
        """
        if self._draft is not None:
            if discard or not self._recorded:
                self._draft.discard()
            self._draft.close()

    def _read_draft(self) -> Iterator[pl.DataFrame]:
        """Yield the draft's rows, those of a row group at a time."""
        assert self._draft is not None
        file, row_bytes = self._draft.file, 8 * len(self._names)
        file.seek(0)
        while block := file.read(row_bytes * max(min(ROW_GROUP_ROWS, GROUP_BYTES // row_bytes), 1)):
            yield self._make_frame(np.frombuffer(block).reshape(-1, len(self._names)))

    def _copy_parquet(self) -> None:
        """Copy the rows of a finished Parquet file into the draft, as plain numbers."""
        assert self._draft is not None
        with reading_parquet(str(self.path)), pq.ParquetFile(self.path, **PIECEWISE) as file:
            if file.schema_arrow.names != self._names:
                raise InputError(f"cannot resume: {self.path} is not the file the state describes")
            for frame in read_frames(file, self._names, 0, ROW_GROUP_ROWS):
                columns = [self._to_numbers(frame[name]) for name in self._names]
                self._draft.write(np.column_stack(columns).tobytes())

    def _to_numbers(self, column: pl.Series) -> NDArray[np.float64]:
        """Convert a column of the finished file back to the numbers that it was written from."""
        if self._groups is not None and column.name == self._groups.name:
            return self._groups.codes(column).astype(np.float64)
        if column.dtype == pl.Date:
            column = column.cast(pl.Datetime("us"))
        if column.dtype == pl.Datetime:
            column = column.cast(pl.Int64)
        return column.cast(pl.Float64).to_numpy()


class StandardOutput(Output):
    """Rows as CSV on standard output, with the parameters of :class:`Output`."""

    def __init__(
        self, names: Sequence[str], time: TimeColumn | None, groups: GroupColumn | None = None
    ) -> None:
        super().__init__(Path("standard output.csv"), names, time, None, groups)

    def _start(self) -> None:
        self._file: BinaryIO = sys.stdout.buffer
        with writing("standard output"):
            self._write(self._header_line())

    def _write(self, data: bytes) -> None:
        self._file.write(data)

    def finish(self) -> None:
        """Flush everything to standard output."""
        self._file.flush()

    def close(self, *, discard: bool) -> None:
        """Leave standard output open: other code may still write to it."""


def output_names(
    groups: Sequence[str], targets: Sequence[str], regressors: Sequence[str], *, intercept: bool
) -> list[str]:
    """Return names of the output columns after ``row``: ``groups`` of them for every target.

    With one target its name is left out.
    """
    names = []
    for target in targets:
        mark = f"_{target}" if len(targets) > 1 else ""
        coefficients = [*(["intercept"] if intercept else []), *regressors]
        of_group = {
            "prediction": [f"prediction{mark}"],
            "interval": [f"lower{mark}", f"upper{mark}"],
            "residual": [f"residual{mark}"],
            "coef": [
                *([f"intercept{mark}"] if intercept else []),
                *(f"coef{mark}_{name}" for name in regressors),
            ],
            "stderr": [f"stderr{mark}_{name}" for name in coefficients],
            "sigma": [f"sigma{mark}"],
            "statistics": [
                *(f"{name}{mark}" for name in GOODNESS),
                *(f"{test}{mark}_{name}" for test in TESTS for name in coefficients),
            ],
        }
        names += [name for group in GROUPS if group in groups for name in of_group[group]]
    return names


def _quote(name: str) -> str:
    if any(mark in name for mark in ',"\r\n'):
        return '"' + name.replace('"', '""') + '"'
    return name

"""Public-domain data that ship with the package: four tables, one text (see the README there)."""

from __future__ import annotations

import bz2
import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.brief import brief_repr

__all__ = ["Dataset", "austen", "grunfeld", "mauna_loa_co2", "nile", "us_macro"]

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Dataset:
    """Named columns of equal length.

    Attributes
    ----------
    name : str
        Short name.
    description : str
        One sentence: what, where, when.
    columns : dict of str to ndarray, each (n,)
        float64 columns (NaN where a cell is empty); dates are ``datetime64[D]``, names text.
    path : pathlib.Path
        The bundled CSV file, to hand to ``olsq fit``.

    Examples
    --------
    >>> from olsq.datasets import us_macro
    >>> data = us_macro()
    >>> len(data), data["cpi"][:3].tolist()
    (203, [28.98, 29.15, 29.35])
    """

    name: str
    description: str
    columns: dict[str, NDArray]
    path: Path

    __repr__ = brief_repr

    def __getitem__(self, column: str) -> NDArray:
        """Return one column; raise KeyError, naming the columns there are, if it is not there."""
        if column not in self.columns:
            raise KeyError(
                f"{self.name} has no column {column!r}; it has {', '.join(self.columns)}"
            )
        return self.columns[column]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(next(iter(self.columns.values())))


def _read(filename: str) -> tuple[Path, dict[str, NDArray]]:
    path = _HERE / filename
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    columns: dict[str, NDArray] = {}
    for name, cells in zip(header, zip(*rows, strict=True), strict=True):
        if name == "date":
            columns[name] = np.array(cells, dtype="datetime64[D]")
        elif name == "firm":
            columns[name] = np.array(cells)
        else:
            columns[name] = np.array([float(cell) if cell else np.nan for cell in cells])
    return path, columns


def us_macro() -> Dataset:
    """Load US macroeconomic series, 203 quarters from 1959 Q1 to 2009 Q3.

    Returns
    -------
    Dataset
        Columns ``year, quarter, realgdp, realcons, realinv, realgovt, realdpi, cpi, m1, tbilrate,
        unemp, pop, infl, realint`` and ``time``, the start of the quarter as a decimal year.

    Notes
    -----
    Source: Federal Reserve Bank of St. Louis and US Bureau of Labor Statistics; public domain.
    ``cpi ~ 1 + m1`` on these rows is the example for which R and Stata have published recursive
    coefficients, recursive residuals and the CUSUM.

    Examples
    --------
    >>> from olsq.datasets import us_macro
    >>> float(us_macro()["time"][-1])
    2009.5
    """
    path, columns = _read("us_macro.csv")
    columns["time"] = columns["year"] + (columns["quarter"] - 1.0) / 4.0
    return Dataset("us_macro", "US macroeconomic series, quarterly, 1959-2009", columns, path)


def mauna_loa_co2() -> Dataset:
    """Load weekly atmospheric CO2 at Mauna Loa, 2284 weeks from 1958 to 2001, 59 of them missing.

    Returns
    -------
    Dataset
        Columns ``date`` (datetime64[D]), ``year`` (decimal year) and ``co2`` (ppm, NaN where no
        measurement was made).

    Notes
    -----
    Source: C. D. Keeling and T. P. Whorf, Carbon Dioxide Information Analysis Center, Oak Ridge
    National Laboratory (2004); public domain.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.datasets import mauna_loa_co2
    >>> data = mauna_loa_co2()
    >>> len(data), int(np.isnan(data["co2"]).sum())
    (2284, 59)
    """
    path, columns = _read("mauna_loa_co2.csv")
    return Dataset(
        "mauna_loa_co2", "Weekly CO2 at Mauna Loa, 1958-2001, 59 weeks missing", columns, path
    )


def nile() -> Dataset:
    """Load the volume of the Nile at Aswan, 100 years from 1871 to 1970.

    Returns
    -------
    Dataset
        Columns ``year`` and ``volume`` (10^8 cubic metres a year).

    Notes
    -----
    Source: G. W. Cobb, "The problem of the Nile: conditional solution to a changepoint problem",
    Biometrika 65 (1978) 243-251; public domain.  The mean falls after 1898, when the first dam at
    Aswan was begun: the example of R's strucchange.

    Examples
    --------
    >>> from olsq.datasets import nile
    >>> data = nile()
    >>> len(data), float(data["volume"][data["year"] <= 1898].mean())
    (100, 1097.75)
    """
    path, columns = _read("nile.csv")
    return Dataset("nile", "Volume of the Nile at Aswan, yearly, 1871-1970", columns, path)


def grunfeld() -> Dataset:
    """Load the investment of 11 US firms, 20 years from 1935 to 1954: 220 rows.

    Returns
    -------
    Dataset
        Columns ``invest``, ``value`` (of the firm on the stock market, 31 December) and
        ``capital`` (plant and equipment), in millions of 1947 dollars; ``firm``, ``year``.

    Notes
    -----
    Source: Y. Grunfeld, "The Determinants of Corporate Investment", thesis, University of Chicago,
    1958, as recreated by C. Kleiber and A. Zeileis, "The Grunfeld Data at 50" (2008); public
    domain.  The standard example of panel regressions.

    Examples
    --------
    >>> from olsq.datasets import grunfeld
    >>> data = grunfeld()
    >>> len(data), len(set(data["firm"].tolist())), float(data["invest"][0])
    (220, 11, 317.6)
    """
    path, columns = _read("grunfeld.csv")
    return Dataset("grunfeld", "Investment of 11 US firms, yearly, 1935-1954", columns, path)


def austen() -> str:
    """Load two novels by Jane Austen, 1,358,459 characters of ASCII: a text to train on.

    Returns
    -------
    str
        *Pride and Prejudice* (1813), then *Sense and Sensibility* (1811), only the author's words;
        lines end with ``\\n``, chapters are headed ``Chapter 1`` or ``CHAPTER 1``.

    Notes
    -----
    In the public domain.  Ships as 351 kB of bzip2, so that training needs no network and everybody
    trains on the same bytes.

    Examples
    --------
    >>> from olsq.datasets import austen
    >>> text = austen()
    >>> text[51:94], len(text)
    ('It is a truth universally acknowledged, tha', 1358459)
    """
    return bz2.decompress((_HERE / "austen.txt.bz2").read_bytes()).decode("ascii")

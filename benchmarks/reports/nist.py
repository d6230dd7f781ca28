"""Digits of agreement with NIST's certified regressions, for ``docs/measurements/accuracy.md``.

Every data set of the linear collection goes through every front door.
``tests/golden/test_nist.py`` requires the digits; the page shows them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from fractions import Fraction
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np

DATA = Path(__file__).parents[2] / "tests" / "golden" / "nist.json"


class Certified(NamedTuple):
    """A data set with NIST's certified results; an intercept comes first in both vectors."""

    X: np.ndarray  # (n, d), without the column of ones
    y: np.ndarray  # (n,)
    coef: np.ndarray
    stderr: np.ndarray
    residual_sd: float
    fit_intercept: bool

    @property
    def design(self) -> np.ndarray:
        """Regressors with the intercept's column of ones where the model has one."""
        ones = np.ones((len(self.y), int(self.fit_intercept)))
        return np.hstack([ones, self.X])

    @property
    def condition(self) -> float:
        """Condition number of the design whose columns have unit length."""
        return float(np.linalg.cond(self.design / np.linalg.norm(self.design, axis=0)))


def powers_of(x: list[float] | np.ndarray, degree: int) -> np.ndarray:
    """Return the columns x, x^2, ... (n, degree), each the one before times x."""
    return np.multiply.accumulate(np.repeat(np.asarray(x)[:, None], degree, 1), axis=1)


def read_data() -> dict[str, Certified]:
    """Return the eleven data sets by name, the easiest first by condition number."""
    stored = json.loads(DATA.read_text(encoding="utf-8"))
    sets = {}
    for name, entry in stored.items():
        if name == "provenance":
            continue
        X = np.array(entry["X"]) if "X" in entry else powers_of(entry["x"], entry["degree"])
        rest = (np.array(entry[key]) for key in ("y", "coef", "stderr"))
        sets[name] = Certified(X, *rest, entry["residual_sd"], entry.get("intercept", True))
    powers = powers_of(np.arange(21.0), 5)
    for name, base in (("wampler1", 1.0), ("wampler2", 0.1)):  # exact polynomials by formula
        coef = base ** np.arange(6)
        sets[name] = Certified(powers, coef[0] + powers @ coef[1:], coef, np.zeros(6), 0.0, True)
    return {**dict(sorted(sets.items(), key=lambda pair: pair[1].condition)), **nasty()}


def nasty() -> dict[str, Certified]:
    """Return Wilkinson's columns (Statistics Quiz, 1985): X on each of the others.

    The certified line is that of the float64 columns, in rational arithmetic.
    """
    x = np.arange(1.0, 10.0)
    columns = {
        "big": 99999990 + x,
        "little": 0.9999999 + 1e-8 * x,
        "huge": 1e12 * x,
        "tiny": 1e-12 * x,
        "round": x - 0.5,
    }
    sets = {}
    for name, column in columns.items():
        us, vs = [Fraction(u) for u in column], [Fraction(v) for v in x]
        u_mean, v_mean = sum(us) / 9, sum(vs) / 9
        slope = sum((u - u_mean) * v for u, v in zip(us, vs, strict=True))
        slope /= sum((u - u_mean) ** 2 for u in us)
        coef = np.array([float(v_mean - slope * u_mean), float(slope)])
        sets[f"nasty {name}"] = Certified(column[:, None], x, coef, np.zeros(2), 0.0, True)
    return sets


def row_by_row(data: Certified) -> np.ndarray:
    """Fit by one ``partial_fit`` for every row."""
    import olsq

    est = olsq.RecursiveLeastSquares(ridge=0.0, fit_intercept=data.fit_intercept)
    for row, target in zip(data.X, data.y, strict=True):
        est.partial_fit(row[None], [target])
    return coefficients(est, data)


def coefficients(fitted: object, data: Certified, of: tuple[int, ...] = ()) -> np.ndarray:
    """Return the intercept, where the model has one, and the coefficients of member ``of``."""
    coef, intercept = (np.asarray(getattr(fitted, name)) for name in ("coef_", "intercept_"))
    return np.append(intercept[of], coef[of]) if data.fit_intercept else coef[of]


def whole(data: Certified) -> np.ndarray:
    """Fit all rows in one call."""
    import olsq

    est = olsq.RecursiveLeastSquares(ridge=0.0, fit_intercept=data.fit_intercept)
    return coefficients(est.fit(data.X, data.y), data)


def path(data: Certified, window: int | None = None) -> np.ndarray:
    """Return the last row of the coefficient path."""
    import olsq

    found = olsq.coefficient_path(data.X, data.y, window=window, fit_intercept=data.fit_intercept)
    coef = found.coef[-1]
    return np.append(found.intercept[-1], coef) if data.fit_intercept else coef


def after_departures(data: Certified) -> np.ndarray:
    """Return the last row of a rolling path over all rows twice: each row was removed once."""
    twice = data._replace(X=np.vstack([data.X] * 2), y=np.tile(data.y, 2))
    return path(twice, len(data.y))


def bank(data: Certified) -> np.ndarray:
    """Return the second of two filters that learn the same rows."""
    import olsq

    filters = olsq.FilterBank(2, ridge=0.0, fit_intercept=data.fit_intercept)
    filters.partial_fit(np.stack([data.X] * 2), np.stack([data.y] * 2))
    return coefficients(filters, data, (1,))


def groups(data: Certified) -> np.ndarray:
    """Return one of two groups whose rows alternate."""
    import olsq

    fitted = olsq.GroupedLeastSquares(ridge=0.0, fit_intercept=data.fit_intercept)
    labels = np.tile(["a", "b"], len(data.y))
    fitted.partial_fit(np.repeat(data.X, 2, 0), np.repeat(data.y, 2), by=labels)
    return coefficients(fitted["b"], data)


def loop(data: Certified) -> np.ndarray:
    """Learn the rows by ``olsq.compiled.update``, the column of ones among the regressors."""
    from olsq import compiled

    design = np.ascontiguousarray(data.design)
    state = compiled.init(design.shape[1], ridge=0.0)
    for row, target in zip(design, data.y, strict=True):
        compiled.update(state, row, target, 1.0, 1.0)
    return compiled.coef(state)


def expression(data: Certified) -> np.ndarray:
    """Fit by the Polars expression ``ols``."""
    import polars as pl

    import olsq.polars  # noqa: F401  registers the namespace

    names = [f"x{j}" for j in range(data.X.shape[1])]
    frame = pl.DataFrame(data.X, schema=names).with_columns(y=pl.Series(data.y))
    fitted = frame.select(pl.col("y").olsq.ols(*names, fit_intercept=data.fit_intercept))
    values = fitted.to_series()[0]
    order = ["intercept", *names] if data.fit_intercept else names
    return np.array([values[name] for name in order])


def command(data: Certified) -> np.ndarray:
    """Fit a CSV file by ``olsq fit`` and read the state that it writes."""
    import olsq
    from olsq.cli import main

    with tempfile.TemporaryDirectory() as folder:
        table, state = Path(folder, "data.csv"), Path(folder, "fit.olsq")
        names = ",".join([*(f"x{j}" for j in range(data.X.shape[1])), "y"])
        rows = np.column_stack([data.X, data.y])
        lines = (",".join(map(repr, row.tolist())) for row in rows)
        table.write_text("\n".join([names, *lines]) + "\n")
        options = [] if data.fit_intercept else ["--no-intercept"]
        arguments = [str(table), "--target", "y", "--ridge", "0", "--state", str(state)]
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()), suppress(SystemExit):
            main(["fit", *arguments, *options])
        return coefficients(olsq.load(state), data)


def orthogonal(data: Certified) -> np.ndarray:
    """Solve by QR of all rows."""
    q, r = np.linalg.qr(data.design)
    return np.linalg.solve(r, q.T @ data.y)


def normal_equations(data: Certified) -> np.ndarray:
    """Solve the normal equations of all rows."""
    design = data.design
    return np.linalg.solve(design.T @ design, design.T @ data.y)


Fit = Callable[[Certified], np.ndarray]
DOORS: dict[str, Fit] = {
    "row by row": row_by_row,
    "whole array": whole,
    "path": path,
    "rolling, all rows left once": after_departures,
    "bank": bank,
    "groups": groups,
    "compiled": loop,
    "Polars": expression,
    "olsq fit": command,
}
TEXTBOOK: dict[str, Fit] = {"batch QR": orthogonal, "normal equations": normal_equations}


def digits(value: np.ndarray, data: Certified) -> float:
    """Return ``-log10`` of the largest relative error.

    An intercept that is 0 except for the rounding of the columns has its error beside the targets.
    """
    scale, largest = np.abs(data.coef), np.abs(data.y).max()
    if data.fit_intercept and scale[0] < 1e-12 * largest:
        scale[0] = largest
    return float(-np.log10(max(np.max(np.abs(value - data.coef) / scale), 1e-16)))


def measure() -> dict[str, list[float]]:
    """Return digits by data set: those of ``DOORS``, then those of ``TEXTBOOK``.

    The last digit depends on where in memory LAPACK finds its arrays.
    """
    fits = [*DOORS.values(), *TEXTBOOK.values()]
    return {
        name: [round(max(digits(fit(data), data), 0.0), 1) for fit in fits]
        for name, data in read_data().items()
    }


def table(found: dict[str, list[float]]) -> str:
    """Markdown table: data sets by front doors, with the textbook solutions beside them."""
    names, data = [*DOORS, *TEXTBOOK], read_data()
    lines = [
        f"| | condition | {' | '.join(names)} |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    for name, cells in found.items():
        title = {"noint1": "NoInt1", "noint2": "NoInt2"}.get(name, name.capitalize())
        numbers = " | ".join(f"{cell:.1f}" for cell in cells)
        lines.append(f"| {title} | {data[name].condition:.1e} | {numbers} |")
    return "\n".join(lines)


def text(found: dict[str, list[float]]) -> str:
    """Return the block of the page: two ways of olsq, and two to solve all rows at once."""
    from .registry import columns

    return columns(table(found), 0, 1, 2, 5, 11, 12)


def main() -> None:
    """Measure, store and rewrite the page."""
    from .registry import RESULTS, write_blocks

    found = measure()
    (RESULTS / "nist.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write_blocks("nist", found)


if __name__ == "__main__":
    main()

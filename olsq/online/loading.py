"""Load an estimator from a file."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.forgetting.base import from_dict
from olsq.online.estimators.recursive import RecursiveLeastSquares
from olsq.online.estimators.rolling import RollingLeastSquares
from olsq.online.files import format as files
from olsq.online.files.file_checks import check_arrays, check_header
from olsq.online.files.invariants import check_counts, want
from olsq.online.forms.limits import DOUBLE
from olsq.online.many import files as bank_files
from olsq.online.many.bank import FilterBank
from olsq.online.many.grouped import GroupedLeastSquares
from olsq.online.many.rolling_groups import GroupedRollingLeastSquares
from olsq.online.variants.constrained import ConstrainedLeastSquares
from olsq.online.variants.elastic_net import OnlineElasticNet
from olsq.online.variants.kernel_regression import KernelLeastSquares
from olsq.online.variants.robust import RobustLeastSquares
from olsq.online.variants.total import TotalLeastSquares
from olsq.threads import one_blas_thread

_ESTIMATORS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        RecursiveLeastSquares,
        RollingLeastSquares,
        FilterBank,
        GroupedLeastSquares,
        RobustLeastSquares,
        ConstrainedLeastSquares,
        OnlineElasticNet,
        TotalLeastSquares,
        KernelLeastSquares,
        GroupedRollingLeastSquares,
    )
}


_MANY: dict[type[Any], Any] = {
    FilterBank: bank_files.read_bank,
    GroupedLeastSquares: bank_files.read_groups,
    GroupedRollingLeastSquares: bank_files.read_windows,
}


def load(path: str | os.PathLike[str]) -> Any:
    """Load an estimator as :func:`olsq.load` does, which documents it."""
    return restore(path, *files.read(path))


@one_blas_thread
def restore(
    path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, NDArray]
) -> Any:
    """Rebuild the estimator that a file's header and arrays describe."""
    name = header.get("estimator")
    kind = _ESTIMATORS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise files.StateFileError(
            f"{os.fspath(path)} holds a {name!r}, which this olsq does not know"
        )
    with files.refusing_foreign_content(path):
        widen_earlier_state(header, arrays)
        if (read := _MANY.get(kind)) is not None:
            return read(header, arrays)
        if isinstance(given := header.get("parameters"), dict) and "forget" in given:
            header["parameters"] = given | {"forget": from_dict(given["forget"])}
        check_counts(header, arrays)
        check_header(kind, header)
        estimator = kind(**header["parameters"])
        check_arrays(header, arrays, estimator)
        estimator._restore(header, arrays)
        return estimator


def widen_earlier_state(header: dict[str, Any], arrays: dict[str, NDArray]) -> None:
    """Convert a state that an earlier version stored in float32, in place.

    It goes on as one of rows that were given in float32.
    """
    parameters = header.get("parameters")
    if not isinstance(parameters, dict) or "state_dtype" not in parameters:
        return
    stored = parameters.pop("state_dtype")
    want(stored in ("float64", "float32"), "state_dtype", stored)
    if stored == "float64":
        return
    for name, array in arrays.items():
        if name != "last_residual" and array.dtype == np.float32:
            arrays[name] = array.astype(np.float64)
    engine: Any = header.get("engine", {"groups": []})  # of which banks have none
    want(isinstance(engine, dict), "engine", engine)
    for part in engine.get("groups", [{"engine": engine}]):
        want(isinstance(part, dict) and isinstance(part.get("engine"), dict), "engine", part)
        arguments = part["engine"].get("arguments")
        if isinstance(arguments, dict):
            arguments["precision"] = [DOUBLE, "float32"]

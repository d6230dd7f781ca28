"""A bank's state file: write it, and check that what is read can be a bank's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.online.files.invariants import (
    check_counts,
    check_definite,
    check_fields,
    check_triangular,
    want,
)
from olsq.online.forms import schema
from olsq.online.forms.covariance_kernels import COVARIANCE
from olsq.online.forms.limits import state_dtype_name
from olsq.online.many.state import BankState
from olsq.online.rows.complex_rows import packed_prior, prior_is_complex
from olsq.online.rows.options import check_noise_variance
from olsq.problem import Moments

NAME = "FilterBank"
_FIELDS = {"estimator", "parameters", "n_features", "n_targets", "dtype", "metadata"}


def written(
    bank: Any, metadata: dict[str, Any] | None
) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return header and arrays of the file."""
    header = {
        "estimator": NAME,
        "parameters": {
            name: packed_prior(value)
            if name == "prior" and prior_is_complex(value)
            else plain(value)
            for name, value in bank.get_params().items()
        },
        "n_features": bank.n_features_in_,
        "n_targets": bank._n_targets,
        "dtype": bank._dtype.name,
        "metadata": metadata or {},
    }
    if bank._kind.is_complex:
        header["complex"] = True
    return header, bank._state.arrays()


def read(kind: type[Any], header: dict[str, Any], arrays: dict[str, NDArray]) -> Any:
    """Rebuild a bank from header and arrays; ValueError if they cannot be a bank's."""
    if missing := sorted(_FIELDS - header.keys()):
        raise ValueError(f"{', '.join(missing)} is missing in the header")
    parameters = header["parameters"]
    want(isinstance(parameters, dict), "parameters", parameters)
    want(
        parameters.keys() <= set(kind._parameter_names()) and "n" in parameters,
        "parameters",
        parameters,
    )
    check_counts(header, arrays)
    want(header["dtype"] in ("float32", "float64"), "dtype", header["dtype"])
    want(isinstance(header["metadata"], dict), "metadata", header["metadata"])
    bank, of_complex = kind(**parameters), header.get("complex", False)
    want(isinstance(of_complex, bool), "complex", of_complex)
    # Before anything of that size is made: how many filters and coefficients there are.
    shape, width = np.shape(arrays.get("ridge", ())), header["n_features"]
    part = 2 if of_complex else 1
    fits = type(bank.n) is int and shape in ((bank.n, part * width), (bank.n, part * (width + 1)))
    want(fits, "the shape of ridge", list(shape))
    try:
        bank._check_parameters()
        bank._forget(None)
        ridge = bank._full_ridge(header["n_features"])
        check_noise_variance(bank.noise_variance, max(header["n_targets"], 1))
    except TypeError as error:
        raise ValueError(str(error)) from None
    want(bank.n_features in (None, header["n_features"]), "n_features", bank.n_features)
    want(bank.fit_intercept in (True, False), "fit_intercept", bank.fit_intercept)
    n, k = ridge.shape
    _check_arrays(bank, arrays, (n, part * k), max(header["n_targets"], 1))
    kind_of = bank._kind_of(np.dtype(header["dtype"]), of_complex)
    bank._settle(
        BankState(**arrays),
        kind_of,
        header["n_features"],
        header["n_targets"],
        np.dtype(header["dtype"]),
        header["metadata"],
    )
    return bank


def _check_arrays(bank: Any, arrays: dict[str, NDArray], shape: tuple[int, ...], m: int) -> None:
    n, k = shape
    if strange := sorted(arrays.keys() ^ schema.BANK.keys()):
        raise ValueError(f"array {strange[0]!r} is missing or unexpected")
    sizes = {"b": n, "d": k, "m": m, "s": k if bank.cov == "sandwich" else 0}
    check_fields(arrays, schema.stored_in(state_dtype_name(bank.state_dtype), schema.BANK), sizes)
    forms, clock = arrays["forms"], arrays["clock"]
    allowed = 1 if bank._method == "covariance" else 0
    want(bool((forms <= allowed).all()), "forms", "another form than the method has")
    want(bool((clock[forms == 0, 0] >= 1).all()), "clock", "a wait of no rows")
    inverted = forms == COVARIANCE
    check_definite("matrix", arrays["matrix"][inverted], positive=True)
    check_triangular("matrix", arrays["matrix"][~inverted])


def plain(value: Any) -> Any:
    """Convert a parameter to a value that JSON can hold."""
    if isinstance(value, Moments):
        return {name: plain(np.asarray(part)) for name, part in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (np.dtype, type)):  # state_dtype
        return np.dtype(value).name
    return value.item() if isinstance(value, np.generic) else value

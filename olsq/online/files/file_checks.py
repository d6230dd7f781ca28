"""Check that header and arrays of a state file describe an estimator, whatever its numbers.

Everything is checked before anything is built: kernels index by these shapes and counters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.forgetting.base import Forgetting, from_dict
from olsq.forgetting.entries import RESET, aside_shape
from olsq.online.files.invariants import (
    MOST_ROWS,
    NONE_YET,
    check_common,
    check_fields,
    check_names,
    want,
)
from olsq.online.forms import schema
from olsq.online.forms.factor.form import FactorForm
from olsq.online.forms.limits import DOUBLE
from olsq.online.forms.schema import Field, Fields
from olsq.online.rows.durations import DATES, ELAPSED, LARGEST, is_duration
from olsq.online.rows.options import (
    check_forget,
    check_noise_variance,
    check_ridge,
    forget_from_half_life,
)

_FIELDS = {
    "estimator",
    "parameters",
    "n_features",
    "n_targets",
    "dtype",
    "n_samples_seen",
    "feature_names",
    "in_time",
    "engine",
    "metadata",
}


def check_header(kind: type[Any], header: dict[str, Any]) -> None:
    """Raise ValueError unless the header describes an estimator of this kind."""
    check_common(kind, header, _FIELDS)
    parameters, n = header["parameters"], header["n_features"]
    for name, value in getattr(kind, "BEFORE", {}).items():  # of files older than the parameter
        parameters.setdefault(name, value)
    want(type(n) is int and n >= 1, "n_features", n)
    for name in ("n_targets", "n_samples_seen"):
        fits = type(header[name]) is int and 0 <= header[name] <= MOST_ROWS
        want(fits, name, header[name])
    check_names(header["feature_names"], n, "feature_names")
    want(isinstance(header["in_time"], bool), "in_time", header["in_time"])
    of_complex = header.get("complex", False)
    fits = of_complex is False or (of_complex is True and kind.TAKES_COMPLEX)
    want(fits, "complex", of_complex)
    check_names(header.get("target_names"), max(header["n_targets"], 1), "target_names")
    estimator = kind(**parameters)
    _check_parameters(estimator, n, header["n_targets"])
    samples = header["n_samples_seen"]
    _check_timing(estimator, header.get("timing"), header.get("zoned"), samples)
    engine = header["engine"]
    want(isinstance(engine, dict), "engine", engine)
    want(("groups" in engine) == (estimator.missing == "skip_target"), "engine", engine)
    if "groups" in engine:
        _check_groups(engine["groups"], max(header["n_targets"], 1))
    for _, part, _ in _parts(engine):
        want(isinstance(part, dict) and isinstance(part.get("arguments"), dict), "engine", part)
        _check_arguments(estimator, header["dtype"], part["arguments"], of_complex)


def check_loadable(estimator: Any, header: dict[str, Any]) -> None:
    """Raise ValueError if a header about to be written would be refused when it is loaded.

    Parameters that may change between rows can be out of range, or not fit the times so far.
    """
    timing = header.get("timing")
    try:
        want(isinstance(header["metadata"], dict), "metadata", header["metadata"])
        _check_parameters(estimator, header["n_features"], header["n_targets"])
        duration = estimator._duration(timing is not None)
        if timing and (duration is None or duration.kind != timing[0]):
            value = estimator._timed_option()[0]
            raise ValueError(f"{value} does not go with the times of its rows, {timing[0]}")
    except ValueError as error:
        name = type(estimator).__name__
        raise ValueError(f"this {name} cannot be saved as it is: {error}") from None


def _check_groups(groups: Any, n_targets: int) -> None:
    """Check that each target is in one group, in ascending order."""
    want(isinstance(groups, list), "groups", groups)
    in_groups = []
    for group in groups:
        want(isinstance(group, dict) and group.keys() == {"targets", "engine"}, "group", group)
        targets = group["targets"]
        fits = isinstance(targets, list) and targets and all(type(t) is int for t in targets)
        want(bool(fits) and targets == sorted(targets), "targets of a group", targets)
        in_groups += targets
    want(sorted(in_groups) == list(range(n_targets)), "targets of the groups", in_groups)


def _parts(engine: dict[str, Any]) -> list[tuple[str, Any, int | None]]:
    """List the prefix of its arrays, the description and the number of targets of each engine."""
    if "groups" not in engine:
        return [("", engine, None)]
    return [
        (f"group{i}_", group["engine"], len(group["targets"]))
        for i, group in enumerate(engine["groups"])
    ]


def _check_parameters(estimator: Any, n_features: int, n_targets: int) -> None:
    """Check that the parameters are in range."""
    try:
        estimator._check_parameters()
        check_ridge(estimator.ridge, n_features)
        half_life = estimator.half_life
        if half_life is not None and not is_duration(half_life):
            forget_from_half_life(half_life)
        takes_strategies = hasattr(type(estimator), "forgetting_")
        if not (takes_strategies and isinstance(estimator.forget, Forgetting)):
            check_forget(estimator.forget)
        check_noise_variance(estimator.noise_variance, max(n_targets, 1))
    except TypeError as error:
        raise ValueError(str(error)) from None
    want(estimator.fit_intercept in (True, False), "fit_intercept", estimator.fit_intercept)


def is_clock(zoned: Any) -> bool:
    """Test whether ``zoned`` can be what is known of the clock of a stream's dates."""
    return zoned is None or type(zoned) is bool or zoned == ELAPSED


def _check_timing(estimator: Any, timing: Any, zoned: Any, n_samples: int) -> None:
    """Check the kind and the times of the first and last row, where rows have times."""
    dates = isinstance(timing, list) and timing[:1] == [DATES]
    want(is_clock(zoned) and (zoned is None or dates), "zoned", zoned)
    duration = estimator._duration(timing is not None)
    if timing is None:
        timeless = estimator.TIMED == "half_life" or estimator._window_in_time() is None
        want(duration is None or timeless or n_samples == 0, "timing", timing)
        return
    fits = isinstance(timing, list) and len(timing) == 3
    want(fits and duration is not None and timing[0] == duration.kind, "timing", timing)
    number = int if timing[0] == DATES else float
    most = LARGEST if number is int else np.finfo(np.float64).max
    fits = all(type(t) is number and abs(t) <= most for t in timing[1:])
    want(fits, "timing", timing)


def _check_arguments(
    estimator: Any, dtype: str, arguments: dict[str, Any], of_complex: bool
) -> None:
    """Check that the arguments of a state are those that the parameters imply."""
    same = {
        "intercept": estimator.fit_intercept and not of_complex,
        "discounted": estimator.ridge_mode == "discounted",
        "solving": getattr(estimator, "residuals", True),
    }
    precision = arguments.get("precision")
    # States that were stored in float32 are as if their rows had been.
    want(precision in ([DOUBLE, dtype], [DOUBLE, "float32"]), "precision", precision)
    for name, value in arguments.items():
        if name == "precision":
            continue
        if name == "forget":
            want(from_dict(value) == estimator.forget, "forget of the state", value)
            continue
        fits = name in same and isinstance(value, bool) and value == bool(same[name])
        want(fits, f"argument {name} of the state", value)
    want("intercept" in arguments, "arguments of the state", arguments)


def check_arrays(header: dict[str, Any], arrays: dict[str, NDArray], estimator: Any) -> None:
    """Raise ValueError unless the arrays are those of the state that the header describes.

    ``estimator`` has the header's parameters, which have been checked.
    """
    engine, d, m = header["engine"], header["n_features"], max(header["n_targets"], 1)
    d += int(bool(estimator.fit_intercept))
    of_complex = header.get("complex", False)
    d *= 2 if of_complex else 1
    width = 2 * m if of_complex else m
    sizes = {"d": d, "m": m, "k": np.size(arrays.get("constant_values", ()))}
    fields = {
        "full_ridge": Field(("d",), invariant="not negative"),
        "log_weights": Field(("m",), optional=True),
        "constant_values": Field(("k",), invariant=NONE_YET, optional=True),
    }
    if getattr(estimator, "KEEPS_SOLUTION", False):
        fields["solution"] = Field(("m", "d"), optional=True)
    expected = {*fields, "last_residual"} & arrays.keys()
    for prefix, part, size in _parts(engine):
        of_part = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
        names = _check_engine(part, of_part, estimator, d, size or m, header)
        expected |= {prefix + name for name in names}
    if strange := sorted(arrays.keys() ^ expected):
        raise ValueError(f"array {strange[0]!r} is missing or unexpected")
    check_fields(arrays, fields, sizes)
    if "constant_values" in arrays:
        want(sizes["k"] in (0, d, m * d), "constant_values", "of this length")
        want(not estimator.fit_intercept and not of_complex, "constant_values", "an intercept")
    residual = arrays.get("last_residual", np.empty((0, width)))
    fits = residual.ndim == 2 and residual.shape[1] == width and residual.dtype.kind == "f"
    want(fits, "last_residual", residual.shape)


FORMS: dict[str, Fields] = {
    "factor": schema.FACTOR,
    "fixed ridge": schema.FIXED_RIDGE,
    "covariance": schema.COVARIANCE,
    "sqrt": schema.SQUARE_ROOT,
    "information": schema.INFORMATION,
    "adaptive": schema.ADAPTIVE,
    "strategy": schema.STRATEGY,
}
# What else describes forms that windows do not have.
ARGUMENTS = {"fixed ridge": {"solving"}, "information": {"discounted", "solving"}}


def _check_engine(
    engine: dict[str, Any],
    arrays: dict[str, NDArray],
    estimator: Any,
    d: int,
    m: int,
    header: dict[str, Any],
) -> set[str]:
    """Check one engine of m targets and its arrays; return the names that it knows."""
    window, timing = getattr(estimator, "window", None), header.get("timing")
    is_window = window is not None
    duration = estimator._window_in_time() if is_window else None
    if window is not None and duration is not None:  # a ring of as many slots as were needed
        written = engine.get("duration")
        want(isinstance(written, list) and tuple(written) == duration, "duration", written)
        window = max(1, np.size(arrays.get("ring_w", ())))
    elif window is not None and header.get("complex", False):  # pairs, and one that enters
        window = 2 * (window + 1)
    of_pairs = is_window and header.get("complex", False)
    want(engine.get("paired", False) is of_pairs, "paired", engine.get("paired"))
    spread = d if estimator.cov == "sandwich" else 0
    sizes: dict[Any, Any] = {"d": d, "m": m, "w": window, "s": spread}
    if hasattr(estimator, "_file_sizes"):  # of a variant, whose state has columns of its own
        sizes |= estimator._file_sizes(engine, header, d)
    form: Any = engine.get("form")
    want(isinstance(form, str) and form in FORMS, "form", form)
    extra = ARGUMENTS.get(form, set())
    strategy = estimator._strategy
    want((form in ("adaptive", "strategy")) == (strategy is not None), "form", form)
    if strategy is not None:
        extra |= {"forget"}
        sizes["a"], sizes["r"] = aside_shape(strategy.code, d, m)
        if form == "adaptive" and strategy.code == RESET:
            sizes["r"] -= d  # of a factor whose rows were not divided by their pivots
    arguments = engine["arguments"]
    want(arguments.keys() == {"intercept", "precision", *extra}, "arguments", arguments)
    sizes["d+m"] = sizes["d"] + sizes["m"]
    sizes["n"] = sizes["d"] - int(bool(arguments["intercept"]))
    fields = FORMS[form]
    if window is None:
        fields = fields | schema.SWITCH
        if hasattr(estimator, "_file_arrays"):
            fields |= estimator._file_arrays()
        if form == "information" and arrays.keys() & schema.PAST.keys():
            fields = fields | schema.PAST
        want(form != "fixed ridge" or estimator.ridge_mode == "fixed", "form", form)
    else:
        want(form not in ARGUMENTS, "form", form)
        earlier = form != FactorForm.name
        own = schema.EARLIER_WINDOW if earlier else schema.WINDOW
        fields = schema.under("form_", fields) | own
        want((duration is not None) == ("ring_t" in arrays), "ring_t", "there, or missing")
        if arrays.keys() & schema.FACTORS.keys():  # of a window of fewer rows than coefficients
            fields, sizes["f"] = fields | schema.FACTORS, min(window, sizes["d"] - 1)
        if "ring_fade" in arrays and earlier:
            decay = engine.get("decay")
            want(isinstance(decay, float) and 0 <= decay <= 1, "decay", decay)
    if timing is not None or duration is not None:
        sizes["t"] = 2 * bool(np.size(arrays.get("span", ())))
        span = schema.SPAN["span"]._replace(optional=is_window)
        of_dates = (duration.kind if duration is not None else (timing or [DATES])[0]) == DATES
        of_time = "int64" if of_dates else "float64"
        fields = {
            name: field._replace(dtype=of_time) if field.dtype == "time" else field
            for name, field in (fields | {"span": span}).items()
        }
    check_fields(arrays, fields, sizes)
    if hasattr(estimator, "_check_file"):
        estimator._check_file(arrays)
    return fields.keys() & arrays.keys()

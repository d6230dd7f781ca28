"""Check that header and arrays of a state file describe an estimator that olsq can have written.

Everything is checked before anything is built: kernels index by these shapes and counters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from olsq.forgetting.base import Forgetting, from_dict
from olsq.forgetting.entries import N_MEMORY, aside_shape
from olsq.online.files.invariants import (
    MOST_ROWS,
    check_clock,
    check_factors,
    check_form,
    want,
)
from olsq.online.forms.information import InformationForm
from olsq.online.forms.limits import state_dtype_name
from olsq.online.forms.past import PLACES as PAST
from olsq.online.rows.durations import DATES, ELAPSED, LARGEST, is_duration
from olsq.online.rows.options import (
    check_forget,
    check_noise_variance,
    check_ridge,
    forget_from_half_life,
)

# Arrays of every form: shape in d, m, w (the window), s (d, or 0 without sandwich errors) and n
# (slopes: d without the intercept), and whether they are counts or of the state's own precision.
_COUNTERS = {"columns": (2, "d"), "tally": (4,), "held": (1,), "spread": ("s", "s")}
_FORMS: dict[str, dict[str, tuple[Any, ...]]] = {
    "covariance": {"P": ("d", "d"), "theta": ("m", "d"), "loss": ("m",), **_COUNTERS},
    "sqrt": {"R": ("d", "d"), "z": ("m", "d"), "loss": ("m",), **_COUNTERS},
    "information": {
        "H": ("d", "d"),
        "G": ("m", "d"),
        "squares": ("m",),
        "ridge": ("d",),
        **_COUNTERS,
    },
}
_OPTIONAL = {
    "information": {PAST[name]: shape for name, shape in _FORMS["sqrt"].items()},
    "adaptive": {"aside": ("a", "b")},
    "sqrt": {"basis": ("n", "n")},
}
_OPTIONAL["information"] |= {PAST["spread"]: (0, 0), "old": ("d",)}
_FORMS["adaptive"] = _FORMS["sqrt"] | {"memory": (N_MEMORY,), "variances": ("m",)}
_RECURSION: dict[str, tuple[Any, ...]] = {"clock": (3,)}
_RING: dict[str, tuple[Any, ...]] = {
    "ring_X": ("w", "d"),
    "ring_Y": ("w", "m"),
    "ring_w": ("w",),
    "place": (3,),
    "monitor": (2,),
    "ridge": ("d",),
    "sizes": (3, "m"),
}
_FACTORS = {"factor_Q": ("f", "n"), "factor_R": ("f", "f"), "factor_age": (1,)}
_COUNTS = {"factor_age", "held", PAST["held"], "clock", "place", "recent_at"}
_TIMES = {"ring_t", "span"}  # int64 nanoseconds of dates, or float64
# Of the state's dtype; in a window these are the rows, and the form is float64.
_STORED = {"sqrt": {"R", "z", "spread"}, "rolling": {"ring_X", "ring_Y"}}
_UNKNOWN = {"loss", "squares"}  # infinite where an estimator began from moments
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
    if missing := sorted(_FIELDS - header.keys()):
        raise ValueError(f"{', '.join(missing)} is missing in the header")
    parameters, n, names = header["parameters"], header["n_features"], header["feature_names"]
    want(isinstance(parameters, dict), "parameters", parameters)
    want(parameters.keys() <= set(kind._parameter_names()), "parameters", parameters)
    for name, value in getattr(kind, "BEFORE", {}).items():  # of files older than the parameter
        parameters.setdefault(name, value)
    want(type(n) is int and n >= 1, "n_features", n)
    for name in ("n_targets", "n_samples_seen"):
        fits = type(header[name]) is int and 0 <= header[name] <= MOST_ROWS
        want(fits, name, header[name])
    want(header["dtype"] in ("float32", "float64"), "dtype", header["dtype"])
    want(isinstance(header["metadata"], dict), "metadata", header["metadata"])
    known = names is None or (
        isinstance(names, list) and len(names) == n and all(isinstance(s, str) for s in names)
    )
    want(known, "feature_names", names)
    want(isinstance(header["in_time"], bool), "in_time", header["in_time"])
    of_complex = header.get("complex", False)
    fits = of_complex is False or (of_complex is True and kind.TAKES_COMPLEX)
    want(fits, "complex", of_complex)
    targets = header.get("target_names")
    known = targets is None or (
        isinstance(targets, list)
        and len(targets) == max(header["n_targets"], 1)
        and all(isinstance(s, str) for s in targets)
    )
    want(known, "target_names", targets)
    estimator = kind(**parameters)
    _check_parameters(estimator, n)
    check_noise_variance(estimator.noise_variance, max(header["n_targets"], 1))
    _check_timing(estimator, header.get("timing"), header.get("zoned"))
    engine = header["engine"]
    want(isinstance(engine, dict), "engine", engine)
    want(("groups" in engine) == (estimator.missing == "skip_target"), "engine", engine)
    if "groups" in engine:
        _check_groups(engine["groups"], max(header["n_targets"], 1))
    for _, part, _ in _parts(engine):
        want(isinstance(part, dict) and isinstance(part.get("arguments"), dict), "engine", part)
        _check_arguments(estimator, header["dtype"], part["arguments"], of_complex)


def _check_groups(groups: Any, n_targets: int) -> None:
    """Check that each target is in one group, in ascending order."""
    want(isinstance(groups, list), "groups", groups)
    seen = []
    for group in groups:
        want(isinstance(group, dict) and group.keys() == {"targets", "engine"}, "group", group)
        targets = group["targets"]
        fits = isinstance(targets, list) and targets and all(type(t) is int for t in targets)
        want(bool(fits) and targets == sorted(targets), "targets of a group", targets)
        seen += targets
    want(sorted(seen) == list(range(n_targets)), "targets of the groups", seen)


def _parts(engine: dict[str, Any]) -> list[tuple[str, Any, int | None]]:
    """List the prefix of its arrays, the description and the number of targets of each engine."""
    if "groups" not in engine:
        return [("", engine, None)]
    return [
        (f"group{i}_", group["engine"], len(group["targets"]))
        for i, group in enumerate(engine["groups"])
    ]


def _check_parameters(estimator: Any, n_features: int) -> None:
    """Check that the parameters are in range."""
    try:
        estimator._check_parameters()
        check_ridge(estimator.ridge, n_features)
        half_life = getattr(estimator, "half_life", None)
        if half_life is not None and not is_duration(half_life):
            forget_from_half_life(half_life)
        forget = getattr(estimator, "forget", 1.0)
        if not isinstance(forget, Forgetting):
            check_forget(forget)
    except TypeError as error:
        raise ValueError(str(error)) from None
    want(estimator.fit_intercept in (True, False), "fit_intercept", estimator.fit_intercept)


def is_clock(zoned: Any) -> bool:
    """Test whether ``zoned`` can be what is known of the clock of a stream's dates."""
    return zoned is None or type(zoned) is bool or zoned == ELAPSED


def _check_timing(estimator: Any, timing: Any, zoned: Any) -> None:
    """Check the kind and the times of the first and last row, where rows have times."""
    dates = isinstance(timing, list) and timing[:1] == [DATES]
    want(is_clock(zoned) and (zoned is None or dates), "zoned", zoned)
    duration = estimator._duration(timing is not None)
    if timing is None:
        timeless = estimator.TIMED == "half_life" or estimator._window_in_time() is None
        want(duration is None or timeless, "timing", timing)
        return
    fits = isinstance(timing, list) and len(timing) == 3
    want(fits and duration is not None and timing[0] == duration.kind, "timing", timing)
    number = int if timing[0] == DATES else float
    most = LARGEST if number is int else np.finfo(np.float64).max
    fits = all(type(t) is number and abs(t) <= most for t in timing[1:])
    want(fits and timing[1] <= timing[2], "timing", timing)


def _check_arguments(
    estimator: Any, dtype: str, arguments: dict[str, Any], of_complex: bool
) -> None:
    """Check that the arguments of a state are those that the parameters imply."""
    stored = state_dtype_name(estimator.state_dtype)
    if hasattr(estimator, "window"):  # the solution of a window is in float64
        precision = ["float64", "float32" if "float32" in (stored, dtype) else "float64"]
    else:
        precision = [stored, dtype]
    same = {
        "intercept": estimator.fit_intercept and not of_complex,
        "discounted": getattr(estimator, "ridge_mode", "discounted") == "discounted",
        "solving": getattr(estimator, "residuals", True),
    }
    want(arguments.get("precision") == precision, "precision", arguments.get("precision"))
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
    optional = {"last_residual", "log_weights", "constant_values"}
    optional |= {"solution"} if getattr(estimator, "KEEPS_SOLUTION", False) else set()
    known = {"full_ridge"} | (arrays.keys() & optional)
    for prefix, part, size in _parts(engine):
        own = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
        wanted = _check_engine(part, own, estimator, d, size or m, header)
        known |= {prefix + name for name in wanted}
    if strange := sorted(arrays.keys() ^ known):
        raise ValueError(f"array {strange[0]!r} is missing or unexpected")
    _check_array("full_ridge", arrays["full_ridge"], (d,), np.float64)
    want(bool((arrays["full_ridge"] >= 0).all()), "full_ridge", "a negative number")
    if of_complex:
        halves = np.split(arrays["full_ridge"], 2)
        want(bool((halves[0] == halves[1]).all()), "full_ridge", "unlike for both parts")
    if "log_weights" in arrays:
        _check_array("log_weights", arrays["log_weights"], (m,), np.float64)
    if "constant_values" in arrays:
        size = d if arrays["constant_values"].size else 0
        _check_array("constant_values", arrays["constant_values"], (size,), np.float64)
        want(not estimator.fit_intercept and not of_complex, "constant_values", "an intercept")
    if "solution" in arrays:
        _check_array("solution", arrays["solution"], (m, d), np.float64)
    width = 2 * m if of_complex else m
    residual = arrays.get("last_residual", np.empty((0, width)))
    fits = residual.ndim == 2 and residual.shape[1] == width and residual.dtype.kind == "f"
    want(fits, "last_residual", residual.shape)


def _check_engine(
    engine: dict[str, Any],
    arrays: dict[str, NDArray],
    estimator: Any,
    d: int,
    m: int,
    header: dict[str, Any],
) -> dict[str, Any]:
    """Check one engine of m targets and its arrays; return the shapes it has, by name."""
    window, timing = getattr(estimator, "window", None), header.get("timing")
    is_window = window is not None
    duration = estimator._window_in_time() if is_window else None
    if window is not None and duration is not None:  # a ring of as many slots as were needed
        given = engine.get("duration")
        want(isinstance(given, list) and tuple(given) == duration, "duration", given)
        window = max(1, np.size(arrays.get("ring_w", ())))
    elif window is not None and header.get("complex", False):  # pairs, and one that enters
        window = 2 * (window + 1)
    of_pairs = is_window and header.get("complex", False)
    want(engine.get("paired", False) is of_pairs, "paired", engine.get("paired"))
    spread = d if getattr(estimator, "cov", "posterior") == "sandwich" else 0
    sizes: dict[Any, Any] = {"d": d, "m": m, "w": window, "s": spread}
    if hasattr(estimator, "_file_sizes"):  # of a variant, whose state has columns of its own
        sizes |= estimator._file_sizes(engine, header, d)
    form: Any = engine.get("form")
    want(isinstance(form, str) and form in _FORMS, "form", form)
    extra = {"discounted", "solving"} if form == InformationForm.name else set()
    forget = getattr(estimator, "forget", 1.0)
    adaptive = isinstance(forget, Forgetting) and not forget.weights_rows
    want((form == "adaptive") == adaptive, "form", form)
    if isinstance(forget, Forgetting) and adaptive:
        extra |= {"forget"}
        sizes["a"], sizes["b"] = aside_shape(forget.code, d, m)
    arguments = engine["arguments"]
    want(arguments.keys() == {"intercept", "precision", *extra}, "arguments", arguments)
    sizes["n"] = sizes["d"] - int(bool(arguments["intercept"]))
    if window is None:
        wanted = _FORMS[form] | _RECURSION
        wanted = wanted | (estimator._file_arrays() if hasattr(estimator, "_file_arrays") else {})
        method = engine.get("method")
        want(method == estimator._resolved_method, "method", method)
        # The covariance form falls back on the square-root form; the others stay what they are.
        of_sqrt = "adaptive" if adaptive else "sqrt"
        fits = form == {"sqrt": of_sqrt, "information": "information"}.get(str(method), form)
        want(fits and (form == "information") == (method == "information"), "form", form)
        stored = _STORED.get(form, set())
    else:
        want(form != InformationForm.name, "form", form)
        wanted = _RING | {f"form_{name}": shape for name, shape in _FORMS[form].items()}
        stored = _STORED["rolling"]
        if arrays.keys() & _FACTORS.keys():  # of a window of fewer rows than coefficients
            wanted, sizes["f"] = wanted | _FACTORS, min(window, sizes["d"] - 1)
        if "sizes" not in arrays:  # of a file older than they are
            wanted.pop("sizes")
        if "ring_fade" in arrays:
            wanted = wanted | {"ring_fade": ("w",)}
            decay = engine.get("decay")
            want(isinstance(decay, float) and 0 <= decay <= 1, "decay", decay)
    prefix = "" if window is None else "form_"
    optional = {prefix + name: shape for name, shape in _OPTIONAL.get(form, {}).items()}
    if arrays.keys() & optional.keys():  # all of them, or none
        wanted = wanted | optional
        if PAST["basis"] in arrays:
            wanted = wanted | {PAST["basis"]: _OPTIONAL["sqrt"]["basis"]}
    if timing is not None:
        span = (min(np.size(arrays.get("span", ())), 2),)
        wanted = wanted | ({"ring_t": ("w",)} if duration is not None else {})
        wanted = wanted | ({"span": span} if not is_window or "span" in arrays else {})
    of_time = "int64" if timing is not None and timing[0] == DATES else "float64"
    for name, shape in wanted.items():
        if name not in arrays:
            raise ValueError(f"array {name!r} is missing")
        dtype = state_dtype_name(estimator.state_dtype) if name in stored else "float64"
        dtype = np.dtype(of_time if name in _TIMES else dtype)
        _check_array(name, arrays[name], tuple(sizes.get(n, n) for n in shape), dtype)
    _check_counters(arrays, window, d)
    check_form(arrays, prefix)
    check_form(arrays, "past_")
    if hasattr(estimator, "_check_file"):
        estimator._check_file(arrays)
    if timing is not None:
        _check_times(arrays, timing)
    if window is not None:
        of = estimator.window_of or ("positions" if header["in_time"] else "samples")
        of = "samples" if duration is not None else of
        place = arrays["place"]
        if arrays.keys() & _FACTORS.keys():
            check_factors(arrays, sizes["d"] - sizes["n"])
        want(place[2] == int(of == "positions"), "place", place.tolist())
    return wanted


def _check_array(name: str, array: NDArray, shape: tuple[int, ...], dtype: Any) -> None:
    bare = name.removeprefix("form_")
    fits = array.dtype == (np.int64 if bare in _COUNTS else dtype)
    if not fits or array.shape != shape:
        raise ValueError(f"array {name!r} is {array.dtype} {array.shape}, which is not {shape}")
    if not (np.isfinite(array) | ((array == np.inf) & (bare in _UNKNOWN))).all():
        raise ValueError(f"array {name!r} holds numbers that are not finite")


def _check_counters(arrays: dict[str, NDArray], window: int | None, d: int) -> None:
    """Check the numbers that decide where kernels read, and how often loops run."""
    if window is None:
        check_clock(arrays["clock"], d)
    else:
        count, slot, _ = arrays["place"]
        want(0 <= count <= window and 0 <= slot < window, "place", arrays["place"].tolist())
        want(bool((arrays["ring_w"] >= 0).all()), "ring_w", "a negative weight")
        fades = arrays.get("ring_fade", np.zeros(1))
        want(bool(((fades >= 0) & (fades <= 1)).all()), "ring_fade", "no product of factors")
    for name in (
        "ridge",
        "columns",
        "tally",
        "loss",
        "squares",
        "held",
        "memory",
        "variances",
        "old",
    ):
        for prefix in ("", "form_", "past_"):
            array = arrays.get(prefix + name)
            want(array is None or bool((array >= 0).all()), prefix + name, "a negative number")


def _check_times(arrays: dict[str, NDArray], timing: list[Any]) -> None:
    """Check that the times of learned rows increase, up to that of the last row."""
    times = []
    if "span" in arrays:
        times.append(arrays["span"])
        want(times[0].size in (0, 2), "span", times[0].tolist())
    if "ring_t" in arrays:
        (count, slot, _), ring = arrays["place"], arrays["ring_t"]
        times.append(ring[(slot - count + np.arange(count)) % ring.size])
    for held in times:
        fits = bool((held[1:] >= held[:-1]).all()) and bool((held <= timing[2]).all())
        want(fits, "times of rows", held.tolist())

"""One saved state of every kind, random edits of it, and what an edited state may do."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import traceback
import warnings
from pathlib import Path

import numpy as np

import olsq
from olsq import features, forgetting
from olsq.online.files import format as state_files

OWN = str(Path(olsq.__file__).parent)
RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal((30, 2)), RNG.standard_normal((30, 2))
Z = X + 1j * X[::-1]  # complex rows
SOME = np.where(np.arange(60).reshape(30, 2) % 7 == 3, np.nan, Y)  # each target misses other rows
DAYS = np.datetime64("2024-01-01") + np.arange(40)
LABELS = [["north", "south", 3, True][t % 4] for t in range(40)]

RLS, Rolling = olsq.RecursiveLeastSquares, olsq.RollingLeastSquares
ESTIMATORS = {
    "covariance": RLS(forget=0.95),
    "sqrt": RLS(method="sqrt", ridge=[0.1, 0.2]),
    "diffuse": RLS(ridge=0.0),
    "fixed ridge": RLS(ridge_mode="fixed", forget=0.9, ridge=0.1),
    "sandwich": RLS(forget=0.95, cov="sandwich"),
    "targets apart": RLS(missing="skip_target"),
    "half-life in time": RLS(half_life="9D"),
    "half-life in time, targets apart": RLS(half_life="9D", missing="skip_target"),
    "variable": RLS(forget=forgetting.Variable(20)),
    "directional": RLS(forget=forgetting.Directional(0.95)),
    "random walk": RLS(forget=forgetting.RandomWalk(0.01)),
    "bounded trace": RLS(forget=forgetting.BoundedTrace(0.95, 10.0)),
    "stabilised": RLS(forget=forgetting.Stabilised(0.95)),
    "resetting": RLS(forget=forgetting.ExponentialResetting(0.95)),
    "reset on break": RLS(forget=forgetting.ResetOnBreak(0.95)),
    "rolling": Rolling(window=9, min_samples=2),
    "rolling positions, targets apart": Rolling(
        window=9, missing="skip_target", window_of="positions"
    ),
    "rolling, few rows": Rolling(window=2),
    "window in time": Rolling(window="9D"),
    "rolling, fading": Rolling(window=9, forget=0.9),
    "rolling, fading in time": Rolling(window="9D", half_life="3D"),
    "rolling, few rows, fading in time": Rolling(window=2, half_life="3D"),
    "robust": olsq.RobustLeastSquares(scale_window=12, warm_up=14, forget=0.98),
    "constrained": olsq.ConstrainedLeastSquares(bounds=(0.0, np.inf)),
    "elastic net": olsq.OnlineElasticNet(alpha=0.01),
    "total": olsq.TotalLeastSquares(),
    "kernel": olsq.KernelLeastSquares(),
    "complex": RLS(forget=0.95),
    "complex, sqrt": RLS(method="sqrt", ridge=0.0, fit_intercept=False),
    "complex, fixed ridge": RLS(method="information", ridge_mode="fixed", forget=0.9, ridge=0.1),
    "complex, targets apart": RLS(missing="skip_target", forget=0.95),
    "complex, prior": RLS(prior=([[1j, 0], [0, 1]], [[1, 0.5j], [-0.5j, 1]]), fit_intercept=False),
    "complex, half-life in time": RLS(half_life="9D"),
    "complex, rolling": Rolling(window=9, min_samples=2),
    "complex, rolling positions, targets apart": Rolling(
        window=9, missing="skip_target", window_of="positions"
    ),
}  # fmt: skip
BANKS = {
    "bank": olsq.FilterBank(3, forget=0.95),
    "bank, sandwich": olsq.FilterBank(3, method="sqrt", ridge=0.0, cov="sandwich"),
    "bank, complex": olsq.FilterBank(3, forget=0.95, ridge=0.1),
    "grouped": olsq.GroupedLeastSquares(forget=0.95),
}
BUILDERS = {
    "arx": features.ARX(2, 1, carry=True),
    "fir": features.FIR(3, carry=True),
    "lags": features.Lags([1, 4], carry=True),
    "narx": features.NARX(carry=True),
    "fourier": features.Fourier(12, 3, carry=True),
    "trend": features.Trend(2, carry=True),
    "random fourier": features.RandomFourier(5),
    "one hot": features.OneHot(max_levels=4, carry=True),
    "union": features.Union([features.Trend(), features.Lags(2)], passthrough=True, carry=True),
}
# States of earlier versions: places in the files of them.
EARLIER = {
    "moments": ("moments_states", "discounted"),
    "moments, fixed ridge": ("moments_states", "fixed, some"),
    "moments with a past": ("moments_states", "discounted, gap"),
    "float32": ("float32_states", "recursive"),
    "float32, targets apart": ("float32_states", "by target"),
    "float32, rolling": ("float32_states", "rolling"),
    "float32, bank": ("float32_states", "bank"),
}
COMPLEX = [kind for kind in (*ESTIMATORS, *BANKS) if "complex" in kind]
KINDS = [*ESTIMATORS, *BANKS, *BUILDERS, *EARLIER]


def saved(kind: str) -> bytes:
    """The state of a kind after 30 rows."""
    if kind in EARLIER:
        file, name = EARLIER[kind]
        earlier = Path(__file__).parents[1] / f"golden/{file}.json"
        return base64.b64decode(json.loads(earlier.read_text())[name])
    if kind in BUILDERS:
        table = np.round(X) if kind == "one hot" else X
        return BUILDERS[kind].fit(table, Y[:, 0]).to_bytes(metadata={"a": [1, None]})
    if kind == "grouped":
        return BANKS[kind].partial_fit(X, Y, by=LABELS[:30]).to_bytes()
    rows = Z if kind in COMPLEX else X
    if kind in BANKS:
        return BANKS[kind].partial_fit(np.stack([rows] * 3), np.stack([Y] * 3)).to_bytes()
    estimator = ESTIMATORS[kind]
    times = DAYS[:30] if "in time" in kind else None
    y = SOME if "apart" in kind else Y[:, 0] if kind in ("variable", "kernel") else Y
    return estimator.fit(rows, y, times=times).to_bytes(metadata={"a": [1, None]})


def take_apart(content: bytes) -> tuple[dict, bytes]:
    """Header and data of a state."""
    length = int.from_bytes(content[12:20], "little")
    return json.loads(content[20 : 20 + length]), content[20 + length : -32]


def put_together(header: dict, data: bytes) -> bytes:
    """A state with a right checksum, whatever it holds."""
    text = json.dumps(header).encode()
    text += b" " * (-(20 + len(text)) % 8)
    body = struct.pack("<8sIQ", state_files.MAGIC, state_files.VERSION, len(text)) + text + data
    return body + hashlib.sha256(body).digest()


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for i in range(len(value)):
            yield from places(value[i], (*path, i))


VALUES = [
    0, 1, 2, 3, -1, 7, 100, 10**6, 2**31, 2**53, 2**62, 2**63, 10**30, 10**300, 0.0, 0.5, -1.0,
    1e-300, 1e300, float("nan"), float("inf"), None, True, False, "", "x", "auto", "sqrt",
    "covariance", "information", "fixed", "float32", "sandwich", "skip_target", [], [0], [1, 2],
    [[1.0, 0.0], [0.0, 1.0]], {}, {"a": 1}, ["a", "b"], "9D", "9999999D",
]  # fmt: skip
WORDS = [
    *(struct.pack("<q", n) for n in (
        0, 1, 2, -1, 5, 1000, 2**31, 2**52, 2**62, 2**63 - 1, -(2**63), -(2**62))),
    *(struct.pack("<d", x) for x in (
        0.5, 1.0, -1.0, 1e3, -1e3, 1e8, 1e-8, 1e16, 1e-16, 1e150, -1e150, 1e-150, 1e300, -1e300,
        1e-300, 5e-324, float("nan"), float("inf"), -float("inf"), -0.0)),
]  # fmt: skip


def edited(content: bytes, rng: np.random.Generator) -> bytes:
    """The state with one to three fields of its header or words of its data replaced."""
    header, data = take_apart(content)
    raw = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if rng.random() < 0.5 and len(raw) >= 8:
            at = 8 * int(rng.integers(len(raw) // 8))
            kind = rng.random()
            if kind < 0.6:
                raw[at : at + 8] = WORDS[int(rng.integers(len(WORDS)))]
            elif kind < 0.8:
                raw[at + int(rng.integers(8))] ^= 1 << int(rng.integers(8))
            elif kind < 0.9:
                other = 8 * int(rng.integers(len(raw) // 8))
                raw[at : at + 8] = raw[other : other + 8]
            else:
                raw[at : at + 8] = rng.bytes(8)
            continue
        found = [path for path in places(header) if path]
        *path, last = found[int(rng.integers(len(found)))]
        inside = header
        for step in path:
            inside = inside[step]
        old, kind = inside[last], rng.random()
        if kind < 0.1 and isinstance(inside, dict):
            del inside[last]
        elif kind < 0.4 and type(old) in (int, float):
            inside[last] = [old + 1, old - 1, 2 * old, -old, old * 10**6][int(rng.integers(5))]
        else:
            value = VALUES[int(rng.integers(len(VALUES)))]
            inside[last] = json.loads(json.dumps(value))
    return put_together(header, bytes(raw))


def outcome(content: bytes) -> str:
    """Load a state and learn ten rows: "refused", "refused later" or "learned".

    Raises
    ------
    Exception
        Whatever is raised but StateFileError by loading, and by learning but what olsq itself
        raises on purpose; and but LinAlgError, of matrices that no rows can give.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            estimator = olsq.loads(content)
        except olsq.StateFileError:
            return "refused"
        try:
            learn_ten_rows(estimator)
        except (ValueError, TypeError, ArithmeticError, NotImplementedError) as error:
            if isinstance(error, np.linalg.LinAlgError):
                return "refused later"
            frame = traceback.extract_tb(error.__traceback__)[-1]
            if frame.filename.startswith(OWN) and type(error) is not FloatingPointError:
                return "refused later"
            raise
    return "learned"


def _is_complex(estimator) -> bool:
    """Test whether a model has complex coefficients."""
    if isinstance(estimator, olsq.FilterBank):
        return estimator._kind.is_complex
    origin = getattr(estimator, "_origin", None)
    return origin is not None and origin.is_complex


def learn_ten_rows(estimator) -> None:
    """Ten rows of the kind that the estimator says that it takes, and a prediction."""
    d = min(estimator.n_features_in_, 1000)  # a builder may look at few of many columns
    data = Z if _is_complex(estimator) else X
    rows = np.resize(data, (10, d)) if d else data[:10, :0]
    if isinstance(estimator, features.FeatureBuilder):
        targets = min(estimator._targets, 1000)
        y = np.resize(Y, (10, targets)) if targets > 1 else np.resize(Y, 10)
        estimator.partial_transform(rows, y)
        return
    if isinstance(estimator, olsq.FilterBank):
        m, n = max(estimator._n_targets, 1), len(estimator)
        y = np.resize(Y, (n, 10, m) if estimator._n_targets else (n, 10))
        estimator.partial_fit(np.resize(rows, (n, 10, d)), y)
        estimator.predict(np.resize(rows, (n, 10, d)))
        return
    if isinstance(estimator, olsq.GroupedLeastSquares):
        m = estimator._bank._n_targets
        estimator.partial_fit(rows, np.resize(Y, (10, m) if m else 10), by=LABELS[30:])
        estimator.predict(rows, by=LABELS[30:])
        return
    m = estimator._origin.n_targets
    times, timing = None, estimator._timing
    if timing is not None:
        last = timing.last
        times = last + np.arange(10.0)
        if timing.kind != "numbers":
            times = np.datetime64(last, "ns") + np.arange(10) * np.timedelta64(1, "D")
    y = np.resize(Y, (10, m) if m else 10)
    estimator.partial_fit(rows, y, times=times)
    estimator.predict(rows)

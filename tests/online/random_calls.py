"""Random calls of an estimator: learning, reading, changing parameters, moving."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

import olsq
from tests.online.random_parameters import VALUES
from tests.online.random_rows import (
    MODERATE,
    NAMES,
    ODD,
    Clock,
    contained,
    container,
    factors,
    numbers,
    pick,
    weights,
)

D = 2


class Call(NamedTuple):
    """A call that is made of an estimator and of its twin."""

    name: str
    run: Callable[..., Any]  # of the subject and the arguments
    arguments: tuple[Any, ...] = ()
    reads: bool = False  # whether the state has to stay as it is
    moves: bool = False  # whether the result goes on in the place of the estimator
    of_parameters: bool = False
    strict: bool = False  # whether a warning is an error
    owned: bool = True  # whether the result may be overwritten by the caller

    def __repr__(self) -> str:
        return f"{self.name}{self.arguments!r}{' strictly' if self.strict else ''}"


def method(name: str, *arguments: Any, **keywords: Any) -> Call:
    """Return the call of a method."""

    def run(subject: Any, arguments: Any, keywords: Any) -> Any:
        return getattr(subject, name)(*arguments, **keywords)

    return Call(name, run, (arguments, keywords))


def reading(name: str, *arguments: Any, **keywords: Any) -> Call:
    """Return the call of a method that changes nothing."""
    return method(name, *arguments, **keywords)._replace(reads=True)


def attribute(name: str) -> Call:
    return Call(name, operator.attrgetter(name), reads=True)


def through_a_file(subject: Any) -> Any:
    """Save and load, in a file of the working folder."""
    path = Path("state.olsq")
    subject.save(path)
    return olsq.load(path)


MOVES: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda subject: pickle.loads(pickle.dumps(subject)),
    "to_bytes": lambda subject: olsq.loads(subject.to_bytes()),
    "save": through_a_file,
    "anew": lambda subject: type(subject)(**copy.deepcopy(subject.get_params())),
}


def change_in_place(subject: Any, factor: float) -> None:
    """Multiply the first number of every parameter that is an array or a list."""

    def change(value: Any) -> None:
        if isinstance(value, np.ndarray) and value.size and value.flags.writeable:
            value.flat[0] *= factor
        elif isinstance(value, list) and value and isinstance(value[0], float):
            value[0] *= factor
        elif isinstance(value, (tuple, list)):
            for part in value:
                change(part)

    inner = getattr(subject, "estimator", subject)
    for value in inner.get_params().values():
        change(value)


class Walk:
    """Draws calls of an estimator with rows (n, d)."""

    ATTRIBUTES: ClassVar[list[str]] = [
        "coef_",
        "intercept_",
        "coef_stderr_",
        "intercept_stderr_",
        "sigma2_",
        "rank_",
        "n_held_",
        "determined_",
        "residual_",
        "n_samples_seen_",
        "forgetting_",
        "n_features_in_",
        "metadata_",
        "feature_names_in_",
        "scale_",
        "active_",
        "gap_",
        "dictionary_",
        "dual_coef_",
    ]
    MERGES = True
    ORDINARY = ("elastic net", "constrained")  # kinds whose solutions depend on where they start

    def __init__(self, rng: np.random.Generator, original: Any, kind: str) -> None:
        self.rng, self.original, self.kind = rng, original, kind
        self.is_complex, self.timed = "complex" in kind, "in time" in kind
        single = kind in ("variable", "kernel")
        self.targets = 2 if "apart" in kind else 0 if single else int(rng.choice([0, 0, 2]))
        self.named = rng.random() < 0.4  # rows may have names
        self.clock = Clock(self.dates())
        self.parameters = self.of_original()
        self.changed = False
        self.exact = not kind.startswith(self.ORDINARY)
        strategy = isinstance(self.parameters.get("forget"), olsq.forgetting.Forgetting)
        self.most = 0 if not self.exact else MODERATE if strategy else ODD

    def dates(self) -> bool:
        return True

    def of_original(self) -> dict[str, Any]:
        return self.original.get_params()

    def draw(self) -> Call:
        """Draw the next call."""
        rng = self.rng
        if self.changed and rng.random() < 0.4:
            self.changed = False
            return self.parameters_changed(copy.deepcopy(self.parameters))
        draw = rng.random()
        if draw < 0.62:
            call = self.row() if draw < 0.28 else self.learning()
            return call._replace(strict=rng.random() < 0.1)
        if draw < 0.77:
            return self.asking()
        if draw < 0.91:
            return self.changing()
        return self.moving()

    # -- learning ----------------------------------------------------------------------------------

    def numbers(self, shape: tuple[int, ...], is_complex: bool) -> Any:
        return numbers(self.rng, shape, is_complex, self.most)

    def X(self, n: int, how: str | None = None) -> Any:
        values = self.numbers((n, D), self.is_complex)
        how = container(self.rng) if how is None else how
        if not self.named and ("pandas" in how or how == "polars"):
            how = "array"
        return contained(self.rng, values, NAMES[:D], how)

    def y(self, n: int, how: str | None = None) -> Any:
        shape = (n, self.targets) if self.targets else (n,)
        values = self.numbers(shape, self.is_complex and self.rng.random() < 0.5)
        if "apart" in self.kind and n > 1 and self.rng.random() < 0.5:
            values[::3, 0] = np.nan
        return contained(self.rng, values, ["u", "v"], container(self.rng) if how is None else how)

    def size(self) -> int:
        return int(
            self.rng.choice([0, 1, 1, 2, 3, 5, 8, 30], p=[0.05, 0.2, 0.15, 0.2, 0.1, 0.1, 0.1, 0.1])
        )

    def row(self) -> Call:
        """Draw a row that takes the fast path."""
        rng = self.rng
        X, y = self.X(1, "array"), self.y(1, "array")
        if self.is_complex:
            y = y + 0j
        times = self.clock.times(rng, 1, self.timed)
        if rng.random() < 0.5:
            return method("partial_fit", X, y, **({} if times is None else {"times": times}))
        options: dict[str, Any] = {} if times is None else {"time": next(iter(times))}
        if rng.random() < 0.3:
            options["sample_weight"] = pick(rng, 2.0, 0.5, 1, 0.0, np.nan, np.float64(3.0), -1.0)
        y = y[0] if self.targets else pick(rng, y[0], y[0], y[0], y.item(), str(y[0]), y[:1], None)
        return method("step", pick(rng, X[0], X[0], X, X[0].tolist()), y, **options)

    def learning(self) -> Call:
        rng, n = self.rng, self.size()
        X, y = self.X(n), self.y(n)
        options = {"times": self.clock.times(rng, n, self.timed)}
        name = pick(rng, *["partial_fit"] * 6, *["partial_fit_path"] * 3, "fit")
        if name != "fit":
            own = self.changed and rng.random() < 0.5  # where the estimator's may be out of range
            options["forget"] = rng.uniform(0.5, 1.0, n) if own else factors(rng, (n,))
        if name == "partial_fit_path" and rng.random() < 0.3:
            options |= pick(rng, {"statistics": False}, {"cov": "HC1"}, {"cov": "x"})
        options = {key: value for key, value in options.items() if value is not None}
        return method(name, X, y, weights(rng, (n,), self.most), **options)

    # -- reading -----------------------------------------------------------------------------------

    def asking(self) -> Call:
        rng, n = self.rng, int(self.rng.choice([1, 1, 3, 0]))
        draw = rng.random()
        if draw < 0.3:
            return attribute(pick(rng, *self.ATTRIBUTES))
        if draw < 0.4:
            return pick(
                rng,
                Call("repr", repr, reads=True),
                reading("get_params")._replace(owned=False),
                reading("to_bytes"),
                reading("to_bytes", metadata={"a": 1}),
                reading("to_bytes", metadata=[1]),
                reading("to_bytes", metadata={"a": object()}),
                method("set_output", predict=pick(rng, "default", "input", "x", None)),
                method("set_output", transform=pick(rng, "default", "pandas", "x", None)),
            )
        if draw < 0.5:
            return reading("score", self.X(n), self.y(n), weights(rng, (n,), self.most))
        if draw < 0.8:
            X = self.X(n, "array" if rng.random() < 0.5 else None)
            return pick(
                rng,
                reading("predict", X),
                reading("predict", X),
                reading("predict", X, return_std=True),
                reading("predict_interval", X, level=pick(rng, 0.9, 0.5, 2.0)),
                reading("predict_interval", X, kind=pick(rng, "mean", "observation", "x")),
                reading("leverage", X),
            )
        return pick(
            rng,
            reading("sample_coef", 3, 2),
            reading("sample_coef", 3, pick(rng, 0, -1, 1), sigma2=pick(rng, 1.0, -1.0)),
            reading("summary"),
            reading("summary", level=pick(rng, 0.9, 2.0)),
            reading("moments"),
            reading("cov_params", pick(rng, None, "HC1", "x", "nonrobust")),
            reading("t_test", np.eye(D + 1)),
            reading("wald_test", np.eye(D)),
        )

    # -- parameters --------------------------------------------------------------------------------

    def changing(self) -> Call:
        rng = self.rng
        self.changed = True
        if rng.random() < 0.25:
            factor = pick(rng, 0.9, 1.0, 2.0, -1.0)
            return Call(
                "change in place", change_in_place, (factor,), reads=True, of_parameters=True
            )
        free = ["forget", "half_life", "missing", "noise_variance", "min_samples"]
        names = [name for name in self.parameters if name in VALUES]
        often = [name for name in names if name in free]
        name = pick(rng, *often) if often and rng.random() < 0.6 else pick(rng, *names, "nonsense")
        return self.parameters_changed({name: pick(rng, *VALUES.get(name, [1]))})

    def parameters_changed(self, values: dict[str, Any]) -> Call:
        def run(subject: Any, values: dict[str, Any]) -> None:
            # A copy, since the arguments of a call are overwritten after it.
            getattr(subject, "estimator", subject).set_params(**copy.deepcopy(values))

        return Call("set_params", run, (values,), reads=True, of_parameters=True)

    # -- moving ------------------------------------------------------------------------------------

    def moving(self) -> Call:
        rng = self.rng
        name = pick(rng, *MOVES)
        if not self.MERGES or rng.random() < 0.7:
            return Call(name, MOVES[name], moves=True)
        other = self.learned()

        def merged(subject: Any, other: Any) -> Any:
            return olsq.merge(subject, other) if first else olsq.merge(other, subject)

        first = rng.random() < 0.7
        return Call("merge", merged, (other,), moves=rng.random() < 0.5, reads=True)

    def learned(self) -> Any:
        """Return another estimator of the kind, of a few rows."""
        n, rng = int(self.rng.choice([1, 4, 12])), self.rng
        other = copy.deepcopy(self.original)
        X = self.numbers((n, D), self.is_complex)
        y = rng.standard_normal((n, self.targets) if self.targets else n)
        options: dict[str, Any] = {}
        if self.timed:
            days = (self.clock.now + np.arange(n) + pick(rng, 1.0, 1.0, -50.0)) * 24
            options["times"] = np.datetime64("2024-01-01", "ns") + days.astype("timedelta64[h]")
        try:
            return other.partial_fit(np.nan_to_num(X, posinf=1.0, neginf=1.0), y, **options)
        except (ValueError, TypeError):
            return other

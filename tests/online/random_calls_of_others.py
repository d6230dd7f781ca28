"""Random calls of banks, groups, feature builders, delayed targets and river's interface."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from tests.online.random_calls import MOVES, Call, D, Walk, attribute, method, reading
from tests.online.random_rows import NAMES, WRONG, contained, factors, numbers, pick, weights

LABELS = ["north", "south", 3, True]


class Bank(Walk):
    """Draws calls of a filter bank, whose rows have an axis of filters."""

    # Residuals are those of the last call, and not part of a bank's file.
    ATTRIBUTES: ClassVar[list[str]] = [n for n in Walk.ATTRIBUTES if n != "residual_"]

    def filters(self) -> Any:
        rng = self.rng
        return pick(
            rng,
            None,
            None,
            1,
            0,
            -1,
            np.int64(2),
            [0, 2],
            [1, 1],
            np.array([2, 0]),
            7,
            "x",
            [],
            True,
        )

    def rows(self, which: Any, several: bool) -> tuple[Any, Any, tuple[int, ...]]:
        """Draw X, y and the shape of their weights."""
        rng = self.rng
        n = (3,) if which is None else () if np.ndim(which) == 0 else (len(which),)
        shape = (*n, self.size()) if several else n
        X = numbers(rng, (*shape, D), self.is_complex)
        y = numbers(rng, (*shape, self.targets) if self.targets else shape, False)
        if self.is_complex and rng.random() < 0.5:
            y = y + 0j
        if rng.random() < 0.2:
            how = pick(rng, "list", "float32", "fortran", "masked", "object", "integers", *WRONG)
            if X.ndim == 2 or (X.ndim and "pandas" not in how and how not in WRONG[-3:]):
                X = contained(rng, X, NAMES[:D], how)
            elif y.ndim == 1 or (y.ndim == 2 and "pandas" not in how):
                y = contained(rng, y, NAMES[:D], how)
        return X, y, shape

    def row(self) -> Call:
        rng, which = self.rng, pick(self.rng, None, 1, 0, -1, 2)
        X, y, shape = self.rows(which, False)
        if (
            shape == ()
            and not self.targets
            and np.ndim(y) == 0
            and not self.is_complex
            and y is not None
        ):
            y = pick(rng, float(y), np.float64(y), float(y))
        name = pick(rng, "partial_fit", "step")
        options = {} if which is None and rng.random() < 0.5 else {"which": which}
        return method(name, X, y, **options)

    def learning(self) -> Call:
        rng, which = self.rng, self.filters()
        X, y, shape = self.rows(which, rng.random() < 0.5)
        name = pick(rng, *["partial_fit"] * 6, "step", "step", "fit", "grow")
        if name == "grow":
            return method("grow", pick(rng, 0, 1, -1, "x", 2.5))
        options = {} if name == "fit" else {"which": which}
        if name == "partial_fit":
            options["forget"] = factors(rng, shape)
        return method(name, X, y, sample_weight=weights(rng, shape), **options)

    def asking(self) -> Call:
        rng, which = self.rng, self.filters()
        draw = rng.random()
        if draw < 0.4:
            return super().asking()
        X = self.rows(which, rng.random() < 0.3)[0]
        return pick(
            rng,
            reading("predict", X, which=which),
            reading("leverage", X, which=which),
            reading("sample_coef", 3, 2, which=which),
            reading("__getitem__", pick(rng, 0, 2, -1, 7, "x", True)),
            reading("__len__"),
        )


class Groups(Walk):
    """Draws calls of regressions by group."""

    ATTRIBUTES = Bank.ATTRIBUTES

    def by(self, n: int) -> Any:
        rng = self.rng
        labels = [pick(rng, *LABELS[: 2 if rng.random() < 0.5 else 4]) for _ in range(n)]
        draw = rng.random()
        if draw < 0.8:
            return labels
        if draw < 0.9 and n:
            labels[-1] = pick(rng, None, np.nan, "new", ("a", 1), np.datetime64("2024-01-01"), [1])
            return labels
        return pick(rng, np.array(labels, dtype=object), pd.Series(labels), labels[:-1], "a", None)

    def row(self) -> Call:
        X, y = self.X(1, "array"), self.y(1, "array")
        times = self.clock.times(self.rng, 1, self.timed)
        options = {} if times is None else {"times": times}
        return method("partial_fit", X, y, by=self.by(1), **options)

    def learning(self) -> Call:
        call = super().learning()
        arguments, keywords = call.arguments
        shape = getattr(arguments[0], "shape", None)
        n = shape[0] if shape else len(arguments[0]) if isinstance(arguments[0], list) else 3
        return call._replace(arguments=(arguments, keywords | {"by": self.by(n)}))

    def asking(self) -> Call:
        rng, n = self.rng, int(self.rng.choice([1, 3, 0]))
        draw = rng.random()
        if draw < 0.5:
            return super().asking()
        X, by = self.X(n), self.by(n)
        return pick(
            rng,
            reading("predict", X, by=by),
            reading("predict_interval", X, by=by),
            reading("predict_interval", X, level=2.0, by=by),
            reading("keys"),
            attribute("groups_"),
            reading("__getitem__", pick(rng, "north", "south", "other")),
            reading("pooled", pick(rng, "nonrobust", "HC1", "x")),
            reading("within"),
        )

    def learned(self) -> Any:
        n = int(self.rng.choice([1, 4, 12]))
        X, y = self.rng.standard_normal((n, D)), self.rng.standard_normal((n, self.targets or 1))
        other = copy.deepcopy(self.original)
        options: dict[str, Any] = {}
        if self.timed:
            days = (self.clock.now + np.arange(n) + 1.0) * 24
            options["times"] = np.datetime64("2024-01-01", "ns") + days.astype("timedelta64[h]")
        labels = [pick(self.rng, "north", "south", "west") for _ in range(n)]
        return other.partial_fit(X, y if self.targets else y[:, 0], by=labels, **options)


class Builder(Walk):
    """Draws calls of a feature builder."""

    ATTRIBUTES: ClassVar[list[str]] = ["n_features_in_", "feature_names_in_"]
    MERGES = False

    def row(self) -> Call:
        return method("partial_transform", self.X(1, "array"), self.y(1, "array"))

    def learning(self) -> Call:
        n = self.size()
        name = pick(self.rng, *["partial_transform"] * 5, "fit", "fit_transform")
        return method(name, self.X(n), pick(self.rng, *[self.y(n)] * 6, None))

    def asking(self) -> Call:
        n = self.size()
        if self.rng.random() < 0.5:
            return super().asking()
        name = pick(self.rng, "transform", "peek", "get_feature_names_out")
        if name == "get_feature_names_out":
            return reading(name, pick(self.rng, None, ["a", "b"], ["a"]))
        return reading(name, self.X(n), pick(self.rng, self.y(n), None))


class Delayed(Walk):
    """Draws calls of an estimator whose targets come late."""

    ATTRIBUTES: ClassVar[list[str]] = [
        "estimator.coef_",
        "estimator.residual_",
        "estimator.n_samples_seen_",
    ]
    MERGES = False

    def of_original(self) -> dict[str, Any]:
        return self.original.estimator.get_params()

    def options(self) -> dict[str, Any]:
        rng, times = self.rng, self.clock.times(self.rng, 1, self.timed)
        options: dict[str, Any] = {} if times is None else {"time": next(iter(times))}
        if rng.random() < 0.3:
            options["sample_weight"] = pick(rng, 2.0, 0.0, np.nan, -1.0, "x", np.ones(2))
        return options

    def target(self) -> Any:
        y = self.y(1, "array")[0]
        y = y if self.targets else float(np.real(y))
        return pick(self.rng, *[y] * 12, "x", None, [1.0, 2.0, 3.0], np.nan)

    def row(self) -> Call:
        X = self.X(1, "array")
        return method("step", X[0], self.target(), **self.options())

    def learning(self) -> Call:
        rng = self.rng
        x = pick(
            rng, *[self.X(1, "array")[0]] * 12, self.X(1), np.ones(3), "x", None, np.ones((2, 2))
        )
        return pick(
            rng,
            method("predict", x, **self.options()),
            method("learn", self.target()),
            method("learn", self.target()),
            method("step", x, self.target(), **self.options()),
        )

    def asking(self) -> Call:
        return pick(self.rng, reading("__len__"), attribute(pick(self.rng, *self.ATTRIBUTES)))

    def moving(self) -> Call:
        name = pick(self.rng, "copy", "deepcopy", "pickle")
        return Call(name, MOVES[name], moves=True)


class River(Walk):
    """Draws calls of the estimator with river's interface."""

    ATTRIBUTES: ClassVar[list[str]] = [
        "features",
        "weights",
        "intercept",
        "estimator.coef_",
        "estimator.residual_",
    ]
    MERGES = False

    def of_original(self) -> dict[str, Any]:
        return self.original.estimator.get_params()

    def mapping(self) -> dict[Any, Any]:
        rng = self.rng
        names = [name for name in NAMES if rng.random() < 0.5]
        x = dict(zip(names, numbers(rng, (len(names),), False).tolist(), strict=True))
        if rng.random() < 0.05 and x:
            x[names[0]] = pick(rng, "x", None, True, 1j, np.ones(2))
        times = self.clock.times(rng, 1, self.timed)
        return x if times is None else x | {"t": next(iter(times))}

    def row(self) -> Call:
        rng = self.rng
        y = float(numbers(rng, (1,), False)[0])
        y, w = pick(rng, *[y] * 9, "x", None, [1.0]), pick(rng, *[1.0] * 6, 2.0, 0.0, -1.0, "x")
        return method("learn_one", self.mapping(), y, w)

    def frame(self, n: int) -> pd.DataFrame:
        rng = self.rng
        names = [name for name in NAMES if rng.random() < 0.6] or ["a"]
        frame = pd.DataFrame(numbers(rng, (n, len(names)), False), columns=names)
        times = self.clock.times(rng, n, self.timed)
        return frame.assign(t=list(times)) if times is not None and len(times) == n else frame

    def learning(self) -> Call:
        rng, n = self.rng, self.size()
        y = pd.Series(numbers(rng, (n,), False), name="y")
        y = pick(rng, *[y] * 6, y.to_numpy(), y[:-1], None, y.astype(str))
        return method("learn_many", self.frame(n), y)

    def asking(self) -> Call:
        rng = self.rng
        return pick(
            rng,
            reading("predict_one", self.mapping()),
            reading("predict_many", self.frame(self.size())),
            attribute(pick(rng, *self.ATTRIBUTES)),
        )

    def moving(self) -> Call:
        name = pick(self.rng, "copy", "deepcopy", "pickle")
        return Call(name, MOVES[name], moves=True)

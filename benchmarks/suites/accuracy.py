"""Errors against dense float64, per solver and stream.

``setup_cache`` computes all of a class in one process; what a commit lacks is left out of its
answers, and the benchmark of it is skipped.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import jax
import numpy as np

from . import streams
from .attention import RULES
from .common import dense, need, relative_error
from .sequence import RIDGE, SOLVERS, solve
from .sequence_streams import STREAMS, exact, make


def collect(cases: dict[tuple, Callable[[], float]]) -> dict[tuple, float | str]:
    """Every case's error, or why this commit has none."""
    found: dict[tuple, float | str] = {}
    for key, case in cases.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[key] = case()
        except NotImplementedError as error:
            found[key] = str(error)
        except (TypeError, ValueError, ImportError) as error:
            found[key] = f"this commit refuses: {error}"
    return found


def look_up(found: dict[tuple, float | str], key: tuple) -> float:
    """The error of a case, or NotImplementedError with the reason."""
    value = found[key]
    if isinstance(value, str):
        raise NotImplementedError(value)
    return value


class Online:
    """Last coefficients of 20,000 rows, next to the largest coefficient."""

    params = (
        ["covariance", "sqrt", "information", "rolling", "path", "rolling path"],
        ["white", "condition 1e4", "condition 1e6", "units of 1e8", "silence"],
    )
    param_names = ("method", "stream")
    timeout = 600

    def setup_cache(self) -> dict:
        return collect(
            {
                (method, stream): lambda m=method, s=stream: self.error(m, s)
                for method in self.params[0]
                for stream in self.params[1]
            }
        )

    def error(self, method: str, stream: str) -> float:
        n, d = 20_000, 8
        rows = {
            "white": lambda: streams.conditioned(n, d),
            "condition 1e4": lambda: streams.conditioned(n, d, 1e4),
            "condition 1e6": lambda: streams.conditioned(n, d, 1e6),
            "units of 1e8": lambda: streams.scaled(n, 1e8, d),
            "silence": lambda: streams.silence(5000, 1000, 14_000, d),
        }[stream]()
        X, y = rows.X, rows.y
        recursive, rolling, path = need(
            "olsq.RecursiveLeastSquares", "olsq.RollingLeastSquares", "olsq.coefficient_path"
        )
        if "rolling" in method:
            if method == "rolling":
                est = rolling(window=250, ridge=0.0, fit_intercept=False).partial_fit(X, y)
                coef = est.coef_
            else:
                coef = path(X, y, window=250).coef[-1]
            return relative_error(coef, dense(X[-250:], y[-250:], 1.0, 0.0))
        options = {"forget": 0.99, "ridge": 1e-3}
        if method == "path":
            coef = path(X, y, **options).coef[-1]
        else:
            est = recursive(**options, fit_intercept=False, method=method).partial_fit(X, y)
            coef = est.coef_
        return relative_error(coef, dense(X, y, **options))

    def setup(self, found: dict, method: str, stream: str) -> None:
        self.value = look_up(found, (method, stream))

    def track_error(self, *_) -> float:
        return self.value

    track_error.unit = "relative error of the coefficients"


class Sequence:
    """Largest error of an output of 512 tokens, next to the largest; d 32, ridge .25, float32."""

    params = (list(SOLVERS), list(STREAMS), [0.9, 0.999, 1.0])
    param_names = ("solver", "stream", "gate")
    timeout = 900

    def setup_cache(self) -> dict:
        answers = {
            (stream, gate, discounted): exact(
                *(a[0] for a in make(stream, 1, 512, 32, 32)), gate, RIDGE, discounted=discounted
            )
            for stream in self.params[1]
            for gate in self.params[2]
            for discounted in (False, True)
            if not discounted or gate > 0.99  # below, the ridge is lost, and the problem with it
        }
        found = {}
        for solver in self.params[0]:
            try:
                run = solve(solver)  # compiles once for a solver: shapes are all the same
            except NotImplementedError as error:
                run = error

            def case(stream, gate, run=run, discounted=solver == "recursive"):
                if isinstance(run, Exception):
                    raise run
                if (stream, gate, discounted) not in answers:
                    raise NotImplementedError("the problem has forgotten its ridge")
                k, v, q = make(stream, 1, 512, 32, 32)
                got = run(k, v, q, np.full((1, 512), gate, np.float32))
                return relative_error(got[0], answers[stream, gate, discounted])

            found |= collect(
                {
                    (solver, stream, gate): lambda s=stream, g=gate, c=case: c(s, g)
                    for stream in self.params[1]
                    for gate in self.params[2]
                }
            )
        return found

    def setup(self, found: dict, solver: str, stream: str, gate: float) -> None:
        self.value = look_up(found, (solver, stream, gate))

    def track_error(self, *_) -> float:
        return self.value

    track_error.unit = "relative error of the output"


class Rules:
    """One head of every attention rule against its float64 recurrence, 512 tokens."""

    params = (RULES,)
    param_names = ("rule",)
    timeout = 900

    def setup_cache(self) -> dict:
        return collect({(rule,): lambda r=rule: self.error(r) for rule in RULES})

    def error(self, rule: str) -> float:
        need("olsq.attention.registry", "olsq.reference.attention_solved", f"olsq.attention.{rule}")
        from .attention_inputs import arguments, one_head, runner

        try:
            arrays, named = arguments(rule, 512, 2, 32)
            got = np.asarray(jax.jit(runner(rule))(arrays, named), np.float64)[0, :, 0]
            return relative_error(got, one_head(rule, arrays, named))
        except (KeyError, AttributeError) as error:
            raise NotImplementedError(f"this commit has no such rule: {error}") from error

    def setup(self, found: dict, rule: str) -> None:
        self.value = look_up(found, (rule,))

    def track_error(self, *_) -> float:
        return self.value

    track_error.unit = "relative error of the output"

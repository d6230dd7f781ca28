"""Findings of a check: the properties that failed, on which stream, by how much."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings


class Findings:
    """Collects the first failure of every property, in the order of the properties."""

    def __init__(
        self, check: str, subject: object, properties: Sequence[str], skip: Collection[str] = ()
    ) -> None:
        unknown = set(skip) - set(properties)
        if isinstance(skip, str) or unknown:
            raise ValueError(
                f"skip must be a collection of some of {', '.join(map(repr, properties))}, got "
                f"{skip!r}"
            )
        self.check, self.subject, self.properties = check, subject, tuple(properties)
        self.skip, self.failures = frozenset(skip), {}

    def is_open(self, name: str) -> bool:
        """Test whether a property is still to be checked: not skipped, and not failed before."""
        return name not in self.skip and name not in self.failures

    def fail(self, name: str, where: str, what: str) -> None:
        """Record that a property does not hold."""
        if self.is_open(name):
            self.failures[name] = f"{where}: {what}"

    def judge(self, name: str, where: str, got: Any, want: Any, allowed: Any) -> bool:
        """Compare entries with those wanted (rows are tokens); record a failure; return whether
        they agree.
        """
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
        if got.shape != want.shape:
            self.fail(name, where, f"shape {got.shape}, expected {want.shape}")
            return False
        allowed = np.broadcast_to(np.nan_to_num(allowed, nan=np.inf, posinf=np.inf), got.shape)
        same = (np.isnan(got) & np.isnan(want)) | (got == want)
        with np.errstate(invalid="ignore", over="ignore"):
            wrong = np.where(same, 0.0, np.abs(got - want))
        wrong = np.where(np.isnan(wrong), np.inf, wrong)
        over = np.where(wrong <= allowed, 0.0, wrong - np.where(np.isfinite(allowed), allowed, 0))
        if not (over > 0).any():
            return True
        at = np.unravel_index(np.argmax(over), over.shape)
        place = f" at {tuple(map(int, at))}" if at else ""
        self.fail(name, where, f"error {wrong[at]:.2g}{place}, allowed {allowed[at]:.2g}")
        return False

    def search(
        self, name: str, strategy: Any, check_drawn: Callable[..., None], examples: int
    ) -> None:
        """Draw until ``check_drawn(findings, drawn)`` finds a failure; report the smallest."""
        if not self.is_open(name) or examples < 1:
            return
        every: Any = list(HealthCheck)

        @settings(
            # the same streams in every run; all health checks off, since one example may compile
            max_examples=examples,
            derandomize=True,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            report_multiple_bugs=False,
            suppress_health_check=every,
        )
        @given(strategy)
        def each(drawn: Any) -> None:
            trial = Findings(self.check, self.subject, self.properties, self.skip)
            check_drawn(trial, drawn)
            if name in trial.failures:
                raise AssertionError(f"{trial.failures[name]}\n    drawn: {drawn}")

        try:
            each()
        except AssertionError as error:
            self.failures[name] = str(error)

    def conclude(self) -> None:
        """Raise AssertionError if any property failed."""
        if not self.failures:
            return
        lines = [f"  {n}: {self.failures[n]}" for n in self.properties if n in self.failures]
        count = len(self.properties) - len(self.skip)
        raise AssertionError(
            f"{self.check}: {self.subject!r} lacks {len(lines)} of {count} properties\n"
            + "\n".join(lines)
        )

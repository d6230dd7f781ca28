"""Random calls: an error changes nothing, and no call depends on what was called before.

``python -m tests.online.test_random_calls [--calls 400] [--walks 20] [--seed 0] [kind ...]`` makes
more of them.
"""

from __future__ import annotations

import argparse
import copy
import os
import tempfile
import time
import traceback
from typing import Any

import numpy as np
import pytest

import olsq
from olsq import forgetting
from olsq.river import RecursiveLeastSquares as RiverLeastSquares
from tests.online import random_calls_of_others as others
from tests.online import state_kinds, twins
from tests.online.random_calls import Walk
from tests.tiers import nightly

RLS, Rolling = olsq.RecursiveLeastSquares, olsq.RollingLeastSquares
MORE = {
    "array parameters": RLS(
        prior=(np.zeros(3), np.diag([1.0, 2.0, 3.0])), noise_variance=np.array([2.0])
    ),
    "per coefficient": RLS(forget=forgetting.PerCoefficient(np.array([0.9, 1.0, 0.95]))),
    "by row's time": RLS(half_life=4),
    "rolling, ridge": Rolling(window=5, ridge=np.array([0.1, 0.2]), forget=0.9),
    "elastic net, standardised": olsq.OnlineElasticNet(alpha=0.05, standardize=True),
    # A ridge, as coefficients that rows leave open are near the last that were asked for.
    "constrained": olsq.ConstrainedLeastSquares(bounds=(0.0, np.inf), ridge=0.1),
    "constrained by arrays": olsq.ConstrainedLeastSquares(
        bounds=(np.zeros(2), np.ones(2)), equality=(np.ones((1, 2)), np.ones(1)), ridge=0.1
    ),
    "robust, in time": olsq.RobustLeastSquares(half_life="9D"),
    "kernel, few": olsq.KernelLeastSquares(budget=5, forget=0.95),
}
GROUPS = {
    "grouped": state_kinds.BANKS["grouped"],
    "grouped, in time": olsq.GroupedLeastSquares(half_life="9D"),
    "grouped, rolling": olsq.GroupedRollingLeastSquares(window=6, min_samples=2),
    "grouped, rolling in time": olsq.GroupedRollingLeastSquares(window="9D"),
}
BANKS = {
    **{k: v for k, v in state_kinds.BANKS.items() if k != "grouped"},
    "bank, factors": olsq.FilterBank(3, forget=np.array([0.9, 1.0, 0.8])),
}
DELAYED = {
    "delayed": olsq.DelayedTargets(RLS(forget=0.95)),
    "delayed by rows": olsq.DelayedTargets(RLS(forget=0.95), 2),
    "delayed in time": olsq.DelayedTargets(RLS(half_life="9D"), "2D"),
    "delayed, rolling": olsq.DelayedTargets(Rolling(window=5), 1),
}
RIVER = {
    "river": RiverLeastSquares(forget=0.95),
    "river, in time": RiverLeastSquares(half_life="9D", time="t"),
}
TABLES: list[tuple[dict[str, Any], type[Walk]]] = [
    (state_kinds.ESTIMATORS | MORE, Walk),
    (BANKS, others.Bank),
    (GROUPS, others.Groups),
    (state_kinds.BUILDERS, others.Builder),
    (DELAYED, others.Delayed),
    (RIVER, others.River),
]
KINDS = {kind: (table[kind], walk) for table, walk in TABLES for kind in table}


def fresh(template: Any) -> Any:
    """Return an estimator that has learned nothing, whatever other tests did with the template."""
    if isinstance(template, olsq.DelayedTargets):
        return olsq.DelayedTargets(fresh(template.estimator), template.horizon)
    if isinstance(template, RiverLeastSquares):
        return template.clone()
    return type(template)(**copy.deepcopy(template.get_params()))


class Difference(AssertionError):
    """A call whose outcome is not the twin's, or that changed what it must not."""


def walk(kind: str, seed: int, calls: int) -> None:
    """Make random calls of an estimator and of its twin."""
    template, walk_of = KINDS[kind]
    rng = np.random.default_rng([seed, *kind.encode()])
    draws = walk_of(rng, fresh(template), kind)
    hot, cold = fresh(template), fresh(template)
    made_with = twins.parameters(cold)
    history: list[str] = []

    def alike(one: Any, other: Any) -> bool:
        return one == other if draws.exact else twins.rounded(one) == twins.rounded(other)

    def require(equal: bool, what: str, *shown: Any) -> None:
        if not equal:
            last = "\n  ".join(history[-12:])
            found = "\n".join(f"    {twins.rounded(part)!r}"[:2500] for part in shown)
            raise Difference(f"{kind}, seed {seed}, call {len(history)}: {what}\n  {last}\n{found}")

    after = twins.state(cold, made_with)
    for _ in range(calls):
        before = after
        try:
            cold = twins.reborn(cold, before, made_with)
        except olsq.StateFileError as error:
            require(False, "a saved state cannot be loaded", error)
        if rng.random() < 0.3:
            require(alike(twins.state(cold, made_with), before), "a saved state is another one")
        call = draws.draw()
        history.append(repr(call)[:600])
        ours, twin_s = twins.outcome(call, hot), twins.outcome(call, cold)
        history[-1] += f" -> {ours.error or 'ok'}"
        for name, one, other in zip(("result", "error", "warnings"), ours, twin_s, strict=False):
            require(alike(one, other), f"another {name} than a loaded twin's", one, other)
        if ours.replacement is not None:
            hot, cold = ours.replacement, twin_s.replacement
        after, made_with = twins.state_now(cold, made_with)
        changes = ours.error is None and not call.reads
        if not (changes or call.moves or call.of_parameters):
            require(alike(after, before), "the state has changed", before, after)
        if not changes or rng.random() < 0.3:
            of_hot = twins.state(hot, made_with)
            require(alike(of_hot, after), "another state than a loaded twin's", of_hot, after)
    last = twins.state(hot, made_with), twins.state(cold, made_with)
    require(alike(*last), "another state at the end")


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_calls_depend_on_the_state_alone(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    walk(kind, 0, 80)


@pytest.mark.parametrize("seed", nightly(range(1, 11)))
@pytest.mark.parametrize("kind", KINDS)
def test_many_calls_depend_on_the_state_alone(kind, seed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    walk(kind, seed, 200)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--walks", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    os.chdir(tempfile.mkdtemp())
    for kind in asked.kinds or KINDS:
        begun, differences = time.perf_counter(), 0
        for seed in range(asked.seed, asked.seed + asked.walks):
            try:
                walk(kind, seed, asked.calls)
            except Difference as difference:
                differences += 1
                print(difference, flush=True)
            except Exception:
                differences += 1
                print(f"{kind}, seed {seed}\n{traceback.format_exc(limit=-3)}", flush=True)
        seconds = time.perf_counter() - begun
        print(f"== {kind}: {differences} of {asked.walks}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()

"""Ctrl-C in the middle of a call: the state is that before its rows, or that after all of them.

Python raises KeyboardInterrupt between two steps of its code, after it has called something or
where a function or the next turn of a loop begins; a kernel is never interrupted.  A tracer raises
it at one of these places after another.
"""

from __future__ import annotations

import copy
import dis
import functools
import sys
from pathlib import Path

import numpy as np
import pytest

import olsq
from tests import tiers

PACKAGE = f"{Path(olsq.__file__).parent}/"
DELIVERS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD"}
PLACES = 40 if tiers.current == "slow" else 15  # that are tried in a call

rng = np.random.default_rng(0)
X = rng.standard_normal((80, 4))
y = X @ [1.0, 2.0, 3.0, 4.0] + rng.standard_normal(80)
W = rng.uniform(0.5, 2.0, 80)
Z = X + 1j * X[::-1]


@functools.cache
def names_of(code):
    return {step.offset: step.opname for step in dis.get_instructions(code)}


def collecting(frame):
    """Test whether the frame is called by a finalizer, in which Python reports and goes on."""
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def interrupted(call, place):
    """Make a call in which Ctrl-C comes at a place; return how many it has, if that is past them.

    Raises KeyboardInterrupt where the call does.
    """
    passed, last = 0, {}

    def trace(frame, event, arg):
        nonlocal passed
        if not frame.f_code.co_filename.startswith(PACKAGE) or collecting(frame):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            before = last.get(frame)
            last[frame] = names_of(frame.f_code).get(frame.f_lasti)
            if before in DELIVERS:
                passed += 1
                if passed == place:
                    sys.settrace(None)
                    raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return passed


def show_all_steps(call):
    """Trace a call like the one to be interrupted: from Python 3.12 on some steps of code are not
    told that is traced for the first time, or that an exception has left.
    """
    if sys.version_info >= (3, 12):
        interrupted(call, None)


def read(est, further):
    """What the state says, and what it says after further rows."""
    est, said = copy.copy(est), []
    for more in (None, *further):
        if more is not None:
            more(est)
        said += [est.n_samples_seen_, est.predict(further_rows(est))]
        said += [
            getattr(est, name, 0.0) for name in ("coef_", "sigma2_", "coef_stderr_", "n_held_")
        ]
    return np.concatenate([np.ravel(np.asarray(a, complex)) for a in said])


def further_rows(est):
    return X[:3] + 1j * X[3:6] if np.iscomplexobj(getattr(est, "coef_", 0.0)) else X[:3]


RECURSIVE = olsq.RecursiveLeastSquares
ESTIMATORS = {
    "covariance": lambda: RECURSIVE(forget=0.9),
    "no intercept": lambda: RECURSIVE(fit_intercept=False, ridge=0.1),
    "sqrt": lambda: RECURSIVE(forget=0.9, method="sqrt"),
    "information": lambda: RECURSIVE(forget=0.9, method="information"),
    "sandwich": lambda: RECURSIVE(forget=0.9, cov="sandwich"),
    "random walk": lambda: RECURSIVE(forget=olsq.forgetting.RandomWalk(0.01)),
    "skip_target": lambda: RECURSIVE(missing="skip_target"),
    "window": lambda: olsq.RollingLeastSquares(20),
    "long window": lambda: olsq.RollingLeastSquares(70),
    "short window": lambda: olsq.RollingLeastSquares(3),
    "fading window": lambda: olsq.RollingLeastSquares(20, forget=0.9),
    "robust": lambda: olsq.RobustLeastSquares(forget=0.95),
    "constrained": lambda: olsq.ConstrainedLeastSquares(bounds=(0, 3)),
    "total": lambda: olsq.TotalLeastSquares(),
    "elastic net": lambda: olsq.OnlineElasticNet(alpha=0.01),
    "kernel": lambda: olsq.KernelLeastSquares(budget=30, forget=0.95),
    "complex": lambda: RECURSIVE(forget=0.9),
    "complex window": lambda: olsq.RollingLeastSquares(20),
}
CALLS = {
    "a row": lambda est, X, y, t: est.partial_fit(X[t : t + 1], y[t : t + 1]),
    "step": lambda est, X, y, t: est.step(X[t], y[t]),
    "weight": lambda est, X, y, t: est.step(X[t], y[t], sample_weight=W[t]),
    "list": lambda est, X, y, t: est.partial_fit(X[t : t + 1].tolist(), y[t : t + 1].tolist()),
    "three rows": lambda est, X, y, t: est.partial_fit(X[t : t + 3], y[t : t + 3]),
    "20 rows": lambda est, X, y, t: est.partial_fit(X[t : t + 20], y[t : t + 20]),
}


def test_every_estimator_is_here():
    kinds = {type(make()).__name__ for make in ESTIMATORS.values()}
    names = {name for name in dir(olsq) if name.endswith(("Squares", "Net"))}
    assert kinds == {name for name in names if not name.startswith("Grouped")}


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("start", [3, 40])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_the_rows_of_a_call_are_learned_or_not(kind, call, start, several):
    """With all that counts them, and so that further rows find what they should."""
    rows = Z if kind.startswith("complex") else X
    targets = np.column_stack([y, y[::-1]]) if several else y
    feed = CALLS[call]
    further = [
        lambda est: est.partial_fit(rows[60:62], targets[60:62]),
        lambda est: est.partial_fit(rows[62:80], targets[62:80]),
    ]
    est = ESTIMATORS[kind]().fit(rows[:start], targets[:start])
    before, saved = read(est, further), est.to_bytes()
    feed(est, rows, targets, start)
    after = read(est, further)

    def load():
        est = olsq.loads(saved)
        est.predict(rows[:1])
        return est

    for _ in range(2):  # the first fills caches, of this interpreter and of the package
        est = load()
        count = interrupted(functools.partial(feed, est, rows, targets, start), None)
    for place in range(1 + start % 5, count + 1, max(1, count // PLACES)):
        show_all_steps(functools.partial(feed, load(), rows, targets, start))
        est = load()
        try:
            passed = interrupted(functools.partial(feed, est, rows, targets, start), place)
        except KeyboardInterrupt:
            pass
        else:  # it has fewer steps than the first time: caches of interrupted calls are full
            assert count - 40 < passed < place
        said = read(est, further)
        equal = [
            np.isclose(said, state, rtol=1e-6, atol=1e-6, equal_nan=True).all()
            for state in (before, after)
        ]
        assert any(equal), place

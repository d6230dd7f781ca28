"""No kernel reads or writes outside an array, whatever shapes it is given: it refuses first."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

import olsq
from olsq.online.forms import adaptive_update, counting, merging
from olsq.online.forms import triangular_kernels as triangular
from olsq.online.forms.factor import fixed_ridge, one_row
from olsq.online.forms.factor import form as factor_form
from olsq.online.forms.factor import members as bank
from olsq.online.forms.factor import snapshots as factor_snapshots
from olsq.online.forms.minimum_norm import minimum_norm
from olsq.online.forms.rows import Rows, Trace
from olsq.online.many import decision_kernels as decisions
from olsq.online.many import kernels as reading
from olsq.online.variants import robust_kernels
from olsq.online.windows import members as stacked
from olsq.online.windows.ring import NO_ROWS

N, D, M, WINDOW = 16, 3, 2, 5
rng = np.random.default_rng(0)


def trace(traced, sandwich=False, d=D):
    if not traced:
        return None
    return tuple(np.zeros_like(a) for a in Trace.empty(N, M, d, sandwich))


def factor(ridge=1.0):
    """F, D, columns, tally, loss"""
    counts = np.array([0.0, 0, 1, 0])
    return np.eye(D, D + M), np.full(D, ridge), np.full((2, D), ridge), counts, np.zeros(M)


def strategy():
    """Kind, options, vectors, memory, variances, aside of factors by coefficient"""
    own = olsq.forgetting.PerCoefficient(np.full(D, 0.9))
    kind, options, vectors = np.int64(own.code), own.options(), own.vectors(D)
    return kind, options, vectors, np.zeros(7), np.zeros(M), np.zeros((M, D))


def rows():
    """As estimators give them to kernels: not to be written."""
    return tuple(
        Rows.of(rng.standard_normal((N, D)), rng.standard_normal((N, M)), np.ones(N), np.ones(N))
    )


def calls(traced):
    """Kernel, and arguments that it takes, of the types for which estimators compile it too."""
    residual, record = np.zeros((N, M)), trace(traced)
    X, Y, _, _ = rows()
    spread, robust = np.zeros((D, D)), trace(traced, sandwich=traced)
    span, with_path = (0, N), spread if traced else None
    roundings = 2e-16, 1e-60, 0.0
    yield adaptive_update.update, [factor(), strategy(), rows(), span, roundings, residual, record]
    yield fixed_ridge.learn, [
        (factor(), with_path), (factor(), np.ones(D)), rows(), span, roundings, False, residual,
        robust,
    ]  # fmt: skip
    one_error, prediction = np.zeros((1, M)), np.zeros(M)
    x, y, settings = np.ones((1, D)), np.ones((1, M)), (0.9, 1.0, False, 1e300)
    form = factor(), with_path
    yield one_row.learn_one, [form, x, y, settings, roundings, one_error, prediction]
    if not traced:
        yield one_row.predict_one, [*factor()[:2], np.ones((1, D)), False, np.zeros((1, M))]
        several = tuple(np.stack([array] * 2) for array in factor()[:2])
        yield robust_kernels.slope_lengths, [factor(), rows(), roundings, 1, np.zeros(N)]
        yield factor_form.solve_each, [*several, np.zeros((2, M, D))]
        yield minimum_norm, [
            np.ones((2, D, D)), np.ones((2, M, D)), np.arange(D) < 2, np.zeros(2), 1,
            np.zeros((2, M, D)),
        ]  # fmt: skip
        factors = np.tile(np.eye(D), (2, 1, 1))
        yield triangular.back_substitute_each, [factors, np.ones((2, M, D)), np.zeros((2, M, D))]
        yield fixed_ridge.read_state, [factor(), factor(), np.ones(D), roundings]
        yield merging.absorb_observations, [
            factor(), X.copy(), Y.copy(), np.zeros((N, D)), np.ones(D), 0.0, roundings,
        ]  # fmt: skip
    turns = np.array([1, 0]), np.array([0, 3]), np.array([3, N])
    two, unknown = filters(2, with_path), filters(2, with_path, 0.0)
    if traced:
        yield bank.learn_path, [two, turns, rows(), roundings, residual, robust]
        taken = tuple(factor_snapshots.Snapshots.empty(2 * N, M, D, True))
        yield bank.learn_path_carefully, [
            unknown, turns, rows(), roundings, False, residual, robust, (taken, np.zeros(2, bool)),
        ]  # fmt: skip
        yield reading.record, [two, np.array([1, 0]), np.array([0, 3]), roundings, robust]
        for kernel, arguments in window_calls(two[:5], unknown[:5], turns):
            if len(arguments) > 6:  # with a trace
                yield kernel, arguments
        return
    yield counting.learn_logs, [np.zeros(2), turns, np.ones(N), np.ones(N)]
    yield bank.learn, [two, turns, rows(), roundings, residual]
    yield bank.learn_carefully, [
        unknown, turns, rows(), roundings, True, residual, np.zeros(2),
    ]  # fmt: skip
    yield bank.take_known, [unknown, turns, rows(), roundings, True, residual]
    for kernel, arguments in window_calls(two[:5], unknown[:5], turns):
        if len(arguments) <= 6:
            yield kernel, arguments
    windows = members_windows(WINDOW)
    first, slots, _, place, *_ = windows[1]
    held = first, slots, place, np.arange(2.0 * WINDOW)
    times = np.arange(10.0, 10.0 + N)
    yield stacked.count_leaving, [
        held, turns, np.ones(N, bool), np.ones(N), 0, times, times - 3.0, np.zeros(N, int),
    ]  # fmt: skip
    yield stacked.keep_times, [held, turns, np.ones(N, bool), times]
    some, theta = np.array([1, 0]), np.zeros((2, M, D))
    yield reading.solve_filters, [*two[:2], some, theta]
    bare = np.tile(np.eye(D), (2, 1, 1)), *two[1:4]  # these read no targets
    three = np.array([1, 0, 1])
    yield decisions.leverage, [bare, three, roundings, np.ones((3, D)), False, np.zeros(3)]
    draws = np.zeros((4, 2, M, D))
    yield decisions.draw, [
        two[:4], some, roundings, theta, np.ones((2, M)), draws, draws.copy(),
    ]  # fmt: skip
    yield factor_form.variances_each, [*bare, roundings, np.zeros((2, D))]
    yield factor_form.hide_held_each, [np.ones((2, D)), bare[2], roundings, bare[3]]


def members_windows(filled):
    """Rings and windows of two members."""
    first, slots = np.array([0, WINDOW]), np.array([WINDOW, WINDOW])
    place, bounds = np.array([filled, filled % WINDOW, 0]), (np.zeros(D), np.zeros((3, M)))
    own = place, np.ones(D), *bounds, np.zeros(2, np.int64), np.ones(2)
    rings = 0.1 * rng.standard_normal((2 * WINDOW, D)), rng.standard_normal((2 * WINDOW, M))
    rings = *rings, np.ones(2 * WINDOW), np.ones(2 * WINDOW)
    return rings, (first, slots, np.ones(2, bool), *(np.stack([array] * 2) for array in own))


def window_calls(states, unknown, turns, filled=(WINDOW, 3)):
    """Kernels of windows, and arguments: of full rings, and of ones that rows leave."""
    leaving = np.ones(N, int)
    leaving[[0, 3]], leaving[[1, 4]] = 0, 2
    for rows_in, own in zip((WINDOW, 3), (NO_ROWS, leaving), strict=True):
        if rows_in not in filled:
            continue
        for known, kernel in (
            (states, stacked.roll_members),
            (unknown, stacked.take_unsettled_rows),
            (states, stacked.roll_members_path),
            (unknown, stacked.roll_members_unsettled),
            (states, stacked.rebuild),
        ):
            stack = tuple(a.copy() for a in known), *members_windows(rows_in)
            residual, record = np.zeros((N, M)), trace(True)
            taken = tuple(factor_snapshots.Snapshots.empty(2 * N, M, D, False))
            more = False, residual
            if kernel is stacked.roll_members_path:
                more = residual, record, np.zeros(2, bool)
            elif kernel is stacked.roll_members_unsettled:
                more = False, residual, record, (taken, np.zeros(2, bool))
            elif kernel is stacked.rebuild:
                more = ()
            own_turns, arriving = tuple(a.copy() for a in turns), (*rows(), own.copy())
            arriving = *arriving, np.zeros(N, np.int64)
            yield kernel, [stack, own_turns, arriving, (2e-16, 1e-60, 0.0), *more]


def filters(n, spread, ridge=1.0):
    """The five arrays of every filter's state, held, seen, spread (or None)"""
    form = tuple(np.stack([array] * n) for array in factor(ridge))
    spreads = np.vstack([spread] * n) if spread is not None else None
    return *form, np.zeros(n, int), np.zeros(n, int), spreads


def shorter(array):
    for axis in range(array.ndim if array.size else 0):
        less = np.ascontiguousarray(np.delete(array, -1, axis))
        less.flags.writeable = array.flags.writeable
        yield less


def misuses(arguments):
    """Every argument list with one array one too short on one axis, or rows that are not there."""
    for i, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            changed = shorter(argument)
        elif isinstance(argument, tuple):
            changed = map(tuple, misuses(argument))
        elif type(argument) is int and argument == N:
            changed = [N + 1]
        elif type(argument) is int:
            changed = [-1]
        else:
            continue
        for other in changed:
            yield [*arguments[:i], other, *arguments[i + 1 :]]


def arrays_of(argument):
    if isinstance(argument, np.ndarray):
        return [argument]
    return [a for part in argument for a in arrays_of(part)] if isinstance(argument, tuple) else []


CALLS = [(traced, i) for traced in (False, True) for i in range(len(list(calls(traced))))]


@pytest.mark.full
@pytest.mark.parametrize(("traced", "which"), CALLS)
def test_wrong_shapes_are_refused_before_anything_changes(traced, which):
    kernel, arguments = list(calls(traced))[which]
    count = 0
    for wrong in misuses(arguments):
        arrays = arrays_of(tuple(wrong))
        before = [a.copy() for a in arrays]
        with pytest.raises(ValueError, match="shape"):
            kernel(*wrong)
        for one, other in zip(arrays, before, strict=True):
            np.testing.assert_array_equal(one, other)
        count += 1
    assert count > 5
    kernel(*arguments)


def rolling_calls(filled):
    """Kernels of windows, and arguments."""
    states = filters(2, None)[:5], filters(2, None, 0.0)[:5]
    turns = np.array([1, 0]), np.array([0, 3]), np.array([3, N])
    return list(window_calls(*states, turns, (filled,)))


@pytest.mark.parametrize("place", [[-1, 0, 0], [WINDOW + 1, 0, 0], [0, -1, 0], [0, WINDOW, 0]])
@pytest.mark.parametrize("member", [0, 1])
def test_a_place_outside_the_ring_is_refused(place, member):
    found = rolling_calls(WINDOW)
    assert len(found) == 5
    for kernel, arguments in found:
        arguments[0][2][3][member] = place
        with pytest.raises(ValueError, match="ring"):
            kernel(*arguments)


@pytest.mark.parametrize("row", [0, 3, N - 1])
@pytest.mark.parametrize("count", [-1, 100])
def test_more_rows_than_there_are_cannot_leave(row, count):
    for kernel, arguments in rolling_calls(3):
        arguments[2][4][row] = count
        with pytest.raises(ValueError, match="leave the ring"):
            kernel(*arguments)


def test_more_rows_than_the_ring_has_slots_cannot_stay():
    for kernel, arguments in rolling_calls(3):
        arguments[2][4][:] = 0
        with pytest.raises(ValueError, match="enter the ring"):
            kernel(*arguments)


def test_a_row_that_is_not_there_is_not_taken():
    for kernel, arguments in rolling_calls(WINDOW):
        if kernel is stacked.take_unsettled_rows:
            arguments[1][1][1] = N
            with pytest.raises(ValueError, match="outside of the shape of X"):
                kernel(*arguments)


def kernels_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            names = {ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list}
            if names & {"kernel", "inline", "called"}:
                yield node


def test_no_kernel_copies_an_array_into_a_slice():
    """Numba compiles its error message with it, whose strings take as long as the kernel."""
    copies, count = [], 0
    for path in Path(olsq.__file__).parent.rglob("*.py"):
        for kernel in kernels_of(path):
            count += 1
            for node in ast.walk(kernel):
                if isinstance(node, ast.Assign) and not isinstance(
                    node.value, (ast.Constant, ast.Attribute, ast.Call)
                ):
                    parts = [part for target in node.targets for part in ast.walk(target)]
                    if any(isinstance(part, ast.Slice) for part in parts):
                        copies.append(f"{path.name}: {ast.unparse(node)}")
    assert count > 300
    assert not copies


def test_rows_are_of_one_type_in_every_kernel(monkeypatch):
    """Kernels compile anew, for seconds, where one of the four arrays may be written."""
    given = []

    def watched(learn):
        def watch(form, rows, *others):
            given.append([array.flags.writeable for array in rows])
            return learn(form, rows, *others)

        return watch

    for name in "update", "take_undetermined":
        learn = getattr(factor_form.FactorForm, name)
        monkeypatch.setattr(factor_form.FactorForm, name, watched(learn))
    X, Y, _, _ = rows()
    olsq.RecursiveLeastSquares(forget=olsq.forgetting.Variable(20.0)).fit(X, Y)
    olsq.GroupedLeastSquares().fit(X, Y[:, 0], by=np.arange(N) % 2).pooled()
    assert len(given) > 2
    assert not np.any(given)


@pytest.mark.parametrize("shape", [(1, M, D), (2, M, D + 1), (3, M, D)])
def test_rows_to_solve_for_fit_the_stack_of_factors(shape):
    with pytest.raises(ValueError, match="shape"):
        triangular.forward_substitute_each(np.tile(np.eye(D), (2, 1, 1)), np.ones(shape))

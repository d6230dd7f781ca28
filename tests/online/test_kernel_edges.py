"""No kernel reads or writes outside an array, whatever shapes it is given: it refuses first."""

from __future__ import annotations

import numpy as np
import pytest

from olsq.online.forms import covariance_kernels as covariance
from olsq.online.forms import moment_blocks
from olsq.online.forms import moment_kernels as moments
from olsq.online.forms import square_root_kernels as square_root
from olsq.online.forms import triangular_kernels as triangular
from olsq.online.forms.factor import careful, learning, one_row, path
from olsq.online.forms.factor import form as factor_form
from olsq.online.forms.factor import snapshots as factor_snapshots
from olsq.online.forms.minimum_norm import minimum_norm
from olsq.online.forms.rows import Rows, Trace
from olsq.online.forms.singular_path import Snapshots, absorb_undetermined
from olsq.online.many import decision_kernels as decisions
from olsq.online.many import kernels as bank
from olsq.online.windows import block_kernels as rolling_blocks
from olsq.online.windows import row_kernels as rolling
from olsq.online.windows.window import EVERY_ROW

N, D, M, WINDOW = 16, 3, 2, 5
rng = np.random.default_rng(0)


def trace(traced, sandwich=False, d=D):
    if not traced:
        return None
    return tuple(np.zeros_like(a) for a in Trace.empty(N, M, d, sandwich))


def state(d=D):
    """matrix, coefficients, columns, tally, loss"""
    return np.eye(d), np.zeros((M, d)), np.ones((2, d)), np.array([0.0, 0, 1, 0]), np.zeros(M)


def factor(ridge=1.0):
    """F, D, columns, tally, loss"""
    counts = np.array([0.0, 0, 1, 0])
    return np.eye(D, D + M), np.full(D, ridge), np.full((2, D), ridge), counts, np.zeros(M)


def rows():
    """As estimators give them to kernels: not to be written."""
    return tuple(
        Rows.of(rng.standard_normal((N, D)), rng.standard_normal((N, M)), np.ones(N), np.ones(N))
    )


def ring(rows, filled):
    """ring_X, ring_Y, ring_w, place, ridge, monitor, sizes"""
    place = np.array([filled, filled % WINDOW, 0])
    return (*rows, place, np.ones(D), np.zeros(2), np.zeros((3, M)))


def empty_ring():
    return ring([np.zeros((WINDOW, D)), np.zeros((WINDOW, M)), np.zeros(WINDOW)], 0)


def full_ring():
    return ring(rows_of(WINDOW), WINDOW)


def ring_of_three():
    return ring(rows_of(WINDOW), 3)


def rows_of(n):
    return [0.1 * rng.standard_normal((n, D)), rng.standard_normal((n, M)), np.ones(n)]


LIMITS = (1e6, 1e8, 1e302)


def calls(traced):
    """Kernel, and arguments that it takes, of the types for which estimators compile it too."""
    residual, record = np.zeros((N, M)), trace(traced)
    X, Y, _, w = rows()
    spread, robust = np.zeros((D, D)), trace(traced, sandwich=traced)
    span, with_path = (0, N), spread if traced else None
    yield covariance.update, [state(), with_path, rows(), span, LIMITS, residual, robust]
    roundings = 2e-16, 1e-60, 0.0
    if traced:
        yield path.learn_path, [factor(), spread, rows(), span, roundings, residual, robust]
    else:
        yield learning.learn, [factor(), with_path, rows(), span, roundings, residual]
    yield square_root.update, [state(), spread, rows(), span, roundings, residual, robust]
    within, tolerated = (1e6, 1e8, 1e-10), 1e-10
    yield rolling.update, [
        state(), empty_ring(), (X, Y, w, EVERY_ROW), span, within, residual, record,
    ]  # fmt: skip
    yield rolling.update_square_root, [
        state(), full_ring(), (X, Y, w, EVERY_ROW), span, tolerated, residual, record,
    ]  # fmt: skip
    leaving = np.ones(N, int)
    leaving[:2] = 0, 2
    yield rolling.update, [
        state(), ring_of_three(), (X, Y, w, leaving), span, within, residual, record,
    ]  # fmt: skip
    yield rolling.update_square_root, [
        state(), ring_of_three(), (X, Y, w, leaving), span, tolerated, residual, record,
    ]  # fmt: skip
    penalty, lost = (np.ones(D), True), (1e-60, 1e-14)
    yield moments.update_solving, [
        (state(), with_path), penalty, np.zeros((M, D)), rows(), span, lost, residual, robust,
    ]  # fmt: skip
    yield rolling_blocks.update_in_blocks, [
        state(), full_ring(), (X, Y, w, EVERY_ROW), span, within, residual, record,
    ]  # fmt: skip
    if traced:
        taken = tuple(factor_snapshots.Snapshots.empty(N, M, D, True))
        yield factor_snapshots.learn_with_care, [
            (factor(0.0), spread), rows(), span, roundings, False, residual, robust, taken,
        ]  # fmt: skip
    else:
        yield careful.learn_carefully, [
            factor(0.0), spread, rows(), span, roundings, True, residual,
        ]  # fmt: skip
    if not traced:
        one_error, prediction = np.zeros((1, M)), np.zeros(M)
        yield one_row.learn_one, [
            factor(), np.ones((1, D)), np.ones((1, M)), (0.9, False, 1e300), roundings, one_error,
            prediction,
        ]  # fmt: skip
        yield one_row.predict_one, [*factor()[:2], np.ones((1, D)), False, np.zeros((1, M))]
        several = tuple(np.stack([array] * 2) for array in factor()[:2])
        yield factor_form.solve_each, [*several, np.zeros((2, M, D))]
        yield minimum_norm, [
            np.ones((2, D, D)), np.ones((2, M, D)), np.arange(D) < 2, np.zeros(2), 1,
            np.zeros((2, M, D)),
        ]  # fmt: skip
        factors = np.tile(np.eye(D), (2, 1, 1))
        yield triangular.back_substitute_each, [factors, np.ones((2, M, D)), np.zeros((2, M, D))]
        yield moment_blocks.update_in_blocks, [
            (state(), spread), penalty, rows(), span, 5, (*lost, 1e6), residual,
        ]  # fmt: skip
        yield square_root.absorb_observations, [
            state(), X.copy(), Y.copy(), np.zeros((N, D)), np.ones(D), 0.0, roundings,
        ]  # fmt: skip
        yield square_root.take_alone, [
            state(), spread, X[0], Y[0], 1.0, 1.0, roundings,
        ]  # fmt: skip
        _, _, columns, tally, _ = state()
        yield moments.gates_and_counts, [columns, tally, X, w, w, 1e-60, np.zeros(N), np.zeros(D)]
    turns = np.array([1, 0]), np.array([0, 3]), np.array([3, N])
    two, unknown = filters(2, with_path), filters(2, with_path, 0.0)
    if traced:
        yield bank.learn_path, [two, turns, rows(), roundings, residual, robust]
        taken = tuple(factor_snapshots.Snapshots.empty(2 * N, M, D, True))
        yield bank.learn_path_carefully, [
            unknown, turns, rows(), roundings, False, residual, robust, (taken, np.zeros(2, bool)),
        ]  # fmt: skip
        yield bank.record, [two, np.array([1, 0]), np.array([0, 3]), roundings, robust]
        one = state()
        snapshots = tuple(Snapshots.empty(2 * N, M, D, True))
        yield absorb_undetermined, [one, spread, rows(), span, roundings, robust, snapshots, 0]
        return
    yield bank.learn, [two, turns, rows(), roundings, residual]
    yield bank.learn_carefully, [
        unknown, turns, rows(), roundings, True, residual, np.zeros(2, bool),
    ]  # fmt: skip
    yield bank.take_known, [unknown, turns, rows(), roundings, True, residual]
    some, theta = np.array([1, 0]), np.zeros((2, M, D))
    yield bank.solve_filters, [*two[:2], some, theta]
    bare = np.tile(np.eye(D), (2, 1, 1)), *two[1:4]  # these read no targets
    three = np.array([1, 0, 1])
    yield decisions.leverage, [bare, three, roundings, np.ones((3, D)), False, np.zeros(3)]
    draws = np.zeros((4, 2, M, D))
    yield decisions.draw, [
        two[:4], some, roundings, theta, np.ones((2, M)), draws, draws.copy(),
    ]  # fmt: skip
    yield factor_form.variances_each, [*bare, roundings, np.zeros((2, D))]


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
    assert count > 6
    kernel(*arguments)


@pytest.mark.parametrize("place", [[-1, 0, 0], [WINDOW + 1, 0, 0], [0, -1, 0], [0, WINDOW, 0]])
def test_a_place_outside_the_ring_is_refused(place):
    for which in (3, 4):
        kernel, arguments = list(calls(False))[which]
        arguments[1][3][:] = place
        with pytest.raises(ValueError, match="ring"):
            kernel(*arguments)


@pytest.mark.parametrize("row", [0, 5, N - 1])
@pytest.mark.parametrize("count", [-1, 100])
def test_more_rows_than_there_are_cannot_leave(row, count):
    for which in (5, 6):
        kernel, arguments = list(calls(False))[which]
        arguments[2][3][row] = count
        with pytest.raises(ValueError, match="leave the ring"):
            kernel(*arguments)


def test_more_rows_than_the_ring_has_slots_cannot_stay():
    for which in (5, 6):
        kernel, arguments = list(calls(False))[which]
        arguments[2][3][:] = 0
        with pytest.raises(ValueError, match="enter the ring"):
            kernel(*arguments)


@pytest.mark.parametrize("shape", [(1, M, D), (2, M, D + 1), (3, M, D)])
def test_rows_to_solve_for_fit_the_stack_of_factors(shape):
    with pytest.raises(ValueError, match="shape"):
        triangular.forward_substitute_each(np.tile(np.eye(D), (2, 1, 1)), np.ones(shape))

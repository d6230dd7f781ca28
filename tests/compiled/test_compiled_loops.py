"""Compiled filters inside the user's own functions: nogil, threads, prange, caches, bad input."""

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

import olsq
from olsq import compiled
from tests.compiled.loops import learn

N, D, T = 40, 3, 60


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((N, T, D)), rng.standard_normal((N, T))
    X[3, 7, 1], y[5, 9] = np.nan, np.inf
    X[:, 20:40, 2] = 0
    return X, y


@numba.njit(parallel=True)
def learn_all(states, X, y, forget):
    residual = np.empty(y.shape)
    for i in numba.prange(X.shape[0]):
        state = compiled.state_at(states, i)
        for t in range(X.shape[1]):
            residual[i, t] = compiled.update(state, X[i, t], y[i, t], forget, 1.0)
    return residual, compiled.coef(states)


@pytest.mark.full
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_a_bank_in_prange_learns_what_a_filter_bank_learns(rows, ridge):
    X, y = rows
    states = compiled.init(D, ridge=ridge, n=N)
    residual, coef = learn_all(states, X, y, 0.9)
    bank = olsq.FilterBank(N, ridge=ridge, fit_intercept=False, forget=0.9).partial_fit(X, y)
    np.testing.assert_array_equal(coef, bank.coef_)
    np.testing.assert_array_equal(residual, bank.residual_)
    np.testing.assert_array_equal(states.counts[:, 1], bank.n_samples_seen_)


@pytest.mark.full
def test_python_and_compiled_code_give_the_same_bits(rows):
    X, y = rows
    one, two = compiled.init(D, ridge=0.0), compiled.init(D, ridge=0.0)
    gates = np.full(T, 0.9)
    coef, prediction, residual = learn(one, X[3], y[3], gates, np.ones(T))
    for t in range(T):
        np.testing.assert_array_equal(compiled.predict(two, X[3, t]), prediction[t])
        np.testing.assert_array_equal(compiled.update(two, X[3, t], y[3, t], 0.9), residual[t])
        np.testing.assert_array_equal(compiled.coef(two), coef[t])


@numba.njit(nogil=True)
def made_inside(columns, y, ridge, vector):
    """A state made in compiled code, strided rows, defaults, integers, negative indices."""
    state = compiled.init(columns.shape[0], ridge=ridge)
    several = compiled.init(columns.shape[0], ridge=vector, n=2)
    for t in range(y.shape[0]):
        compiled.update(state, columns[:, t], y[t])
        compiled.update(compiled.state_at(several, -1), columns[:, t], y[t], 1, 1)
    return compiled.coef(state), compiled.coef(several), compiled.predict(state, columns[:, 0])


def test_everything_can_be_called_in_compiled_code(rows):
    X, y = rows[0][0], rows[1][0]
    est = olsq.RecursiveLeastSquares(fit_intercept=False, ridge=0.5).fit(X, y)
    columns = np.ascontiguousarray(X.T)
    coef, several, prediction = made_inside(columns, y, 0.5, np.full(D, 0.5))
    np.testing.assert_allclose(coef, est.coef_, atol=1e-12)
    np.testing.assert_array_equal(several, [np.zeros(D), coef])
    np.testing.assert_allclose(prediction, est.predict(X[:1])[0], atol=1e-12)
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="ridge must be finite"):
            made_inside(columns, y, bad, np.ones(D))
    with pytest.raises(ValueError, match="one number per feature"):
        made_inside(columns, y, 0.5, np.ones(D + 1))
    with pytest.raises(ValueError, match="n_features must be at least 1"):
        made_inside(columns[:0], y, 0.5, np.ones(D))


def test_threads_without_the_lock(rows):
    """Python threads that release the lock, each with filters of its own, predict with one."""
    X, y = rows
    gates, ones = np.full(T, 0.9), np.ones(T)
    found = [None] * 8

    def run(i):
        found[i] = learn(compiled.init(D, ridge=0.0), X[i], y[i], gates, ones)[0]

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(8):
        own = learn(compiled.init(D, ridge=0.0), X[i], y[i], gates, ones)[0]
        np.testing.assert_array_equal(found[i], own)


def guarded(state):
    """The same state in the middle of larger arrays, and these."""
    buffers = [np.full(array.size + 64, 7, array.dtype) for array in state]
    views = []
    for buffer, array in zip(buffers, state, strict=True):
        view = buffer[32:-32].reshape(array.shape)
        view[:] = array
        views.append(view)
    return compiled.State(*views), buffers


@numba.njit
def one_call(state, x, y, forget, weight):
    return compiled.predict(state, x), compiled.update(state, x, y, forget, weight)


@numba.njit
def at(states, i, x):
    return one_call(compiled.state_at(states, i), x, 1.0, 1.0, 1.0)


GOOD = (np.ones(D), 1.0, 0.9, 1.0)
BAD = [
    (np.ones(0), *GOOD[1:]), (np.ones(1), *GOOD[1:]), (np.ones(D - 1), *GOOD[1:]),
    (np.ones(D + 1), *GOOD[1:]), (np.ones(10_000), *GOOD[1:]),
    (GOOD[0], 1.0, -0.1, 1.0), (GOOD[0], 1.0, 1.1, 1.0), (GOOD[0], 1.0, np.nan, 1.0),
    (GOOD[0], 1.0, 0.9, -1.0), (GOOD[0], 1.0, 0.9, np.nan), (GOOD[0], 1.0, 0.9, np.inf),
    (GOOD[0], 1e200, 0.9, 1.0), (np.full(D, 1e200), 1.0, 0.9, 1.0), (GOOD[0], 1.0, 0.9, 1e308),
    (np.full(D, np.nan), 1.0, 0.9, 1.0), (GOOD[0], np.inf, 0.9, 1.0),
]  # fmt: skip


@pytest.mark.parametrize("row", BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_bad_rows_in_compiled_code_change_nothing(row, ridge):
    state, buffers = guarded(compiled.init(D, ridge=ridge))
    for t in range(5):
        one_call(state, np.eye(D)[t % D], float(t), 0.9, 1.0)
    before = [buffer.copy() for buffer in buffers]
    _, residual = one_call(state, *row)
    assert np.isnan(residual)
    for buffer, old in zip(buffers[:-1], before, strict=False):  # the last is scratch
        np.testing.assert_array_equal(buffer, old)
    assert (np.delete(buffers[-1], slice(32, -32)) == 7).all()
    assert np.isfinite(one_call(state, *GOOD)).all()


def test_states_that_do_not_fit_together_change_nothing():
    state = compiled.init(D)
    for k, name in enumerate(state._fields):
        for shorter in (True, False):
            arrays = list(compiled.init(D))
            shape = np.array(arrays[k].shape)
            shape[-1] += -1 if shorter else 1
            arrays[k] = np.zeros(shape, arrays[k].dtype)
            broken = compiled.State(*arrays)
            assert np.isnan(one_call(broken, *GOOD)).all(), name
            with pytest.raises(ValueError, match="do not have shapes that fit together"):
                compiled.update(broken, *GOOD)


def test_a_filter_that_is_not_there_is_left_alone():
    states = compiled.init(D, n=4)
    before = [array.copy() for array in states]
    for i in (4, -5, 10**12, -(10**12)):
        assert np.isnan(at(states, i, np.ones(D))).all()
    for array, old in zip(states, before, strict=True):
        np.testing.assert_array_equal(array, old)
    fewer = states._replace(totals=states.totals[:2])
    assert np.isnan(at(fewer, 3, np.ones(D))).all()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((np.ones(D, np.float32), 1.0, 1.0, 1.0), "x must be a float64 array of one axis"),
        ((np.ones(D, np.int64), 1.0, 1.0, 1.0), r"astype\(np.float64\)"),
        ((np.ones((1, D)), 1.0, 1.0, 1.0), "x must be a float64 array of one axis"),
        ((np.ones(D), 1j, 1.0, 1.0), "y must be a real number"),
        ((np.ones(D), 1.0, np.ones(2), 1.0), "forget must be a real number"),
        ((np.ones(D), 1.0, 1.0, "a"), "weight must be a real number"),
    ],
)
def test_wrong_types_are_refused_when_the_caller_is_compiled(arguments, match):
    @numba.njit
    def call(state, x, y, forget, weight):
        return compiled.update(state, x, y, forget, weight)

    with pytest.raises(TypingError, match=match):
        call(compiled.init(D), *arguments)


@pytest.mark.full
def test_truth_values_are_numbers_when_the_caller_is_compiled():
    """A reward that came or not, a row that counts or not."""

    @numba.njit
    def run(X, y):
        state = compiled.init(D, ridge=True)
        for t in range(len(y)):
            compiled.update(state, X[t], y[t] > 0, True, y[t] > -1)
        return compiled.coef(state)

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, D)), rng.standard_normal(30)
    est = olsq.RecursiveLeastSquares(ridge=1.0, fit_intercept=False)
    est.fit(X, (y > 0).astype(float), (y > -1).astype(float))
    np.testing.assert_allclose(run(X, y), est.coef_, rtol=1e-10)


def test_wrong_states_are_refused_when_the_caller_is_compiled():
    for states, match in (
        (compiled.init(D, n=2), "choose one with olsq.compiled.state_at"),
        (tuple(compiled.init(D)), "state must be an olsq.compiled.State"),
    ):
        with pytest.raises(TypingError, match=match):
            one_call(states, *GOOD)
    with pytest.raises(TypingError, match="n filters are wanted"):
        at(compiled.init(D), 0, np.ones(D))


PROGRAM = """
    import numba, numpy as np
    from olsq import compiled

    @numba.njit(cache=True, parallel=True)
    def run(X, y):
        states = compiled.init(X.shape[1], ridge=0.0, n=3)
        total = np.zeros(3)
        for i in numba.prange(3):
            state = compiled.state_at(states, i)
            for t in range(len(y)):
                total[i] += compiled.update(state, X[t], y[t], 0.9, 1.0)
        return total.sum() + compiled.coef(states).sum()
    """


@pytest.mark.full
def test_a_cached_function_is_loaded_and_gives_the_same_bits(tmp_path):
    (tmp_path / "own_loop.py").write_text(textwrap.dedent(PROGRAM))
    command = (
        "import numpy as np, own_loop; X = np.sin(np.arange(60.0)).reshape(20, 3); "
        "print(repr(float(own_loop.run(X, X[:, 0] * 2 + 1))), own_loop.run.stats.cache_hits)"
    )
    root = Path(olsq.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{tmp_path}"}
    lines = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", command.replace("cache_hits", "cache_hits.values()")],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines.append(done.stdout.split(maxsplit=1))
    (first, missed), (second, hit) = lines
    assert first == second
    assert "1" not in missed
    assert "1" in hit

"""BLAS has one thread while olsq works, and afterwards what it had."""

from __future__ import annotations

import functools
import gc
import os
import threading

import numpy as np
import pytest
import threadpoolctl

import olsq
from olsq import threads
from olsq.threads import cores, one_blas_thread, threads_for
from tests.online.test_ctrl_c import interrupted, show_all_steps

D = 40
rng = np.random.default_rng(0)
X, y = rng.standard_normal((150, D)), rng.standard_normal(150)
K = rng.standard_normal((2, 40, D))


def numbers() -> list[int]:
    """The threads of each BLAS library."""
    found = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
    return [library.num_threads for library in found]


@pytest.fixture
def two_threads():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        if max(numbers()) < 2:
            pytest.skip("this BLAS has no threads")
        yield


@functools.cache
def estimator():
    """One that is fitted, made where a test needs it: collecting tests compiles nothing."""
    return fitted()


def fitted(kind=olsq.RecursiveLeastSquares, **parameters):
    return kind(**parameters).fit(X, y)


DOORS = {
    **{
        f"fit, {method}": lambda method=method: fitted(method=method)
        for method in ("covariance", "sqrt", "information")
    },
    "robust": lambda: fitted(olsq.RobustLeastSquares),
    "constrained": lambda: fitted(olsq.ConstrainedLeastSquares, bounds=(0, None)).coef_,
    "total": lambda: fitted(olsq.TotalLeastSquares).coef_,
    "kernel": lambda: fitted(olsq.KernelLeastSquares).predict(X),
    "rolling": lambda: fitted(olsq.RollingLeastSquares, window=60),
    "path": lambda: olsq.coefficient_path(X, y),
    "window": lambda: olsq.coefficient_path(X, y, window=60),
    "predict": lambda: estimator().predict(X),
    "errors": lambda: estimator().predict(X, return_std=True),
    "leverage": lambda: estimator().leverage(X),
    "covariance": lambda: estimator().cov_params(),
    "summary": lambda: estimator().summary(),
    "merge": lambda: olsq.merge(estimator(), estimator()),
    "load": lambda: olsq.loads(estimator().to_bytes()),
    "tune": lambda: olsq.tune(X[:, :2], y),
    "online_lstsq": lambda: olsq.online_lstsq(K, K, K, ridge=1.0),
    "local_lstsq": lambda: olsq.local_lstsq(K, K, K, ridge=1.0),
}


@pytest.mark.full
@pytest.mark.parametrize("door", DOORS)
def test_every_door_works_with_one_thread(door, monkeypatch, two_threads):
    entered = []
    enter = type(one_blas_thread).__enter__

    def counted(self):
        enter(self)
        entered.append(numbers())

    monkeypatch.setattr(type(one_blas_thread), "__enter__", counted)
    DOORS[door]()
    assert entered
    assert all(one == 1 for libraries in entered for one in libraries)
    assert max(numbers()) == 2


def test_one_row_of_a_small_state_does_not_set_threads(monkeypatch):
    est, large = olsq.RecursiveLeastSquares().fit(X[:, :4], y), estimator()
    monkeypatch.setattr(type(one_blas_thread), "__enter__", None)
    est.step(X[0, :4], y[0])
    est.predict(X[:1, :4])
    large.step(X[0], y[0])
    with threads_for(100, 10):
        pass


def test_the_last_to_leave_restores(two_threads):
    inside, leave = threading.Event(), threading.Event()

    @one_blas_thread
    def other():
        inside.set()
        assert leave.wait(30)

    thread = threading.Thread(target=other)
    with one_blas_thread:
        thread.start()
        assert inside.wait(30)
        with one_blas_thread:
            pass
        assert set(numbers()) == {1}
    assert set(numbers()) == {1}  # the other one is inside
    leave.set()
    thread.join()
    assert max(numbers()) == 2


def test_errors_and_limits_set_inside_are_kept(two_threads):
    with pytest.raises(ZeroDivisionError), one_blas_thread:
        raise ZeroDivisionError
    assert max(numbers()) == 2
    with threadpoolctl.threadpool_limits(1, user_api="blas"), one_blas_thread:
        pass
    assert max(numbers()) == 2
    many = os.cpu_count() or 1
    if many > 2:
        with one_blas_thread:
            threadpoolctl.threadpool_limits(3, user_api="blas")
        assert max(numbers()) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is POSIX's")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_child_forked_inside_has_its_threads(two_threads):
    with one_blas_thread:
        child = os.fork()
        if child == 0:
            os._exit(0 if max(numbers()) == 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert set(numbers()) == {1}


@pytest.mark.parametrize(
    ("files", "want"),
    [
        ({"cpu.max": "100000 100000\n"}, 1),
        ({"cpu.max": "150000 100000\n"}, 1),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "max 100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu.max": "nonsense"}, 4),
        ({}, 4),
    ],
)
def test_a_quota_is_a_number_of_cores(files, want, tmp_path, monkeypatch):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(threads, "CGROUP", tmp_path)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4), raising=False)
    threads._quota.cache_clear()
    try:
        assert cores() == want
    finally:
        threads._quota.cache_clear()


@pytest.mark.full
def test_ctrl_c_at_any_step_leaves_the_limit(two_threads):
    """Python raises it also where ``__exit__`` begins, before its first line."""

    def call():
        with threads_for(1000, 100):
            pass

    show_all_steps(call)
    before, steps = numbers(), interrupted(call, None)
    assert steps > 20
    gc.collect()
    gc.freeze()  # what other tests left takes seconds to look through, in every step
    try:
        for step in range(1, steps + 1):
            show_all_steps(call)
            with pytest.raises(KeyboardInterrupt):
                interrupted(call, step)
            gc.collect()
            with threads_for(1000, 100):  # sets again what an interrupted one could not
                assert max(numbers()) == 1
            assert numbers() == before, step
    finally:
        gc.unfreeze()

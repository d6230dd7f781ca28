"""One estimator in several threads: no update is lost, and nobody reads half of one."""

from __future__ import annotations

import copy
import pickle
import sys
import threading

import numpy as np
import pytest

import olsq

rng = np.random.default_rng(5)
X = rng.standard_normal((3200, 3))
Y = X @ [1.0, -2.0, 0.5] + 0.1 * rng.standard_normal(3200)
THREADS = 8


@pytest.fixture(autouse=True)
def frequent_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(*tasks):
    """Run the tasks at once; the first error of any is raised."""
    errors, gate = [], threading.Barrier(len(tasks))

    def run(task):
        gate.wait()
        try:
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.full
@pytest.mark.parametrize("size", [1, 20])
@pytest.mark.parametrize(
    "make",
    [
        olsq.RecursiveLeastSquares,
        lambda: olsq.RecursiveLeastSquares(method="sqrt"),
        lambda: olsq.RecursiveLeastSquares(method="information"),
        lambda: olsq.RollingLeastSquares(window=4000),
    ],
)
def test_no_update_is_lost(make, size):
    est = make()

    def learn(part):
        for i in range(part, len(X), THREADS * size):
            rows = np.arange(i, min(i + THREADS * size, len(X)), THREADS)
            est.partial_fit(X[rows], Y[rows])

    together(*[lambda part=part: learn(part) for part in range(THREADS)])
    once = make().fit(X, Y)
    assert est.n_samples_seen_ == len(X)
    np.testing.assert_allclose(est.coef_, once.coef_, rtol=1e-9)
    np.testing.assert_allclose(est.sigma2_, once.sigma2_, rtol=1e-7)


@pytest.mark.full
def test_readers_see_whole_states(tmp_path):
    """Targets are exact, so whatever a reader sees, the coefficients are the true ones."""
    est = olsq.RecursiveLeastSquares(ridge=0.0, fit_intercept=False, forget=0.99)
    truth = np.arange(1.0, 41.0)
    wide = rng.standard_normal((600, 40))
    est.fit(wide, wide @ truth)
    stop = threading.Event()

    def learn():
        for row in wide:
            est.partial_fit(row[None], [row @ truth])
        stop.set()

    def read(look):
        while not stop.is_set():
            np.testing.assert_allclose(look(), truth, rtol=1e-6)

    def saved():
        est.save(tmp_path / "s")
        return olsq.load(tmp_path / "s").coef_

    together(
        learn,
        lambda: read(lambda: est.coef_),
        lambda: read(lambda: pickle.loads(pickle.dumps(est)).coef_),
        lambda: read(lambda: copy.copy(est).coef_),
        lambda: read(saved),
    )


def test_the_lock_goes_nowhere(tmp_path):
    est = olsq.RecursiveLeastSquares().fit(X, Y)
    est.save(tmp_path / "s")
    copies = [copy.copy(est), copy.deepcopy(est), pickle.loads(pickle.dumps(est)),
              olsq.load(tmp_path / "s"), olsq.merge(est, est)]  # fmt: skip
    for other in copies:
        other.partial_fit(X[:1], Y[:1])
        assert other._lock is not est._lock
    assert "_lock" not in est.__getstate__()
    refused = olsq.RecursiveLeastSquares()
    with pytest.raises(ValueError, match="inconsistent"):
        refused.fit(X, Y[:3])
    pickle.loads(pickle.dumps(refused)).fit(X, Y)

"""Whole sequences from NumPy arrays: arguments, errors, and which side solves what."""

from __future__ import annotations

import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import olsq
from olsq.reference import sequence as oracle
from tests.sequence.sequence_cases import D, M, error, unit

RNG = np.random.default_rng(4)
K, Q = unit(RNG.normal(size=(2, 2, 3, 20, D)))
V = RNG.normal(size=(2, 3, 20, M))


def test_gates_may_be_logs():
    gates = RNG.uniform(0.8, 1, (3, 20))
    one = olsq.online_lstsq(K, V, Q, forget=gates, ridge=0.5)
    two = olsq.online_lstsq(K, V, Q, log_forget=np.log(gates), ridge=0.5)
    np.testing.assert_allclose(one.value, two.value, rtol=1e-12, atol=1e-13)
    slow = olsq.online_lstsq(K, V, Q, log_forget=-np.inf, ridge=0.5)
    reset = olsq.online_lstsq(K, V, Q, forget=0.0, ridge=0.5)
    np.testing.assert_array_equal(slow.value, reset.value)


def test_dtypes():
    whole = np.arange(24).reshape(8, 3) % 5
    fit = olsq.online_lstsq(whole, whole, whole, ridge=1)
    assert fit.value.dtype == fit.state.gram.dtype == np.float32
    assert error(fit.value, oracle.solve(whole, whole, whole, ridge=1).value) < 1e-5
    half = olsq.online_lstsq(*(x.astype(np.float16) for x in (K, V, Q)), ridge=0.5)
    assert half.value.dtype == np.float16
    assert half.state.gram.dtype == np.float32
    brain = np.asarray(jnp.asarray(K, jnp.bfloat16))
    assert olsq.online_lstsq(brain, V.astype(np.float32), brain, ridge=0.5).value.dtype == "f4"
    assert olsq.online_lstsq(brain, brain, brain, ridge=0.5).value.dtype == brain.dtype
    lists = olsq.online_lstsq([[1.0], [1.0]], [[2.0], [2.0]], [[1.0], [1.0]], ridge=1.0)
    np.testing.assert_allclose(lists.value[:, 0], [1, 4 / 3])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"forget": 1.1}, "forget must lie in"),
        ({"forget": 0.9, "log_forget": 0.0}, "not both"),
        ({"log_forget": 0.1}, "log_forget must be <= 0"),
        ({"weight": -1.0}, "weight must be >= 0"),
        ({"weight": np.ones(7)}, "weight has shape"),
        ({"ridge": None}, "ridge is needed"),
        ({"ridge": -1.0}, "ridge must be finite"),
        ({"ridge": np.ones(D + 1)}, "ridge has shape"),
        ({"ridge_mode": "fading"}, "ridge_mode must be one of"),
        ({"adjoint": "magic"}, "adjoint must be one of"),
        ({"ridge_mode": "discounted", "state": (np.eye(D), np.ones((M, D)))}, "must be left out"),
        ({"ridge_mode": "discounted", "ridge": np.ones((1, 1, 20, 1))}, "one ridge"),
        ({"state": (np.eye(D + 1), np.ones((M, D)))}, "state.gram has shape"),
        ({"keys": K[..., :10, :]}, "same length"),
        ({"queries": Q[..., :2]}, "width"),
        ({"keys": K[0, 0, 0]}, "shape"),
        ({"keys": K[:, :2]}, "do not broadcast"),
        ({"keys": K * 1j}, "real"),
        ({"keys": K.astype(object)}, "real"),
    ],
)
def test_errors_are_raised_before_anything_changes(change, says):
    arguments = {"keys": K, "values": V, "queries": Q, "ridge": 0.5, **change}
    before = {n: np.copy(a) for n, a in arguments.items() if isinstance(a, np.ndarray)}
    with pytest.raises((ValueError, TypeError), match=says):
        olsq.online_lstsq(**arguments)
    for n, a in before.items():
        np.testing.assert_array_equal(arguments[n], a)


@pytest.mark.full
def test_jax_solves_what_is_jaxs_and_nothing_else(monkeypatch):
    class Taken(Exception):
        pass

    def take(*args, **kwargs):
        raise Taken

    kvq = [x[0, 0].astype(np.float32) for x in (K, V, Q)]
    state = olsq.Moments(np.eye(D), np.ones((M, D)))
    monkeypatch.setattr("olsq.sequence.jax.online_lstsq", take)
    for options in (
        {},
        {"solver": olsq.ChunkExact()},
        {"forget": np.float32(1), "weight": 1, "state": state},
        {"adjoint": "implicit"},
        {"solver": olsq.ChunkExact(chunk=32)},
        {"solver": olsq.Dense()},
        {"adjoint": "unrolled"},
    ):
        fit = olsq.online_lstsq(*kvq, ridge=0.5, **options)
        assert isinstance(fit, olsq.Solution)
        assert all(type(x) is np.ndarray for x in jax.tree.leaves(fit))
    for options in (
        {"ridge": jnp.asarray(0.5)},
        {"forget": jnp.asarray(0.5)},
        {"state": state._replace(cross=jnp.ones((M, D)))},
    ):
        with pytest.raises(Taken):
            olsq.online_lstsq(*kvq, **{"ridge": 0.5, **options})
    for transform in (jax.jit, jax.grad, jax.vmap):
        with pytest.raises(Taken):
            transform(lambda r: olsq.online_lstsq(*kvq, ridge=r).value.sum())(
                np.ones(2) if transform is jax.vmap else 0.5
            )


@pytest.mark.full
def test_numpy_users_do_not_pay_for_jax():
    code = """
import sys, numpy as np, olsq
k = np.random.default_rng(0).normal(size=(2, 50, 3))
state = olsq.online_lstsq(k, k[..., :2], k, ridge=1.0, forget=0.9).state
fit = olsq.online_lstsq(k, k[..., :2], k, ridge=1.0, forget=0.9, state=state)
print(type(fit) is olsq.Solution, type(fit.value), [m for m in sys.modules if "jax" in m])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True <class 'numpy.ndarray'> []"


def test_several_threads_at_once():
    """Calls from threads, each of which may start its own, and many streams on two threads."""
    from concurrent.futures import ThreadPoolExecutor

    rng = np.random.default_rng(8)
    k, q = unit(rng.normal(size=(2, 40, 60, 16)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        want = olsq.online_lstsq(k, q, q, forget=0.99, ridge=0.2).value
        with ThreadPoolExecutor(4) as pool:
            runs = [pool.submit(olsq.online_lstsq, k, q, q, forget=0.99, ridge=0.2)
                    for _ in range(8)]  # fmt: skip
    for run in runs:
        np.testing.assert_array_equal(run.result().value, want)
    np.testing.assert_array_equal(
        want[7], olsq.online_lstsq(k[7], q[7], q[7], forget=0.99, ridge=0.2).value
    )


@pytest.mark.parametrize("arrays", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_the_first_bad_entry_is_named_with_its_place(arrays):
    keys = arrays(np.ones((2, 5, 3), np.float32))
    gates = np.ones((2, 5))
    gates[1, 3:] = 1.5
    with pytest.raises(ValueError, match=r"forget must lie in \[0, 1\] .*got 1\.5 at \[1, 3\]$"):
        olsq.online_lstsq(keys, keys, keys, forget=gates, ridge=1.0)
    with pytest.raises(ValueError, match=r"ridge must be finite and >= 0; got -2\.0$"):
        olsq.online_lstsq(keys, keys, keys, ridge=-2.0)
    with pytest.raises(ValueError, match=r"sample_weight must be .*; got -1\.0 at \[4\]$"):
        olsq.RecursiveLeastSquares().fit(np.ones((5, 2)), np.ones(5), [1, 1, 1, 1, -1.0])

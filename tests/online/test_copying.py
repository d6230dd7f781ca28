"""Copies of states: complete, with nothing shared, in the order of memory that kernels want."""

import copy

import numpy as np
import pytest

import olsq
from olsq.online.forms.form import copied

RNG = np.random.default_rng(3)
X = RNG.standard_normal((40, 3))
Y = X @ RNG.standard_normal((3, 2))
ESTIMATORS = {
    "covariance": olsq.RecursiveLeastSquares(forget=0.9, ridge=1e-3),
    "square root": olsq.RecursiveLeastSquares(forget=0.9, method="sqrt", cov="sandwich"),
    "information": olsq.RecursiveLeastSquares(method="information"),
    "half-life in time": olsq.RecursiveLeastSquares(half_life="2D"),
    "window": olsq.RollingLeastSquares(window=9),
    "window of few rows": olsq.RollingLeastSquares(window=3),
}


def arrays(state, path=""):
    """Every array of a state by the path to it."""
    if isinstance(state, np.ndarray):
        return {path: state}
    inner = vars(state) if hasattr(state, "__dict__") else {}
    if isinstance(state, tuple):
        inner = {str(i): part for i, part in enumerate(state)}
    return {k: v for name, x in inner.items() for k, v in arrays(x, f"{path}.{name}").items()}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_copy_is_what_deepcopy_makes(name):
    times = np.arange("2024-01-01", 40, dtype="datetime64[D]") if "time" in name else None
    estimator = ESTIMATORS[name].fit(X, Y, times=times)
    engine = estimator._engine.engine
    own, other, twin = arrays(engine), arrays(copy.deepcopy(engine)), arrays(copied(engine))
    assert own.keys() == other.keys() == twin.keys() != set()
    for path, x in own.items():
        np.testing.assert_array_equal(twin[path], x, strict=True)
        assert twin[path].strides == other[path].strides
        assert not np.shares_memory(twin[path], x) or not x.size


def test_one_array_under_two_names_stays_one():
    class Pair:
        pass

    Pair.__module__ = "olsq.online.pair"
    pair = Pair()
    pair.a = pair.b = np.asfortranarray(np.eye(3))
    twin = copied(pair)
    assert twin.a is twin.b is not pair.a
    assert twin.a.flags.f_contiguous

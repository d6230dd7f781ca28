"""A masked entry is a missing one at every door, whatever number lies under the mask."""

from __future__ import annotations

import numpy as np
import pytest

import olsq
from olsq import attention, linalg
from olsq.arrays.masked import fill_masked
from olsq.sequence.jax.meshes import takes_arrays

rng = np.random.default_rng(0)
K, V, GATES = rng.standard_normal((8, 3)), rng.standard_normal((8, 2)), rng.uniform(0.5, 1, 8)
Q4, V4 = rng.standard_normal((1, 4, 1, 2)), rng.standard_normal((1, 4, 1, 3))
STATE = olsq.Moments(np.eye(3), np.ones((2, 3)))
LABELS = [0, 1, 0, 1, None, 1, 0, 1]  # a row without one is taken out before the rest is read


def groups(X, y, w):
    return olsq.GroupedLeastSquares(ridge=0.1).partial_fit(X, y, w, by=LABELS).coef_


DOORS = {
    "online_lstsq": (lambda k, v, q, f, w, r: olsq.online_lstsq(
        k, v, q, forget=f, weight=w, ridge=r), (K, V, K, GATES, GATES, np.ones(3))),
    "online_lstsq, state": (lambda s: olsq.online_lstsq(
        K, V, K, ridge=1.0, state=olsq.Moments(s, np.zeros((2, 3)))), (np.eye(3),)),
    "online_lstsq_vjp": (lambda k, v, c: olsq.online_lstsq_vjp(k, v, K, c, ridge=1.0), (K, V, V)),
    "local_lstsq": (lambda k, v, q, f, w: olsq.local_lstsq(
        k, v, q, ridge=1.0, forget=f, log_weight=w), (K, V, K, GATES, -GATES)),
    "update": (lambda k, v, f, w: olsq.update(STATE, k, v, forget=f, weight=w),
               (K[0], V[0], GATES[:1], GATES[:1])),
    "query": (lambda q: olsq.query(STATE, q, ridge=0.1), (K[0],)),
    "start_decoding": (lambda g: olsq.sequence.start_decoding(
        olsq.Moments(g, STATE.cross), ridge=1.0), (STATE.gram,)),
    "merge": (lambda g: olsq.merge(STATE, olsq.Moments(g, STATE.cross)), (STATE.gram,)),
    "gla": (lambda q, v, f: attention.gla(q, q, v, forget=f), (Q4, V4, Q4[..., 0] ** 0)),
    "gla_step": (lambda q, v: attention.gla_step(q, q, v), (Q4[:, 0], V4[:, 0])),
    "groups": (groups, (K, V, GATES)),
    "times": (lambda t: olsq.coefficient_path(K, V, half_life=2.0, times=t), (np.arange(8.0),)),
    "dates": (lambda t: olsq.coefficient_path(K, V, half_life="2s", times=t),
              (np.arange(8).astype("datetime64[s]"),)),
    "features": (lambda X: olsq.features.Trend(of=0).fit_transform(X), (K,)),
    "text": (lambda X: olsq.features.OneHot(levels=4, of=[0]).fit_transform(X),
             (np.round(K).astype(str),)),
}  # fmt: skip


def outcome(call, arguments):
    try:
        found = call(*arguments)
    except (TypeError, ValueError) as error:
        return str(error)
    parts = found if isinstance(found, tuple) else (found,)
    flat = [p for part in parts for p in (part if isinstance(part, tuple) else (part,))]
    return [np.asarray(part) for part in flat if part is not None]


@pytest.mark.full
@pytest.mark.parametrize("door", DOORS)
def test_what_lies_under_a_mask_is_not_read(door):
    call, arguments = DOORS[door]
    for i, array in enumerate(arguments):
        mask = np.zeros(array.shape, bool)
        mask.flat[array.size // 2] = True
        under = array.copy()
        under[mask] = array.flat[0] if array.dtype.kind in "MU" else 1e3
        masked = np.ma.array(under, mask=mask)
        results = [
            outcome(call, [*arguments[:i], part, *arguments[i + 1 :]])
            for part in (masked, fill_masked(np.ma.array(array, mask=mask)))
        ]
        assert type(results[0]) is type(results[1])
        for got, want in zip(*results, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", [n for n in attention.__all__ if n[0].islower()])
def test_every_rule_takes_masked_arrays(name):
    """All have the decorator that the doors above were tried with."""
    assert getattr(attention, name).__code__ is takes_arrays(len).__code__


@pytest.mark.parametrize(
    ("values", "want"),
    [
        (np.ma.array([1, 9], mask=[0, 1]), [1.0, np.nan]),
        (np.ma.array([True, True], mask=[0, 1]), [1.0, np.nan]),
        (np.ma.array([1, 9j], mask=[0, 1]), [1, np.nan]),
        (np.ma.array([1, 9], np.float16, mask=[0, 1]), np.array([1, np.nan], np.float16)),
        (np.ma.array(["a", "b"], mask=[0, 1]), ["a", None]),
        (np.ma.array([1, 9], mask=False), [1, 9]),
        ([np.ma.array([1, 9], mask=[0, 1]), [2, 3]], [[1, np.nan], [2, 3]]),
    ],
)
def test_masks_are_filled_by_what_is_missing_in_each_kind(values, want):
    got = np.asarray(fill_masked(values))
    np.testing.assert_array_equal(got, np.asarray(want, got.dtype))


def test_functions_without_missing_values_refuse_masked_entries():
    with pytest.raises(TypeError, match="x has masked entries: fill them first"):
        linalg.cholesky_update(np.eye(2), np.ma.array([1.0, 9.0], mask=[0, 1]))

"""Every rule on tensors: values of the rule for JAX arrays, derivatives by torch's own checks."""

from __future__ import annotations

import contextlib
import inspect
import warnings

import numpy as np
import pytest

pytest.importorskip(
    "torch.autograd", reason='needs PyTorch: pip install ".[torch]" in a checkout of olsq'
)
torch = pytest.importorskip("torch")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from torch_cases import FIRST, ROWS, call, cases, plain, tensors_of  # noqa: E402

import olsq  # noqa: E402
import olsq.torch  # noqa: E402
from olsq import attention  # noqa: E402
from olsq.torch.calls import RULES, TABLE  # noqa: E402
from olsq.torch.function import JaxFunction  # noqa: E402
from tests.versions import quick, x64  # noqa: E402


def ids(row):
    return row.name


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_values_and_states_are_those_of_the_rule(row):
    arrays = plain(row, 9)
    o, state = call(row, arrays)
    with x64(True):
        given = {n: jnp.asarray(x.numpy()) for n, x in arrays.items()}
        want, end = quick(lambda given: cases.call(row, given))(given)
        assert o.dtype == torch.float64
        assert type(state) is type(end)
        np.testing.assert_allclose(o.numpy(), want, rtol=1e-10, atol=1e-12)
        for got, wanted in zip(tensors_of(state), tensors_of_jax(end), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-10, atol=1e-12)


def tensors_of_jax(tree):
    return [x for part in tree for x in tensors_of_jax(part)] if isinstance(tree, tuple) else [tree]


@pytest.mark.parametrize("row", FIRST, ids=ids)
def test_gradients_also_through_states(row):
    arrays = {n: x.requires_grad_() for n, x in plain(row, 4).items()}

    def chained(*given):
        named = dict(zip(arrays, given, strict=True))
        first, rest = (cut(row, named, s) for s in (slice(0, 2), slice(2, 4)))
        o, state = call(row, first)
        if not row.causal:
            return o
        return torch.cat([o, call(row, rest, state)[0]], 1)

    assert torch.autograd.gradcheck(chained, tuple(arrays.values()), fast_mode=True)


def cut(row, arrays, part):
    timed = cases.timed(row, arrays)
    return {n: x[:, part] if n in timed else x for n, x in arrays.items()}


@pytest.mark.slow
@pytest.mark.parametrize("row", FIRST, ids=ids)
def test_second_derivatives(row):
    arrays = {n: x.requires_grad_() for n, x in plain(row, 2).items()}

    def output(*given):
        return call(row, dict(zip(arrays, given, strict=True)))[0]

    assert torch.autograd.gradgradcheck(output, tuple(arrays.values()), fast_mode=True)


@pytest.mark.parametrize("row", FIRST, ids=ids)
def test_one_token_goes_on_from_a_sequence(row):
    if getattr(attention, f"{row.rule}_step", None) is None:
        assert row.rule == "intention"  # a query there sees the future
        return
    arrays = plain(row, 5, torch.float32)
    want = call(row, arrays)[0]
    state = call(row, cut(row, arrays, slice(0, 4)))[1]
    timed = cases.timed(row, arrays)
    token = {n: x[:, 4] if n in timed else x for n, x in arrays.items()}
    got, after = call(row, token, state, step=True)
    assert got.dtype == torch.float32
    assert type(after) is type(state)
    np.testing.assert_allclose(got.numpy(), want[:, 4].numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("row", FIRST, ids=ids)
@pytest.mark.parametrize("wrong", [-3.0, 3.0])
def test_numbers_out_of_range_are_refused_as_for_jax_arrays(row, wrong, monkeypatch):
    monkeypatch.setattr(JaxFunction, "__call__", accept)  # which would compile it
    arrays = plain(row, 2, torch.float32)
    for name in set(arrays) - set(row.arrays):  # any number is a query, a key or a value
        bad = {**arrays, name: torch.full_like(arrays[name], wrong)}
        told = refusal(lambda bad=bad: jax.eval_shape(lambda: jax_call(row, bad)))
        assert refusal(lambda bad=bad: call(row, bad)) == told, name


def jax_call(row, arrays):
    return cases.call(row, {n: x.numpy() for n, x in arrays.items()})


class Accepted(Exception):
    """The arguments of a rule have passed all checks."""


def accept(*_):
    raise Accepted


def refusal(f):
    try:
        with warnings.catch_warnings(), contextlib.suppress(Accepted):
            warnings.simplefilter("ignore")
            f()
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", sorted(TABLE))
def test_signatures_and_documentation(name):
    ours = getattr(olsq.torch, name)
    home = olsq if name in olsq.__all__ else attention
    assert inspect.signature(ours) == inspect.signature(getattr(home, name))
    assert ours.__doc__.startswith(f"Compute :func:`{home.__name__}.{name}` on PyTorch tensors.")
    assert ">>>" not in ours.__doc__
    assert (ours.__name__, ours.__module__) == (name, "olsq.torch")


def test_the_table_has_every_rule():
    assert {row.rule for row in ROWS} == {n for n in RULES if not n.endswith("_step")}
    assert set(olsq.torch.__all__) >= {*RULES, "online_lstsq", "local_lstsq"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtypes_are_kept_with_gradients(dtype):
    row = next(row for row in FIRST if row.rule == "gla")
    arrays = plain(row, 6, dtype)
    q = arrays["q"].requires_grad_()
    o, state = call(row, arrays)
    assert o.dtype == dtype
    assert state.matrix.dtype == torch.float32  # memories are never kept in halves
    o.sum().backward()
    assert q.grad.dtype == dtype
    exact = call(row, {n: x.detach().double() for n, x in arrays.items()})[0]
    eps = torch.finfo(dtype).eps
    assert float((o.detach().double() - exact).abs().max()) <= 4 * eps * float(exact.abs().max())

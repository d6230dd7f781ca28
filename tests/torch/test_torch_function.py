"""Solvers on tensors: values, derivatives, memory, dtypes, devices, errors, torch.compile."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip(
    "torch.autograd", reason='needs PyTorch: pip install ".[torch]" in a checkout of olsq'
)
torch = pytest.importorskip("torch")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import olsq  # noqa: E402
import olsq.torch  # noqa: E402
from olsq.torch.function import JaxFunction  # noqa: E402
from olsq.torch.tensors import jax_for, to_jax, to_torch  # noqa: E402
from tests.versions import x64  # noqa: E402


def streams(dtype=torch.float64, t=6):
    generator = torch.Generator().manual_seed(0)
    shapes = (2, t, 3), (2, t, 2), (2, t, 3)
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


@pytest.mark.parametrize("mode", ["fixed", "discounted"])
@pytest.mark.parametrize("solver", [None, olsq.ConjugateGradient(tol=1e-14), olsq.Dense()])
def test_online_lstsq_equals_numpy(mode, solver):
    given = streams()
    options = {"forget": 0.9, "ridge": 0.5, "ridge_mode": mode}
    if mode == "discounted" and isinstance(solver, olsq.ConjugateGradient):
        solver = olsq.Recursive()
    sol = olsq.torch.online_lstsq(*given, **options, solver=solver)
    want = olsq.online_lstsq(*(x.numpy() for x in given), **options)
    np.testing.assert_allclose(sol.value, want.value, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(sol.state.gram, want.state.gram, rtol=1e-12)
    assert sol.check(1e-6) is sol
    assert sol.stats.steps.dtype == torch.int32


def check_derivatives(f, *given):
    """Check each first and second derivative of all outputs in each entry of all inputs.

    The inputs are one tensor to PyTorch, which would else ask for those of each alone: a program.
    """
    sizes, shapes = [x.numel() for x in given], [x.shape for x in given]

    def of_one(flat):
        parts = zip(flat.split(sizes), shapes, strict=True)
        return torch.cat([x.flatten() for x in f(*(x.reshape(shape) for x, shape in parts))])

    flat = torch.cat([x.detach().flatten() for x in given]).requires_grad_()
    assert torch.autograd.gradcheck(of_one, flat)
    assert torch.autograd.gradgradcheck(of_one, flat)


def test_derivatives_of_online_lstsq():
    keys, values, queries = (x.requires_grad_() for x in streams(t=4))
    forget = torch.rand(2, 4, dtype=torch.float64).mul(0.4).add(0.5).requires_grad_()
    ridge = torch.tensor([0.5, 0.4, 0.3], dtype=torch.float64, requires_grad=True)
    gram = torch.eye(3, dtype=torch.float64).expand(2, 3, 3).clone().requires_grad_()
    cross = torch.ones(2, 2, 3, dtype=torch.float64, requires_grad=True)

    def f(keys, values, queries, forget, ridge, gram, cross):
        gram = (gram + gram.mT) / 2  # which triangle is read is not defined, gradcheck moves one
        state = olsq.Moments(gram, cross)
        sol = olsq.torch.online_lstsq(
            keys, values, queries, forget=forget, ridge=ridge, state=state
        )
        return sol.value, sol.state.cross

    check_derivatives(f, keys, values, queries, forget, ridge, gram, cross)


def test_derivatives_of_local_lstsq():
    given = [x.requires_grad_() for x in streams(t=4)]

    def f(*given):
        return (olsq.torch.local_lstsq(*given, ridge=0.3).value,)

    check_derivatives(f, *given)
    with x64(True):
        want = olsq.local_lstsq(*(jnp.asarray(x.detach().numpy()) for x in given), ridge=0.3)
        np.testing.assert_allclose(f(*given)[0].detach(), want.value, rtol=1e-12)


def test_third_derivatives():
    double = JaxFunction(lambda scalars, arrays: (jnp.sin(arrays[0]) * scalars[0],))
    x = torch.linspace(0, 1, 5, dtype=torch.float64).requires_grad_()
    (y,) = double((2.0,), [x], x.device)
    for _ in range(3):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    np.testing.assert_allclose(y.detach(), -2 * torch.cos(x.detach()), rtol=1e-12)


def test_no_copy_where_memory_allows_it():
    cpu = torch.device("cpu")
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.int32, torch.bool):
        x = torch.arange(32).to(dtype)
        seen = to_jax(x)
        assert seen.__array_interface__["data"][0] == x.data_ptr()
        assert seen.dtype.name == str(dtype).removeprefix("torch.")
    x = torch.arange(32, dtype=torch.float64)
    with jax_for(cpu, [x]):
        # JAX reads aligned memory in place
        assert jax.device_put(to_jax(x), may_alias=True).unsafe_buffer_pointer() == x.data_ptr()
        made = jax.jit(lambda x: 2 * x)(to_jax(x))
        assert made.dtype == jnp.float64  # not truncated
        assert to_torch(made, cpu, set()).data_ptr() == made.unsafe_buffer_pointer()
    for view in (x.view(4, 8)[:, 1:3], x.view(4, 8).T, x[1:5], x.as_strided((3,), (0,))):
        np.testing.assert_array_equal(to_jax(view), view.numpy())


def test_compiled_calls_do_not_copy_their_inputs():
    peak = Path("/proc/self/clear_refs")
    if not peak.exists():
        pytest.skip("needs Linux, which tells the most memory that was used")
    x = torch.ones(2**24)
    total = jax.jit(lambda x: x.sum())
    total(to_jax(x[:16])), total(to_jax(x)).block_until_ready()
    peak.write_text("5")  # count the peak anew
    before = resident_peak()
    assert total(to_jax(x)) == 2**24
    assert resident_peak() - before < x.nbytes / 4


def resident_peak():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def test_tensors_on_the_cpu_are_computed_there_where_jax_prefers_a_gpu(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with jax_for(torch.device("cpu"), []):
        assert jax.config.jax_default_device == jax.devices("cpu")[0]
    with jax_for(torch.device("cuda"), []):
        assert jax.config.jax_default_device is None


def test_lazy_conjugation_and_negation():
    z = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert z.is_neg()
    np.testing.assert_array_equal(to_jax(z), [-2.0, 4.0])
    assert to_jax(torch.ones(0, 3)).shape == (0, 3)


def test_outputs_share_no_memory_with_inputs_or_residuals():
    same = JaxFunction(lambda scalars, arrays: (arrays[0], jnp.exp(arrays[0])))
    x = torch.ones(64, requires_grad=True)
    copy, power = same((), [x], x.device)
    with torch.no_grad():
        copy.zero_()
    assert bool((x == 1).all())
    e = power.detach().clone()
    with torch.no_grad():
        power.data.zero_()  # past the version counter: a residual must not change
    power.sum().backward()
    np.testing.assert_allclose(x.grad, e, rtol=1e-6)


def test_inputs_changed_before_the_backward_pass_are_noticed():
    keys, values, queries = streams()
    keys.requires_grad_()
    value = olsq.torch.online_lstsq(keys, values, queries, ridge=1.0).value
    queries.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.sum().backward()


def test_nothing_is_saved_without_requires_grad():
    given = streams()
    assert not olsq.torch.online_lstsq(*given, ridge=1.0).value.requires_grad
    given[0].requires_grad_()
    with torch.no_grad():
        sol = olsq.torch.online_lstsq(*given, ridge=1.0)
    assert sol.value.grad_fn is None
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        olsq.torch.online_lstsq(*streams(), ridge=1.0)
        assert not saved
        olsq.torch.online_lstsq(*given, ridge=1.0)
        assert saved


def test_the_graph_is_freed_and_can_be_kept():
    given = streams()
    given[0].requires_grad_()
    loss = olsq.torch.online_lstsq(*given, ridge=1.0).value.sum()
    loss.backward(retain_graph=True)
    first = given[0].grad.clone()
    given[0].grad = None
    loss.backward()
    torch.testing.assert_close(given[0].grad, first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_empty_inputs():
    keys, values, queries = (x[:, :0].requires_grad_() for x in streams())
    sol = olsq.torch.online_lstsq(keys, values, queries, ridge=1.0)
    assert sol.value.shape == (2, 0, 2)
    sol.value.sum().backward()
    assert keys.grad.shape == keys.shape


def test_other_numbers_compile_nothing():
    q, k, v = (torch.randn(1, 5, 2, 3) for _ in "qkv")
    olsq.torch.mesa(q, k, v, ridge=0.5, forget=0.9)
    counted = []
    with jax.log_compiles(False):
        jax.monitoring.register_event_duration_secs_listener(
            lambda name, *_, **__: counted.append(name) if "backend_compile" in name else None
        )
        olsq.torch.mesa(q, k, v, ridge=0.25, forget=0.8)
    assert not counted


def test_packed_segments():
    q, k, v = (torch.randn(1, 6, 2, 3) for _ in "qkv")
    ids = torch.tensor([[0, 0, 0, 1, 1, 1]])
    o, _ = olsq.torch.mesa(q, k, v, ridge=0.5, segment_ids=ids)
    alone, _ = olsq.torch.mesa(*(x[:, 3:] for x in (q, k, v)), ridge=0.5)
    torch.testing.assert_close(o[:, 3:], alone, rtol=1e-4, atol=1e-5)
    whole, _ = olsq.torch.intention(q, k, v, ridge=0.5, segment_ids=ids)
    alone, _ = olsq.torch.intention(*(x[:, 3:] for x in (q, k, v)), ridge=0.5)
    torch.testing.assert_close(whole[:, 3:], alone, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="segment_ids must not decrease"):
        olsq.torch.mesa(q, k, v, ridge=0.5, segment_ids=ids.flip(1))
    with pytest.raises(ValueError, match="integers must be at most 2147483647 in size"):
        olsq.torch.mesa(q, k, v, ridge=0.5, segment_ids=ids + 2**40)


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"k": torch.ones(1, 4, 1, 2, device="meta")}, ValueError, "k is on the meta device"),
        ({"k": torch.ones(1, 4, 1, 2).to_sparse()}, TypeError, "k must be a dense tensor"),
        ({"k": torch.ones(1, 4, 1, 2) * 1j}, TypeError, "k must be real"),
        ({"k": torch.ones(1, 4, 2)}, ValueError, r"k must have shape \(batch, time, heads, dim\)"),
        ({"forget": torch.tensor(1.5)}, ValueError, r"forget must lie in \[0, 1\]"),
        ({"weight": -1.0}, ValueError, "weight must be >= 0"),
        ({"ridge": 0.0}, ValueError, "ridge must be > 0"),
        ({"nonsense": 1}, TypeError, "nonsense"),
    ],
)
def test_bad_input(change, error, told):
    given = {n: torch.ones(1, 4, 1, 2) for n in "qkv"} | {"ridge": 1.0} | change
    with pytest.raises(error, match=told):
        olsq.torch.mesa(**given)


# PyTorch's own code warns of what it deprecates when these parts of it are first used.
OWN_WARNINGS = pytest.mark.filterwarnings("ignore")


@OWN_WARNINGS
def test_transforms_of_torch_func_are_refused():
    x = torch.ones(3, 1, 4, 1, 2)
    with pytest.raises(NotImplementedError, match=r"use batch axes"):
        torch.func.vmap(lambda q: olsq.torch.linear(q, q, q)[0])(x)
    with pytest.raises(NotImplementedError, match=r"torch\.autograd\.grad"):
        torch.func.grad(lambda q: olsq.torch.linear(q, q, q)[0].sum())(x[0])
    with torch.autograd.forward_ad.dual_level():
        q = torch.autograd.forward_ad.make_dual(x[0], x[0])
        with pytest.raises((NotImplementedError, RuntimeError), match=r"(?i)forward|jvp"):
            olsq.torch.linear(q, q, q)


@OWN_WARNINGS
def test_compile_breaks_the_graph_around_the_call():
    def f(x):
        y = x.sin()
        return olsq.torch.linear(y, y, y)[0].cos()

    x = torch.randn(1, 4, 1, 2, requires_grad=True)
    torch.testing.assert_close(torch.compile(f, backend="eager")(x), f(x))
    torch.compiler.reset()
    with pytest.raises(Exception, match="TorchDynamo cannot trace"):
        torch.compile(f, backend="eager", fullgraph=True)(x)


def test_threads_of_the_backward_pass_have_64_bits():
    from concurrent.futures import ThreadPoolExecutor

    given = [x.requires_grad_() for x in streams()]
    value = olsq.torch.online_lstsq(*given, ridge=1.0).value
    with ThreadPoolExecutor(1) as pool:
        pool.submit(value.sum().backward).result()
    assert given[0].grad.dtype == torch.float64


def test_only_olsq_torch_imports_torch():
    code = "import sys, olsq, olsq.attention, olsq.nn, olsq.compiled; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_checkpointed_training_has_the_same_gradients(reentrant, autocast):
    from torch.utils.checkpoint import checkpoint

    keys, values, queries = (x.requires_grad_() for x in streams(torch.float32))
    scale = torch.nn.Parameter(torch.ones(3))

    def solve(keys, values, queries):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            value = olsq.torch.online_lstsq(keys * scale, values, queries, ridge=0.5).value
            return olsq.torch.gated_delta(*(x[:, :, None] for x in (value,) * 3))[0]

    moving = keys, values, queries, scale
    plain = torch.autograd.grad((solve(keys, values, queries) ** 2).sum(), moving)
    again = checkpoint(solve, keys, values, queries, use_reentrant=reentrant)
    if reentrant:  # refuses autograd.grad
        (again**2).sum().backward()
        got = [x.grad for x in moving]
    else:
        got = torch.autograd.grad((again**2).sum(), moving)
    for a, b in zip(got, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)

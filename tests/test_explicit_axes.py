"""Arrays on a mesh with explicit axes: values, gradients and types of results, on two devices."""

from __future__ import annotations

import jax
import pytest

from tests.shard_map import on_two_devices

SETUP = """
import equinox as eqx, jax.numpy as jnp, olsq, olsq.nn
from attention_cases import ROWS, arrays_of, call, timed, window
from tests.versions import quick
jax.config.update("jax_enable_x64", True)
mesh = jax.make_mesh((2,), ("devices",), axis_types=(jax.sharding.AxisType.Explicit,))
ALONG = {"rows": P("devices"), "heads": P(None, None, "devices")}

def place(x, spec):
    return jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))

def loss(f):
    def summed(x):
        results = f(x)
        return jnp.sin(jax.tree.leaves(results)[0]).sum(), results
    return jax.value_and_grad(summed, has_aux=True)

def rules(names=None):
    for row in ROWS:
        if names is None or row.name in names:
            arrays = window(row, arrays_of(row)[0], 9)
            for along, spec in ALONG.items():
                of = {n: spec if n in timed(row, arrays) else P() for n in arrays}
                of = {n: P(*spec[: arrays[n].ndim]) for n, spec in of.items()}
                placed = {n: place(x, of[n]) for n, x in arrays.items()}
                yield f"{row.name} {along}", lambda x, row=row: call(row, x), placed, arrays, spec
"""

VALUES = """
def check(name, got, want):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=name)

compared = {"gla rows", "gla heads", "mesa rows", "softmax heads"}
programs, wanted = {}, {}
for name, f, placed, arrays, spec in rules({"gla", "mesa", "softmax"}):
    if name not in compared:
        continue
    rule = name.split()[0]
    program = programs.setdefault(rule, quick(loss(f)))
    want = wanted[rule] = wanted.get(rule) or program(arrays)
    if rule == "gla":
        check(name, program(placed), want)
    with jax.set_mesh(mesh):
        (_, (output, state)), grads = program(placed)
    check(name, ((_, (output, state)), grads), want)
    assert tuple(jax.typeof(output).sharding.spec)[: len(spec)] == tuple(spec), name
    assert jax.typeof(grads["v"]).sharding == jax.typeof(placed["v"]).sharding, name
    print("equal", name)

def decode(x):
    fit = olsq.online_lstsq(x, x, x, ridge=0.1, forget=0.9)
    state = olsq.sequence.start_decoding(fit.state, ridge=0.1)
    state = olsq.update(state, x[:, 0], x[:, 1], forget=0.9)
    nearby = olsq.local_lstsq(x, x, x, ridge=0.1).value
    return fit.value, olsq.query(state, x[:, 2]), nearby

x = np.random.default_rng(0).normal(size=(2, 9, 3))
want = quick(decode)(jnp.asarray(x))
assert [y.shape for y in want] == [(2, 9, 3), (2, 3), (2, 9, 3)]
check("free", quick(decode)(place(x, P("devices"))), want)
check("eager", olsq.online_lstsq(*[place(x, P("devices"))] * 3, ridge=0.1, forget=0.9)[0], want[0])
"""

TYPES = """
def traced(name, f, x):
    try:
        jax.eval_shape(loss(f), x)
        with jax.set_mesh(mesh):
            jax.eval_shape(loss(f), x)
    except Exception as error:
        error.add_note(name)
        raise

for name, f, placed, _, _ in rules():
    traced(name, f, placed)
x = place(np.ones((2, 9, 8)), P("devices"))
for name in olsq.nn.MIXERS:
    traced(name, olsq.nn.mixer(name, 8, heads=2, key=jax.random.key(0)), x)
tokens = place(np.zeros((2, 9), int), P("devices"))
model = olsq.nn.LanguageModel(16, dim=8, blocks=1, heads=2, mixer="mesa", key=jax.random.key(0))
for spec in (P(), P("devices")):
    weights, others = eqx.partition(model, eqx.is_inexact_array)
    weights = jax.tree.map(lambda w: place(w, spec if len(w) % 2 == 0 else P()), weights)
    traced(f"model {spec}", lambda w: eqx.combine(w, others)(tokens), weights)
"""

needs_explicit_axes = pytest.mark.skipif(
    not hasattr(jax.sharding, "use_abstract_mesh"), reason="explicit axes are whole since jax 0.7"
)


@pytest.mark.full
@needs_explicit_axes
def test_values_and_gradients():
    assert on_two_devices(SETUP + VALUES).count("equal") == 4


@pytest.mark.slow
@needs_explicit_axes
def test_all_rules_and_layers_are_traced():
    on_two_devices(SETUP + TYPES)

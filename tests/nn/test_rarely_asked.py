"""Members and refusals of rules and layers that no other test asks."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from olsq import attention, nn
from olsq.nn.gated import Gated

pytestmark = pytest.mark.usefixtures("one_target")

KEY = jax.random.key(0)
RNG = np.random.default_rng(2)
X = RNG.normal(size=(1, 3, 8)).astype(np.float32)


def caches():
    keys, values = RNG.normal(size=(2, 1, 2, 4, 3)).astype(np.float32)
    present, length = np.arange(4) < np.array([[[2], [2]]]), np.full((1, 2), 2, np.int32)
    logs = RNG.normal(size=(1, 2, 4)).astype(np.float32)
    yield attention.KeyValues(keys, values, present, length)
    yield attention.ForgettingKeyValues(keys, values, logs, present, length)


@pytest.mark.parametrize("cache", list(caches()), ids=lambda c: type(c).__name__)
def test_a_cache_grows_and_does_not_shrink(cache):
    with pytest.raises(ValueError, match="capacity must be at least 4, got 3"):
        cache.grown(3)
    for old, new in zip(cache[:-1], cache.grown(6)[:-1], strict=True):
        assert new.shape[2] == 6
        np.testing.assert_array_equal(new[:, :, :4], old)
        assert not np.asarray(new[:, :, 4:]).any()  # nobody is there
    np.testing.assert_array_equal(cache.grown(4).length, cache.length)


@pytest.mark.full
def test_a_network_that_learns_starts_somewhere():
    x = X[..., None, :2]
    w = RNG.normal(size=(1, 4, 2)).astype(np.float32)
    start = (w, np.zeros((1, 4)), w.swapaxes(1, 2), np.zeros((1, 2)))
    given = {"learning_rate": 0.1, "mini_batch": 2}
    with pytest.raises(ValueError, match="initial is needed"):
        attention.ttt_mlp(x, x, -x, **given)
    _, state = attention.ttt_mlp(x, x, -x, initial=start, **given)
    with pytest.raises(ValueError, match="initial is needed"):  # its second segment begins
        attention.ttt_mlp(x, x, -x, state=state, segment_ids=np.array([[0, 0, 1]]), **given)
    # Where it began is in the state: it may be left out, and whatever it is does not matter.
    went_on = attention.ttt_mlp(x, x, -x, state=state, **given)
    other = tuple(7 * part for part in start)
    again = attention.ttt_mlp(x, x, -x, state=state, initial=other, **given)
    jax.tree.map(np.testing.assert_array_equal, went_on, again)


def layer(name, **options):
    return nn.mixer(name, 8, heads=2, key=KEY, **options)


def test_what_has_no_report_says_none():
    report = jax.eval_shape(lambda x: layer("mesa").diagnose(x, 1), X)
    assert report.condition.shape == (1, 3, 2)
    assert layer("mesa", signed=True).diagnose(X, 1) is None
    discounted = layer("mesa_discounted")
    assert discounted.diagnose(X, 1) is None
    state = jax.eval_shape(lambda x: discounted(x, state=None)[1], X)
    assert discounted.start_decoding(state) is state  # it has no cheaper form
    assert discounted.room(state) == (0, 0)  # nothing grows
    model = nn.MesaNet(16, dim=8, blocks=1, heads=2, key=KEY)
    with pytest.raises(ValueError, match="every must be an integer >= 1, got 0"):
        nn.diagnose(model, np.array([[1, 2]]), every=0)


def test_gates_that_are_left_out():
    o = RNG.normal(size=(1, 3, 2, 4)).astype(np.float32)
    assert layer("kda", output_gate=False).gate_outputs(o, X) is o
    gated = layer("kda")
    gates = np.asarray(gated.gate_outputs(np.ones_like(o), X))
    assert ((gates > 0) & (gates < 1)).all()
    np.testing.assert_allclose(gated.gate_outputs(o, X), o * gates, rtol=1e-6)
    weights = np.asarray(layer("kalman").arguments(X)["weight"])
    plain = Gated.arguments(layer("kalman"), X)["weight"]
    np.testing.assert_allclose(weights, np.asarray(plain) ** 2, rtol=1e-6)
    assert "weight" not in layer("kalman", weighted=False).arguments(X)
    unturned = layer("mamba3", angles=0)
    assert set(unturned.arguments(X)) == {"log_forget", "weight", "trapezoid"}
    for name, options, message in (
        ("rwkv7", {"output_gate": True}, "leave output_gate out: RWKV7"),
        ("gla", {"signed": True, "forget_speed": True}, "give forget_speed=False with signed=True"),
        ("gated_delta", {"weighted": False, "negative_eigenvalues": True},
         "negative_eigenvalues=True needs write gates: pass weighted=True"),
        ("mamba3", {"angles": 3}, r"angles must lie in \[0, 2\], one for each pair .* got 3"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            layer(name, **options)


def test_gates_and_weights_have_one_entry_for_each_slot_or_level():
    x = X[:, :, None]
    with pytest.raises(ValueError, match=r"forget must have a gate for each slot, .*\(1, 3, 1\)"):
        attention.gsa(x, x, x, forget=np.ones((1, 3, 1)))
    for given in (np.ones((1, 3, 1)), np.ones((1, 3, 1, 0))):
        with pytest.raises(ValueError, match="level_weight must have a weight for each level"):
            attention.log_linear_mamba2(x, x, x, level_weight=given)
    with pytest.raises(ValueError, match=r"bonus must have shape \(1, 8\), got \(1, 7\)"):
        attention.rwkv6(x, x, x, bonus=np.ones((1, 7)))


def test_softmax_layers_between_others_are_not_read():
    arrays = {"model.layers.0.attn.q_proj.weight": np.zeros((8, 8))}
    with pytest.raises(ValueError, match=r"between others \(config\.attn\) cannot be read"):
        nn.from_fla(arrays, config={"attn": {"layers": [1]}})


def test_names_of_mixers_keep_their_meaning(monkeypatch):
    class Own(nn.GLA):
        def __init__(self, dim, **options):
            raise TypeError("of its own making")

    before = dict(nn.MIXERS)
    with pytest.raises(TypeError, match=r"kind must be a subclass of olsq\.nn\.Mixer, got 'gla'"):
        nn.register_mixer("own", "gla")
    with pytest.raises(TypeError, match="kind must be a subclass"):
        nn.register_mixer("own", dict)
    with pytest.raises(ValueError, match="mixer 'gla' is GLA already; choose another name"):
        nn.register_mixer("gla", Own)
    assert before == nn.MIXERS
    monkeypatch.setitem(nn.MIXERS, "own", Own)
    nn.register_mixer("own", Own)  # again the same: nothing to say
    with pytest.raises(TypeError, match="of its own making"):  # not taken for a wrong option
        layer("own")


def test_lower_bounds_of_gates_are_told_by_the_weights_of_a_model():
    names = [f"model.layers.0.attn.{n}_proj.weight" for n in ("q", "f", "i", "o")]
    arrays = {name: np.zeros((8, 8)) for name in names} | {"model.lower_bounds": np.zeros((1, 8))}
    with pytest.raises(ValueError, match=r"use_lower_bound=True has no counterpart .*HGRN2"):
        nn.from_fla(arrays, config={"model_type": "hgrn2", "expand_ratio": 4})

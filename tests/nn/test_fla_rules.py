"""Layers of flash-linear-attention, read and written, against its mathematics in NumPy."""

from __future__ import annotations

import equinox as eqx
import fla_reference as reference
import jax
import numpy as np
import pytest

import olsq.nn
from olsq.nn.kinds import named_arrays
from tests.versions import x64

pytestmark = pytest.mark.usefixtures("one_target")

NAMES = list(reference.LAYERS)


@pytest.fixture(autouse=True)
def double_precision():
    with x64(True):
        yield


def read(name, weights, **more):
    _, _, config = reference.LAYERS[name]
    kind = name.split(",")[0]
    return olsq.nn.from_fla(
        weights, config={"model_type": kind, "norm_eps": reference.EPS, **config, **more}
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_outputs_and_round_trip(name):
    rng = np.random.default_rng(NAMES.index(name))
    weights, x = reference.weights(name, rng), rng.normal(size=(2, 7, reference.DIM))
    layer = read(name, weights)
    want = np.stack([reference.output(name, row, weights) for row in x])
    np.testing.assert_allclose(eqx.filter_jit(layer)(x), want, rtol=1e-9, atol=1e-10)

    again, config = olsq.nn.to_fla(layer)
    assert again.keys() == weights.keys()
    for key, value in weights.items():
        np.testing.assert_array_equal(again[key], value, key)
    third = olsq.nn.from_fla(again, config=config)
    assert jax.tree.structure(third) == jax.tree.structure(layer)
    for key, value in named_arrays(layer).items():
        np.testing.assert_array_equal(named_arrays(third)[key], value, key)


@pytest.mark.full
def test_a_model_of_mamba3_whose_heads_share_keys():
    """Keys of a group come back once for each head; blocks have no MLPs, names are others."""
    rng = np.random.default_rng(8)
    shapes = reference.space(1, 1)
    own = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    weights = {f"backbone.layers.0.mixer.{name}": x for name, x in own.items()}
    embedding, head = rng.normal(size=(2, 11, reference.DIM))
    weights |= {"backbone.embeddings.weight": embedding, "lm_head.weight": head}
    scale, last = rng.normal(size=(2, reference.DIM))
    weights |= {"backbone.layers.0.norm.weight": scale, "backbone.norm_f.weight": last}
    tokens = rng.integers(0, 11, 7)
    x = embedding[tokens]
    x = x + reference.mamba3(reference.rms(x, scale), own, {"n_groups": 1})
    want = reference.rms(x, last) @ head.T

    model = olsq.nn.from_fla(weights, config={"norm_eps": reference.EPS})
    run = eqx.filter_jit(lambda model: model(tokens[None])[0])
    np.testing.assert_allclose(run(model), want, rtol=1e-9, atol=1e-9)
    again, config = olsq.nn.to_fla(model)
    assert config["architectures"] == ["Mamba3ForCausalLM"]
    assert config["n_groups"] == reference.HEADS
    assert "intermediate_size" not in config
    theirs = again.pop("backbone.layers.0.mixer.in_proj.weight")
    assert theirs.shape == reference.space(reference.HEADS, 1)["in_proj.weight"]
    for name, value in again.items():
        np.testing.assert_array_equal(value, weights[name], name)
    again["backbone.layers.0.mixer.in_proj.weight"] = theirs
    third = olsq.nn.from_fla(again, config=config)
    for key, value in named_arrays(model).items():
        np.testing.assert_array_equal(named_arrays(third)[key], value, key)


def test_without_a_configuration():
    rng = np.random.default_rng(20)
    for name, kind in (
        ("gla", olsq.nn.GLA),
        ("retnet", olsq.nn.Retention),
        ("delta_net", olsq.nn.Delta),
        ("gated_deltanet", olsq.nn.GatedDelta),
        ("kda", olsq.nn.KDA),
        ("gdn2", olsq.nn.GatedDelta2),
        ("precond_gated_deltanet", olsq.nn.PreconditionedGatedDelta),
        ("precond_kda", olsq.nn.PreconditionedKDA),
        ("forgetting_transformer", olsq.nn.Forgetting),
        ("mamba3", olsq.nn.Mamba3),
    ):
        assert type(olsq.nn.from_fla(reference.weights(name, rng))) is kind


def model_of(mixer, options=None, **more):
    given = {"dim": 8, "blocks": 1, "heads": 2, "soft_cap": None, **more}
    options = {mixer: options or {}} if isinstance(mixer, str) else options
    return olsq.nn.LanguageModel(
        11, mixer=mixer, mixer_options=options, key=jax.random.key(3), **given
    )


def varied(tree, seed=0):
    """The same with random numbers in all weights."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape), tree)


RETENTION = {
    "normalise": False, "feature_map": "identity", "convolution": False, "rope_base": 10000.0,
    "norm_eps": 4e-6,
}  # fmt: skip


@pytest.mark.full
def test_a_model_with_scales_per_head_and_scaled_embeddings():
    """Scales that have no place in the other format move elsewhere, and the logits stay."""
    model = varied(model_of("retention", RETENTION, dtype="float64"))
    weights, config = olsq.nn.to_fla(model)
    assert config["architectures"] == ["RetNetForCausalLM"]
    assert not config["tie_word_embeddings"]
    np.testing.assert_array_equal(weights["model.layers.0.attn.g_norm.weight"], np.ones(4))
    np.testing.assert_array_equal(weights["lm_head.weight"], model.embedding)
    again = olsq.nn.from_fla(weights, config=config)
    tokens = np.arange(6)[None] % 11
    run = eqx.filter_jit(lambda model: model(tokens))
    np.testing.assert_allclose(run(again), run(model), rtol=1e-9, atol=1e-9)


@pytest.mark.full
def test_rotated_retention_goes_on_from_a_state():
    name = "retnet"
    weights = reference.weights(name, np.random.default_rng(4))
    layer, x = read(name, weights), np.random.default_rng(5).normal(size=(1, 6, reference.DIM))
    run = eqx.filter_jit(lambda x, state: layer(x, state=state))
    state, rows = run(x[:, :0], None)[1], []
    for at in (0, 2, 4):
        y, state = run(x[:, at : at + 2], state)
        rows.append(y[0])
    want = reference.output(name, x[0], weights)
    np.testing.assert_allclose(np.concatenate(rows), want, rtol=1e-9, atol=1e-10)


def test_a_layer_without_a_speed_has_speed_one():
    options = {"value_map": "silu", "strength_bias": False, "convolve_values": True}
    layer = olsq.nn.GatedDelta(8, heads=2, key=jax.random.key(0), **options)
    weights, _ = olsq.nn.to_fla(layer)
    np.testing.assert_array_equal(weights["A_log"], [0, 0])


def layer_of(kind, **options):
    return kind(8, heads=2, key=jax.random.key(0), **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layer_of(olsq.nn.GatedDelta), r"value_map is 'identity', not 'silu'"),
        (lambda: layer_of(olsq.nn.GatedDelta), r"strength\.project\.bias has no place there"),
        (lambda: layer_of(olsq.nn.GLA), r"vector is missing"),
        (lambda: layer_of(olsq.nn.Softmax, key_size=3), "6 and 6 wide together, not 8"),
        (lambda: layer_of(olsq.nn.Softmax, rope_base=None), "rope_theta must be a number"),
        (lambda: layer_of(olsq.nn.Parallax), r"rope_base is 10000\.0, not None"),
        (lambda: layer_of(olsq.nn.Parallax, rope_base=None, scale=2.0), r"scale is 2\.0, not None"),
        (lambda: layer_of(olsq.nn.LocalLinear), "LocalLinear has no counterpart"),
        (lambda: layer_of(olsq.nn.LinearAttention), "feature_map must be 'elu' or 'identity', got"),
        (lambda: layer_of(olsq.nn.Mesa, forget_bound=None, value_size=3), "value_size 3, not key"),
        (lambda: layer_of(olsq.nn.Comba), "Comba has no counterpart: there, queries"),
        (lambda: layer_of(olsq.nn.RWKV7), "RWKV7 has no counterpart.*those that have are Delta"),
        (lambda: model_of("retention", soft_cap=30.0), r"soft_cap=30\.0 \(make it with"),
        (lambda: model_of(("gla", "mesa"), {}, blocks=2), r"several kinds \(GLA, Mesa\)"),
        (lambda: model_of("retention", RETENTION, mlp_ratio=0), "blocks without an MLP"),
        (lambda: model_of("retention", {**RETENTION, "norm_eps": 1e-6}), r'"norm_eps": 4e-06'),
        (lambda: layer_of(olsq.nn.GSA), "joint_norm is False, not True"),
        (lambda: layer_of(olsq.nn.GSA, joint_norm=True, value_size=3), "6 wide together, not 8"),
        (lambda: layer_of(olsq.nn.Mamba3, angles=0), r"rope_fraction=0\.0 has no counterpart"),
        (lambda: layer_of(olsq.nn.Mamba3, output_gate=False), "output_gate is missing"),
        (lambda: model_of("mamba3"), r"MLPs \(give mlp_ratio=0\)"),
        (lambda: layer_of(olsq.nn.LogLinearMamba2), "LogLinearMamba2 has no counterpart"),
        (lambda: 3, "must be a layer of olsq.nn or a LanguageModel, got a int"),
    ],
)
def test_what_cannot_be_written(make, message):
    with pytest.raises(ValueError, match=message):
        olsq.nn.to_fla(make())


WEIGHTS = {n: reference.weights(n, np.random.default_rng(6)) for n in NAMES}


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("gla", {"model_type": "mamba2"}, "model_type 'mamba2'.*has no counterpart here; .*kda"),
        ("gla", {"model_type": "comba"}, "Comba has no counterpart"),
        ("gla", {"num_heads": 2, "num_kv_heads": 1}, "num_kv_heads 1 is not num_heads 2"),
        ("kda", {"num_heads": 2, "num_v_heads": 4}, "num_v_heads 4 is not num_heads 2"),
        ("gated_deltanet", {"num_heads": 2, "num_v_heads": 4}, "num_v_heads must be the 2 heads"),
        ("gated_deltanet, shared keys", {"num_heads": 2}, "num_heads 2, not 4"),
        ("gated_deltanet, shared keys", {"num_heads": 3, "num_v_heads": 4}, "a multiple of num_h"),
        ("gla", {"clamp_min": 0.1}, "clamp_min=0.1 has no counterpart in olsq.nn.GLA.*None"),
        ("gla", {"model_type": "kda"}, "b_proj.weight is missing"),
        ("delta_net", {"qk_norm": "sum"}, "qk_norm='sum'.*that of 'l2'"),
        ("linear_attn", {}, "feature_map must be 'elu' or 'identity', got"),
        ("hgrn2", {}, "do not show its number of heads: pass config={'expand_ratio'"),
        ("hgrn2", {"expand_ratio": 4, "use_lower_bound": True}, "use_lower_bound=True"),
        ("parallax", {"num_heads": 2, "qk_norm": True}, "qk_norm=True has no counterpart"),
        ("parallax", {}, "do not show its number of heads: pass config={'num_heads'"),
        ("transformer", {}, "do not show its number of heads: pass config={'num_heads'"),
        ("gated_deltaproduct", {}, "config must give allow_neg_eigval"),
        ("gsa", {}, "do not show its number of heads: pass config={'num_heads'"),
        ("gsa", {"num_heads": 4}, "as many rows for each head, 4"),
        ("gsa", {"num_heads": 2, "use_short_conv": True}, "use_short_conv=True has no counterpart"),
        ("mamba3", {"is_mimo": True}, "is_mimo=True has no counterpart"),
        ("mamba3", {"rope_fraction": 1.0}, r"rope_fraction=1\.0, but the weights have 0\.5"),
        ("mamba3", {"head_dim": 4}, "head_dim 4, not 3"),
        ("mamba3, normed", {"is_outproj_norm": False}, "is_outproj_norm False, not True"),
    ],
)
def test_what_cannot_be_read(name, config, message):
    with pytest.raises(ValueError, match=message):
        olsq.nn.from_fla(WEIGHTS[name], config=config)


def test_logits_of_a_model():
    name, rng = "gated_deltanet", np.random.default_rng(7)
    dim, width, at = reference.DIM, 5, "model.layers.0."
    own = reference.weights(name, rng)
    shapes = {"gate_proj": (width, dim), "up_proj": (width, dim), "down_proj": (dim, width)}
    mlp = {f"mlp.{n}.weight": rng.normal(size=shape) for n, shape in shapes.items()}
    embedding, head = rng.normal(size=(2, 11, dim))
    scales = {f"{at}{n}_norm.weight": rng.normal(size=dim) for n in ("attn", "mlp")}
    weights = {"model.embeddings.weight": embedding, "lm_head.weight": head, **scales}
    weights |= {f"{at}attn.{n}": x for n, x in own.items()}
    weights |= {f"{at}{n}": x for n, x in mlp.items()}
    weights["model.norm.weight"] = rng.normal(size=dim)
    tokens = rng.integers(0, 11, 7)

    x = embedding[tokens]
    x = x + reference.output(name, reference.rms(x, scales[f"{at}attn_norm.weight"]), own)
    y = reference.rms(x, scales[f"{at}mlp_norm.weight"])
    y = reference.silu(reference.linear(y, mlp, "mlp.gate_proj")) * (
        reference.linear(y, mlp, "mlp.up_proj")
    )
    x = x + reference.linear(y, mlp, "mlp.down_proj")
    want = reference.rms(x, weights["model.norm.weight"]) @ head.T

    model = read(name, weights, num_hidden_layers=1)
    logits = eqx.filter_jit(lambda tokens: model(tokens))(tokens[None])
    np.testing.assert_allclose(logits[0], want, rtol=1e-9, atol=1e-9)
    # Their models' convolutions have no biases.
    with pytest.raises(ValueError, match="their models make layers with conv_bias=False"):
        olsq.nn.to_fla(model)
    plain = {n: x for n, x in weights.items() if "conv1d.bias" not in n}
    again, _ = olsq.nn.to_fla(read(name, plain))
    assert again.keys() == plain.keys()
    for key, value in plain.items():
        np.testing.assert_array_equal(again[key], value, key)

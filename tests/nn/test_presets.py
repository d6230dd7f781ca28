"""Named sizes and models of the papers: counts by formula, and that they run."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn_cases import (
    quick,
)

import olsq
from olsq import nn
from olsq.nn.gated import Gated

pytestmark = pytest.mark.usefixtures("one_target")

GPT2 = 50257
COMPARED = ("softmax", "mamba2", "gla", "mlstm", "delta", "gated_delta", "mesa")


def shape_of(size, **options):
    return eqx.filter_eval_shape(lambda: nn.preset(size, key=jax.random.key(0), **options))


def mesa_count(vocabulary, dim, blocks, heads, key):
    """Embedding; q, k, v, out; taps; two gates; ridge; norms; MLP; the last norm."""
    wide = heads * key
    layer = 4 * dim * wide + 4 * 2 * wide + 2 * (dim * heads + heads) + wide + wide
    return vocabulary * dim + blocks * (layer + 9 * dim * dim + 2 * dim) + dim


@pytest.mark.full
@pytest.mark.parametrize("size", nn.PRESETS)
def test_sizes_have_the_parameters_of_their_names(size):
    p = nn.PRESETS[size]
    want = mesa_count(GPT2, p["dim"], p["blocks"], p["heads"], p["key_size"])
    count = nn.count_parameters(shape_of(size))
    assert count == want
    if size in ("140m", "440m", "940m"):
        assert count == pytest.approx(float(size[:-1]) * 1e6, rel=0.05)
    else:  # these are named without their embedding: texts are cut in bytes
        assert nn.count_parameters(shape_of(size, vocab_size=256)) == pytest.approx(
            float(size[:-1]) * 1e6, rel=0.2
        )


def test_sizes_of_the_paper():
    sizes = [tuple(nn.PRESETS[n].values()) for n in ("140m", "440m", "940m")]
    assert sizes == [(768, 14, 6, 128), (1024, 28, 8, 128), (1536, 28, 12, 128)]
    assert list(nn.PRESETS["140m"]) == ["dim", "blocks", "heads", "key_size"]


def test_compared_models_have_the_same_size():
    mesa = nn.count_parameters(shape_of("140m"))
    for mixer in COMPARED:
        assert nn.count_parameters(shape_of("140m", mixer=mixer)) == pytest.approx(mesa, rel=0.002)
    for mixer in ("hawk", ("hawk", "mesa")):
        assert nn.count_parameters(shape_of("140m", mixer=mixer)) == pytest.approx(mesa, rel=0.02)


def test_options_override_a_size():
    model = nn.preset("1m", vocab_size=7, mixer="gla", blocks=1, mlp_ratio=0, key=jax.random.key(0))
    assert [type(m) for m in nn.mixers_of(model)] == [nn.GLA]
    assert model.embedding.shape == (7, 128)
    with pytest.raises(ValueError, match=r"unknown size '7b'; known are 1m, 5m, 140m, 440m, 940m"):
        nn.preset("7b", key=jax.random.key(0))


def test_models_of_the_paper_start_as_the_paper_has_it():
    sizes = {"dim": 16, "blocks": 1, "heads": 2, "key": jax.random.key(0)}
    makers = nn.MesaNet, nn.hawk_mesa, nn.state_tracking, nn.thesis_hybrid, nn.LanguageModel
    scales = {m.__name__: float(m(9, **sizes).backbone.norm.scale[0]) for m in makers}
    assert scales == {"MesaNet": 1.0, "hawk_mesa": 1.0, "state_tracking": 1.0,
                      "thesis_hybrid": 0.25, "LanguageModel": 0.25}  # fmt: skip
    assert nn.MesaNet(9, initialisation="calibrated", **sizes).backbone.norm.scale[0] == 0.25


def gates_at_the_start(model):
    """Forget gates of Mesa layers for a token of zeros, without the bound."""
    layers = [m for m in nn.mixers_of(model) if isinstance(m, nn.Mesa)]
    gates = [jax.nn.sigmoid(m.forget.project.bias) for m in layers]
    return np.unique(np.array(gates, float).round(4)).tolist()


def test_gates_start_where_recall_is_learned_and_where_the_paper_has_them():
    sizes = {"dim": 16, "blocks": 2, "heads": 2, "key": jax.random.key(0)}
    makers = nn.LanguageModel, nn.MesaNet, nn.hawk_mesa, nn.state_tracking
    starts = {m.__name__: gates_at_the_start(m(9, **sizes)) for m in makers}
    assert starts == {"LanguageModel": [0.99], "MesaNet": [0.5], "hawk_mesa": [0.5],
                      "state_tracking": [0.5]}  # fmt: skip
    own = {"mixer_options": {"mesa": {"forget_bias": 2.0}}}
    for make in makers[1:]:
        assert gates_at_the_start(make(9, **sizes, **own)) == [0.8808]
    assert nn.mixers_of(nn.state_tracking(9, **sizes, **own))[0].signed


LATE = "mesa_discounted"  # gates above .99, which its ridge needs


@pytest.mark.full
@pytest.mark.parametrize(
    "mixer", [n for n, kind in nn.MIXERS.items() if issubclass(kind, (Gated, nn.Forgetting))]
)
def test_gated_layers_share_one_start_and_the_papers_are_an_option(mixer):
    def gates(**options):
        layer = nn.mixer(mixer, 8, heads=64, key_size=2, key=jax.random.key(0), **options)
        given = layer.arguments(jnp.zeros((1, 1, 8)))
        gates = np.exp(given["log_forget"][0, 0])
        if mixer == "momentum_delta":  # its gates are bounded by its steps
            gates = gates * (1 + (np.exp(layer.bound) * given["weight"][0, 0]) ** 2)
        return gates

    bound = {"forget_bound": None} if issubclass(nn.MIXERS[mixer], Gated) else {}
    np.testing.assert_allclose(gates(**bound), 0.9975 if mixer == LATE else 0.99, rtol=1e-5)
    floor = 0.99 if mixer == LATE else 0.0
    half = gates(forget_bias=0.0, **bound)  # MesaNet's, of all rules that it compares
    np.testing.assert_allclose(half, floor + (1 - floor) / 2, rtol=1e-5)
    if bound and mixer != LATE:
        # Mamba-2's: exp(-A dt), A uniform in [1, 16] and dt log-uniform in [.001, .1]
        spread = np.quantile(gates(forget_speed=True, **bound), [0.0, 0.5, 1.0])
        assert np.all(np.exp([-1.6, -0.3, -0.02]) < spread)
        assert np.all(spread < np.exp([-0.5, -0.02, -0.001]))


def runs(model):
    tokens = np.array([[3, 1, 4, 1, 5]])
    logits = np.asarray(quick(lambda t: model(t))(tokens))
    assert logits.shape == (1, 5, 9)
    assert np.isfinite(logits).all()
    return [type(m) for m in nn.mixers_of(model)]


SMALL = {"vocab_size": 9, "dim": 8, "heads": 2, "key": jax.random.key(0)}


@pytest.mark.full
def test_mesanet():
    model = nn.MesaNet(**SMALL, blocks=1, solver=olsq.ConjugateGradient(max_steps=4))
    assert runs(model) == [nn.Mesa]
    assert model.backbone.blocks[0].mixer.solver.max_steps == 4


@pytest.mark.full
def test_hawk_mesa():
    model = eqx.filter_eval_shape(lambda: nn.hawk_mesa(**SMALL, blocks=5))
    assert [type(m) for m in nn.mixers_of(model)] == [nn.Hawk, nn.Mesa, nn.Hawk, nn.Mesa, nn.Hawk]
    assert runs(nn.hawk_mesa(**SMALL, blocks=2)) == [nn.Hawk, nn.Mesa]


@pytest.mark.full
def test_state_tracking():
    model = nn.state_tracking(**SMALL, blocks=1)
    assert runs(model) == [nn.Mesa]
    layer = model.backbone.blocks[0].mixer
    assert layer.signed
    assert layer.ridge.floor == 49
    assert np.asarray(layer.ridge()) == pytest.approx(50, rel=1e-5)
    gates = layer.arguments(np.random.default_rng(0).normal(size=(1, 50, 8)).astype(np.float32))
    assert gates["forget"].min() < -0.5
    assert gates["forget"].max() > 0.5


@pytest.mark.parametrize(("blocks", "shifted"), [(1, ("key",)), (2, ()), (3, ())])
def test_the_hybrid_of_the_thesis_shifts_keys_where_no_softmax_layer_does(blocks, shifted):
    model = eqx.filter_eval_shape(lambda: nn.thesis_hybrid(**SMALL, blocks=blocks, nu=3))
    first = nn.Mesa if blocks == 1 else nn.Softmax
    assert [type(m) for m in nn.mixers_of(model)] == [first, *[nn.Mesa] * (blocks - 1)]
    last = nn.mixers_of(model)[-1]
    assert (last.convolution is None) == (blocks > 1)
    assert (last.convolved, last.feature_map, last.nu) == (shifted, "dpfp", 3)


@pytest.mark.full
def test_the_hybrid_of_the_thesis():
    model = nn.thesis_hybrid(**SMALL, blocks=3, nu=3, mixer="linear")
    assert runs(model) == [nn.Softmax, nn.LinearAttention, nn.LinearAttention]
    layer = model.backbone.blocks[1].mixer
    assert (layer.feature_map, layer.nu, layer.mapped_size) == ("dpfp", 3, 2 * 3 * 4)
    assert layer.convolution is None
    alone = nn.thesis_hybrid(**SMALL, blocks=1, mixer="mesa_discounted")
    assert runs(alone) == [nn.MesaDiscounted]
    assert alone.backbone.blocks[0].mixer.convolved == ("key",)
    assert alone.backbone.blocks[0].mixer.feature_map == "identity"
    plain = eqx.filter_eval_shape(lambda: nn.thesis_hybrid(**SMALL, blocks=2))
    assert [type(m) for m in nn.mixers_of(plain)] == [nn.Softmax, nn.Mesa]

"""Weights of flash-linear-attention's MesaNet, against its mathematics written out in NumPy."""

from __future__ import annotations

import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import olsq
import olsq.nn
from olsq.nn.fla.reading import TYPES
from tests.versions import x64

pytestmark = pytest.mark.usefixtures("one_target")

DIM, HEADS, SIZE, WIDTH, HIDDEN, VOCABULARY = 6, 2, 4, 4, 5, 9
INNER = HEADS * SIZE


@pytest.fixture(autouse=True)
def double_precision():
    with x64(True):
        yield


def layer_weights(rng, *, gate=False, bias=False, width=WIDTH):
    shapes = {f"{name}_proj.weight": (INNER, DIM) for name in ("qkvg" if gate else "qkv")}
    shapes |= {f"{name}_proj.weight": (HEADS, DIM) for name in "ab"}
    shapes |= {f"{name}_proj.bias": (HEADS,) for name in "ab"}
    shapes |= {f"{name}_conv1d.weight": (INNER, 1, width) for name in "qk"}
    if bias:
        shapes |= {f"{name}_conv1d.bias": (INNER,) for name in "qk"}
    shapes |= {"lambda_params": (INNER,), "o_norm.weight": (SIZE,), "o_proj.weight": (DIM, INNER)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def model_weights(rng, layers=2, *, tied=False, **options):
    weights = {"model.embeddings.weight": rng.normal(size=(VOCABULARY, DIM))}
    for i in range(layers):
        at = f"model.layers.{i}."
        weights |= {f"{at}attn.{k}": x for k, x in layer_weights(rng, **options).items()}
        weights[f"{at}attn_norm.weight"] = rng.normal(size=DIM)
        weights[f"{at}mlp_norm.weight"] = rng.normal(size=DIM)
        weights[f"{at}mlp.gate_proj.weight"] = rng.normal(size=(HIDDEN, DIM))
        weights[f"{at}mlp.up_proj.weight"] = rng.normal(size=(HIDDEN, DIM))
        weights[f"{at}mlp.down_proj.weight"] = rng.normal(size=(DIM, HIDDEN))
    weights["model.norm.weight"] = rng.normal(size=DIM)
    if not tied:
        weights["lm_head.weight"] = rng.normal(size=(VOCABULARY, DIM))
    return weights


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def rms(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def linear(x, weights, name):
    """PyTorch's Linear: weight (outputs, inputs)."""
    return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0)


def convolved(x, weights, name):
    """PyTorch's causal depthwise Conv1d: a cross-correlation, the last tap on the current token."""
    taps = weights[f"{name}.weight"]
    width = taps.shape[-1]
    padded = np.concatenate([np.zeros((width - 1, x.shape[1])), x])
    y = np.array([[np.dot(padded[t : t + width, c], taps[c, 0]) for c in range(x.shape[1])]
                  for t in range(len(x))])  # fmt: skip
    return silu(y + weights.get(f"{name}.bias", 0))


def layer(x, weights, *, eps=1e-5, bound=0.25):
    """MesaNet on one sequence (T, DIM), token by token, each solve exact."""
    q, k, v = (linear(x, weights, f"{name}_proj") for name in "qkv")
    q, k = convolved(q, weights, "q_conv1d"), convolved(k, weights, "k_conv1d")
    q, k, v = (z.reshape(-1, HEADS, SIZE) for z in (q, k, v))
    q, k = (z / np.sqrt(np.sum(z * z, -1, keepdims=True) + 1e-6) for z in (q, k))
    log_forget = -np.log1p(np.exp(-linear(x, weights, "a_proj")))
    beta = sigmoid(linear(x, weights, "b_proj"))
    ridge = (np.log1p(np.exp(weights["lambda_params"])) + bound).reshape(HEADS, SIZE)
    gram, moment = np.zeros((HEADS, SIZE, SIZE)), np.zeros((HEADS, SIZE, SIZE))
    outputs = np.zeros((len(x), HEADS, SIZE))
    for t in range(len(x)):
        for h in range(HEADS):
            forget = np.exp(log_forget[t, h])
            gram[h] = forget * gram[h] + beta[t, h] * np.outer(k[t, h], k[t, h])
            moment[h] = forget * moment[h] + beta[t, h] * np.outer(k[t, h], v[t, h])
            outputs[t, h] = np.linalg.solve(gram[h] + np.diag(ridge[h]), q[t, h]) @ moment[h]
    outputs = rms(outputs, weights["o_norm.weight"], eps)
    if "g_proj.weight" in weights:
        outputs = outputs * silu(linear(x, weights, "g_proj")).reshape(outputs.shape)
    return linear(outputs.reshape(len(x), INNER), weights, "o_proj")


def model(tokens, weights, layers=2, *, eps=1e-6, bound=0.25):
    x = weights["model.embeddings.weight"][tokens]
    for i in range(layers):
        at = f"model.layers.{i}."
        own = {k.removeprefix(at): z for k, z in weights.items() if k.startswith(at)}
        attn = {k.removeprefix("attn."): z for k, z in own.items() if k.startswith("attn.")}
        x = x + layer(rms(x, own["attn_norm.weight"], eps), attn, eps=eps, bound=bound)
        y = rms(x, own["mlp_norm.weight"], eps)
        y = silu(linear(y, own, "mlp.gate_proj")) * linear(y, own, "mlp.up_proj")
        x = x + linear(y, own, "mlp.down_proj")
    y = rms(x, weights["model.norm.weight"], eps)
    return y @ weights.get("lm_head.weight", weights["model.embeddings.weight"]).T


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "config"),
    [
        ({}, None),
        (
            {"gate": True, "bias": True, "width": 3},
            {"norm_eps": 0.1, "lambda_lower_bound": 2.0, "num_heads": 2},
        ),
    ],
    ids=["plain", "all options"],
)
def test_layer(shape, config):
    rng = np.random.default_rng(0)
    weights = layer_weights(rng, **shape)
    given = config or {}
    x = rng.normal(size=(2, 11, DIM))
    options = {"eps": given.get("norm_eps", 1e-5), "bound": given.get("lambda_lower_bound", 0.25)}
    want = np.stack([layer(row, weights, **options) for row in x])
    ours = olsq.nn.from_fla(weights, config=config)
    assert isinstance(ours, olsq.nn.Mesa)
    np.testing.assert_allclose(eqx.filter_jit(ours)(x), want, rtol=1e-9, atol=1e-9)


@pytest.mark.full
def test_layer_in_float32_token_by_token_and_with_their_solver():
    rng = np.random.default_rng(1)
    weights = layer_weights(rng, gate=True)
    x = rng.normal(size=(1, 6, DIM))
    want = layer(x[0], weights)
    with x64(False):
        ours = olsq.nn.from_fla(weights)
        assert ours.query_proj.weight.dtype == np.float32
        step = jax.jit(lambda x, state: ours(x, state=state))
        state, rows = None, []
        for t in range(6):
            y, state = step(x[:, t : t + 1].astype(np.float32), state)
            rows.append(y[0, 0])
        np.testing.assert_allclose(np.stack(rows), want, atol=2e-5)
        theirs = olsq.nn.with_solver(ours, olsq.ConjugateGradient(max_steps=30))
        y = eqx.filter_jit(theirs)(x.astype(np.float32))
        np.testing.assert_allclose(y[0], want, atol=1e-4)


@pytest.mark.full
def test_model(tmp_path):
    rng = np.random.default_rng(2)
    weights = model_weights(rng, gate=True)
    tokens = rng.integers(0, VOCABULARY, (2, 9))
    want = np.stack([model(row, weights) for row in tokens])
    ours = olsq.nn.from_fla(weights, config={"num_hidden_layers": 2, "vocab_size": VOCABULARY})
    np.testing.assert_allclose(eqx.filter_jit(ours)(tokens), want, rtol=1e-9, atol=1e-9)
    olsq.nn.save(tmp_path / "ours", ours)
    again = olsq.nn.load(tmp_path / "ours")
    assert jax.tree.structure(again) == jax.tree.structure(ours)


class Config:
    """Configuration of another library, which is read by its ``to_dict``."""

    def to_dict(self):
        return {
            "tie_word_embeddings": True, "norm_eps": 1e-2, "lambda_lower_bound": 1.0,
            "hidden_size": DIM, "intermediate_size": None, "hidden_act": "swish", "attn": None,
        }  # fmt: skip


@pytest.mark.full
def test_tied_model_in_float32():
    rng = np.random.default_rng(3)
    weights = model_weights(rng, layers=1, tied=True)
    tokens = rng.integers(0, VOCABULARY, (1, 7))
    want = model(tokens[0], weights, 1, eps=1e-2, bound=1.0)
    with x64(False):
        ours = olsq.nn.from_fla(weights, config=Config())
        assert ours.head is None
        assert ours.dtype == "float32"
        got = eqx.filter_jit(ours)(jnp.asarray(tokens, jnp.int32))
    np.testing.assert_allclose(got[0], want, rtol=1e-4, atol=1e-4)
    copied = {**weights, "lm_head.weight": weights["model.embeddings.weight"]}
    assert olsq.nn.from_fla(copied, config=Config(), dtype="bfloat16").dtype == "bfloat16"
    with pytest.raises(ValueError, match=r"lm_head\.weight differs"):
        olsq.nn.from_fla({**copied, "lm_head.weight": 0 * copied["lm_head.weight"]},
                         config=Config())  # fmt: skip


class Tensor:
    """As much of a PyTorch tensor as is asked of one; NumPy has no bfloat16 of its own there."""

    def __init__(self, array, dtype="torch.bfloat16"):
        self.array, self.dtype = array, dtype

    def detach(self):
        return self

    cpu = detach

    def float(self):
        return Tensor(self.array.astype(np.float32), "torch.float32")

    def numpy(self):
        assert self.dtype != "torch.bfloat16"
        return self.array


def test_sources_of_arrays():
    weights = layer_weights(np.random.default_rng(4))
    narrow = {name: x.astype(ml_dtypes.bfloat16) for name, x in weights.items()}
    wide = olsq.nn.from_fla({name: x.astype(np.float32) for name, x in narrow.items()})
    for source in (
        narrow,
        {name: jnp.asarray(x) for name, x in narrow.items()},
        {name: Tensor(x) for name, x in narrow.items()},
    ):
        ours = olsq.nn.from_fla(source)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(wide), strict=True):
            assert a.dtype == np.float32
            np.testing.assert_array_equal(a, b)
    doubles = olsq.nn.from_fla({name: Tensor(x, "torch.float64") for name, x in weights.items()})
    np.testing.assert_array_equal(doubles.query_proj.weight, weights["q_proj.weight"].T)


def without(weights, *names):
    return {name: x for name, x in weights.items() if name not in names}


RNG = np.random.default_rng(5)
LAYER, MODEL = layer_weights(RNG), model_weights(RNG)


@pytest.mark.parametrize(
    ("weights", "config", "message"),
    [
        ({}, None, "not the weights of a layer.*none"),
        ({"weight": np.ones(3)}, None, "not the weights of a layer.*they are weight"),
        (without(LAYER, "o_norm.weight", "b_proj.bias"), None,
         r"missing: o_norm\.weight, b_proj\.bias"),
        (without(LAYER, "q_proj.weight"), None, r"q_proj\.weight is missing"),
        (LAYER, {"use_output_gate": True}, r"missing: g_proj\.weight"),
        ({**LAYER, "d_proj.weight": np.ones(2)}, None, r"unknown: d_proj\.weight"),
        ({**LAYER, "v_proj.weight": np.ones((3, 2))}, None,
         r"shapes: v_proj\.weight \(3, 2\), not \(8, 6\)"),
        ({**LAYER, "a_proj.weight": np.ones((3, DIM))}, None, "8 rows, which 3 heads cannot share"),
        ({**LAYER, "q_conv1d.weight": np.ones((8, 4))}, None, "must have 3 axes"),
        ({**LAYER, "q_proj.weight": np.ones((8, 6), int)}, None, "floating-point, got int64"),
        (LAYER, {"num_heads": 4}, "config: num_heads 4, not 2"),
        (LAYER, [1], "config must be a mapping"),
        (without(MODEL, "lm_head.weight"), None, r"missing: lm_head\.weight \(config.*tie_word"),
        (without(MODEL, "model.embeddings.weight"), None, r"model\.embeddings\.weight is missing"),
        (MODEL, {"num_hidden_layers": 3}, r"missing: model\.layers\.2.* and 11 more"),
        (MODEL, {"num_hidden_layers": 1}, r"unknown: model\.layers\.1"),
        (MODEL, {"attn": {"layers": [1]}}, "softmax attention"),
        (MODEL, {"hidden_act": "gelu"}, "must be 'swish'"),
        (MODEL, {"vocab_size": 10}, "config: vocab_size 10, not 9"),
    ],
)  # fmt: skip
def test_weights_that_do_not_fit(weights, config, message):
    with pytest.raises(ValueError, match=message):
        olsq.nn.from_fla(weights, config=config)


def test_the_page_has_a_row_for_every_model_type():
    page = (Path(__file__).parents[2] / "docs" / "layers-interop.md").read_text()
    table = page.partition("| `model_type` there")[2].partition("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines()[2:]]
    assert {name for cell in first for name in re.findall(r"`(\w+)`", cell)} == set(TYPES)

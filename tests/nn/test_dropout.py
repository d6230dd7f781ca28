"""Dropout only in calls with a key; and what a weight is, as its layer says."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import olsq.nn
from olsq.nn.parts import dropout

pytestmark = pytest.mark.usefixtures("one_target")

SIZES = {"dim": 8, "blocks": 2, "heads": 2, "mixer": "gla", "mlp_ratio": 1.0}
TOKENS = np.random.default_rng(0).integers(0, 16, (2, 6))


def model(**options):
    return olsq.nn.LanguageModel(16, **{**SIZES, **options}, key=jax.random.key(0))


@pytest.mark.full
def test_dropout_needs_a_key_and_repeats_with_it():
    plain, dropped = model(), model(dropout=0.4)
    call = eqx.filter_jit(lambda model, key: model(TOKENS, key=key))
    want, key = call(plain, None), jax.random.key(1)
    np.testing.assert_array_equal(call(dropped, None), want)  # evaluation
    first = call(dropped, key)
    np.testing.assert_array_equal(call(dropped, key), first)
    assert np.abs(first - want).max() > 1e-3
    assert np.abs(call(dropped, jax.random.key(2)) - first).max() > 1e-3
    np.testing.assert_array_equal(call(plain, key), want)
    again = call(model(dropout=0.4, remat="full"), key)  # the same numbers are drawn once more
    np.testing.assert_allclose(again, first, rtol=1e-5, atol=1e-6)


def test_decoding_has_no_key(monkeypatch):
    keys = []

    def seen(x, rate, key):
        keys.append((rate, key))
        return x

    for module in (olsq.nn.blocks, olsq.nn.model):
        monkeypatch.setattr(module, "dropout", seen)
    model(dropout=0.9, blocks=1, mlp_ratio=0, mixer="linear").generate(
        TOKENS, 2, key=jax.random.key(3)
    )
    assert len(keys) > 3
    assert set(keys) == {(0.9, None)}


def test_the_rate_is_what_is_dropped_and_the_mean_stays():
    x = jnp.ones((200, 100), jnp.bfloat16)
    found = dropout(x, 0.25, jax.random.key(0))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.unique(np.asarray(found, np.float32)), [0, 4 / 3], rtol=0.01)
    assert abs(float((found == 0).mean()) - 0.25) < 0.01
    for rate in (-0.1, 1.0, float("nan"), "half"):
        with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\)"):
            model(dropout=rate)


def test_files_keep_the_rate(tmp_path):
    olsq.nn.save(tmp_path / "m.safetensors", model(dropout=0.4))
    assert olsq.nn.load(tmp_path / "m.safetensors").backbone.dropout == 0.4
    assert "dropout" not in model().configuration  # files without are read by earlier versions


class Odd(eqx.Module):
    """Names that say nothing of what the fields hold, and one that misleads."""

    stuff: jax.Array = eqx.field(metadata=olsq.nn.kind("matrix"))
    weight: jax.Array
    inner: olsq.nn.RMSNorm
    theirs: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    wrapped: dict = eqx.field(metadata=olsq.nn.kind("ridge"))


def test_kinds_are_what_layers_declare():
    key = jax.random.key(0)
    odd = Odd(
        jnp.ones((2, 2)), jnp.ones((2, 2)), olsq.nn.RMSNorm(2, 3), eqx.nn.Linear(2, 3, key=key),
        eqx.nn.LayerNorm((2, 3)), {"a": jnp.ones((2, 2))},
    )  # fmt: skip
    kinds = olsq.nn.parameter_kinds(eqx.filter(odd, eqx.is_inexact_array))
    assert (kinds.stuff, kinds.weight, kinds.inner.scale) == ("matrix", "other", "scale")
    assert (kinds.theirs.weight, kinds.theirs.bias) == ("matrix", "bias")
    assert (kinds.norm.weight, kinds.norm.bias) == ("scale", "bias")
    assert kinds.wrapped == {"a": "ridge"}
    assert olsq.nn.parameter_kinds({"w": jnp.ones((2, 2)), "b": [jnp.ones(2)]}) == {
        "w": "matrix", "b": ["other"],
    }  # fmt: skip
    with pytest.raises(ValueError, match="kind must be one of matrix, bias"):
        olsq.nn.kind("weight")

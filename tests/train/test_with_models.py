"""Assumptions of training about olsq.nn's models, for every mixer; nothing is compiled."""

import equinox as eqx
import jax
import numpy as np
import pytest

from olsq.nn import MIXERS, LanguageModel
from olsq.nn.kinds import path_names
from olsq.train import (
    BytePairTokenizer,
    TrainConfig,
    decay_mask,
    make_step,
    next_token_loss,
    sample_text,
)
from olsq.train.optimiser import adamw
from tests.train.small import TEXT

pytestmark = pytest.mark.usefixtures("one_target")

CAUSAL = sorted(name for name, kind in MIXERS.items() if kind.causal)
# Arrays with two axes or more that are no matrices of a projection or a gate.
LEFT_ALONE = {
    "embedding", "scale", "kernel", "raw", "rate", "skip", "bonus", "initial", "norm_scale",
    "norm_bias", "input_bias", "recurrence_bias", "removal_scale", "rate_share",
    "query_bias", "key_bias",
}  # fmt: skip


def model(mixer, **options):
    sizes = {"dim": 16, "blocks": 1, "heads": 2, **options}
    return LanguageModel(32, mixer=mixer, key=jax.random.key(0), **sizes)


@pytest.mark.full
@pytest.mark.parametrize("mixer", CAUSAL)
def test_matrices_decay_and_nothing_else(mixer):
    weights = eqx.filter_eval_shape(lambda: eqx.filter(model(mixer), eqx.is_inexact_array))
    flags = jax.tree.leaves(decay_mask(weights))
    seen = set()
    for (path, leaf), flag in zip(jax.tree_util.tree_leaves_with_path(weights), flags, strict=True):
        *_, name = [part for part in path_names(path) if not part.isdigit()]
        projection = name in ("weight", "head") or name.endswith("_gate")
        assert flag == projection, path_names(path)
        assert flag or leaf.ndim < 2 or name in LEFT_ALONE, path_names(path)
        seen.add(name)
    assert {"embedding", "weight", "scale"} <= seen


@pytest.mark.full
def test_logits_of_their_own_decay():
    weights = eqx.filter(model("linear", tied=False), eqx.is_inexact_array)
    assert decay_mask(weights).head is True
    assert decay_mask(weights).embedding is False


@pytest.mark.full
@pytest.mark.parametrize("mixer", ["mesa", "hawk", "softmax"])
def test_step_gives_back_the_types_it_was_given(mixer):
    """Otherwise the second step is compiled again."""
    config = TrainConfig(batch=2, length=8)
    given, optimizer = model(mixer), adamw(config)
    state = optimizer.init(eqx.filter(given, eqx.is_inexact_array))
    step = make_step(next_token_loss, optimizer)
    tokens = np.zeros((2, 9), np.int32)
    rate = config.learning_rate(0)
    after = eqx.filter_eval_shape(step, given, state, tokens, learning_rate=rate)[:2]
    found = [x for x in jax.tree.leaves(after) if hasattr(x, "dtype")]
    for a, b in zip(found, jax.tree.leaves((given, state)), strict=True):
        assert (a.shape, a.dtype, a.weak_type) == (b.shape, b.dtype, b.weak_type)


def test_sample_is_text_and_repeats_with_its_seed():
    tokenizer = BytePairTokenizer.train(TEXT, 270)
    small = LanguageModel(
        270, dim=8, blocks=1, heads=1, mixer="linear", mlp_ratio=1.0, key=jax.random.key(0)
    )
    first, again, other = (sample_text(small, tokenizer, "The ", 12, seed=s) for s in (1, 1, 2))
    assert first == again != other
    assert isinstance(first, str)
    with pytest.raises(ValueError, match="prompt must have at least one character"):
        sample_text(small, tokenizer, "", 5)

"""Language models: logits, tied embeddings, states, solvers, precision, recomputation."""

from __future__ import annotations

import math
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn_cases import (
    ROWS,
    error,
    quick,
)
from nn_reference import (
    dense,
    f64,
    reference,
    rms,
    silu,
)

import olsq
from olsq import nn

pytestmark = pytest.mark.usefixtures("one_target")

VOCABULARY, T, B = 23, 9, 2
MIXED = ("softmax", "mesa", "hawk")
BY_NAME = {row.mixer: row for row in ROWS}
ROUNDING = 2e-5


def model_of(mixer=MIXED, **options):
    sizes = {"dim": 16, "blocks": len(mixer), "heads": 2, "key": jax.random.key(0)}
    return nn.LanguageModel(VOCABULARY, mixer=mixer, **{**sizes, **options})


def running(method="__call__", **given):
    """A jitted method of a model whose weights are arguments, and how often it was traced."""
    traces = []

    @quick
    def run(arrays, *arguments):
        traces.append(1)
        return getattr(eqx.combine(arrays, run_static[0]), method)(*arguments, **given)

    run_static = []

    def call(model, *arguments):
        arrays, static = eqx.partition(model, eqx.is_array)
        run_static[:] = [static]
        return run(arrays, *arguments)

    call.traces = traces
    return call


def draw_tokens(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, VOCABULARY, shape, np.int32)


@cache
def mixed_model():
    """A model with three kinds of memory."""
    return model_of()


@cache
def mixed():
    """That model, its tokens and their logits."""
    model, tokens, run = mixed_model(), draw_tokens(B, T), running()
    return model, tokens, np.asarray(run(model, tokens)), run


def blocks_in_numpy(model, x):
    for block in model.backbone.blocks:
        row = BY_NAME[next(n for n, kind in nn.MIXERS.items() if type(block.mixer) is kind)]
        x = x + reference(row, block.mixer, rms(block.mixer_norm, x))
        y = rms(block.mlp_norm, x)
        x = x + dense(block.mlp.down, silu(dense(block.mlp.gate, y)) * dense(block.mlp.up, y))
    return rms(model.backbone.norm, x)


@pytest.mark.full
def test_it_is_the_arithmetic_of_the_paper():
    model, tokens, logits, _ = mixed()
    assert (logits.shape, logits.dtype) == ((B, T, VOCABULARY), np.float32)
    embedding = f64(model.embedding)
    for b in range(B):
        y = blocks_in_numpy(model, embedding[tokens[b]] * 16**0.5)
        assert error(logits[b], 30 * np.tanh(y @ embedding.T / 30)) < ROUNDING


def test_one_compilation_serves_every_call():
    model, run = model_of(("linear",)), running()
    run(model, draw_tokens(B, T))
    run(model, draw_tokens(B, T, seed=1))
    other = jax.tree.map(lambda x: 1.1 * x if eqx.is_array(x) else x, model)
    run(other, draw_tokens(B, T))
    assert len(run.traces) == 1


@pytest.mark.full
def test_prefill_and_steps_are_the_whole():
    model, tokens, want, _ = mixed()
    prefill, step = running("prefill", capacity=T), running("step")
    for prompt in (1, 4):
        logits, state = prefill(model, tokens[:, :prompt])
        assert error(logits, want[:, prompt - 1]) < ROUNDING
        for t in range(prompt, T):
            logits, state = step(model, tokens[:, t], state)
            assert error(logits, want[:, t]) < ROUNDING
    assert len(step.traces) == 1
    assert isinstance(state[1].rule, olsq.sequence.DecodeState)


def test_a_state_goes_on_and_segments_do_not_mix():
    model, tokens = model_of(("softmax", "hawk"), mlp_ratio=0), draw_tokens(B, 8)
    whole = quick(lambda t, ids: model(t, segment_ids=ids))
    one = np.zeros((B, 8), np.int32)
    want = np.asarray(whole(tokens, one))
    go_on = quick(lambda t, state: model(t, state=state, capacity=8))
    head, state = go_on(tokens[:, :4], None)
    tail, _ = go_on(tokens[:, 4:], state)
    assert error(np.concatenate([head, tail], 1), want) < ROUNDING
    packed = whole(tokens, np.repeat([[3] * 5 + [4] * 3], B, 0))
    assert error(packed[:, :5], want[:, :5]) < ROUNDING
    alone = np.concatenate([tokens[:, 5:], tokens[:, :5]], 1)
    assert error(packed[:, 5:], whole(alone, one)[:, :3]) < ROUNDING


@pytest.mark.full
def test_models_are_mapped_over_batches():
    model, _, _, run = mixed()
    many = draw_tokens(3, B, T, seed=2)
    got = quick(jax.vmap(lambda t: model(t)))(many)
    for i in range(3):
        assert error(got[i], run(model, many[i])) < ROUNDING


@pytest.mark.full
def test_bfloat16_is_close_to_float32():
    model, tokens, want, _ = mixed()
    half = model_of(dtype="bfloat16")
    got = running()(half, tokens)
    assert got.dtype == np.float32
    assert error(got, want) < 0.05
    same = zip(jax.tree.leaves(half), jax.tree.leaves(model), strict=True)
    assert all(a.dtype == np.float32 and np.array_equal(a, b) for a, b in same)
    stream, state = eqx.filter_eval_shape(lambda: half.hidden(tokens, state=None))
    assert stream.dtype == jnp.bfloat16
    assert state[1].rule.gram.dtype == np.float32


@pytest.mark.full
def test_the_embedding_is_scaled_tied_and_capped():
    model = nn.LanguageModel(512, dim=64, blocks=1, heads=1, mixer="linear", key=jax.random.key(0))
    stream = model.embed(np.arange(512)[None])
    assert np.asarray(stream).std() == pytest.approx(1, rel=0.02)
    assert nn.count_parameters(model.embedding) == 512 * 64
    loud = eqx.tree_at(lambda m: m.embedding, model, 100 * model.embedding)
    y = jnp.ones((1, 2, 64))
    assert np.abs(loud.logits(y)).max() == pytest.approx(30, abs=1e-4)
    plain = eqx.tree_at(lambda m: m.embedding, model_of(("linear",), soft_cap=None), y[0] * 100)
    assert np.asarray(plain.logits(y)).max() == pytest.approx(6400)
    small = eqx.tree_at(lambda m: m.embedding, model, 0.001 * model.embedding)
    assert error(small.logits(y), y @ small.embedding.T) < 1e-4
    bare = model_of(("linear",), scale_embedding=False)
    assert np.array_equal(bare.embed([[3, 1]])[0], bare.embedding[np.array([3, 1])])


def test_untied_logits_have_weights_of_their_own():
    model = model_of(("linear",), tied=False)
    assert model.head.shape == model.embedding.shape
    assert not np.array_equal(model.head, model.embedding)
    y = jax.random.normal(jax.random.key(1), (1, 2, 16))
    want = 30 * np.tanh(f64(y) @ f64(model.head).T / 30)
    assert error(model.logits(y), want) < ROUNDING


def start_of(width, **options):
    """First loss, norm of its gradient, logits and tokens of a model of one softmax block."""
    model = nn.LanguageModel(
        256, dim=width, blocks=1, heads=2, mixer="softmax", key=jax.random.key(0), **options
    )
    arrays, static = eqx.partition(model, eqx.is_array)
    tokens = jax.random.randint(jax.random.key(1), (4, 17), 0, 256)

    def loss(arrays):
        logits = eqx.combine(arrays, static)(tokens[:, :-1])
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], -1)
        return -picked.mean(), logits

    (value, logits), slope = quick(jax.value_and_grad(loss, has_aux=True))(arrays)
    norm = math.sqrt(sum(float((x**2).sum()) for x in jax.tree.leaves(slope)))
    return float(value), norm, f64(logits), np.asarray(tokens)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "tied"),
    [
        (64, True),
        (1024, True),
        (1024, False),
        *(pytest.param(n, n != 64, marks=pytest.mark.slow) for n in (64, 128, 256, 512)),
    ],
)
def test_losses_start_at_that_of_a_guess_at_every_width(width, tied):
    loss, norm, logits, _ = start_of(width, tied=tied)
    assert loss == pytest.approx(math.log(256), abs=0.05)
    assert 0.2 < norm < 0.5  # whatever the width
    assert np.abs(logits).max() < 1.1  # a stream after the last norm is as long as 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [64, 1024])
def test_the_papers_start_predicts_each_token_after_itself(width):
    """The part of its token's embedding that a stream keeps, cos = 1 / sqrt(variance), meets that
    embedding again in tied logits: ``sqrt(dim) cos`` for the token itself.  The mixer and the MLP
    write variance 2 and less.
    """
    loss, norm, logits, tokens = start_of(width, initialisation="fan-in", soft_cap=None)
    own = np.take_along_axis(logits, tokens[:, :-1, None], -1).mean()
    assert 0.5 * width**0.5 < own < 0.9 * width**0.5
    assert loss > math.log(256) + (0.5 if width == 64 else 10)
    assert norm > (1 if width == 64 else 5)
    assert logits.std() > 0.9
    calm = start_of(width, soft_cap=None)[2]
    assert error(calm * math.sqrt(width), logits) < ROUNDING  # one start times the other's scale


def test_initialisations_are_names():
    with pytest.raises(ValueError, match="initialisation must be one of"):
        model_of(("linear",), initialisation="loud")


def losses(remat, mixer):
    solver = olsq.ConjugateGradient(max_steps=5) if "mesa" in mixer else None
    model = model_of(mixer, dim=8, heads=1, remat=remat, solver=solver)
    arrays, static = eqx.partition(model, eqx.is_array)
    tokens = draw_tokens(B, 7)

    def loss(arrays):
        logits = eqx.combine(arrays, static)(tokens)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits[:, :-1]), tokens[:, 1:, None], -1)
        return -picked.mean()

    return quick(jax.value_and_grad(loss))(arrays)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mixer", "ways"), [(("mesa",), ["full"]), (("delta", "softmax"), ["dots", "full"])], ids=str
)
def test_recomputation_changes_nothing(mixer, ways):
    plain, gradient = losses("none", mixer)
    leaves = jax.tree.leaves(gradient)
    assert all(np.isfinite(x).all() and np.any(x != 0) for x in leaves)
    for remat in ways:
        again, other = losses(remat, mixer)
        assert again == pytest.approx(float(plain), rel=1e-6)
        for a, b in zip(jax.tree.leaves(other), leaves, strict=True):
            assert error(a, b) < ROUNDING


@pytest.mark.full
def test_another_solver_is_another_accuracy_with_the_same_weights():
    model, tokens, want, _ = mixed()
    errors = []
    for steps in (1, 3, 30):
        changed = model.with_solver(olsq.ConjugateGradient(max_steps=steps, tol=1e-7))
        assert changed.backbone.blocks[1].mixer.solver.max_steps == steps
        pairs = zip(jax.tree.leaves(changed), jax.tree.leaves(model), strict=True)
        assert all(a is b for a, b in pairs)
        for i in (0, 2):
            assert changed.backbone.blocks[i].mixer is model.backbone.blocks[i].mixer
        errors.append(error(running()(changed, tokens), want))
    assert errors[0] > errors[1] > 1e-5 > errors[2]
    assert model.backbone.blocks[1].mixer.solver is None
    back = changed.with_solver(None)
    assert jax.tree.structure(back) == jax.tree.structure(model)
    given = model_of(solver=olsq.Dense())
    assert [m.solver for m in nn.mixers_of(given) if m.solves()] == [olsq.Dense()]


def test_a_model_without_a_solver_says_so():
    model = model_of(("linear",))
    with pytest.raises(ValueError, match="tree must hold a mixer with a solver"):
        nn.with_solver(model, olsq.Dense())
    with pytest.raises(ValueError, match="tree must hold a mixer with a solver"):
        model_of(("linear",), solver=olsq.Dense())


def test_mixers_are_found_and_replaced():
    model = mixed_model()
    assert [type(m) for m in nn.mixers_of(model)] == [nn.MIXERS[n] for n in MIXED]
    same = nn.map_mixers(lambda m: m, model)
    assert jax.tree.structure(same) == jax.tree.structure(model)


def test_patterns_repeat_and_mlps_can_be_left_out():
    model = model_of(("delta", "gla"), blocks=5, mlp_ratio=0)
    names = [type(b.mixer).__name__ for b in model.backbone.blocks]
    assert names == ["Delta", "GLA", "Delta", "GLA", "Delta"]
    assert all(b.mlp is None and b.mlp_norm is None for b in model.backbone.blocks)
    blocks = model_of(blocks=8).backbone.blocks
    gains = [np.asarray(b.mixer.output_proj.weight).std() for b in blocks]
    assert np.mean(gains) == pytest.approx((2 / 8) ** 0.5 / 16**0.5, rel=0.1)


def test_what_models_refuse():
    for options, message in (
        ({"mixer": ("mesa", "mamab")}, r"unknown mixer 'mamab'; known are comba, delta, .*mesa"),
        ({"mixer": "intention"}, r"mixer must be causal .* got 'intention'"),
        ({"mixer": ()}, r"mixer must name at least one"),
        ({"dim": 0}, r"dim must be an integer >= 1, got 0"),
        ({"blocks": 1.5}, r"blocks must be an integer"),
        ({"heads": True}, r"heads must be an integer"),
        ({"dim": 15}, r"dim 15 must be a multiple of heads 2: or give key_size"),
        ({"key_size": -1}, r"key_size must be an integer"),
        ({"dtype": "float16"}, r"dtype must be one of .*bfloat16.*'float16'"),
        ({"remat": "some"}, r"remat must be one of .*dots.*'some'"),
        ({"mixer_options": {"gla": {}}}, r"mixer_options must have .* got some for \['gla'\]"),
        ({"mixer_options": {"mesa": {"sover": 1}}}, r"'mesa' has no option 'sover': see Mesa"),
        ({"mixer_options": {"mesa": {"forget_bound": 1.5}}}, r"forget_bound must lie in \(0, 1\]"),
    ):
        given = {"mixer": "mesa", "blocks": 1, **options}
        with pytest.raises(ValueError, match=message):
            eqx.filter_eval_shape(model_of, given.pop("mixer"), **given)
    with pytest.raises(ValueError, match="vocab_size must be an integer"):
        nn.LanguageModel(0, dim=8, blocks=1, heads=1, key=jax.random.key(0))


def test_what_tokens_are():
    model = mixed_model()
    for tokens in ([[1.0, 2.0]], [1, 2], [[[1]]], 3):
        with pytest.raises(ValueError, match=r"tokens must be integers of shape \(batch, time\)"):
            model(np.array(tokens))
    for token in (-1, VOCABULARY):
        with pytest.raises(ValueError, match=r"tokens must lie in \[0, 23\); got"):
            model(np.array([[0, token]]))
        with pytest.raises(ValueError, match=r"tokens must lie in \[0, 23\); got"):
            model.step(np.array([token]), None)
    with pytest.raises(ValueError, match="at least one token"):
        model_of(("linear",)).prefill(np.zeros((1, 0), int))


def test_what_layers_refuse():
    def make(name="mesa", dim=8, **options):
        return nn.mixer(name, dim, heads=2, key=jax.random.key(0), **options)

    layer = make()
    for x in (np.zeros((3, 8), np.float32), np.zeros((1, 3, 7), np.float32), np.zeros(8)):
        with pytest.raises(ValueError, match=r"x must have shape \(batch, time, 8\), got"):
            layer(x)
    with pytest.raises(TypeError, match="x must be floating-point, got int32"):
        layer(np.zeros((1, 3, 8), np.int32))
    x = np.zeros((1, 2, 8), np.float32)
    for ids in ([0, 0], [[0, 0, 0]], [[0.0, 0.0]], 3):
        with pytest.raises(ValueError, match=r"segment_ids must be integers of shape \(1, 2\)"):
            layer(x, segment_ids=np.array(ids))
    with pytest.raises(ValueError, match=r"segment_ids must not decrease"):
        make("softmax")(x, segment_ids=np.array([[1, 0]]))
    with pytest.raises(ValueError, match=r"x must have shape \(batch, time, 16\)"):
        mixed_model().backbone(np.zeros((1, 3, 8), np.float32))
    for name, options, message in (
        ("mesas", {}, r"unknown mixer 'mesas'; known are comba, delta, "),
        ("gla", {"window": 3}, r"mixer 'gla' has no option 'window': see GLA"),
        ("hawk", {"key_size": 3}, r"mixer 'hawk' has no option 'key_size'"),
        ("hawk", {"width": 7}, r"width must be a multiple of heads 2, got 7"),
        ("gla", {"dim": 9}, r"dim 9 must be a multiple of heads 2"),
        ("gla", {"value_size": 0}, r"value_size must be an integer"),
        ("gla", {"feature_map": "relu"}, r"feature_map must be one of .*'dpfp'.*'relu'"),
        ("linear", {"feature_map": "dpfp", "nu": 0}, r"nu must be an integer"),
        ("mesa", {"forget_floor": 1.0}, r"forget_floor must lie in \[0, 1\)"),
        ("mesa", {"signed": True, "forget_floor": 0.5}, r"must be 0 with signed=True, got 0\.5"),
        ("gla", {"signed": True, "vector_gates": True}, r"signed=True needs scalar gates"),
        ("mesa_window", {"signed": True}, r"which that of MesaWindow does not"),
        ("kalman", {"signed": True}, r"which that of Kalman does not"),
        ("mesa_discounted", {"signed": True}, r"which that of MesaDiscounted does not"),
        ("preconditioned_delta", {"signed": True}, r"which that of PreconditionedDelta does not"),
        ("preconditioned_kda", {"separate_gates": True}, r"has no option 'separate_gates'"),
        ("mamba2", {"weighted": True}, r"mixer 'mamba2' has no option 'weighted'"),
        ("preconditioned_delta", {"weighted": False}, r"has no option 'weighted'"),
        ("hgrn2", {"feature_map": "dpfp"}, r"must keep the width of queries.*HGRN2's gates"),
        ("mesa", {"ridge_floor": 2.0}, r"ridge_start must exceed ridge_floor"),
        ("mesa", {"ridge_start": np.inf}, r"ridge_start must be finite"),
        ("softmax", {"rope_base": 0.0}, r"rope_base must be finite and > 0; got 0\.0"),
        ("retention", {"rope_base": -1.0}, r"rope_base must be finite and > 0; got -1\.0"),
        ("ttt_linear", {"base_rate": -1.0}, r"base_rate must be finite and >= 0; got -1\.0"),
        ("kalman", {"ratio": 0.0}, r"ratio must be finite and > 0; got 0\.0"),
        ("comba", {"correction": np.nan}, r"correction must be finite; got nan"),
        ("mesa_window", {"window": 0}, r"window must be an integer"),
        ("sliding_window", {"window": 2.5}, r"window must be an integer"),
        ("ttt_linear", {"mini_batch": 0}, r"mini_batch must be an integer"),
        ("ttt_mlp", {"value_size": 6}, r"keys \(4\) and values \(6\) must have one size"),
    ):
        with pytest.raises(ValueError, match=message):
            eqx.filter_eval_shape(make, name, **options)
    for options, message in (
        ({"soft_cap": 0.0}, r"soft_cap must be finite and > 0; got 0\.0"),
        ({"norm_eps": -1.0}, r"norm_eps must be finite and >= 0; got -1\.0"),
        ({"mlp_ratio": np.inf}, r"mlp_ratio must be finite and >= 0; got inf"),
    ):
        with pytest.raises(ValueError, match=message):
            model_of(("linear",), **options)

"""Models come back from files as they were, and a file that is not whole is refused."""

from __future__ import annotations

import json
import os
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import olsq
import olsq.nn
from olsq.files import tensors
from olsq.nn import files
from tests.versions import x64

pytestmark = pytest.mark.usefixtures("one_target")

SIZES = {"dim": 8, "blocks": 2, "heads": 2}


def small(**options):
    return olsq.nn.LanguageModel(11, key=jax.random.key(3), **{**SIZES, **options})


def cast(tree, dtype):
    return jax.tree.map(lambda x: x.astype(dtype), tree)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(np.asarray(x, float), np.asarray(y, float))


VARIANTS = {
    "mesa": {},
    "hybrid": {"mixer": ("hawk", "mesa", "kalman"), "blocks": 3, "remat": "full"},
    "options": {
        "mixer_options": {"mesa": {"signed": True, "solver": olsq.ConjugateGradient(max_steps=7)}},
        "soft_cap": None, "key_size": 3, "mlp_ratio": 0, "dtype": "bfloat16", "norm_eps": 1e-3,
    },
    "untied": {
        "mixer": "gla", "tied": False, "scale_embedding": False,
        "mixer_options": {"gla": {
            "output_gate": True, "convolution_bias": True, "convolution_width": 3
        }},
    },
    "ttt": {"mixer": "ttt_mlp"},
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_comes_back(path, options):
    model = small(**options)
    olsq.nn.save(path, model)
    same(olsq.nn.load(path), model)
    assert os.listdir(path.parent) == [path.name]


def test_outputs_are_the_same_bit_for_bit(path):
    model, tokens, run = (
        small(blocks=1, mixer="gla"),
        jnp.arange(6)[None],
        eqx.filter_jit(lambda m, t: m(t)),
    )
    olsq.nn.save(path, model)
    np.testing.assert_array_equal(run(olsq.nn.load(path), tokens), run(model, tokens))


def test_solvers_come_back(path):
    model = small(mixer=("mesa", "kalman")).with_solver(olsq.Chebyshev(steps=4))
    olsq.nn.save(path, model)
    again = olsq.nn.load(path)
    assert [m.solver for m in olsq.nn.mixers_of(again)] == [olsq.Chebyshev(steps=4)] * 2
    same(again, model)
    seen = []

    def only_first(mixer):
        seen.append(mixer)
        return olsq.nn.with_solver(mixer, olsq.Dense()) if len(seen) == 1 else mixer

    mixed = olsq.nn.map_mixers(only_first, small())
    olsq.nn.save(path, mixed)
    assert [m.solver for m in olsq.nn.mixers_of(olsq.nn.load(path))] == [olsq.Dense(), None]


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_dtypes_are_kept(path, dtype):
    with x64(dtype == "float64"):
        model = cast(small(), dtype)
        olsq.nn.save(path, model)
        same(olsq.nn.load(path), model)
    if dtype == "float64":
        with pytest.raises(olsq.StateFileError, match=r"model\.safetensors.*jax_enable_x64"):
            olsq.nn.load(path)


def test_names_and_metadata_are_readable(path):
    olsq.nn.save(path, small())
    with safe_open(path, "np") as file:
        names, metadata = set(file.keys()), file.metadata()
    wanted = {"embedding", "backbone.blocks.1.mixer.query_proj.weight", "backbone.norm.scale"}
    assert wanted <= names
    assert metadata["olsq.format"] == "1"
    assert '"vocab_size": 11' in metadata["olsq.configuration"]


def test_parts_are_filled(path):
    backbone, other = small().backbone, cast(small().backbone, "bfloat16")
    olsq.nn.save(path, backbone)
    same(olsq.nn.load_into(path, other), backbone)
    with pytest.raises(olsq.StateFileError, match=r"one Backbone.*load_into"):
        olsq.nn.load(path)
    with pytest.raises(olsq.StateFileError, match=r"another shape: .*\(8, 24\), not \(8, 16\)"):
        olsq.nn.load_into(path, small(mlp_ratio=2.0).backbone)
    with pytest.raises(olsq.StateFileError, match=r"missing: blocks\.2.*more"):
        olsq.nn.load_into(path, small(blocks=3).backbone)
    with pytest.raises(olsq.StateFileError, match=r"not in the model: blocks\.1"):
        olsq.nn.load_into(path, small(blocks=1).backbone)


def test_a_changed_model_is_refused_before_it_is_lost(path):
    model = small()
    object.__setattr__(model.backbone.blocks[0].mixer, "heads", 4)
    with pytest.raises(ValueError, match="an option was changed"):
        olsq.nn.save(path, model)
    assert not path.exists()


@pytest.mark.parametrize("model", ["model.safetensors", None, {"weight": np.zeros(3)}])
def test_what_is_no_model_is_refused(path, model):
    """Also a path in its place: ``torch.save`` and ``save_pretrained`` take the model first."""
    with pytest.raises(TypeError, match=r"model must be a module.*save\(path, model\)"):
        olsq.nn.save(path, model)
    assert not path.exists()


def test_missing_file(path):
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        olsq.nn.load(path)


def test_equal_models_have_equal_files(path):
    files = set()
    for _ in range(5):
        olsq.nn.save(path, small())
        files.add(path.read_bytes())
    assert len(files) == 1
    # In the order of the format: names sorted, what is largest aligned first, no gap.
    length = int.from_bytes(files.pop()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + length])
    assert list(header.pop("__metadata__")) == sorted(safe_open(path, "np").metadata())
    offsets = [entry["data_offsets"] for entry in header.values()]
    assert [a for a, _ in offsets] == [0, *(b for _, b in offsets[:-1])]


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    olsq.nn.save(path, small())
    before = path.read_bytes()

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        olsq.nn.save(path, small(blocks=1))
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    with pytest.raises(OSError, match="absent"):
        olsq.nn.save(path.parent / "absent" / "model", small())


def test_every_truncation_and_every_flipped_byte_is_refused(path):
    olsq.nn.save(path, small(blocks=1, mlp_ratio=0))
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for length in (0, 5, 8, 100, len(whole) - 1, *rng.integers(1, len(whole), 8)):
        path.write_bytes(whole[:length])
        with pytest.raises(olsq.StateFileError, match=r"model\.safetensors is truncated"):
            olsq.nn.load(path)
    for at in rng.integers(8, len(whole), 60):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(olsq.StateFileError, match=r"model\.safetensors"):
            olsq.nn.load(path)
    path.write_bytes(b"not a model at all")
    with pytest.raises(olsq.StateFileError, match="not a safetensors file"):
        olsq.nn.load(path)


def test_foreign_files_are_refused(path):
    save_file({"weight": np.ones(3)}, path)
    with pytest.raises(olsq.StateFileError, match=r"not written by .*; it holds weight"):
        olsq.nn.load(path)
    save_file({"model.layers.0.attn.lambda_params": np.ones(3)}, path)
    with pytest.raises(olsq.StateFileError, match=r"flash-linear-attention.*olsq\.nn\.from_fla"):
        olsq.nn.load(path)


def rewritten(path, change):
    """The file with other tensors or metadata, and a checksum that fits."""
    from olsq.nn import files

    with safe_open(path, "np") as file:
        metadata = file.metadata()
    arrays = load_file(path)
    metadata.pop("olsq.sha256")
    change(arrays, metadata)
    metadata["olsq.sha256"] = files._digest(arrays, metadata)
    save_file(arrays, path, metadata)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, m: m.update({"olsq.format": "2"}), "has format 2.*reads format 1"),
        (lambda a, m: a.pop("embedding"), "missing: embedding"),
        (lambda a, m: a.update(bias=np.ones(2)), "not in the model: bias"),
        (
            lambda a, m: a.update(embedding=np.ones((11, 7), np.float32)),
            r"another shape: embedding \(11, 7\), not \(11, 8\)",
        ),
        (
            lambda a, m: m.update({"olsq.configuration": '{"vocab_size": 3, "depth": 1}'}),
            "cannot make.*depth",
        ),
        (
            lambda a, m: m.update({"olsq.solvers": '{"solvers": [{"solver": "Magic"}]}'}),
            "cannot make.*Magic",
        ),
        (lambda a, m: m.update({"olsq.solvers": '{"solvers": []}'}), "cannot make"),
        (lambda a, m: m.pop("olsq.solvers"), "cannot make"),
    ],
)
def test_files_that_do_not_fit(path, change, message):
    olsq.nn.save(path, small(blocks=1))
    rewritten(path, change)
    with pytest.raises(olsq.StateFileError, match=message):
        olsq.nn.load(path)


HOSTILE = {
    "blocks": ({"blocks": 100_000}, "blocks is 100000, but it has tensors of 2"),
    "more blocks": ({"blocks": 2**62}, "but it has tensors of 2"),
    "dim": ({"dim": 10**9}, "dim is 1000000000, but the tensors hold"),
    "vocab": ({"vocab_size": 10**12}, "vocab_size is 1000000000000, but the tensors hold"),
    "kind": ({"norm_eps": "x"}, "norm_eps cannot be"),
    "flag": ({"tied": 3}, "tied cannot be"),
    "heads": ({"heads": 10**9}, "cannot make"),
}


def forged(path, configuration=None, solvers=None):
    """The file with other metadata and a right checksum."""
    arrays, metadata = files._read(path)
    del metadata["olsq.sha256"]
    if configuration is not None:
        found = json.loads(metadata["olsq.configuration"]) | configuration
        metadata["olsq.configuration"] = json.dumps(found)
    if solvers is not None:
        metadata["olsq.solvers"] = json.dumps({"solvers": solvers})
    metadata["olsq.sha256"] = files._digest(arrays, metadata)
    tensors.write(path, arrays, metadata)


@pytest.mark.parametrize(("configuration", "message"), HOSTILE.values(), ids=HOSTILE)
def test_sizes_are_compared_with_the_tensors_first(path, configuration, message):
    olsq.nn.save(path, small())
    forged(path, configuration)
    begun = time.process_time()
    with pytest.raises(olsq.StateFileError, match=message):
        olsq.nn.load(path)
    assert time.process_time() - begun < 1.0  # a model of 100,000 blocks takes minutes


@pytest.mark.parametrize(
    "solver",
    [3, "x", [1], {"a": 1}, {"solver": "Evil"}, {"solver": "Dense", "evil": 1},
     {"solver": "ConjugateGradient", "max_steps": 10**18},
     {"solver": "ConjugateGradient", "max_steps": "a"}, {"solver": "Neumann", "terms": 2.5},
     {"solver": "Chebyshev", "steps": True}],
)  # fmt: skip
def test_a_solver_of_a_file_is_one_of_the_six(path, solver):
    olsq.nn.save(path, small())
    forged(path, solvers=[solver, solver])
    with pytest.raises(olsq.StateFileError, match="cannot make"):
        olsq.nn.load(path)

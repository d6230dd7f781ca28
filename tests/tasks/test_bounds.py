"""Every generator's arguments: sizes that cannot be drawn are refused by name, all others drawn."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import olsq.tasks
from olsq.tasks import mad
from olsq.tasks.tokens import IGNORE

# The generator, and small arguments that it takes.
GENERATORS = {
    "in_context_recall": (mad.in_context_recall, {"length": 8}),
    "noisy_recall": (mad.noisy_recall, {"length": 8}),
    "fuzzy_recall": (mad.fuzzy_recall, {"length": 20}),
    "selective_copying": (mad.selective_copying, {"length": 12, "copied": 3}),
    "compression": (mad.compression, {"length": 4}),
    "memorisation": (mad.memorisation, {"length": 4}),
    "mqar": (olsq.tasks.mqar, {"vocab": 20, "length": 12, "num_kv_pairs": 2}),
    "parity": (olsq.tasks.parity, {"length": 4}),
    "word_problem": (olsq.tasks.word_problem, {"length": 4, "degree": 3}),
    "linear_dynamics": (olsq.tasks.linear_dynamics, {"length": 3, "dim": 2, "observed": 1}),
    "few_shot_regression": (olsq.tasks.few_shot_regression, {"pairs": 2, "dim": 2, "scale": 1.0}),
    "random_orthogonal": (olsq.tasks.random_orthogonal, {"dim": 2}),
    "random_automata": (olsq.tasks.random_automata, {"max_states": 6, "n_letters": 8}),
    "regbench_splits": (
        olsq.tasks.regbench_splits, {"sizes": [2, 1], "words": (1, 2), "max_word": 3},
    ),
}  # fmt: skip

WRONG_INTEGERS = (-1, 2.5, float("nan"), "3", True, 2**40, 2**70, -(2**70), 1j)
WRONG_REALS = (-1.0, float("nan"), float("inf"), "3", True, 1e200, 1j)
WRONG_SEEDS = (-1, 0.5, "a", True)

# Arguments that are right one by one and wrong together, and what is said of them.
TOGETHER = [
    ("in_context_recall", {"vocab": 1}, "vocab"),
    ("in_context_recall", {"length": 31}, "length must be even"),
    ("noisy_recall", {"vocab": 17, "noise_vocab": 16}, "vocab"),
    ("noisy_recall", {"noise": 1.0}, "noise"),
    ("fuzzy_recall", {"length": 12}, "length"),
    ("fuzzy_recall", {"vocab": 6}, "vocab"),
    ("fuzzy_recall", {"vocab": 2048, "key_letters": 6, "length": 40}, "key_letters"),
    ("selective_copying", {"length": 8, "copied": 4}, "length"),
    ("memorisation", {"length": 3}, "length must be even"),
    ("mqar", {"vocab": 17, "num_kv_pairs": 8, "length": 64}, "vocab"),
    ("mqar", {"length": 6}, "length"),
    ("mqar", {"power_a": 1e4}, "power_a"),
    ("mqar", {"power_a": -1e4}, "power_a"),
    ("few_shot_regression", {"inputs": "cauchy"}, "inputs"),
    ("random_automata", {"max_states": 128}, "max_states"),
    ("random_automata", {"max_edges": 4}, "max_edges"),
    ("random_automata", {"n_letters": 3}, "n_letters"),
    ("regbench_splits", {"words": (4, 3)}, "words"),
    ("regbench_splits", {"words": 3}, "words"),
    ("regbench_splits", {"words": (1, 2, 3)}, "words"),
    ("regbench_splits", {"words": (1, 2.5)}, "words"),
    ("regbench_splits", {"words": (0, 2)}, "words"),
    ("regbench_splits", {"sizes": 3}, "sizes"),
    ("regbench_splits", {"sizes": [2.5]}, "sizes"),
    ("regbench_splits", {"sizes": [-1, 2]}, "sizes"),
    ("regbench_splits", {"sizes": [2**40]}, "sizes"),
]


def draw(name, **changes):
    generator, options = GENERATORS[name]
    given = {**options, "seed": 0, **changes}
    if "n" in inspect.signature(generator).parameters:
        given.setdefault("n", 2)
    return generator(**given)


def parameters(kind):
    """(generator, parameter) of all parameters annotated so; None may be among what they take."""
    return [
        (name, parameter.name)
        for name, (generator, _) in GENERATORS.items()
        for parameter in inspect.signature(generator).parameters.values()
        if str(parameter.annotation).removesuffix(" | None") == kind
    ]


def test_every_generator_is_in_the_table():
    known = {generator for generator, _ in GENERATORS.values()}
    for module in (olsq.tasks, mad):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isfunction(thing) and "seed" in inspect.signature(thing).parameters:
                assert thing in known or thing is mad.split, name


@pytest.mark.parametrize("name", GENERATORS)
def test_the_small_arguments_are_right(name):
    for fields in (draw(name), draw(name, seed=np.random.default_rng(0))):
        assert len(fields)


@pytest.mark.parametrize("wrong", WRONG_INTEGERS)
@pytest.mark.parametrize(("name", "parameter"), parameters("int"))
def test_integers_out_of_range_are_refused_by_name(name, parameter, wrong):
    if parameter == "dictionary" and wrong in (2**40, 2**70):
        return  # a seed
    with pytest.raises((TypeError, ValueError), match=rf"^{parameter} must be"):
        draw(name, **{parameter: wrong})


@pytest.mark.parametrize("wrong", WRONG_REALS)
@pytest.mark.parametrize(("name", "parameter"), parameters("float"))
def test_reals_out_of_range_are_refused_by_name(name, parameter, wrong):
    if parameter == "power_a" and wrong == -1.0:
        return  # any finite number will do
    with pytest.raises((TypeError, ValueError), match=rf"^{parameter} must be"):
        draw(name, **{parameter: wrong})


@pytest.mark.parametrize("wrong", WRONG_SEEDS)
@pytest.mark.parametrize("name", GENERATORS)
def test_seeds_that_are_none_are_refused_by_name(name, wrong):
    with pytest.raises((TypeError, ValueError), match=r"^seed must be"):
        draw(name, seed=wrong)


@pytest.mark.parametrize(("name", "changes", "message"), TOGETHER)
def test_arguments_that_do_not_fit_each_other(name, changes, message):
    with pytest.raises((TypeError, ValueError), match=rf"^{message}"):
        draw(name, **changes)


@pytest.mark.parametrize("wrong", WRONG_INTEGERS)
def test_a_split_names_its_own_arguments(wrong):
    setting = mad.BASELINES["compression"]
    with pytest.raises((TypeError, ValueError), match=r"^n_test must be"):
        mad.split(setting, 0, n_test=wrong)
    with pytest.raises((TypeError, ValueError), match=r"^n_train must be"):
        mad.split(setting._replace(n_train=wrong), 0)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("in_context_recall", {"vocab": 2, "length": 4}),
        ("noisy_recall", {"vocab": 3, "noise_vocab": 1, "length": 4, "noise": 0.0}),
        ("fuzzy_recall", {"vocab": 3, "length": 5, "key_letters": 1, "value_letters": 1}),
        ("selective_copying", {"vocab": 3, "length": 4, "copied": 1}),
        ("compression", {"vocab": 2, "length": 1}),
        ("memorisation", {"vocab": 3, "length": 2}),
        ("mqar", {"vocab": 4, "length": 4, "num_kv_pairs": 1}),
        ("parity", {"length": 1}),
        ("word_problem", {"length": 1, "degree": 2}),
        ("linear_dynamics", {"length": 1, "dim": 1, "noise": 0.0, "start": 0.0}),
        ("few_shot_regression", {"pairs": 1, "dim": 1, "targets": None, "scale": 0.0}),
        ("random_orthogonal", {"dim": 1}),
        ("random_automata", {"max_states": 4, "n_letters": 4, "max_edges": 1}),
        ("regbench_splits", {"words": (1, 1), "max_word": 1, "max_states": 4, "n_letters": 4}),
    ],
)  # fmt: skip
def test_the_least_of_everything_is_drawn(name, least):
    """The least values of the documentation work, as Python's and as NumPy's integers."""
    small = draw(name, **least)
    numpy = {k: np.int16(v) if isinstance(v, int) else v for k, v in least.items()}
    for field, same in zip(small, draw(name, **numpy), strict=True):
        if name != "regbench_splits":
            np.testing.assert_array_equal(field, same)


@pytest.mark.parametrize("name", ["in_context_recall", "noisy_recall", "compression", "mqar"])
def test_large_vocabularies_are_not_wrapped(name):
    """Tokens are int64 whatever their number is."""
    inputs, targets = draw(name, n=50, vocab=70_000)
    assert 60_000 < inputs.max() < 70_000
    assert inputs.min() >= 0
    assert targets.max() < 70_000


@pytest.mark.parametrize("n_letters", [126, 127, 128, 200, 300])
def test_automata_of_many_letters_are_read(n_letters):
    """Symbols are 1 to L, the separator L + 1; each word is a path of its automaton."""
    (data,) = olsq.tasks.regbench_splits([6], 5, n_letters=n_letters, max_word=20)
    letters = data.inputs[(data.inputs != 0) & (data.inputs != n_letters + 1)]
    assert letters.min() >= 1
    assert n_letters * 0.8 < letters.max() <= n_letters
    assert data.labels.max() <= n_letters
    assert data.labels.min() == IGNORE
    i, t = np.nonzero(data.labels > 0)
    assert olsq.tasks.allowed_symbols(data)[i, t, data.labels[i, t]].all()
    scores = olsq.tasks.oracle_probabilities(data)
    assert olsq.tasks.regbench_accuracy(scores, data) == 1.0

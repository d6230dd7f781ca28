"""The tasks and models of ``when_to_solve.py``: the same two blocks around every mixer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import drifting_regression as regression
import equinox as eqx
import jax
import jax.numpy as jnp
import nonlinear_regression
import numpy as np
from nonlinear_regression import Target
from task_training import loss_of, paper_gates

import olsq
import olsq.nn
from olsq.tasks import (
    allowed_symbols,
    mad,
    mqar,
    ngram_probabilities,
    parity,
    regbench_accuracy,
    regbench_splits,
    word_problem,
)
from olsq.tasks.regbench_controls import scored
from olsq.tasks.tokens import IGNORE

MIXERS = ("mesa", "gla", "gated_delta", "softmax", "mamba2", "kda", "hawk-mesa", "mesa_discounted")
# Mixers of a task beside these, and what they are given.  Noise of variance .01 wants a ridge far
# below the layer's floor of .25; state tracking needs transitions that are more than a fading.
SMALL_RIDGE: dict[str, tuple[str, dict[str, Any]]] = {
    "mesa, small ridge": ("mesa", {"ridge_floor": 1e-3, "ridge_start": 0.05}),
}
TRACKING: dict[str, tuple[str, dict[str, Any]]] = {
    "mesa, signed": ("mesa", {"signed": True}),
    "gated_delta, beta 2": ("gated_delta", {"negative_eigenvalues": True}),
    "gated_delta_product": ("gated_delta_product", {}),
}
# These layers come without the short convolution that all others have, and with which one block can
# tell a value by the key before it.
CONVOLVED: dict[str, tuple[str, dict[str, Any]]] = {
    "softmax, convolution": ("softmax", {"convolution": True}),
    "local_linear, convolution": ("local_linear", {"convolution": True}),
    "parallax, convolution": ("parallax", {"convolution": True}),
}
# Where a token holds a whole pair they need none.  All three have softmax attention's projections
# and rotary positions.  Their weights sum to one: a ridge of .01 is here what .64 is to mesa at the
# end of 64 tokens, so that the small one is as far below the layer's floor as mesa's is below its.
LOCAL: dict[str, tuple[str, dict[str, Any]]] = {
    "local_linear": ("local_linear", {}),
    "parallax": ("parallax", {}),
    "local_linear, small ridge": ("local_linear", {"ridge_floor": 1e-4, "ridge_start": 0.01}),
}
PLAIN = ("mesa", "gla", "gated_delta", "softmax")  # of tasks that the other four have no part in
ATTENDING = ("softmax", "local_linear", "parallax")  # kinds that keep every token
# Gates above .99, its default, cannot follow coefficients that move within 64 tokens.
QUICKER = {"forget_floor": 0.9}
# Recall asks for what came 30 tokens ago, which a gate near one half has lost.  KDA's channels have
# the start of its authors, of median .95, and mesa_discounted's gates its own, near .997.
KEPT = {name: {"forget_bias": math.log(99.0)} for name in ("mesa", "gla", "gated_delta", "mamba2")}
# A token holds a whole pair and the rules are to fit a linear map: no convolution, no map of the
# keys, and no norm that would take the size of what is read.
LINEAR = {"feature_map": "identity", "convolution": False, "output_norm": False}
VALID, TEST = 1_000_000, 2_000_000  # seeds that no batch has


class Task(NamedTuple):
    """How to draw, model and score.

    ``draw(rng, n)`` gives inputs and targets, ``build(mixer, key, size)`` a model, ``errors(guess,
    targets)`` what is wrong at every position, NaN where nothing is asked for; a score is the mean
    over the positions ``scored``.
    """

    draw: Callable[[np.random.Generator, int], tuple[Any, Any]]
    build: Callable[..., Any]
    loss: Callable[[Any, Any, Any], Any]
    errors: Callable[[Any, Any], Any]
    scored: slice
    rates: tuple[float, ...]
    batch: int
    steps: int
    size: dict[str, Any]
    timed: str  # the task whose models, and so times, are the same
    extra: tuple[str, ...] = ()
    references: Callable[[], dict[str, Any]] | None = None
    mixers: tuple[str, ...] = MIXERS  # a verdict waits for these, not for those of ``extra``
    elsewhere: dict[str, Callable[..., tuple[Any, Any]]] = {}  # noqa: RUF012, to score on too

    @property
    def compared(self) -> tuple[str, ...]:
        """All mixers of the task."""
        return self.mixers + self.extra


class Regressor(eqx.Module):
    """Vectors in, vectors out: a linear map, blocks, a linear map."""

    first: olsq.nn.Linear
    backbone: olsq.nn.Backbone
    last: olsq.nn.Linear

    def __init__(self, inputs: int, outputs: int, *, dim: int, key: Any, **sizes: Any) -> None:
        keys = jax.random.split(key, 3)
        self.first = olsq.nn.Linear(inputs, dim, key=keys[0])
        self.backbone = olsq.nn.Backbone(dim, key=keys[1], **sizes)
        self.last = olsq.nn.Linear(dim, outputs, key=keys[2])

    def __call__(self, x: Any) -> Any:
        return self.last(self.backbone(self.first(x)))


def mixer_of(
    name: str, common: dict[str, Any], gates: dict[str, dict[str, Any]] | None = None
) -> dict[str, Any]:
    """``mixer=`` and ``mixer_options=`` of a name of :data:`MIXERS` or a task's ``extra``.

    Gates of ``gates`` are for their kinds only; without, those of the Mesa paper and quick ones.
    """
    kind, own = {**SMALL_RIDGE, **TRACKING, **CONVOLVED, **LOCAL}.get(name, (name, {}))
    kinds = ("hawk", "mesa") if kind == "hawk-mesa" else (kind,)
    quick = gates is None
    gates = paper_gates(*kinds) if gates is None else gates
    given = {k: {**gates.get(k, {}), **common, **own} for k in kinds if k != "hawk"}
    if kind == "mesa_discounted" and quick:
        given[kind].update(QUICKER)
    if kind in ATTENDING:
        given[kind] = own
    return {"mixer": kinds, "mixer_options": {k: o for k, o in given.items() if o}}


def regressing(
    draw: Callable[..., tuple[Any, Any]], kind: Any, inputs: int, references: Any,
    length: int = 64, elsewhere: dict[str, Any] | None = None, **run: Any,
) -> Task:  # fmt: skip
    """Regression on pairs ``draw(rng, kind, n, length)``, scored on kinds of ``elsewhere`` too."""

    def drawn(kind: Any) -> Callable[[np.random.Generator, int], tuple[Any, Any]]:
        def tokens(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
            x, y = draw(rng, kind, n, length)
            return regression.tokens(x, y), y.astype(np.float32)

        return tokens

    def build(name: str, key: Any, size: dict[str, Any]) -> Any:
        wide = 2 * inputs + regression.OUTPUTS
        return Regressor(wide, regression.OUTPUTS, key=key, **size, **mixer_of(name, LINEAR))

    return Task(
        drawn(kind), build, lambda model, x, y: jnp.mean((model(x) - y) ** 2),
        lambda guess, y: (guess - y) ** 2, slice(length // 2, None),
        **{"rates": (3e-3, 1e-2, 3e-2), "batch": 16, "steps": 800,
           "size": {"dim": 32, "blocks": 2, "heads": 2, "key_size": 16},
           "timed": "drift-slow", "extra": (*SMALL_RIDGE, *LOCAL), **run},
        references=lambda: references(kind, TEST, 512, length, length // 2),
        elsewhere={name: drawn(other) for name, other in (elsewhere or {}).items()},
    )  # fmt: skip


def drifting(drift: regression.Drift) -> Task:
    """Linear regression with this drift."""
    return regressing(regression.draw, drift, regression.INPUTS, regression.references)


def nonlinear(target: Target) -> Task:
    """Regression on a function that no linear map fits, and out of distribution."""
    others = {
        "inputs twice as large": target._replace(size=2.0),
        "inputs half as large": target._replace(size=0.5),
        "drifting": target._replace(keep=1 - 1 / 32),
    }
    return regressing(
        nonlinear_regression.draw, target, nonlinear_regression.INPUTS,
        nonlinear_regression.references, elsewhere=others, mixers=PLAIN,
    )  # fmt: skip


def language(
    draw: Callable[[np.random.Generator, int], Any], vocab: int, size: dict[str, Any],
    gates: dict[str, dict[str, Any]] | None = None, **run: Any,
) -> Task:  # fmt: skip
    """Tokens to be told a token each; errors are shares of wrong answers."""

    def build(name: str, key: Any, size: dict[str, Any]) -> Any:
        return olsq.nn.LanguageModel(vocab, key=key, **size, **mixer_of(name, {}, gates))

    def errors(scores: Any, targets: Any) -> Any:
        wrong = (jnp.argmax(scores, -1) != targets).astype(jnp.float32)
        return jnp.where(targets == IGNORE, jnp.nan, wrong)

    return Task(
        draw, build, loss_of, errors, slice(None),
        **{"rates": (1e-3, 3e-3, 1e-2), "batch": 32, "steps": 800, "size": size, **run},
    )  # fmt: skip


SMALL = {"dim": 32, "blocks": 2, "heads": 2, "key_size": 16, "initialisation": "fan-in"}


def tracking(degree: int, length: int = 12, **run: Any) -> Task:
    """The word problem of the permutations of ``degree`` things."""
    vocab = int(np.prod(range(1, degree + 1)))
    return language(
        lambda rng, n: word_problem(n, rng, degree=degree, length=length), vocab, SMALL,
        **{"extra": (*TRACKING, *CONVOLVED), "timed": f"s{degree}", "steps": 2400, **run},
    )  # fmt: skip


def recall(pairs: int, key_size: int, length: int = 32, **run: Any) -> Task:
    """Multi-query recall of ``pairs`` pairs with two heads of ``key_size``, blanks in between."""

    def draw(rng: np.random.Generator, n: int) -> Any:
        given = {"vocab": 32, "length": length, "num_kv_pairs": pairs}
        return mqar(n, rng, **given, random_non_queries=False)

    return language(
        draw, 32, {**SMALL, "key_size": key_size}, KEPT,
        **{"extra": tuple(CONVOLVED), "timed": f"mqar-8-pairs-{key_size}-wide",
           "rates": (3e-3, 1e-2, 3e-2), **run},
    )  # fmt: skip


def parities(length: int = 24, **run: Any) -> Task:
    """Whether there was an odd number of ones so far, at every bit."""
    return language(
        lambda rng, n: parity(n, rng, length=length), 2, SMALL,
        **{"extra": (*TRACKING, *CONVOLVED), "timed": "parity", "steps": 1600, **run},
    )  # fmt: skip


def noisy_recall(length: int = 64, **run: Any) -> Task:
    """MAD's noisy recall at half its length, asked for the values of keys that were there."""
    options = {**mad.BASELINES["noisy_recall"].options, "length": length, "test": True}
    return language(
        lambda rng, n: mad.noisy_recall(n, rng, **options), 32, SMALL, KEPT,
        **{"extra": tuple(CONVOLVED), "timed": "noisy-recall", "rates": (3e-3, 1e-2, 3e-2), **run},
    )  # fmt: skip


LANGUAGE = {"max_states": 6, "n_letters": 8, "words": (8, 8), "max_word": 8}
LANGUAGE_LENGTH = 64  # the longest of many hundred sequences


def random_languages(**run: Any) -> Task:
    """RegBench, reduced: eight words of an automaton of its own in every sequence.

    A target is the next symbol and, as bits, all symbols that can come next: any of them is right.
    """

    def draw(rng: np.random.Generator, n: int) -> Any:
        (data,) = regbench_splits([n], rng, **LANGUAGE)
        allowed = allowed_symbols(data) & scored(data)[..., None]
        bits = (allowed << np.arange(allowed.shape[-1])).sum(-1)
        pad = [(0, 0), (0, max(LANGUAGE_LENGTH - bits.shape[1], 0))]
        given, labels, bits = (
            np.pad(x, pad, constant_values=fill)[:, :LANGUAGE_LENGTH]
            for x, fill in ((data.inputs, 0), (data.labels, IGNORE), (bits, 0))
        )
        return given, np.stack([labels, bits], -1).astype(np.int32)

    def errors(scores: Any, targets: Any) -> Any:
        wrong = 1.0 - (targets[..., 1] >> jnp.argmax(scores, -1)) % 2
        return jnp.where(targets[..., 1] == 0, jnp.nan, wrong)

    symbols = LANGUAGE["n_letters"] + 2
    task = language(
        draw, symbols, SMALL,
        **{"extra": tuple(CONVOLVED), "timed": "regbench", "rates": (3e-3, 1e-2, 3e-2), **run},
    )  # fmt: skip
    return task._replace(loss=lambda model, x, y: loss_of(model, x, y[..., 0]), errors=errors)


def ngram_errors(n: int = 512) -> float:
    """Share of wrong answers of 3-grams of the sequence itself."""
    (data,) = regbench_splits([n], np.random.default_rng([TEST, 0]), **LANGUAGE)
    return 1.0 - regbench_accuracy(ngram_probabilities(data), data)


TASKS: dict[str, Task] = {
    "drift-slow": drifting(regression.Drift(1 - 1 / 256)),
    "drift-fast": drifting(regression.Drift(1 - 1 / 32)),
    "drift-none": drifting(regression.Drift(1.0)),
    "switches": drifting(regression.Drift(1 - 1 / 64, switches=True)),
    "s3": tracking(3),
    **{f"mqar-{p}-pairs-{k}-wide": recall(p, k) for p in (8, 4) for k in (4, 2, 8)},
    "s5": tracking(5),
    "parity": parities(),
    "noisy-recall": noisy_recall(),
    "regbench": random_languages(),
    "piecewise": nonlinear(Target("piecewise")),
    "network": nonlinear(Target("network")),
}

"""The MAD tasks (M. Poli et al., "Mechanistic design and scaling of hybrid architectures", 2024).

Defaults are the baseline settings.  Where the published code differs from its description the
code is followed, since the published numbers are its numbers; each function says where.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from olsq.arrays.seeds import generator
from olsq.tasks._checks import check_integers
from olsq.tasks._fuzzy import fuzzy_recall
from olsq.tasks._memory import compression, memorisation, selective_copying
from olsq.tasks._recall import in_context_recall, noisy_recall
from olsq.tasks.tokens import Tokens

__all__ = [
    "BASELINES",
    "CHANGES",
    "Setting",
    "compression",
    "fuzzy_recall",
    "in_context_recall",
    "memorisation",
    "noisy_recall",
    "selective_copying",
    "settings",
    "split",
]


class Setting(NamedTuple):
    """A task at one difficulty, on which a model is trained and tested once.

    Attributes
    ----------
    draw : callable
        The generator, ``draw(n, seed, **options)``.
    options : mapping
        Its keyword arguments, with ``vocab`` and ``length`` always among them.
    n_train : int
        Sequences to train on.
    test_options : mapping
        Keyword arguments that test sequences have besides.
    change : str
        What differs from the baseline, for example ``"vocab=32"``; empty for the baseline.

    Examples
    --------
    >>> from olsq.tasks import mad
    >>> setting = mad.BASELINES["noisy_recall"]
    >>> setting.task, setting.classes, setting.n_train
    ('noisy_recall', 32, 12800)
    """

    draw: Callable[..., Tokens]
    options: Mapping[str, Any]
    n_train: int = 12_800
    test_options: Mapping[str, Any] = {}
    change: str = ""

    @property
    def task(self) -> str:
        """Name of the generator."""
        return self.draw.__name__

    @property
    def classes(self) -> int:
        """Number of tokens to choose from, and to embed: the whole vocabulary."""
        return self.options["vocab"]


_PROBED = {"test": True}

BASELINES: dict[str, Setting] = {
    setting.task: setting
    for setting in (
        Setting(in_context_recall, {"vocab": 16, "length": 128}, test_options=_PROBED),
        Setting(
            noisy_recall,
            {"vocab": 32, "length": 128, "noise_vocab": 16, "noise": 0.2},
            test_options=_PROBED,
        ),
        Setting(
            fuzzy_recall,
            {"vocab": 16, "length": 128, "key_letters": 3, "value_letters": 3},
            test_options=_PROBED,
        ),
        Setting(selective_copying, {"vocab": 16, "length": 256, "copied": 16}),
        Setting(compression, {"vocab": 16, "length": 32}),
        Setting(memorisation, {"vocab": 256, "length": 32}, n_train=256),
    )
}

_VOCAB = (32, 64, 128)
_LENGTH = (256, 512, 1024)
_N_TRAIN = (6400, 3200, 1600, 800)

CHANGES: dict[str, dict[str, tuple[float, ...]]] = {
    "in_context_recall": {"vocab": _VOCAB, "length": _LENGTH, "n_train": _N_TRAIN},
    "noisy_recall": {
        "vocab": (48, 80, 144),  # the noise included
        "length": _LENGTH,
        "n_train": _N_TRAIN,
        "noise": (0.4, 0.6, 0.8),
    },
    "fuzzy_recall": {"vocab": _VOCAB, "length": _LENGTH, "n_train": _N_TRAIN},
    "selective_copying": {
        "vocab": _VOCAB,
        "length": (512, 1024),
        "n_train": _N_TRAIN,
        "copied": (32, 64, 96),
    },
    "compression": {"vocab": _VOCAB, "length": (64, 128, 256), "n_train": _N_TRAIN},
    "memorisation": {"vocab": (512, 1024, 2048, 4096, 8192)},
}


def settings(task: str) -> list[Setting]:
    """Return the settings over which the score of a task is a mean.

    Parameters
    ----------
    task : str
        A name in ``BASELINES``.

    Returns
    -------
    list of Setting
        The baseline, then the baseline with one value of ``CHANGES`` in it at a time.

    Raises
    ------
    ValueError
        If there is no such task.

    Notes
    -----
    The score of a setting is the best test accuracy over a grid of learning rates and weight
    decays, by :func:`olsq.tasks.tokens.token_accuracy` with ``average="macro"``.

    Examples
    --------
    >>> from olsq.tasks import mad
    >>> [setting.change for setting in mad.settings("memorisation")][:3]
    ['', 'vocab=512', 'vocab=1024']
    >>> sum(len(mad.settings(task)) for task in mad.BASELINES)
    66
    """
    if task not in BASELINES:
        raise ValueError(f"task must be one of {', '.join(BASELINES)}, got {task!r}")
    baseline = BASELINES[task]
    result = [baseline]
    for name, values in CHANGES[task].items():
        for value in values:
            if name == "n_train":
                changed = baseline._replace(n_train=int(value))
            else:
                changed = baseline._replace(options={**baseline.options, name: value})
            result.append(changed._replace(change=f"{name}={value}"))
    return result


def split(
    setting: Setting, seed: np.random.Generator | int, *, n_test: int = 1280
) -> tuple[Tokens, Tokens]:
    """Draw the training and the test sequences of a setting.

    In the recall tasks every next token is a target in training, and in test only the values of
    keys that came before; fuzzy recall is tested on the longest keys only.  The dictionary to be
    memorised is the same in both, and for every seed: tokens have no meaning to a model before it
    is trained, so that another dictionary is another seed of the model.

    Parameters
    ----------
    setting : Setting
        From ``BASELINES`` or :func:`settings`, or one of your own.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    n_test : int, default 1280
        Sequences to test on.

    Returns
    -------
    train, test : Tokens

    Raises
    ------
    TypeError
        If an option of the setting is of the wrong kind.
    ValueError
        If one is out of range.

    Examples
    --------
    >>> from olsq.tasks import mad
    >>> from olsq.tasks.tokens import IGNORE
    >>> train, test = mad.split(mad.BASELINES["in_context_recall"], 0)
    >>> train.inputs.shape, test.inputs.shape
    ((12800, 127), (1280, 127))
    >>> bool((train.targets == IGNORE).any()), bool((test.targets == IGNORE).any())
    (False, True)
    """
    check_integers(n_train=(setting.n_train, 0), n_test=(n_test, 0))
    rng = generator(seed)
    train = setting.draw(setting.n_train, rng, **setting.options)
    return train, setting.draw(n_test, rng, **setting.options, **setting.test_options)

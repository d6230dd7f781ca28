"""Training on a corpus as in the MesaNet paper: windows of its tokens, AdamW, a cosine schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from olsq.train.config import TrainConfig
from olsq.train.corpus import Corpus
from olsq.train.evaluation import Evaluation, evaluate
from olsq.train.log import Record
from olsq.train.losses import next_token_loss
from olsq.train.optimiser import adamw
from olsq.train.trainer import Trainer

__all__ = ["CorpusTrainer", "fit"]


class CorpusTrainer(Trainer):
    """:class:`Trainer` of a language model on a corpus, with the options of a config.

    Parameters
    ----------
    model : Equinox module
        ``model(tokens)`` maps (B, T) int32 to logits (B, T, vocabulary).
    corpus : Corpus
    config : TrainConfig
    **options
        Others of :class:`Trainer`: ``directory``, ``tokenizer``, ``setup``, ``checkpoint_every``,
        ``callbacks``, ``mesh``, ``ahead``.

    Raises
    ------
    ValueError
        If sequences do not fit into the corpus, or its tokens into the model's vocabulary.

    Examples
    --------
    >>> import equinox as eqx, jax, numpy as np
    >>> from olsq.train import Corpus, CorpusTrainer, TrainConfig
    >>> class Bigram(eqx.Module):
    ...     table: jax.Array = eqx.field(default_factory=lambda: jax.numpy.zeros((4, 4)))
    ...     def __call__(self, tokens):
    ...         return self.table[tokens]
    >>> corpus = Corpus.split(np.arange(1000) % 4)
    >>> config = TrainConfig(steps=300, batch=4, length=8, lr=0.1)
    >>> losses = [record.loss for record in CorpusTrainer(Bigram(), corpus, config).run()]
    >>> round(losses[0], 3), losses[-1] < 0.05
    (1.386, True)
    """

    def __init__(self, model: Any, corpus: Corpus, config: TrainConfig, **options: Any) -> None:
        corpus.check(config.length, vocabulary_of(model, config.length))
        self.corpus, self.config = corpus, config
        self._windows = corpus.windows(config.length, config.evaluate_sequences)
        z_loss = config.z_loss

        def loss(model: Any, tokens: Any, **key: Any) -> Any:
            return next_token_loss(model, tokens, z_loss=z_loss, **key)

        super().__init__(
            model,
            batches=corpus.batches(batch=config.batch, length=config.length, seed=config.seed),
            loss=loss,
            optimizer=adamw(config),
            steps=config.steps,
            learning_rate=config.learning_rate,
            accumulate=config.accumulate,
            average=config.average,
            evaluation=self._validation_loss,
            evaluate_every=config.evaluation_steps,
            key=jax.random.key(config.seed) if has_dropout(model) else None,
            **options,
        )

    def options(self) -> dict[str, Any]:
        """Return the options of the config."""
        return self.config.to_dict()

    def evaluate(self) -> Evaluation:
        """Evaluate the losses of the whole validation part."""
        return self._evaluate(self.averaged, self.corpus.windows(self.config.length))

    def _validation_loss(self, model: Any) -> float:
        return self._evaluate(model, self._windows).loss

    def _evaluate(self, model: Any, windows: Any) -> Evaluation:
        return evaluate(model, windows, batch=self.config.batch // self.config.accumulate)


def fit(
    model: Any,
    corpus: Corpus,
    config: TrainConfig,
    *,
    resume: bool = False,
    callback: Callable[[Record], object] | None = None,
    **options: Any,
) -> CorpusTrainer:
    """Train a language model on a corpus to the last step.

    Parameters
    ----------
    model, corpus, config
        As for :class:`CorpusTrainer`.
    resume : bool
        Go on from the checkpoint in the directory, if there is one: to the same weights, bit for
        bit, as without the stop.
    callback : callable, optional
        Called with every :class:`Record`.
    **options
        Others of :class:`Trainer`: ``directory``, ``tokenizer``, ``setup``, ``checkpoint_every``.

    Returns
    -------
    CorpusTrainer
        ``model``, ``log`` and ``evaluate()``.

    Raises
    ------
    CheckpointError, TrainingError, ValueError, OSError
        As :meth:`Trainer.resume` and :meth:`Trainer.run`.
    """
    run_options = {"callbacks": (callback,)} if callback is not None else {}
    return CorpusTrainer(model, corpus, config, **run_options, **options).fit(resume=resume)


def vocabulary_of(model: Any, length: int) -> int:
    """Return the number of logits of a model; ValueError if it does not map tokens to logits."""
    tokens = jax.ShapeDtypeStruct((1, length), jnp.int32)
    shape = getattr(eqx.filter_eval_shape(model, tokens), "shape", None)
    if shape is None or len(shape) != 3 or shape[:2] != tokens.shape:
        raise ValueError(
            f"the model must map tokens (batch, time) to logits (batch, time, vocabulary), got "
            f"{shape} from {tokens.shape}"
        )
    return shape[2]


def has_dropout(model: Any) -> bool:
    """Test whether a model has dropout, and so takes a key."""
    return bool(np.any(getattr(getattr(model, "backbone", None), "dropout", 0)))

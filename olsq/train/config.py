"""Training options, checked once, and the learning rate at each step."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import optax

from olsq.arrays.checks import check_sizes, is_number

__all__ = ["TrainConfig"]

FIRST_RATE = 1e-6  # of the warm-up, as in the MesaNet paper
LAST_FRACTION = 0.1  # of the peak, where the cosine ends


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """AdamW with warm-up and cosine decay, as the MesaNet paper trains.

    Attributes
    ----------
    steps : int
        Updates of the weights.
    batch, length : int
        Sequences in one update, and tokens predicted in each.
    lr : float
        Peak learning rate: reached after ``warmup`` steps from 1e-6, then a cosine to a tenth.
    warmup : int or None
        Steps of linear warm-up; None is a tenth of ``steps``, at most 2000.
    weight_decay : float
        On matrices only: not on the embedding, norms, biases, convolutions and ridges.
    beta1, beta2, eps : float
        Adam's.
    clip : float
        Largest global norm of a gradient.
    accumulate : int
        Parts in which a batch is computed one after the other, to save memory.
    z_loss : float
        Times the mean of ``log(Z)^2``, added to the loss; see :func:`token_loss`.
    average : float or None
        Keep an exponential moving average of the weights with this decay, and evaluate it.
    seed : int
        Of the order of the data, and of dropout: a batch depends on it and the step only.
    evaluate_every : int or None
        Steps between two validation losses; None is a twentieth of ``steps``.
    evaluate_sequences : int
        Validation sequences used for each of them.

    Raises
    ------
    ValueError
        If a number is out of range.

    Examples
    --------
    >>> from olsq.train import TrainConfig
    >>> config = TrainConfig(steps=1000, lr=3e-3)
    >>> [f"{float(config.learning_rate(step)):.4g}" for step in (0, 50, 100, 550, 1000)]
    ['1e-06', '0.001501', '0.003', '0.00165', '0.0003']
    """

    steps: int = 1000
    batch: int = 16
    length: int = 256
    lr: float = 1e-3
    warmup: int | None = None
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-8
    clip: float = 1.0
    accumulate: int = 1
    z_loss: float = 0.0
    average: float | None = None
    seed: int = 0
    evaluate_every: int | None = None
    evaluate_sequences: int = 64

    def __post_init__(self) -> None:
        counts = ["steps", "batch", "length", "accumulate", "evaluate_sequences"]
        counts += ["evaluate_every"] * (self.evaluate_every is not None)
        check_sizes(**{name: getattr(self, name) for name in counts})
        numbers = ("lr", "eps", "clip", "beta1", "beta2", "weight_decay", "z_loss")
        for name in (*numbers, *["average"] * (self.average is not None)):
            if not is_number(getattr(self, name)):
                raise ValueError(f"{name} must be a number, got {getattr(self, name)!r}")
        for name in ("lr", "eps", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a positive number, got {getattr(self, name)!r}")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must lie in [0, 1), got {getattr(self, name)!r}")
        for name in ("weight_decay", "z_loss"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)!r}")
        if self.average is not None and not 0 < self.average < 1:
            raise ValueError(f"average must lie between 0 and 1, got {self.average!r}")
        if self.warmup is not None and not 0 <= self.warmup <= self.steps:
            raise ValueError(
                f"warmup must lie between 0 and the {self.steps} steps, got {self.warmup!r}"
            )
        check_sizes(0, bits=63, seed=self.seed)
        if self.batch % self.accumulate:
            raise ValueError(
                f"batch must be a multiple of accumulate, got {self.batch} and {self.accumulate}"
            )

    @property
    def warmup_steps(self) -> int:
        """``warmup`` or its default."""
        return min(self.steps // 10, 2000) if self.warmup is None else self.warmup

    @property
    def evaluation_steps(self) -> int:
        """``evaluate_every`` or its default."""
        return max(self.steps // 20, 1) if self.evaluate_every is None else self.evaluate_every

    def learning_rate(self, step: Any) -> Any:
        """Return the learning rate of the update that follows ``step`` updates."""
        decay = optax.schedules.cosine_decay_schedule(
            self.lr, max(self.steps - self.warmup_steps, 1), alpha=LAST_FRACTION
        )
        rise = optax.schedules.linear_schedule(
            min(FIRST_RATE, self.lr), self.lr, max(self.warmup_steps, 1)
        )
        return optax.schedules.join_schedules([rise, decay], [self.warmup_steps])(step)

    def to_dict(self) -> dict[str, Any]:
        """Return every field by name."""
        return dataclasses.asdict(self)

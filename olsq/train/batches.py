"""Batches as functions of the step, so that a resumed run needs no state of its data."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

__all__ = ["Batches", "shuffled"]


class Batches:
    """Batches as a function of the step's number, with a digest of their data.

    Parameters
    ----------
    draw : callable
        From the step (0, 1, ...) to a batch: an array, or a tuple of arrays whose first axis is
        the batch's.  A pure function: the same step, the same batch.
    digest : str, optional
        What the batches are made from; a checkpoint made with another is refused.

    Examples
    --------
    >>> from olsq.train import Batches
    >>> import numpy as np
    >>> batches = Batches(lambda step: np.full((2, 3), step))
    >>> batches(5).tolist()
    [[5, 5, 5], [5, 5, 5]]
    >>> [int(batch[0, 0]) for _, batch in zip(range(3), batches)]
    [0, 1, 2]
    """

    def __init__(self, draw: Callable[[int], Any], digest: str = "") -> None:
        self._draw, self.digest = draw, digest

    def __call__(self, step: int) -> Any:
        """Return the batch of a step."""
        return self._draw(step)

    def __iter__(self) -> Iterator[Any]:
        step = 0
        while True:
            yield self._draw(step)
            step += 1


def shuffled(arrays: Any, batch: int, *, seed: int = 0) -> Batches:
    """Draw batches of rows of a finite set, in a new random order in every epoch.

    Parameters
    ----------
    arrays : array (n, ...), or tuple of them
        A :class:`Packed` for example; memory-mapped arrays are read a batch at a time.
    batch : int
        Rows of a batch, at most n; rows that do not fill the last one of an epoch are left for
        another.
    seed : int

    Returns
    -------
    Batches
        Each a tuple like ``arrays``, or one array.

    Raises
    ------
    ValueError
        If the arrays differ in length, or a batch needs more rows than there are.

    Examples
    --------
    >>> import numpy as np
    >>> from olsq.train import shuffled
    >>> batches = shuffled(np.arange(6), 3)
    >>> sorted(np.concatenate([batches(0), batches(1)]).tolist())
    [0, 1, 2, 3, 4, 5]
    """
    single = not isinstance(arrays, tuple)
    columns = (arrays,) if single else tuple(arrays)
    lengths = {len(column) for column in columns}
    if len(lengths) != 1:
        raise ValueError(f"arrays must have the same number of rows, got {sorted(lengths)}")
    n = lengths.pop()

    def take(rows: Any) -> Any:
        taken = [column[rows] for column in columns]
        return taken[0] if single else tuple(taken)

    return shuffled_rows(take, n, batch, seed, digest_of(columns))


def shuffled_rows(
    take: Callable[[Any], Any], n: int, batch: int, seed: int, digest: str
) -> Batches:
    """Draw batches ``take(rows)`` of n rows, in a new random order in every epoch."""
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch <= n:
        raise ValueError(f"batch must be a whole number from 1 to the {n:,} rows, got {batch!r}")
    steps = n // batch
    orders: dict[int, Any] = {}  # of the epoch that is being read

    def draw(step: int) -> Any:
        epoch, place = divmod(step, steps)
        if epoch not in orders:
            orders.clear()
            orders[epoch] = np.random.default_rng((seed, epoch)).permutation(n)
        return take(orders[epoch][place * batch : (place + 1) * batch])

    return Batches(draw, digest)


def check_batches(batches: Any) -> None:
    """Raise TypeError unless ``batches`` is a function of the step or an iterable."""
    if not callable(batches) and not isinstance(batches, Iterable):
        raise TypeError(
            "batches must be a function of the step or an iterable of batches, got "
            f"{type(batches).__name__}"
        )


def batches_from(batches: Callable[[int], Any] | Iterable[Any], step: int) -> Iterator[Any]:
    """Iterate over batches from a step on; those of an iterable before it are read and dropped."""
    if callable(batches):
        return (batches(number) for number in itertools.count(step))
    return itertools.islice(iter(batches), step, None)


def digest_of(arrays: Any) -> str:
    """Compute the SHA-256 of arrays, their shapes and types."""
    digest = hashlib.sha256()
    for array in arrays:
        array = np.ascontiguousarray(array)
        digest.update(f"{array.dtype.str}{array.shape}|".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()

"""Documents packed into rows of one length, each kept apart by its segment id."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.arrays.brief import brief_repr
from olsq.arrays.checks import check_flag, check_sizes
from olsq.train.losses import IGNORE

__all__ = ["Packed", "pack"]

Piece = tuple[int, int, int]  # of which document, from which token, to which


class Packed(NamedTuple):
    """Rows of documents: the arguments of a loss, in order.

    Attributes
    ----------
    tokens, targets : int32 array (B, T)
        A target is the next token of the same document, ``olsq.train.IGNORE`` where there is none.
    segment_ids : int32 array (B, T)
        0, 1, ... along a row: nothing passes from one segment to the next.  Padding at the end
        of a row is a segment of its own.
    """

    tokens: NDArray[np.int32]
    targets: NDArray[np.int32]
    segment_ids: NDArray[np.int32]

    __repr__ = brief_repr

    def rows(self, chosen: ArrayLike) -> Packed:
        """Select some of the rows."""
        return Packed(*(x[np.asarray(chosen)] for x in self))


def pack(documents: Iterable[ArrayLike], length: int, *, split: bool = True) -> Packed:
    """Pack documents of many lengths into rows of one length, without mixing them.

    Parameters
    ----------
    documents : iterable of int array (n,)
        Tokens; those of fewer than two have nothing to predict and are left out.
    length : int
        T, tokens in a row.
    split : bool
        Cut what is longer than ``length + 1`` tokens into pieces, each a document; the token
        where two pieces meet ends one and begins the next, so that every token but a document's
        first is predicted once.  If False, a document that does not fit is an error.

    Returns
    -------
    Packed
        Rows in the order in which they were begun.

    Raises
    ------
    ValueError
        If a document is not one sequence of whole numbers, does not fit, or none is left.

    Notes
    -----
    The longest documents first, each into the fullest row that has room for it, which needs at
    most 11/9 of the fewest rows and four (D. S. Johnson, "Near-optimal bin packing algorithms",
    1973).  A document of n tokens takes n - 1 places, since its last is only predicted.

    Examples
    --------
    >>> from olsq.train import pack
    >>> rows = pack([[5, 1, 4], [2, 7], [3, 3, 3, 3]], length=5)
    >>> rows.tokens.tolist()
    [[3, 3, 3, 5, 1], [2, 0, 0, 0, 0]]
    >>> rows.targets.tolist()
    [[3, 3, 3, 1, 4], [7, -100, -100, -100, -100]]
    >>> rows.segment_ids.tolist()
    [[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]
    """
    arrays = [_document(d, i) for i, d in enumerate(documents)]
    rows = plan([len(array) for array in arrays], length, split=split)
    return fill(rows, length, lambda i, start, stop: arrays[i][start:stop])


def plan(sizes: Sequence[int], length: int, *, split: bool = True) -> list[list[Piece]]:
    """Choose which pieces of documents of these sizes share a row.

    Errors are those of :func:`pack`.
    """
    check_sizes(length=length)
    check_flag("split", split)
    pieces: list[Piece] = []
    for number, size in enumerate(sizes):
        if size > length + 1 and not split:
            raise ValueError(
                f"document {number} has {size:,} tokens: more than the {length + 1:,} of a row "
                "and the token after; use a larger length or split=True"
            )
        starts = range(0, max(int(size) - 1, 0), length)
        pieces += [(number, i, min(i + length + 1, int(size))) for i in starts]
    if not pieces:
        raise ValueError("there is no document with two tokens or more: nothing to predict")
    return _first_fit(pieces, length)


def fill(
    rows: Sequence[list[Piece]], length: int, read: Callable[[int, int, int], NDArray]
) -> Packed:
    """Fill the rows of a plan with tokens from ``read(document, start, stop)``."""
    tokens = np.zeros((len(rows), length), np.int32)
    targets = np.full((len(rows), length), IGNORE, np.int32)
    segment_ids = np.zeros((len(rows), length), np.int32)
    for row, members in enumerate(rows):
        start = 0
        for number, member in enumerate(members):
            piece = read(*member)
            stop = start + len(piece) - 1
            tokens[row, start:stop] = piece[:-1]
            targets[row, start:stop] = piece[1:]
            segment_ids[row, start:stop] = number
            start = stop
        segment_ids[row, start:] = len(members)
    return Packed(tokens, targets, segment_ids)


def _document(document: ArrayLike, number: int) -> NDArray:
    """Check and convert one sequence of whole numbers."""
    array = np.asarray(document)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(
            f"document {number} must be one sequence of whole numbers, got {array.dtype} "
            f"{array.shape}"
        )
    return array


def _first_fit(pieces: Sequence[Piece], length: int) -> list[list[Piece]]:
    """Choose which pieces share a row: the largest first, into the fullest row that has room."""
    sizes = [stop - start - 1 for _, start, stop in pieces]
    rows: list[list[Piece]] = []
    by_room: list[deque[int]] = [deque() for _ in range(length + 1)]  # rows with that much room
    rooms = np.zeros(length + 1, bool)
    for member in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        size = sizes[member]
        place = int(rooms[size:].argmax())
        if rooms[size + place]:
            room = size + place
            row = by_room[room].popleft()
            rooms[room] = bool(by_room[room])
        else:
            row, room = len(rows), length
            rows.append([])
        rows[row].append(pieces[member])
        by_room[room - size].append(row)
        rooms[room - size] = True
    return rows

"""Random prefix-closed automata, minimised and numbered canonically, a whole batch at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from olsq.arrays.brief import brief_repr
from olsq.arrays.seeds import generator
from olsq.tasks._checks import check_integers

FEWEST_STATES = 4
FEWEST_LETTERS = 4
MOST_LETTERS = 2**15  # more make tables of gigabytes for every chunk of automata
MOST_EDGES = 3  # the number of other states in the smallest automaton
ROUNDS = 100
CHUNK = 1024  # automata at a time: minimising compares all pairs of states


class Automata(NamedTuple):
    """A batch of n deterministic automata; all states accept, state 0 is the start.

    Minimal, and with states numbered in breadth-first order along sorted letters, so that two
    automata with the same language are equal arrays.

    Attributes
    ----------
    next_state : array (n, states, letters), int8
        State after reading a letter; -1 where the letter cannot be read.
    n_states : array (n,), int64
        Number of states in use; the rows of ``next_state`` beyond are -1.

    Examples
    --------
    >>> from olsq.tasks.regbench import random_automata
    >>> automata = random_automata(3, 0)
    >>> automata.next_state.shape, bool((automata.n_states <= 12).all())
    ((3, 12, 18), True)
    """

    next_state: NDArray
    n_states: NDArray

    __repr__ = brief_repr


def random_automata(
    n: int,
    seed: np.random.Generator | int,
    *,
    max_states: int = 12,
    n_letters: int = 18,
    max_edges: int = 3,
) -> Automata:
    """Draw n automata with n different languages.

    Each has 4 to ``max_states`` states and an alphabet of 4 to ``n_letters`` letters; every state
    has 1 to ``max_edges`` edges with different letters to different other states, all of these
    uniform.  Then it is minimised, which may join or drop states and make self-loops.

    Parameters
    ----------
    n : int
        How many.
    seed : numpy Generator or int
        Source of randomness; a Generator advances.
    max_states : int, default 12
        Largest number of states before minimisation, 4 to 127.
    n_letters : int, default 18
        Letters there are, 4 to 32,768.
    max_edges : int, default 3
        Most edges out of a state, 1 to 3.

    Returns
    -------
    Automata

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If one is out of range, or n different languages could not be found.

    Notes
    -----
    Source: E. Akyurek, B. Wang, Y. Kim, J. Andreas, "In-context language learning: architectures
    and algorithms" (2024).  The paper says up to four edges; its code, and so all its numbers,
    has up to three.

    Examples
    --------
    >>> from olsq.tasks.regbench import random_automata
    >>> automata = random_automata(100, 0, max_states=6, n_letters=8)
    >>> len({row.tobytes() for row in automata.next_state})
    100
    """
    check_integers(
        n=(n, 0),
        max_states=(max_states, FEWEST_STATES, np.iinfo(np.int8).max),
        n_letters=(n_letters, FEWEST_LETTERS, MOST_LETTERS),
        max_edges=(max_edges, 1, MOST_EDGES),
    )
    rng = generator(seed)
    distinct: dict[bytes, NDArray] = {}
    for _ in range(ROUNDS):
        if len(distinct) >= n:
            break
        size = min(max(n - len(distinct), 16), CHUNK)
        for table in canonical(_draw(size, rng, max_states, n_letters, max_edges)):
            distinct.setdefault(table.tobytes(), table)
    tables = list(distinct.values())[:n]
    if len(tables) < n:
        raise ValueError(
            f"found only {len(tables)} different automata, not {n}: "
            "ask for fewer, or raise max_states or n_letters"
        )
    next_state = np.array(tables, dtype=np.int8).reshape(n, max_states, n_letters)
    return Automata(next_state, (next_state >= 0).any(-1).sum(-1))


def _draw(
    n: int, rng: np.random.Generator, max_states: int, n_letters: int, max_edges: int
) -> NDArray:
    """Return raw transition tables (n, states, letters), -1 for no edge."""
    n_states = rng.integers(FEWEST_STATES, max_states, size=(n, 1), endpoint=True)
    exists = np.arange(max_states) < n_states
    alphabet_size = rng.integers(FEWEST_LETTERS, n_letters, size=(n, 1), endpoint=True)
    in_alphabet = rng.random((n, n_letters)).argsort(-1) < alphabet_size
    edges = rng.integers(1, max_edges, size=(n, max_states), endpoint=True)

    # sorting random keys draws without replacement; a key of 2 puts the forbidden ones last
    keys = rng.random((n, max_states, n_letters))
    letter = np.where(in_alphabet[:, None, :], keys, 2.0).argsort(-1)
    keys = rng.random((n, max_states, max_states))
    is_other = exists[:, None, :] & ~np.eye(max_states, dtype=bool)
    target = np.where(is_other, keys, 2.0).argsort(-1)

    used = (np.arange(max_edges) < edges[..., None]) & exists[..., None]
    i, state, edge = np.nonzero(used)
    table = np.full((n, max_states, n_letters), -1, dtype=np.int8)
    table[i, state, letter[i, state, edge]] = target[i, state, edge]
    return table


def canonical(table: NDArray) -> NDArray:
    """Minimise automata, with states in breadth-first order from state 0.

    Two states are joined exactly if the same words can be read from them.  That is the coarsest
    partition in which members read the same letters into the same parts, found by refining the
    partition with one part until it stays (Moore).
    """
    n, n_states, n_letters = table.shape
    each = np.arange(n)
    part = np.zeros((n, n_states), dtype=np.int64)  # a part is named by its first member
    while True:
        quotient = np.where(table >= 0, part[each[:, None, None], table], -1).astype(np.int8)
        same = (quotient[:, :, None, :] == quotient[:, None, :, :]).all(-1)
        finer = same.argmax(-1)
        if np.array_equal(finer, part):
            break
        part = finer

    number = np.full((n, n_states), -1, dtype=np.int8)
    number[:, 0] = 0
    order = np.zeros((n, n_states), dtype=np.int64)  # the queue of the search; states stay in it
    count = np.ones(n, dtype=np.int64)
    for position in range(n_states):
        here = order[:, position]
        for letter in range(n_letters):
            target = quotient[each, here, letter]
            new = (position < count) & (target >= 0) & (number[each, target] < 0)
            i = np.nonzero(new)[0]
            number[i, target[i]] = count[i]
            order[i, count[i]] = target[i]
            count[i] += 1
    renamed = quotient[each[:, None], order]
    renamed = np.where(renamed >= 0, number[each[:, None, None], renamed], -1)
    renamed[np.arange(n_states) >= count[:, None]] = -1
    return renamed.astype(np.int8)

"""RegBench: the metric, and the controls that need no training."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.tasks._checks import check_integers
from olsq.tasks.regbench import RegBench

__all__ = [
    "allowed_symbols",
    "alphabet_probabilities",
    "ngram_probabilities",
    "oracle_probabilities",
    "regbench_accuracy",
    "regbench_distance",
    "scored",
]

MOST_ORDER = 4  # the table of counts has (L + 2)^order entries for each sequence
CHUNK = 256


def scored(data: RegBench) -> NDArray:
    """Return where a prediction counts, bool (n, T): the next input exists and is a letter.

    One position fewer than there are labels: the last letter of a sequence is a label and never
    an input, and the published metric leaves it out.

    Examples
    --------
    >>> from olsq.tasks.regbench import regbench_splits
    >>> from olsq.tasks.regbench_controls import scored
    >>> (data,) = regbench_splits([5], 0)
    >>> bool((data.labels[scored(data)] > 0).all())
    True
    """
    mask = np.zeros(data.inputs.shape, dtype=bool)
    mask[:, :-1] = (data.labels[:, :-1] > 0) & (data.inputs[:, 1:] > 0)
    return mask


def allowed_symbols(data: RegBench) -> NDArray:
    """Return which symbols the automaton can read next, bool (n, T, L + 2).

    Never padding or the separator.  In padding the answer is that of the start state.

    Examples
    --------
    >>> from olsq.tasks.regbench import regbench_splits
    >>> from olsq.tasks.regbench_controls import allowed_symbols
    >>> (data,) = regbench_splits([5], 0)
    >>> int(allowed_symbols(data).sum(-1).max())
    3
    """
    can_read = np.pad(data.automata.next_state >= 0, [(0, 0), (0, 0), (1, 1)])
    return can_read[np.arange(len(data.state))[:, None], data.state]


def regbench_accuracy(scores: ArrayLike, data: RegBench) -> float:
    """Return the share of positions at which the best-scored symbol is one that can come next.

    Parameters
    ----------
    scores : array (n, T, L + 2)
        Logits or probabilities of the next symbol; the first of equal ones wins.
    data : RegBench
        The sequences.

    Returns
    -------
    float
        In [0, 1], averaged over all scored positions; NaN if there are none.

    Raises
    ------
    ValueError
        If the shape of ``scores`` does not fit.

    Notes
    -----
    Validity, not an exact match: any letter that labels an edge out of the automaton's state is
    right, a separator or padding never is.

    Examples
    --------
    >>> from olsq.tasks.regbench import regbench_splits
    >>> from olsq.tasks.regbench_controls import oracle_probabilities, regbench_accuracy
    >>> (data,) = regbench_splits([5], 0)
    >>> regbench_accuracy(oracle_probabilities(data), data)
    1.0
    """
    scores = _checked(scores, data)
    right = np.take_along_axis(allowed_symbols(data), scores.argmax(-1)[..., None], axis=-1)
    right = right[..., 0][scored(data)]
    return float(right.mean()) if right.size else float("nan")


def regbench_distance(probabilities: ArrayLike, data: RegBench) -> float:
    """Return the mean total-variation distance to the true distribution of the next letter.

    Parameters
    ----------
    probabilities : array (n, T, L + 2)
        Predicted distribution of the next symbol, summing to 1.
    data : RegBench
        The sequences.

    Returns
    -------
    float
        In [0, 1], half the L1 distance, averaged over all scored positions; NaN if there are none.

    Raises
    ------
    ValueError
        If the shape does not fit.

    Examples
    --------
    >>> from olsq.tasks.regbench import regbench_splits
    >>> from olsq.tasks.regbench_controls import oracle_probabilities, regbench_distance
    >>> (data,) = regbench_splits([5], 0)
    >>> regbench_distance(oracle_probabilities(data), data)
    0.0
    """
    error = np.abs(_checked(probabilities, data) - oracle_probabilities(data)).sum(-1)
    error = error[scored(data)]
    return float(0.5 * error.mean()) if error.size else float("nan")


def oracle_probabilities(data: RegBench) -> NDArray:
    """Return the true distribution of the next letter of a word, float32 (n, T, L + 2).

    Examples
    --------
    >>> from olsq.tasks.regbench import regbench_splits
    >>> from olsq.tasks.regbench_controls import oracle_probabilities
    >>> (data,) = regbench_splits([5], 0)
    >>> float(oracle_probabilities(data)[0, 0].sum())
    1.0
    """
    return _normalised(allowed_symbols(data))


def alphabet_probabilities(data: RegBench) -> NDArray:
    """Return the uniform distribution over the letters of each automaton, float32 (n, T, L + 2).

    Its samples are the control that knows the alphabet and nothing else.

    Examples
    --------
    >>> from olsq.tasks.regbench import regbench_splits
    >>> from olsq.tasks.regbench_controls import alphabet_probabilities
    >>> (data,) = regbench_splits([5], 0)
    >>> alphabet_probabilities(data).shape == (*data.inputs.shape, 20)
    True
    """
    used = np.pad((data.automata.next_state >= 0).any(1), [(0, 0), (1, 1)])
    return np.repeat(_normalised(used)[:, None], data.inputs.shape[1], axis=1)


def ngram_probabilities(data: RegBench, *, order: int = 3) -> NDArray:
    """Predict from how often letters followed the last ``order - 1`` symbols of the same sequence.

    Backs off to the longest context that has been seen.  A context does not reach into the word
    before: the start of a word counts as a symbol of its own.

    Parameters
    ----------
    data : RegBench
        The sequences; only ``inputs`` is read.
    order : int, default 3
        Length of the n-grams, 1 to 4.

    Returns
    -------
    array (n, T, L + 2), float32
        Distribution of the next letter given the inputs up to and including the position.  0 in
        padding.

    Raises
    ------
    TypeError
        If ``order`` is not an integer.
    ValueError
        If it is out of range.

    Notes
    -----
    Source: the non-neural control of Akyurek et al. (2024), with plain relative frequencies in the
    longest seen context and no smoothing.  Memory: (L + 2)^order counts for each of 256 sequences
    at a time.

    Examples
    --------
    >>> from olsq.tasks.regbench import regbench_splits
    >>> from olsq.tasks.regbench_controls import ngram_probabilities, regbench_accuracy
    >>> (data,) = regbench_splits([20], 0)
    >>> regbench_accuracy(ngram_probabilities(data), data) > 0.8
    True
    """
    check_integers(order=(order, 1, MOST_ORDER))
    n_symbols = data.automata.next_state.shape[-1] + 2
    result = np.zeros((*data.inputs.shape, n_symbols), dtype=np.float32)
    for start in range(0, len(result), CHUNK):
        rows = slice(start, start + CHUNK)
        _ngram(data.inputs[rows], order, n_symbols, result[rows])
    return result


def _ngram(inputs: NDArray, order: int, n_symbols: int, out: NDArray) -> None:
    n = len(inputs)
    each = np.arange(n)
    separator = n_symbols - 1
    dtype = np.min_scalar_type(inputs.shape[1])  # no letter is counted more often
    counts = [np.zeros((n, n_symbols**k, n_symbols), dtype) for k in range(order)]
    # the last order - 1 symbols as digits; a context of k symbols is the code modulo symbols^k
    powers = n_symbols ** np.arange(order)
    word_start = int(separator * powers[:-1].sum())
    code = np.full(n, word_start)
    for t in range(inputs.shape[1]):
        symbol = inputs[:, t]
        is_letter = (symbol > 0) & (symbol < separator)
        for k in range(order):
            counts[k][each, code % powers[k], symbol] += is_letter
        code = np.where(is_letter, (code * n_symbols + symbol) % powers[-1], word_start)
        counted = counts[0][:, 0]
        for k in range(1, order):
            longer = counts[k][each, code % powers[k]]
            counted = np.where(longer.any(-1, keepdims=True), longer, counted)
        out[:, t] = _normalised(counted) * (symbol > 0)[:, None]


def _normalised(weights: NDArray) -> NDArray:
    total = weights.sum(-1, keepdims=True, dtype=np.float32)
    return weights / np.maximum(total, np.float32(1.0))


def _checked(scores: ArrayLike, data: RegBench) -> NDArray:
    scores = np.asarray(scores)
    expected = (*data.inputs.shape, data.automata.next_state.shape[-1] + 2)
    if scores.shape != expected:
        raise ValueError(f"scores must have shape {expected}, one per symbol, got {scores.shape}")
    return scores

"""Data generators for in-context learning: NumPy in, arrays out, seeded."""

from olsq.tasks.regbench import Automata, RegBench, random_automata, regbench_splits
from olsq.tasks.regbench_controls import (
    allowed_symbols,
    alphabet_probabilities,
    ngram_probabilities,
    oracle_probabilities,
    regbench_accuracy,
    regbench_distance,
)

__all__ = [
    "Automata",
    "RegBench",
    "allowed_symbols",
    "alphabet_probabilities",
    "ngram_probabilities",
    "oracle_probabilities",
    "random_automata",
    "regbench_accuracy",
    "regbench_distance",
    "regbench_splits",
]

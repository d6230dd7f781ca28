"""Data generators for in-context learning: NumPy in, arrays out, seeded."""

from olsq.tasks.dynamics import (
    FewShot,
    LinearDynamics,
    few_shot_regression,
    interleave,
    linear_dynamics,
    random_orthogonal,
)
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
    "FewShot",
    "LinearDynamics",
    "RegBench",
    "allowed_symbols",
    "alphabet_probabilities",
    "few_shot_regression",
    "interleave",
    "linear_dynamics",
    "ngram_probabilities",
    "oracle_probabilities",
    "random_automata",
    "random_orthogonal",
    "regbench_accuracy",
    "regbench_distance",
    "regbench_splits",
]

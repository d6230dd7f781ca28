"""Data generators for in-context learning: NumPy in, arrays out, seeded."""

from olsq.tasks import mad, tokens
from olsq.tasks._recall import mqar
from olsq.tasks._state_tracking import parity, word_problem
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
from olsq.tasks.tokens import Tokens, token_accuracy

__all__ = [
    "Automata",
    "FewShot",
    "LinearDynamics",
    "RegBench",
    "Tokens",
    "allowed_symbols",
    "alphabet_probabilities",
    "few_shot_regression",
    "interleave",
    "linear_dynamics",
    "mad",
    "mqar",
    "ngram_probabilities",
    "oracle_probabilities",
    "parity",
    "random_automata",
    "random_orthogonal",
    "regbench_accuracy",
    "regbench_distance",
    "regbench_splits",
    "token_accuracy",
    "tokens",
    "word_problem",
]

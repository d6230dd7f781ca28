"""Numbers of public functions: huge, tiny and no numbers give a result, or an error by name."""

from __future__ import annotations

import re
import signal
import warnings
from functools import partial

import numpy as np
import pytest

import olsq
from olsq import features, forgetting, icl, linalg, nn, stability, tasks, train

RNG = np.random.default_rng(0)
N = 40
X = RNG.standard_normal((N, 2))
Y = X @ [1.0, -2.0] + 0.1 * RNG.standard_normal(N)
BY = [["a", "b"][t % 2] for t in range(N)]
TIMES = np.arange(N) * 1.0
KEYS = RNG.standard_normal((1, 6, 2))
TOKENS = np.ones((1, 3, 1, 2), np.float32)

HUGE = (10**400, -(10**400), 2**63 - 1, np.int64(2**63 - 1))
VALUES = (*HUGE, 1e308, -1e308, 5e-324, np.inf, -np.inf, np.nan, np.float64("nan"))
VALUES += (0, -1, 0.5, True, "1", 1j, np.timedelta64(1, "D"), np.ones(2))
# Numbers of which an integer of any size is what is asked for, be it for ever.
COUNTS = {"draws", "steps", "terms", "starts", "max_steps", "max_iter", "blocks"}
SECONDS = 60  # of one call


def fitted(**options):
    return olsq.RecursiveLeastSquares(**options).fit(X, Y)


def fit(make, *arguments, **options):
    return lambda **number: make(*arguments, **options, **number).fit(X, Y)


def path(**options):
    return olsq.coefficient_path(X, Y, **options)


def by_strategy(make, **options):
    return lambda **number: fitted(forget=make(**{**options, **number}))


def with_defaults(call, *arguments, **options):
    return lambda **number: call(*arguments, **{**options, **number})


def bank(n=3, **options):
    return olsq.FilterBank(n, **{"ridge": 1.0, **options}).partial_fit(X[:3], Y[:3])


def solve(solver, **options):
    return lambda **number: olsq.online_lstsq(
        KEYS, KEYS, KEYS, ridge=1.0, solver=solver(**number), **options
    )


def layer():
    return icl.from_products(np.eye(2), np.eye(2))


def key():
    import jax

    return jax.random.key(0)


def of(call):
    """A call of what is made only when a test runs."""
    return lambda **number: call(**number)


RLS = olsq.RecursiveLeastSquares
STATE = olsq.Moments(np.eye(2), np.ones((1, 2)))
# What is called, with good arguments, and its numbers.
CALLS = {
    "RecursiveLeastSquares": (fit(RLS), "forget half_life ridge noise_variance"),
    "RollingLeastSquares": (
        fit(olsq.RollingLeastSquares, window=20),
        "min_samples ridge noise_variance forget half_life",
    ),
    "window": (fit(olsq.RollingLeastSquares), "window"),
    "FilterBank": (bank, "n n_features forget half_life ridge noise_variance"),
    "FilterBank.grow": (lambda **f: bank().grow(**f), "more"),
    "FilterBank.sample_coef": (
        lambda **f: bank().sample_coef(**{"rng": 0, "sigma2": 1.0, **f}), "rng size sigma2",
    ),
    "RobustLeastSquares": (
        fit(olsq.RobustLeastSquares, loss="student"), "threshold dof scale_window max_run warm_up",
    ),
    "OnlineElasticNet": (fit(olsq.OnlineElasticNet), "alpha l1_ratio tol max_iter"),
    "TotalLeastSquares": (fit(olsq.TotalLeastSquares), "noise_ratio"),
    "KernelLeastSquares": (
        fit(olsq.KernelLeastSquares, kernel="polynomial"),
        "gamma degree coef0 threshold budget ridge",
    ),
    "coefficient_path": (
        path, "forget half_life ridge window min_samples noise_variance horizon"
    ),
    "coefficient_path, by": (
        partial(path, by=BY), "forget half_life window min_samples noise_variance horizon",
    ),
    "coefficient_path, HAC": (partial(path, window=20, cov="HAC"), "maxlags"),
    "coefficient_path, times": (partial(path, times=TIMES), "half_life window horizon"),
    "conf_int": (lambda **f: path().conf_int(**f), "level"),
    "of_target": (lambda **f: olsq.coefficient_path(X, X).of_target(**f), "target"),
    "score_forecasts": (
        lambda **f: olsq.score_forecasts(path(), Y, **f), "level half_life burn_in lags"
    ),
    "fama_macbeth": (partial(olsq.fama_macbeth, X, Y, by=np.arange(N) // 10), "lags"),
    "DelayedTargets": (lambda **f: olsq.DelayedTargets(fitted(), **f).predict(X[0]), "horizon"),
    "merge": (lambda **f: olsq.merge(fitted(), fitted(), **f), "forget"),
    "tune": (partial(olsq.tune, X, Y), "forget ridge burn_in horizon"),
    "time_varying": (with_defaults(olsq.time_varying, X, Y, drift=0.1), "drift noise"),
    "time_varying, times": (partial(olsq.time_varying, X, Y, drift=0.1, times=TIMES), "per"),
    "likelihood_ratio": (
        lambda **f: olsq.time_varying(X[:, :1], Y).likelihood_ratio(**{"draws": 1, **f}),
        "draws random_state",
    ),
    "BoundedTrace": (
        by_strategy(forgetting.BoundedTrace, factor=0.9, trace=10.0), "factor trace"
    ),
    "ByTime": (
        lambda **f: RLS(forget=forgetting.ByTime(**f)).fit(X, Y, times=TIMES), "half_life"
    ),
    "Directional": (by_strategy(forgetting.Directional, factor=0.9), "factor smallest"),
    "window_for": (forgetting.Directional(0.9).window_for, "n_coefficients"),
    "ExponentialResetting": (
        by_strategy(forgetting.ExponentialResetting, factor=0.9), "factor information"
    ),
    "RandomWalk": (by_strategy(forgetting.RandomWalk, drift=0.1), "drift"),
    "ResetOnBreak": (
        by_strategy(forgetting.ResetOnBreak, factor=0.9),
        "factor ratio rows_between_false_alarms keep outlier noise_variance",
    ),
    "Variable": (
        by_strategy(forgetting.Variable, memory=20), "memory shortest longest noise_variance"
    ),
    "prior, mean": (
        lambda prior: fitted(prior=([prior, 0.0], np.eye(2)), fit_intercept=False), "prior"
    ),
    "prior, variance": (
        lambda prior: fitted(prior=([1.0, 0.0], [[prior, 0], [0, 1]]), fit_intercept=False),
        "prior",
    ),
    "partial_fit": (lambda **f: fitted().partial_fit(X, Y, **f), "forget sample_weight"),
    "predict_interval": (
        lambda **f: fitted().predict_interval(X, **f), "level sample_weight"
    ),
    "sample_coef": (lambda **f: fitted(ridge=1.0).sample_coef(**f), "rng size sigma2"),
    "t_test": (lambda **f: fitted().t_test([1.0, 0.0], **f), "value level"),
    "break_test": (partial(stability.break_test, X, Y), "trim"),
    "chow_test": (partial(stability.chow_test, X, Y), "row"),
    "cusum": (lambda **f: stability.cusum(path(), **f), "level"),
    "ols_cusum": (partial(stability.ols_cusum, X, Y), "ddof"),
    "ARX": (lambda na=1, nb=1, **f: fit(features.ARX, na, nb)(**f), "na nb delay"),
    "Fourier": (lambda period=4, order=1: fit(features.Fourier, period, order)(), "period order"),
    "RandomFourier": (
        lambda **f: features.RandomFourier(**f).fit_transform(X), "n_components gamma seed"
    ),
    "Trend": (lambda **f: features.Trend(**f).fit_transform(X), "degree scale origin"),
    "qr_delete": (with_defaults(linalg.qr_delete, np.eye(3), np.eye(3), k=0), "k p"),
    "compiled.init": (with_defaults(olsq.compiled.init, n_features=2), "n_features ridge n"),
    "online_lstsq": (
        with_defaults(olsq.online_lstsq, KEYS, KEYS, KEYS, ridge=1.0), "forget log_forget"
    ),
    "ChunkExact": (solve(olsq.ChunkExact), "chunk corrections tol max_steps shards"),
    "ConjugateGradient": (solve(olsq.ConjugateGradient), "max_steps tol chunk"),
    "Chebyshev": (solve(olsq.Chebyshev), "steps chunk eigenvalue_ratio"),
    "Neumann": (solve(olsq.Neumann), "terms chunk"),
    "check": (olsq.online_lstsq(KEYS, KEYS, KEYS, ridge=1.0).check, "tol"),
    "local_lstsq": (
        with_defaults(olsq.local_lstsq, *KEYS, *KEYS, *KEYS, ridge=1.0), "window tol max_steps"
    ),
    "update": (partial(olsq.update, STATE, np.ones(2), np.ones(1)), "forget weight"),
    "few_shot_regression": (
        with_defaults(tasks.few_shot_regression, 1, 0, pairs=2, dim=2), "pairs dim scale noise"
    ),
    "parity": (with_defaults(tasks.parity, 1, seed=0), "seed length"),
    "attend": (lambda **f: icl.attend(X, layer(), **f), "damping context"),
    "gd_weights": (
        with_defaults(icl.gd_weights, np.zeros((1, 2)), rate=0.1, samples=3), "rate samples"
    ),
    "gdpp_spectrum": (partial(icl.gdpp_spectrum, [1.0, 2.0]), "gamma"),
    "interpolate": (lambda **f: icl.interpolate(layer(), layer(), **f), "fraction"),
    "linear_probe": (partial(icl.linear_probe, X[:, None], X[:, None]), "ridge train"),
    "merge_weights": (
        with_defaults(icl.merge_weights, width=1, length=4), "width length sharpness"
    ),
    "contexts": (
        with_defaults(icl.autoregressive.contexts, n=1, seed=0), "n seed dim mu"
    ),
    "sequences": (partial(icl.autoregressive.sequences, [[1j]]), "length"),
    "Linear": (
        lambda **f: nn.Linear(**{"inputs": 2, "outputs": 2, "key": key(), **f}),
        "inputs outputs gain bias",
    ),
    "SwiGLU": (lambda **f: nn.SwiGLU(**{"dim": 2, "key": key(), **f}), "dim width"),
    "LanguageModel": (
        lambda **f: nn.LanguageModel(
            **{"vocab_size": 8, "dim": 8, "blocks": 1, "heads": 2, "key": key(), **f}
        ),
        "vocab_size dim heads soft_cap dropout",
    ),
    "GLA": (
        lambda **f: nn.GLA(**{"dim": 8, "heads": 2, "key": key(), **f}),
        "dim heads forget_floor forget_bound",
    ),
    "TrainConfig": (
        train.TrainConfig,
        "steps batch length lr weight_decay beta1 beta2 eps clip accumulate z_loss average seed",
    ),
    "pack": (partial(train.pack, [[1, 2, 3]]), "length"),
}  # fmt: skip


def rule(name, **options):
    return with_defaults(getattr(olsq.attention, name), TOKENS, TOKENS, TOKENS, **options)


RULES = {
    "softmax": (rule("softmax"), "scale capacity"),
    "sliding_window": (rule("sliding_window", window=2), "scale window"),
    "local_linear": (rule("local_linear", ridge=1.0), "scale window capacity"),
    "linear": (rule("linear"), "nu"),
    "preconditioned_delta": (rule("preconditioned_delta"), "base eps"),
}


def refusal(call, number, value):
    """The error of a call, or None; others than those of wrong arguments are raised."""

    def out_of_time(*_):
        raise TimeoutError(f"{number}={value!r} takes more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            warnings.filterwarnings("ignore", "the duality gap")  # of a poor alpha or tol
            warnings.filterwarnings("ignore", "overflow encountered in cast")  # to float32
            call(**{number: value})
    except (ValueError, TypeError, olsq.AccuracyError) as error:
        return error
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check(call, number):
    for value in VALUES:
        if number in COUNTS and isinstance(value, (int, np.integer)) and value > 2**31:
            continue
        error = refusal(call, number, value)
        named = error is None or re.search(rf"\b{number}\b", str(error))
        assert named or fits_no_data(number, value), (value, error)


def fits_no_data(number, value):
    """Whether a value is possible in itself: the error is then about the data, which do not fit."""
    is_size = number in ("n", "n_features") and isinstance(value, (int, np.integer))
    return is_size or number == "tol"


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "number"), [(name, n) for name, (_, numbers) in CALLS.items() for n in numbers.split()]
)
def test_a_number_is_taken_or_refused_by_name(name, number):
    check(CALLS[name][0], number)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "number"), [(name, n) for name, (_, numbers) in RULES.items() for n in numbers.split()]
)
def test_a_number_of_a_rule_is_taken_or_refused_by_name(name, number):
    check(RULES[name][0], number)

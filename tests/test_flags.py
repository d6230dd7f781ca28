"""Flags of every public callable: True and False, and nothing else that has a truth value."""

from __future__ import annotations

import inspect
from functools import cache, partial

import numpy as np
import optax
import pytest

import olsq
from olsq import attention, features, icl, linalg, nn, stability, tasks, train
from tests.test_site import found, listed
from tests.train import small

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((12, 2)), RNG.standard_normal(12)
BY = ["a", "b", "c"] * 4
WRONG = ("False", float("nan"), 2)

# Flags that are not read as such, and why.
EXCEPT = {
    ("olsq.RecursiveLeastSquares.get_params", "deep"): "scikit-learn's, and never read",
    ("olsq.ChunkExact.check_ridge_mode", "forgets"): "called by the package, for those who extend",
    ("olsq.CoefficientPath.of_columns", "intercept"): "called by the package, on every call",
    ("olsq.RollingLeastSquares.ENGINE", "paired"): "a class of the package's",
    ("olsq.features.Union", "passthrough"): "may be names of columns as well",
    ("olsq.testing.Problem", "discounted"): "a record that a check fills in",
    ("olsq.testing.Problem", "fit_intercept"): "a record that a check fills in",
}  # fmt: skip


def parameters(function):
    """Parameters by name; those that a class passes on to its bases are among them."""
    sources = [function]
    if inspect.isclass(function):
        sources += [c.__init__ for c in function.__mro__[1:] if "__init__" in vars(c)]
    taken = {}
    for source in sources:
        try:
            of_source = inspect.signature(source).parameters
        except ValueError:  # of a class of Python's own
            break
        taken = {**of_source, **taken}
        if not any(p.kind is p.VAR_KEYWORD for p in of_source.values()):
            break
    return taken


def public():
    """Public names and what they are, then methods of public classes."""
    # PyTorch's are not there everywhere: they call the same rules.
    things = {name: found(name) for name in listed() if not name.startswith("olsq.torch.")}
    methods = {}
    for name, thing in things.items():
        if inspect.isclass(thing):
            of_class = inspect.getmembers(thing, callable)
            methods |= {f"{name}.{n}": x for n, x in of_class if not n.startswith("_")}
    return things | methods


@cache
def flags():
    """(callable's name, flag's name) of every public flag, once for methods that are inherited."""
    once = {}
    for name, thing in public().items():
        if callable(thing) and (getattr(thing, "__module__", None) or "").startswith("olsq"):
            once.setdefault((thing.__module__, thing.__qualname__), (name, thing))
    return [
        (name, parameter)
        for name, thing in once.values()
        for parameter, p in parameters(thing).items()
        if isinstance(p.default, bool) or p.annotation in (bool, "bool")
    ]


def key():
    import jax

    return jax.random.key(0)


def rule(name, **options):
    x = np.ones((1, 1, 2), np.float32) if name.endswith("_step") else np.ones((1, 3, 1, 2), "f")
    return partial(getattr(attention, name), x, x, x, **options)


def estimator(**options):
    return olsq.RecursiveLeastSquares(**options).fit(X, Y)


def bank():
    return olsq.FilterBank(3, ridge=1.0).partial_fit(X[:3], Y[:3])


def model(**flag):
    return nn.LanguageModel(8, dim=8, blocks=1, heads=2, key=key(), **flag)


def layer():
    return icl.from_products(np.eye(2), np.eye(2))


def polars_rows(method, *options, **flag):
    import polars as pl

    import olsq.polars  # noqa: F401

    frame = pl.DataFrame({"x": X[:, 0], "y": Y})
    return frame.select(getattr(pl.col("y").olsq, method)("x", *options, **flag))


def delayed():
    return olsq.DelayedTargets(estimator(), horizon=1)


def of_dask(function, *more, **flag):
    import dask.array as da

    import olsq.distributed

    rows = da.from_array(X, chunks=(6, 2)), da.from_array(Y, chunks=6)
    return getattr(olsq.distributed, function)(*rows, *more, **flag)


def river(**flag):
    import olsq.river

    return olsq.river.RecursiveLeastSquares(**flag).learn_one({"x": 1.0}, 2.0)


def hypothesis_gates(**flag):
    from hypothesis import find

    from olsq.testing import gates

    return find(gates(3, **flag), lambda drawn: True)


CALLS = {
    "olsq.nn.LanguageModel": model,
    "olsq.nn.ShortConvolution": lambda **f: nn.ShortConvolution(4, 2, key=key(), **f),
    "olsq.nn.generate": lambda **f: nn.generate(model(), [[1]], 1, key=0, **f),
    "olsq.local_lstsq": partial(olsq.local_lstsq, X, Y[:, None], X, ridge=1.0),
    "olsq.tasks.mqar": partial(tasks.mqar, 1, 0),
    "olsq.tasks.word_problem": partial(tasks.word_problem, 1, 0),
    "olsq.tasks.mad.fuzzy_recall": partial(tasks.mad.fuzzy_recall, 1, 0),
    "olsq.tasks.mad.in_context_recall": partial(tasks.mad.in_context_recall, 1, 0),
    "olsq.tasks.mad.noisy_recall": partial(tasks.mad.noisy_recall, 1, 0),
    "olsq.icl.attend": lambda **f: icl.attend(X, layer(), **f),
    "olsq.icl.attention_update": lambda **f: icl.attention_update(X, layer(), **f),
    "olsq.icl.roll_out": lambda **f: icl.roll_out(X, layer(), 1, **f),
    "olsq.icl.run_layers": lambda **f: icl.run_layers(X, [layer()], **f),
    "olsq.icl.dynamics_tokens": partial(icl.dynamics_tokens, X),
    "olsq.icl.interpolate": lambda **f: icl.interpolate(layer(), layer(), **f),
    "olsq.icl.linear_probe": partial(icl.linear_probe, X[:, None], X[:, None]),
    "olsq.icl.merge_weights": partial(icl.merge_weights, 1, 4),
    "olsq.icl.autoregressive.contexts": partial(icl.autoregressive.contexts, 1, 0, dim=2),
    "olsq.icl.autoregressive_losses.row_loss": lambda **f: (
        icl.autoregressive_losses.row_loss(np.eye(2), [1.0, 2.0], **f)
    ),
    "olsq.icl.autoregressive_losses.non_augmented_loss": lambda **f: (
        icl.autoregressive_losses.non_augmented_loss(np.eye(2), np.eye(2), np.ones((2, 3)), **f)
    ),
    "olsq.train.CorpusTrainer.fit": lambda **f: small.trainer(config={"steps": 1}).fit(**f),
    "olsq.train.fit": lambda **f: (
        train.fit(small.SmallModel(), small.corpus(), small.config(steps=1), **f)
    ),
    "olsq.train.TokenFiles.packed": partial(
        train.TokenFiles([np.arange(9)], np.array([9]), 9, None, "", 1.0).packed, batch=1, length=9
    ),
    "olsq.train.pack": partial(train.pack, [[1, 2, 3]], 4),
    "olsq.train.make_step": partial(train.make_step, abs, optax.sgd(0.1)),
    "olsq.testing.gates": hypothesis_gates,
    "olsq.Recursive": olsq.Recursive,
    "olsq.RecursiveLeastSquares.from_moments": lambda **f: olsq.RecursiveLeastSquares.from_moments(
        estimator().moments(), ridge_mode="discounted", **f
    ),
    "olsq.RecursiveLeastSquares.partial_fit_path": lambda **f: (
        estimator().partial_fit_path(X, Y, **f)
    ),
    "olsq.RecursiveLeastSquares.predict": lambda **f: estimator().predict(X, **f),
    "olsq.RecursiveLeastSquares.sample_coef": lambda **f: estimator(ridge=1.0).sample_coef(0, **f),
    "olsq.RecursiveLeastSquares.step": lambda **f: estimator().step(X[0], Y[0], **f),
    "olsq.RollingLeastSquares.partial_fit_path": lambda **f: (
        olsq.RollingLeastSquares(window=5).partial_fit_path(X, Y, **f)
    ),
    "olsq.FilterBank": lambda **f: olsq.FilterBank(3, **f).partial_fit(X[:3], Y[:3]),
    "olsq.FilterBank.sample_coef": lambda **f: bank().sample_coef(0, sigma2=1.0, **f),
    "olsq.FilterBank.step": lambda **f: bank().step(X[:3], Y[:3], **f),
    "olsq.GroupedLeastSquares": lambda **f: olsq.GroupedLeastSquares(**f).fit(X, Y, by=BY),
    "olsq.GroupedRollingLeastSquares": lambda **f: (
        olsq.GroupedRollingLeastSquares(window=5, **f).fit(X, Y, by=BY)
    ),
    "olsq.fama_macbeth": partial(olsq.fama_macbeth, X, Y, by=sorted([1, 2] * 6)),
    "olsq.coefficient_path": partial(olsq.coefficient_path, X, Y),
    "olsq.CoefficientPath.to_frame": lambda **f: olsq.coefficient_path(X, Y).to_frame(**f),
    "olsq.DelayedTargets.predict": lambda **f: delayed().predict(X[0], **f),
    "olsq.DelayedTargets.step": lambda **f: delayed().step(X[0], Y[0], **f),
    "olsq.polars.LeastSquares.expanding": partial(polars_rows, "expanding"),
    "olsq.polars.LeastSquares.ols": partial(polars_rows, "ols"),
    "olsq.polars.LeastSquares.rls": partial(polars_rows, "rls"),
    "olsq.polars.LeastSquares.rolling": partial(polars_rows, "rolling", window=4),
    "olsq.distributed.DistributedPath.to_frame": lambda **f: (
        of_dask("coefficient_path").to_frame(**f)
    ),
    "olsq.distributed.coefficient_path": partial(of_dask, "coefficient_path"),
    "olsq.distributed.fit": partial(of_dask, "fit"),
    "olsq.tune": partial(olsq.tune, X, Y),
    "olsq.time_varying": partial(olsq.time_varying, X, Y, drift=0.1),
    "olsq.forgetting.ExponentialResetting": partial(
        olsq.forgetting.ExponentialResetting, 0.9
    ),
    "olsq.stability.break_test": partial(stability.break_test, X, Y, trim=0.3),
    "olsq.stability.chow_test": partial(stability.chow_test, X, Y, 6),
    "olsq.stability.nyblom": partial(stability.nyblom, X, Y),
    "olsq.stability.ols_cusum": partial(stability.ols_cusum, X, Y),
    "olsq.features.ARX": lambda **f: features.ARX(1, 1, **f).fit(X, Y),
    "olsq.features.Fourier": lambda **f: features.Fourier(4, 1, **f).fit(X, Y),
    "olsq.features.Lags": lambda **f: features.Lags(1, **f).fit(X, Y),
    "olsq.features.FIR": lambda **f: features.FIR(1, **f).fit(X, Y),
    "olsq.features.Union": lambda **f: features.Union([features.Trend()], **f).fit(X, Y),
    "olsq.features.Grouped": lambda **f: features.Grouped(features.Lags(1), 0, **f).fit(X, Y),
    "olsq.river.RecursiveLeastSquares": river,
    "olsq.linalg.cholesky_downdate": partial(linalg.cholesky_downdate, 2 * np.eye(2), np.ones(2)),
    "olsq.linalg.cholesky_update": partial(linalg.cholesky_update, np.eye(2), np.ones(2)),
}  # fmt: skip
# Rules, each with the options that it needs.
CALLS |= {
    f"olsq.attention.{name}{step}": rule(f"{name}{step}", **options)
    for name, options in {
        "gated_delta": {},
        "gla": {},
        "kalman_delta": {"drift": 0.1},
        "linear": {},
        "mamba2": {},
        "mesa": {"ridge": 1.0},
    }.items()
    for step in ("", "_step")
}


def call(name, flag, value):
    """Call what has the flag so that everything else is right."""
    thing = found(name)
    if name in CALLS:
        return CALLS[name](**{flag: value})
    if inspect.isclass(thing) and issubclass(thing, nn.Mixer):
        return thing(8, heads=2, key=key(), **{flag: value})
    if hasattr(thing, "partial_fit") or hasattr(thing, "fit_transform"):
        return thing(**{flag: value}).fit(X, Y)
    raise AssertionError(f"give {name} a row in CALLS")


@pytest.mark.parametrize(("name", "flag"), [pair for pair in flags() if pair not in EXCEPT])
def test_what_is_no_flag_is_refused_by_name(name, flag):
    for value in WRONG:
        with pytest.raises((ValueError, TypeError), match=rf"^{flag} must be True or False"):
            call(name, flag, value)


@pytest.mark.full
@pytest.mark.parametrize("name", list(CALLS))
def test_numpys_booleans_are_flags(name):
    thing = found(name)
    for flag, p in parameters(thing).items():
        if (name, flag) in flags() and (name, flag) not in EXCEPT:
            call(name, flag, np.bool_(p.default is True))

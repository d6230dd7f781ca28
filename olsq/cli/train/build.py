"""Build what the options of ``olsq train`` describe: tokens, a model, a solver, devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from olsq.cli.errors import CommandError, InputError
from olsq.cli.train.options import TrainOptions

if TYPE_CHECKING:
    from olsq.train import Corpus
    from olsq.train.tokenizers import Tokenizer

# Name on the command line, class of olsq.solvers, and the field a bare number means.
SOLVERS = {
    "chunk-exact": ("ChunkExact", "chunk"),
    "cg": ("ConjugateGradient", "max_steps"),
    "chebyshev": ("Chebyshev", "steps"),
    "neumann": ("Neumann", "terms"),
    "recursive": ("Recursive", "chunk"),
    "dense": ("Dense", "chunk"),
}


class Data(NamedTuple):
    """The tokens, their tokenizer, and the bytes of validation text per token."""

    corpus: Corpus
    tokenizer: Tokenizer
    bytes_per_token: float


def read_data(options: TrainOptions) -> Data:
    """Build the corpus from a text, or from tokens that were written before.

    Raises
    ------
    InputError
        If the text, the tokens or the tokenizer cannot be used.
    CommandError
        If a library is missing.
    """
    from olsq.train import Corpus, make_tokenizer, open_tokens
    from olsq.train.corpus import training_part
    from olsq.train.token_files import is_token_folder

    if options.text is not None and is_token_folder(options.text):
        try:
            tokens = open_tokens(options.text)
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {options.text}: {error}") from None
        if tokens.tokenizer is None or options.tokenizer not in ("bytes", tokens.tokenizer.name):
            raise InputError(
                f"--tokenizer is {options.tokenizer}, but {options.text} holds tokens of "
                f"{getattr(tokens.tokenizer, 'name', None)}: leave it out"
            )
        return Data(
            Corpus.split(tokens, options.validation), tokens.tokenizer, tokens.bytes_per_token
        )
    content = options.read()
    first = training_part(content, options.validation)
    try:  # merges are learned on the training part only
        tokenizer = make_tokenizer(options.tokenizer, first)
    except ImportError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise InputError(f"--tokenizer: cannot read {error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"--tokenizer: {error}") from None
    corpus = Corpus.from_text(content, tokenizer, options.validation)
    bytes_left = len(content) - len(first)
    return Data(corpus, tokenizer, bytes_left / max(len(corpus.validation), 1))


def make_model(options: TrainOptions, vocab_size: int, solver: Any) -> Any:
    """Build the model before training."""
    import jax

    from olsq.nn import MIXERS, LanguageModel

    if unknown := [name for name in options.mixers if name not in MIXERS]:
        raise InputError(f"--mixer: unknown mixer {unknown[0]!r}; known are {', '.join(MIXERS)}")
    if solver is not None and not any(MIXERS[n].solves() for n in options.mixers):
        able = [name for name, kind in MIXERS.items() if kind.solves()]
        raise InputError(
            f"--solver applies to {', '.join(able)}; {options.mixer} does not solve a regression"
        )
    precision: Any = {"dtype": options.dtype, "remat": options.remat}  # checked by options.check()
    try:
        return LanguageModel(
            vocab_size,
            dim=options.dim,
            blocks=options.blocks,
            heads=options.heads,
            key_size=options.key_size,
            mixer=options.mixers,
            solver=solver,
            mixer_options=options.mixer_options,
            dropout=options.dropout,
            **precision,
            key=jax.random.key(options.seed),
        )
    except TypeError as error:
        raise InputError(f"--mixer-option: {error}") from None


def make_mesh(options: TrainOptions) -> Any:
    """Return the mesh of the devices that share a batch; None for one device."""
    if options.devices == 1:
        return None
    import jax
    import numpy as np

    there = jax.devices()
    if options.devices > len(there):
        raise InputError(
            f"--devices is {options.devices}, but JAX has {len(there)} ({there[0].platform})"
        )
    return jax.sharding.Mesh(np.array(there[: options.devices]), ("data",))


def make_solver(spec: str) -> Any:
    """Build the solver that ``cg:30`` or ``cg:max_steps=30,tol=1e-4`` describes."""
    import dataclasses

    from olsq import solvers

    name, _, settings = spec.partition(":")
    if name not in SOLVERS:
        raise InputError(f"--solver: unknown solver {name!r}; known are {', '.join(SOLVERS)}")
    kind, main = SOLVERS[name]
    solver: Any = solvers.SOLVERS[kind]
    allowed = [field.name for field in dataclasses.fields(solver)]
    fields: dict[str, Any] = {}
    for part in filter(None, settings.split(",")):
        key, equals, value = part.partition("=")
        key, value = (key.strip(), value.strip()) if equals else (main, key.strip())
        if key not in allowed:
            raise InputError(f"--solver: {name} has no {key!r}; it has {', '.join(allowed)}")
        fields[key] = _parse_value(value)
    try:
        return solver(**fields)
    except (TypeError, ValueError) as error:
        raise InputError(f"--solver {spec}: {error}") from None


def _parse_value(text: str) -> Any:
    """Convert ``text`` to a whole number or a number if it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

"""Decorate a rule, and make its step: the rule on one token, with its signature and docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax.numpy as jnp
from jax import Array

from olsq.arrays.checks import check_real
from olsq.arrays.questions import is_traced, known_through
from olsq.sequence.jax.meshes import takes_arrays

P = ParamSpec("P")
State = TypeVar("State")


SEGMENT_IDS = """
        Sequences packed into one row: non-decreasing; nothing passes from one to the next.  The
        first token goes on with the segment of ``state``, unless the ids are (B, T + 1) and begin
        with that of the token before.
""".strip()


def sequence_rule(rule: Callable[P, tuple[Array, State]]) -> Callable[P, tuple[Array, State]]:
    """Decorate a rule as :func:`~olsq.sequence.jax.meshes.takes_arrays` does, and write out
    ``{segment_ids}`` in its docstring.
    """
    if rule.__doc__:  # None where docstrings were stripped
        rule.__doc__ = rule.__doc__.replace("{segment_ids}", SEGMENT_IDS)
    return takes_arrays(rule)


def one_token(
    rule: Callable[P, tuple[Array, State]],
    *per_token: str,
    example: str = "",
    gives: float | None = None,
    setup: str = "x = jnp.ones((1, 1, 1))",
) -> Callable[P, tuple[Array, State]]:
    """Return ``<rule>_step``: ``rule`` on one token, with the rule's arguments but ``segment_ids``.

    The rule's positional arguments and those named ``per_token`` lose their axis of time.  The
    docstring is the rule's, for one token; an example runs ``setup`` and then two tokens with the
    arguments ``example``, after which the output's first number, rounded to 3 digits, is ``gives``.
    Type checkers also accept the rule's ``segment_ids``, which the call refuses.
    """
    name = f"{rule.__name__}_step"
    parameters = inspect.signature(rule).parameters.values()
    signature = inspect.signature(rule).replace(
        parameters=[p for p in parameters if p.name != "segment_ids"]
    )
    streams = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]

    def step(*args: P.args, **kwargs: P.kwargs) -> tuple[Array, State]:
        try:
            options = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{name}() {error}") from None
        tokens = {n: options.pop(n) for n in streams}
        timed = {n: options.pop(n) for n in per_token if n in options}
        return run_one_token(rule, tokens, timed, **options)

    step.__name__ = step.__qualname__ = name
    step.__module__ = rule.__module__
    step.__doc__ = _document(rule, _example(name, setup, example, gives) if example else "")
    step.__annotations__ = {n: t for n, t in rule.__annotations__.items() if n != "segment_ids"}
    step.__signature__ = signature  # type: ignore[attr-defined]
    step.__wrapped__ = rule  # type: ignore[attr-defined] # whose module has the names of the types
    return takes_arrays(step)


def run_one_token(
    rule: Callable[..., tuple[Array, State]],
    tokens: dict[str, Any],
    timed: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Array, State]:
    """Run ``rule`` on a sequence of length 1: return its output (B, H, dim) and its state.

    ``tokens`` are arrays (B, H, dim). ``timed`` are gates and the like: (B, H, ...) gets its time
    axis; None, () and (H,), which hold for every token, stay as they are, and so do ``options``. A
    sequence of length 1 is one chunk of one token, for which the chunk form costs what the
    recurrence does.
    """
    timed = timed or {}
    for name, x in {**timed, **tokens}.items():
        if name in tokens or x is not None:
            check_real(name, x)
    arguments: dict[str, Any]
    arguments = {name: _with_time(x) for name, x in tokens.items()}
    for name, x in timed.items():
        arguments[name] = x if x is None or jnp.ndim(x) < 2 else _with_time(x)
    output, state = rule(**arguments, **options)
    return output[:, 0], state


def _with_time(x: Any) -> Any:
    """Return an array (B, ...) as (B, 1, ...), of which a rule can check the values."""
    return known_through(lambda x: x[:, None], x if is_traced(x) else jnp.asarray(x))


WIDEST = 92  # characters of a line in the example

# What changes in the entries of a rule's docstring where the axis of time is gone.
CHANGES = [
    # A step cannot tell (H, V) from (B, H), of one gate per token.
    (r"array \(B, T, H, (\w)\) or what broadcasts to it", r"array (B, H, \1), (\1,) or a number"),
    (r"\(B, T, ", "(B, "),
    ("as four axes", "as three axes"),
    (r"room for T(\s+)more", r"room for one\1more"),
    ("the stream's length if None", "1 if None"),
]


def _document(rule: Callable[..., Any], example: str) -> str | None:
    """Write the docstring of a step, from the rule's: None where docstrings were stripped."""
    if not rule.__doc__:
        return None
    text, name = inspect.cleandoc(rule.__doc__), rule.__name__
    for pattern, replacement in CHANGES:
        text = re.sub(pattern, replacement, text)
    parts = re.split(r"\n\n(\w+)\n-+\n", text)
    summary = parts[0].partition("\n\n")[0]
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    if "Parameters" in sections:
        entry = r"(?m)^segment_ids .*\n?(?:^ .*\n?)*"
        sections["Parameters"] = re.sub(entry, "", sections["Parameters"]).rstrip()
    if "Returns" in sections:
        kept = re.match(r"(?:.*\n)*?state.*", sections["Returns"])
        sections["Returns"] = f"{kept[0] if kept else ''}\n    Give it to the next call."
    sections["Raises"] = f"ValueError\n    As :func:`{name}`."
    sections["Examples"] = example
    lines = [
        f"Run :func:`{name}` on one token, with the same state.",
        summary,
        f"Arguments are those of :func:`{name}` without the axis of time; its notes hold here too.",
    ]
    for title in ("Parameters", "Returns", "Raises", "Examples"):
        if sections.get(title):
            lines.append(f"{title}\n{'-' * len(title)}\n{sections[title]}")
    return "\n\n".join(lines) + "\n"


def _example(step: str, setup: str, arguments: str, gives: float | None) -> str:
    """Write the example of a step: two equal tokens."""
    call = f"...     o, state = olsq.attention.{step}({arguments}, state=state)"
    if len(call) > WIDEST:
        call = call.replace("(", "(\n...         ", 1)[:-1] + "\n...     )"
    lines = ["import jax.numpy as jnp, olsq", *setup.splitlines(), "state = None"]
    first = "\n".join(f">>> {line}" for line in [*lines, "for _ in range(2):"])
    return f"{first}\n{call}\n>>> round(float(o[0, 0, 0]), 3)\n{gives}"

"""Pages of the gallery, from the scripts in ``examples/gallery``; ``conf.py`` runs it.

Scripts are not executed here.  The tests run them, with their assertions; their figures are in
``docs/img``.  A page is the script's docstring, its figure and its source.
"""

from __future__ import annotations

import ast
import struct
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = HERE.parent / "examples" / "gallery"
PAGES = HERE / "gallery"

# Script -> its figure, in the order of the page.
STREAMS = {
    "sensor_calibration": "gallery-sensor_calibration.png",
    "rolling_betas": "stream-betas.png",
    "echo_canceller": "stream-echo.png",
    "bandit": "stream-bandit.png",
    "force_readout": "stream-force.png",
    "seasonal_forecast": "stream-co2.png",
    "year_ahead": "gallery-year_ahead.png",
    "fisher_effect": "gallery-fisher_effect.png",
    "inflation_persistence": "gallery-inflation_persistence.png",
    "self_tuning": "gallery-self_tuning.png",
    "filters_in_prange": "gallery-filters_in_prange.png",
    "class_incremental": "gallery-class_incremental.png",
    "panel_regression": "gallery-panel_regression.png",
    "larger_than_memory": "gallery-larger_than_memory.png",
    "dask_cluster": "gallery-dask_cluster.png",
    "equaliser": "gallery-equaliser.png",
    "beamformer": "gallery-beamformer.png",
    "stft_canceller": "gallery-stft_canceller.png",
}
SEQUENCES = {
    "learn_features": "gallery-learn_features.png",
    "in_context_regression": "gallery-in_context_regression.png",
    "train_and_sample": "gallery-train_and_sample.png",
    "swap_solvers": "gallery-swap_solvers.png",
    "shard_sequence": "gallery-shard_sequence.png",
    "property_test": "gallery-property_test.png",
}


INTRODUCTION = """# Gallery

For readers who learn from whole programs. Every script solves one problem, compares the result
with another method where there is one, and asserts what its text says. The scripts are in the
folder `examples/gallery` of the repository; run one with, for instance,
`python examples/gallery/bandit.py`. Each takes `--figure FILE` to draw the figure that you see.

"""


def parts(name: str) -> tuple[str, str, str]:
    """Title, command and text of a script's docstring."""
    text = ast.get_docstring(ast.parse((SCRIPTS / f"{name}.py").read_text()))
    title, command, rest = text.split("\n\n", 2)
    return title.rstrip("."), command.strip(), rest


def page(name: str, figure: str) -> str:
    """Markdown of one script's page."""
    title, command, text = parts(name)
    return f"""# {title}

{text}

The script is `examples/gallery/{name}.py`.

![{title}](../img/{figure})

```sh
{command}
```

```{{literalinclude}} ../../examples/gallery/{name}.py
:language: python
```
"""


def has_two_panels(figure: str) -> bool:
    """Whether a figure has a second panel below the first: then it is nearly as high as wide."""
    with (HERE / "img" / figure).open("rb") as file:
        width, height = struct.unpack(">II", file.read(24)[16:])
    return height > 0.7 * width


def card(name: str, figure: str) -> str:
    """One card of the index, with its thumbnail."""
    title, _, _ = parts(name)
    panel = ":class-img-top: upper-panel\n" if has_two_panels(figure) else ""
    return f""":::{{grid-item-card}}
:link: {name}
:link-type: doc
:img-top: ../img/{figure}
{panel}
{title}
:::
"""


def index() -> str:
    """Markdown of the gallery's first page."""
    text = INTRODUCTION
    for head, scripts in (("Streams of rows", STREAMS), ("Sequences and layers", SEQUENCES)):
        text += f"## {head}\n\n::::{{grid}} 1 2 3 3\n:gutter: 3\n\n"
        text += "\n".join(card(*item) for item in scripts.items()) + "\n::::\n\n"
    names = "\n".join([*STREAMS, *SEQUENCES])
    return text + f"```{{toctree}}\n:hidden:\n\n{names}\n```\n"


def write() -> None:
    """Write every page; one that is as it was keeps its date, so that it is not built again."""
    PAGES.mkdir(exist_ok=True)
    pages = {name: page(name, figure) for name, figure in {**STREAMS, **SEQUENCES}.items()}
    for name, text in {**pages, "index": index()}.items():
        target = PAGES / f"{name}.md"
        if not target.exists() or target.read_text() != text:
            target.write_text(text)

"""Model card: the README.md of a folder with a model."""

from __future__ import annotations

from collections import Counter
from typing import Any

from olsq.nn.mixers import MIXERS
from olsq.nn.surgery import count_parameters, mixers_of

NAMES = {kind: name for name, kind in MIXERS.items()}
OURS = """\
```python
import olsq.nn, olsq.train
model, tokenizer, config = olsq.nn.load_pretrained("{folder}")
```
"""
THEIRS = """\
```python
import fla  # flash-linear-attention
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("{folder}")
```

or, without it, `model, tokenizer, config = olsq.nn.load_pretrained("{folder}")` after
`import olsq.nn`.
"""
TOKENS = """\
`tokenizer.json` is read by `tokenizers.Tokenizer.from_file`; here, by
`olsq.train.tokenizer_from_dict(tokenizer)`.
"""


def card(
    model: Any, *, folder: str, layout: str, name: str, data: str | None, tokenizer: bool
) -> str:
    """Write the text of a model card.

    Parameters
    ----------
    model : LanguageModel
    folder, name : str
        Where it is, and its title.
    layout : {"olsq", "fla"}
    data : str or None
        What it was trained on.
    tokenizer : bool
        Whether there is one.
    """
    backbone, mixers = model.backbone, mixers_of(model)
    counted = Counter(NAMES.get(type(mixer), type(mixer).__name__) for mixer in mixers)
    mlp = backbone.blocks[0].mlp
    rows = {
        "parameters": f"{count_parameters(model):,}",
        "vocabulary": f"{model.vocab_size:,}",
        "blocks": len(backbone.blocks),
        "mixers": ", ".join(f"{kind} x {count}" for kind, count in counted.items()),
        "width": backbone.dim,
        "width of the MLPs": "none" if mlp is None else mlp.up.weight.shape[1],
        "heads": ", ".join(str(n) for n in sorted({getattr(m, "heads", 1) for m in mixers})),
        "activations": model.dtype,
    }
    library, load = ("fla", THEIRS) if layout == "fla" else ("olsq", OURS)
    lines = [
        "---",
        f"library_name: {library}",
        "pipeline_tag: text-generation",
        "tags:",
        *(f"- {kind}" for kind in counted),
        "---",
        "",
        f"# {name}",
        "",
        "A causal language model: tokens in, logits of the next one out.",
        "",
        "## Load it",
        "",
        load.format(folder=folder),
    ]
    if tokenizer:
        lines.append(TOKENS)
    lines += ["## Sizes", "", "| | |", "| --- | --- |"]
    lines += [f"| {key} | {value} |" for key, value in rows.items()]
    lines += ["", "## Training data", "", data or "Not stated.", ""]
    return "\n".join(lines)

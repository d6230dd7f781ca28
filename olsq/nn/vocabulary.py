"""Tokenizers of bytes and merged pairs as ``tokenizer.json``, the file format of Hugging Face's
library.

There a token is written in letters: each byte is a character, of GPT-2's table, and words are split
off after bytes have become characters, so that the split is that of the bytes here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from olsq.nn.files import listed

SPACES = b"\t\n\x0b\x0c\r "
LETTERS = bytes(range(65, 91)) + bytes(range(97, 123)) + bytes(range(128, 256))
DIGITS = b"0123456789"
LONGEST = 32  # bytes of a word


def _alphabet() -> list[str]:
    """Return a character for each byte: itself if it is visible, else one from 256 on, in order."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = iter(range(256, 512))
    return [chr(byte if byte in visible else next(hidden)) for byte in range(256)]


ALPHABET = _alphabet()


def _character_class(values: Sequence[int]) -> str:
    """Write the characters of these bytes for use between the brackets of a regular expression."""
    characters = [ALPHABET[byte] for byte in values]
    return "".join(f"\\{c}" if c in "\\[]^-&" else c for c in characters)


def _word_pattern() -> str:
    """Return the pattern of one word: letters with a space before, digits, punctuation, white
    space.
    """
    most, space = f"{{1,{LONGEST}}}", ALPHABET[32]
    named = {*SPACES, *LETTERS, *DIGITS}
    marks = [byte for byte in range(128) if byte not in named]
    runs = [f"{space}?[{_character_class(kind)}]{most}" for kind in (LETTERS, DIGITS, marks)]
    white = f"[{_character_class(SPACES)}]{most}"
    return "|".join([*runs, f"{white}(?![^{_character_class(SPACES)}])", white])


WORDS = _word_pattern()


def tokenizer_json(tokenizer: Any) -> str:
    """Write a tokenizer as the text of ``tokenizer.json``.

    Parameters
    ----------
    tokenizer : tokenizer of :mod:`olsq.train`, ``tokenizers.Tokenizer`` or path
        Of the second and third what they say themselves.

    Raises
    ------
    ValueError
        If its kind is unknown, or two of its tokens are the same bytes: there they are one.
    """
    if isinstance(tokenizer, (str, os.PathLike)):
        with open(tokenizer, encoding="utf-8") as file:
            return file.read()
    if hasattr(tokenizer, "to_str"):
        return tokenizer.to_str()
    saved = tokenizer.to_dict() if hasattr(tokenizer, "to_dict") else None
    if isinstance(saved, Mapping) and saved.get("kind") == "huggingface":
        return saved["json"]
    if not isinstance(saved, Mapping) or saved.get("kind") not in ("bytes", "bpe"):
        raise ValueError(
            "tokenizer must be one of olsq.train, a tokenizers.Tokenizer, or the path of a "
            f"tokenizer.json, got a {type(tokenizer).__name__}"
        )
    pieces, merges = list(ALPHABET), []
    for a, b in saved.get("merges", ()):
        merges.append(f"{pieces[a]} {pieces[b]}")
        pieces.append(pieces[a] + pieces[b])
    if len(set(pieces)) != len(pieces):
        twice = sorted({piece for piece in pieces if pieces.count(piece) > 1})
        raise ValueError(
            f"tokens {listed(twice)} are made in two ways, with two numbers; tokenizer.json has "
            "one number for the same bytes: train with fewer tokens, or save without tokenizer="
        )
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [
                    {
                        "type": "ByteLevel",
                        "add_prefix_space": False,
                        "trim_offsets": False,
                        "use_regex": False,
                    },
                    {
                        "type": "Split",
                        "pattern": {"Regex": WORDS},
                        "behavior": "Isolated",
                        "invert": False,
                    },
                ],
            },
            "post_processor": None,
            "decoder": {
                "type": "ByteLevel",
                "add_prefix_space": False,
                "trim_offsets": False,
                "use_regex": False,
            },
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {piece: number for number, piece in enumerate(pieces)},
                "merges": merges,
            },
        },
        ensure_ascii=False,
        indent=1,
    )


def vocabulary_of(text: str) -> tuple[int | None, dict[str, Any]]:
    """Count the tokens of a ``tokenizer.json``, and return the dictionary that :mod:`olsq.train`
    reads.

    None for the first where the file does not say.

    Raises
    ------
    ValueError
        If it is not JSON, or not an object.
    """
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    theirs = {"kind": "huggingface", "json": text}
    model = content.get("model") or {}
    vocab = model.get("vocab")
    added = [token["id"] for token in content.get("added_tokens") or ()]
    if not isinstance(vocab, dict):
        count = len(vocab) if isinstance(vocab, list) else None
        return count, theirs
    count = 1 + max([*vocab.values(), *added], default=-1)
    steps = (content.get("pre_tokenizer") or {}).get("pretokenizers") or []
    ours = any((step.get("pattern") or {}).get("Regex") == WORDS for step in steps)
    if not ours or added or sorted(vocab.values()) != list(range(count)):
        return count, theirs
    if [vocab.get(letter) for letter in ALPHABET] != list(range(256)):
        return count, theirs
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
    merges = [[vocab[a], vocab[b]] for a, b in pairs]
    return count, {"kind": "bpe", "merges": merges} if merges else {"kind": "bytes"}

"""Tokenise documents once, into files of tokens."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.files import write_atomically
from olsq.train.token_files import INDEX, VERSION, TokenFiles, open_tokens
from olsq.train.tokenizers import Tokenizer

__all__ = ["Progress", "write_tokens"]

SHARD_TOKENS = 1 << 26


class Progress(NamedTuple):
    """Progress of a pass over documents.

    Attributes
    ----------
    documents, size, tokens : int
        Documents, their bytes and their tokens so far.
    """

    documents: int
    size: int
    tokens: int


def write_tokens(
    directory: str | os.PathLike[str],
    documents: Iterable[str | bytes | os.PathLike[str]],
    tokenizer: Tokenizer,
    *,
    shard_tokens: int = SHARD_TOKENS,
    progress: Callable[[Progress], object] | None = None,
) -> TokenFiles:
    """Tokenise documents once, into files that :func:`open_tokens` reads.

    Parameters
    ----------
    directory : path
        New or empty.
    documents : iterable of str, bytes or path
        A path is a file with one document.  They are read one after the other.
    tokenizer : tokenizer
        Kept in the folder.
    shard_tokens : int
        A file ends with the document that brings it to so many tokens.
    progress : callable, optional
        Called with a :class:`Progress` after every document.

    Returns
    -------
    TokenFiles

    Raises
    ------
    FileExistsError
        If the directory has files.
    ValueError
        If there are no documents, or no tokens in them.
    OSError
        If a file cannot be read or written.

    Notes
    -----
    ``tokens-00000.npy`` and so on are NumPy's own format, 16 bits a token where the vocabulary
    allows, without pickle; ``documents.npy`` says where documents end.  ``index.json`` is written
    last: a pass that was broken off leaves a folder that cannot be opened.

    Examples
    --------
    >>> import tempfile
    >>> from olsq.train import ByteTokenizer, Corpus, write_tokens
    >>> tokens = write_tokens(tempfile.mkdtemp(), ["one text", "another"], ByteTokenizer())
    >>> len(tokens), [bytes(d.tolist()) for d in tokens.documents()]
    (15, [b'one text', b'another'])
    >>> Corpus.split(tokens, 0.4).batch(seed=0, step=0, batch=2, length=4).shape
    (2, 5)
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(17, "the directory is not empty", str(folder))
    dtype = np.dtype("<u2" if tokenizer.vocab_size <= 1 << 16 else "<u4")
    digest, shards, ends = hashlib.sha256(), [], []
    waiting: list[NDArray] = []
    size = held = total = largest = 0

    def close() -> None:
        nonlocal waiting, held
        name, array = f"tokens-{len(shards):05d}.npy", np.concatenate(waiting)
        write_atomically(folder / name, _npy(array))
        digest.update(array.data)
        shards.append({"file": name, "tokens": len(array)})
        waiting, held = [], 0

    for document in documents:
        text = Path(document).read_bytes() if isinstance(document, os.PathLike) else document
        tokens = tokenizer.encode(text)
        size += len(text if isinstance(text, bytes) else text.encode("utf-8"))
        largest = max(largest, int(tokens.max(initial=0)))
        waiting.append(tokens.astype(dtype))
        held, total = held + len(tokens), total + len(tokens)
        ends.append(total)
        if held >= shard_tokens:
            close()
        if progress is not None:
            progress(Progress(len(ends), size, total))
    if not total:
        raise ValueError("there are no tokens: no document has any text")
    if held:
        close()
    ending = np.array(ends, np.int64)
    digest.update(ending.data)
    write_atomically(folder / "documents.npy", _npy(ending))
    index = {
        "version": VERSION, "shards": shards, "largest": largest, "bytes": size,
        "tokenizer": tokenizer.to_dict(), "sha256": digest.hexdigest(),
    }  # fmt: skip
    write_atomically(folder / INDEX, (json.dumps(index, sort_keys=True) + "\n").encode())
    return open_tokens(folder)


def _npy(array: ArrayLike) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()

"""Tokens in files: written once from documents, read as memory-mapped shards."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from olsq.files import write_atomically
from olsq.train.batches import Batches, shuffled_rows
from olsq.train.packing import fill, plan
from olsq.train.tokenizers import Tokenizer, tokenizer_from_dict

__all__ = ["Progress", "TokenFiles", "open_tokens", "write_tokens"]

INDEX, VERSION = "index.json", 1
SHARD_TOKENS = 1 << 26


class TokenFiles:
    """Tokens of a folder that :func:`olsq.train.write_tokens` wrote, as one long sequence.

    Nothing is read before it is asked for.  It indexes like an array (n,) of tokens, so that a
    :class:`Corpus` can be made of it, and knows its documents.

    Attributes
    ----------
    shards : list of memory-mapped arrays
    ends : int array (documents,)
        Where each document ends.
    tokenizer : tokenizer or None
    digest : str
        SHA-256 of the tokens and where documents end, as it was when they were written.
    bytes_per_token : float
        Of the whole folder.
    """

    def __init__(
        self,
        shards: list[NDArray],
        ends: NDArray[np.int64],
        largest: int,
        tokenizer: Tokenizer | None,
        digest: str,
        bytes_per_token: float,
    ) -> None:
        self.shards, self.ends, self._largest = shards, ends, largest
        self.tokenizer, self.digest, self.bytes_per_token = tokenizer, digest, bytes_per_token
        self._edges = np.cumsum([0, *(len(shard) for shard in shards)])

    ndim = 1

    def __len__(self) -> int:
        """Return the number of tokens."""
        return int(self._edges[-1])

    @property
    def size(self) -> int:
        """Number of tokens."""
        return len(self)

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the files."""
        return self.shards[0].dtype

    def min(self) -> int:
        """Return a lower bound of the tokens: 0."""
        return 0

    def max(self) -> int:
        """Return the largest token of the folder."""
        return self._largest

    def __getitem__(self, index: Any) -> NDArray[np.int32]:
        """Return the tokens at an integer, a slice or an array of integers, as int32."""
        if isinstance(index, slice):
            return self._range(*index.indices(len(self)))
        places = np.asarray(index)
        if places.size and not (places.min() >= -len(self) and places.max() < len(self)):
            raise IndexError(f"tokens are numbered 0 to {len(self) - 1:,}")
        places = np.where(places < 0, places + len(self), places)
        shard = np.searchsorted(self._edges, places, side="right") - 1
        tokens = np.empty(places.shape, np.int32)
        for number in np.unique(shard):
            here = shard == number
            tokens[here] = self.shards[number][places[here] - self._edges[number]]
        return tokens

    def part(self, start: int, stop: int) -> TokenFiles:
        """Return the tokens from ``start`` to ``stop``, still in their files.

        Documents are cut there.
        """
        shards = []
        for shard, edge in zip(self.shards, self._edges[:-1], strict=True):
            low, high = max(start - edge, 0), min(stop - edge, len(shard))
            if low < high:
                shards.append(shard[low:high])
        inside = self.ends[(self.ends > start) & (self.ends < stop)] - start
        ends = np.append(inside, stop - start) if stop > start else inside
        digest = hashlib.sha256(f"{self.digest} {start} {stop}".encode()).hexdigest()
        empty = [np.zeros(0, self.dtype)]
        return TokenFiles(
            shards or empty, ends, self._largest, self.tokenizer, digest, self.bytes_per_token
        )

    def documents(self) -> Iterator[NDArray[np.int32]]:
        """Yield the tokens of each document, in order."""
        start = 0
        for end in self.ends.tolist():
            yield self[start:end]
            start = end

    def packed(self, *, batch: int, length: int, seed: int = 0, split: bool = True) -> Batches:
        """Draw batches of whole documents, packed into rows as :func:`olsq.train.pack` does.

        Only where documents end is held in memory; their tokens are read a batch at a time.

        Parameters
        ----------
        batch, length : int
            Rows of a batch, and tokens of a row.
        seed : int
            Of the order of the rows, another in every epoch.
        split : bool
            See :func:`pack`.

        Returns
        -------
        Batches
            Of :class:`Packed`.
        """
        starts = np.concatenate([[0], self.ends[:-1]])
        rows = plan((self.ends - starts).tolist(), length, split=split)

        def read(document: int, start: int, stop: int) -> NDArray:
            return self[starts[document] + start : starts[document] + stop]

        def take(numbers: NDArray) -> Any:
            return fill([rows[i] for i in numbers], length, read)

        return shuffled_rows(take, len(rows), batch, seed, self.digest)

    def _range(self, start: int, stop: int, stride: int) -> NDArray[np.int32]:
        if stride != 1:
            return self[np.arange(start, stop, stride)]
        pieces = [np.zeros(0, np.int32)]
        for shard, edge in zip(self.shards, self._edges[:-1], strict=True):
            low, high = max(start - edge, 0), min(stop - edge, len(shard))
            if low < high:
                pieces.append(shard[low:high].astype(np.int32))
        return np.concatenate(pieces)


def open_tokens(directory: str | os.PathLike[str]) -> TokenFiles:
    """Open a folder that :func:`olsq.train.write_tokens` wrote, memory-mapped.

    Raises
    ------
    FileNotFoundError
        If there is no ``index.json``: it is no such folder, or the pass was broken off.
    ValueError
        If a file is damaged, or not as the index says.
    """
    folder = Path(directory)
    try:
        index = json.loads((folder / INDEX).read_bytes())
        if index["version"] != VERSION:
            raise ValueError(
                f"{folder} has format {index['version']}, this olsq reads {VERSION}: write it "
                "again with olsq.train.write_tokens"
            )
        shards = [_mapped(folder / shard["file"], shard["tokens"]) for shard in index["shards"]]
        ends = np.load(folder / "documents.npy", allow_pickle=False)
        tokenizer = tokenizer_from_dict(index["tokenizer"])
        ratio = index["bytes"] / max(sum(len(shard) for shard in shards), 1)
        return TokenFiles(shards, ends, index["largest"], tokenizer, index["sha256"], ratio)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            2, "not a folder of tokens, or writing it was interrupted", error.filename
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{folder / INDEX} is damaged or not by olsq.train.write_tokens ({error!r}): write the "
            "tokens again"
        ) from None


def is_token_folder(path: str | os.PathLike[str]) -> bool:
    """Test whether :func:`olsq.train.write_tokens` completed in this folder."""
    return (Path(path) / INDEX).is_file()


def _mapped(path: Path, tokens: int) -> NDArray:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.shape != (tokens,) or array.dtype.kind != "u":
        raise ValueError(
            f"{path} holds {array.dtype} {array.shape}, not the {tokens:,} tokens of its index: "
            "write the tokens again"
        )
    return array


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
    ``tokens-00000.npy`` and so on are NumPy's own format, 16 bits per token where the vocabulary
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
        "version": VERSION,
        "shards": shards,
        "largest": largest,
        "bytes": size,
        "tokenizer": tokenizer.to_dict(),
        "sha256": digest.hexdigest(),
    }
    write_atomically(folder / INDEX, (json.dumps(index, sort_keys=True) + "\n").encode())
    return open_tokens(folder)


def _npy(array: ArrayLike) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()

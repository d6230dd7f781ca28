"""The cache on disk of compiled kernels.

It is keyed by a digest of all source files of kernels.  Numba's own looks at the file of the
function called; a kernel it calls, or a constant from another module, may have changed since: then
old and new code would mix.  Here each folder holds the code compiled from one set of sources; an
edit, an update or another Numba version uses another folder.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numba
from numba import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.registry import cpu_target

from olsq import first_call
from olsq.whole_kernels import rebuild

MARKS = (b"\n@kernel(", b"\n@external_kernel(")  # of files that define kernels
KEPT = 4  # folders of earlier sources that may stay

_log = logging.getLogger("olsq")


def attach(compiled: Any, function: Any, kind: str = "") -> None:
    """Give what compiles a function its cache on disk, if there is one; of each kind, its own."""
    folders = cache_folders(function.__module__.partition(".")[0])
    if folders.usable:
        compiled._cache = KernelCache(function, folders, kind)


class CacheFolders(NamedTuple):
    """Folders with the kernels of a package's present sources."""

    filled: tuple[Path, ...]  # these can only be read: an image's, or another user's
    written: Path | None

    @property
    def usable(self) -> bool:
        return self.written is not None or bool(self.filled)


class KernelCache(FunctionCache):
    """Numba's function cache in folders of olsq's own: kernels are read from all of them, and saved
    in the one that can be written.  An unreadable file only costs a compilation.
    """

    def __init__(self, function: Any, folders: CacheFolders, kind: str = "") -> None:
        self._name, self._py_func = repr(function), function
        self._written = folders.written
        places = [*folders.filled, *filter(None, [folders.written])]
        self._impl = _Implementation(function, places[-1] / function.__module__, kind)
        self._cache_path = self._impl.locator.get_cache_path()
        self._files = [
            CodeFile(str(place / function.__module__), self._impl.filename_base, "")
            for place in places
        ]
        self._cache_file = self._files[-1]
        self.enable()

    def holds(self, signature: Any) -> bool:
        """Test whether code for a C callback's signature is there, without loading it."""
        target: Any = cpu_target.target_context
        key = self._index_key(signature, target.codegen())
        try:
            return any(key in file._load_index() for file in self._files)
        except Exception:  # a damaged file may raise anything
            return False

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        for file in self._files:
            self._cache_file = file
            try:
                kernel = super().load_overload(sig, target_context)
            except Exception:  # a damaged file may raise anything
                if file is self._files[-1] and self._written is not None:
                    _remove(Path(self._cache_path))
                continue
            if kernel is not None:
                return kernel
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        if self._written is None:
            _warn_once(f"{Path(self._cache_path).parent} lacks some and cannot be written")
            return
        try:
            super().save_overload(sig, data)
        except OSError as error:  # a full disk, a quota
            self.disable()
            _warn_once(f"{self._cache_path}: {error.strerror}")


class CodeFile(IndexDataCacheFile):
    """Numba's index of a kernel's code, with files named after the types that they are for.

    Numba numbers them, so that two processes that compile for two types at once may both write
    number 1, and a reader then runs the code for the other types.
    """

    def __init__(self, folder: str, name: str, stamp: str) -> None:
        super().__init__(cache_path=folder, filename_base=name, source_stamp=stamp)
        self._name = name

    def save(self, key: Any, data: Any) -> None:
        digest = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        name = f"{self._name}.{digest}.nbc"
        self._save_data(name, data)  # before the index says that it is there
        index = self._load_index()
        if index.get(key) != name:
            self._save_index(index | {key: name})


class _Implementation(CompileResultCacheImpl):
    def __init__(self, function: Any, folder: Path, kind: str) -> None:
        code = function.__code__
        self._lineno, self._locator = code.co_firstlineno, _Locator(folder, code.co_filename)
        python = "".join(map(str, sys.version_info[:2]))
        self._filename_base = f"{function.__qualname__}-{self._lineno}{kind}.py{python}"

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        return rebuild(target_context, payload)


class _Locator:
    def __init__(self, folder: Path, source: str) -> None:
        self._cache_folder, self._py_file = folder, source

    def get_cache_path(self) -> str:
        return str(self._cache_folder)

    def ensure_cache_path(self) -> None:
        self._cache_folder.mkdir(parents=True, exist_ok=True)


@functools.cache
def cache_folders(package: str) -> CacheFolders:
    """Return the folders for the kernels of a package's present sources."""
    origin = getattr(sys.modules.get(package), "__file__", None)
    digest = source_digest(Path(origin).parent) if origin else None
    if origin is None or digest is None:
        return CacheFolders((), None)
    filled: list[Path] = []
    for place in _candidate_roots(Path(origin).parent):
        folder = place / f"{package}-kernels-{digest}"
        is_new = not folder.exists()
        if _can_write(folder):
            if is_new:
                _remove_old_folders(place, package, folder)
            return CacheFolders(tuple(filled), folder)
        if folder.is_dir():
            filled.append(folder)
    if not filled:
        _warn_once("no folder can be written")
    return CacheFolders(tuple(filled), None)


def _can_write(folder: Path) -> bool:
    """Make the folder and test whether files can be written into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        os.utime(folder)  # the time of last use, by which _remove_old_folders chooses
    except OSError:
        return False
    return True


@functools.cache
def _warn_once(reason: str) -> None:
    first_call.say_nothing()  # that compiled kernels are kept would not be true
    _log.warning(
        "olsq recompiles kernels in every process, which takes seconds, because it cannot cache "
        "them (%s). Set NUMBA_CACHE_DIR to a folder of yours that can be written.",
        reason,
    )


def _candidate_roots(root: Path) -> Iterator[Path]:
    """Yield the folders where compiled code may be kept, never one that others can write to."""
    folder = getattr(config, "CACHE_DIR", "")  # NUMBA_CACHE_DIR
    if folder:
        yield Path(folder)
    yield root / "__pycache__"
    try:
        home = Path.home()
    except RuntimeError:  # no home at all
        home = None
    system = platform.system()
    if system == "Windows":
        user = os.environ.get("LOCALAPPDATA")
    elif system == "Darwin":
        user = home and home / "Library" / "Caches"
    else:
        user = os.environ.get("XDG_CACHE_HOME") or (home and home / ".cache")
    if user:
        yield Path(user) / "olsq"


def _remove_old_folders(place: Path, package: str, present: Path) -> None:
    """Remove the folders of earlier sources except those used most recently."""
    dated = []
    for folder in place.glob(f"{package}-kernels-*"):
        try:
            dated.append((folder.stat().st_mtime, folder))
        except OSError:  # another process was faster
            continue
    dated.sort(key=lambda pair: pair[0], reverse=True)
    for _, folder in [pair for pair in dated if pair[1] != present][KEPT - 1 :]:
        _remove(folder)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def source_digest(root: Path) -> str | None:
    """Compute a digest of everything that decides what the kernels of a package compile to.

    That is the files of the package at ``root`` that define kernels, those they import, directly or
    not, and the versions of olsq, Numba and Python. None if there are no sources.
    """
    sources = kernel_sources(root)
    if not sources:
        return None
    digest = hashlib.sha256()
    for text in (_version(), numba.__version__, sys.version):
        digest.update(f"{text}\n".encode())
    for path in sorted(sources):
        content = sources[path]
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _version() -> str:
    olsq = sys.modules.get("olsq")
    return str(getattr(olsq, "__version__", ""))


def kernel_sources(root: Path) -> dict[Path, bytes]:
    """Read the files of a package that kernels are made from; contents by path."""
    contents = {path: path.read_bytes() for path in root.rglob("*.py")}
    modules = {_module_name(root, path): path for path in contents}
    modules.pop(root.name, None)  # the package's own __init__ only re-exports
    sources: dict[Path, bytes] = {}
    waiting = [path for path, content in contents.items() if any(mark in content for mark in MARKS)]
    while waiting:
        path = waiting.pop()
        if path not in sources:
            sources[path] = contents[path]
            package = _module_name(root, path.parent / "__init__.py")
            names = _iterate_imports(package, contents[path])
            waiting += [modules[name] for name in names if name in modules]
    return sources


def _module_name(root: Path, path: Path) -> str:
    """Return the dotted name of the module in a file below a package's folder."""
    parts = [root.name, *path.relative_to(root).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# An import statement: the module after "from", or none, and what is imported, in brackets or not.
# Parsing the files instead took more than a second in every process.
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+)?import[ \t]+(\([^)]*\)|(?:[^\n\\]|\\\r?\n)*)",
    re.MULTILINE,
)
_NAME = re.compile(r"[.\w]+")


def _iterate_imports(package: str, content: bytes) -> Iterator[str]:
    """Yield the modules that a file in a package may import, and some names that are none."""
    for start, imported in _IMPORT.findall(content):
        names = _NAME.findall(imported.decode())
        if start:
            module = start.decode().lstrip(".")
            level = len(start) - len(module)
            above = package.split(".")[: 1 - level or None] if level else []
            base = ".".join([*above, *filter(None, [module])])
            names = [base, *(f"{base}.{name}" for name in names)]
        yield from names

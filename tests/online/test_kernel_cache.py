"""Compiled code on disk is that of the sources as they are, or is not used."""

from __future__ import annotations

import ast
import itertools
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import olsq
from olsq import kernel_cache as _cache
from tests.online.warm_process import run_warm

FORKS = hasattr(os, "fork")
PACKAGE = Path(olsq.__file__).parent

FILES = {
    "__init__.py": "",
    "constants.py": "STEP = 1\n",
    "helper.py": (
        "from olsq.kernels import kernel\nfrom .constants import STEP\n\n"
        "@kernel()\ndef helper(x):\n    return x + STEP\n"
    ),
    "caller.py": (
        "from olsq.kernels import kernel\nfrom tiny.helper import helper\n\n"
        "@kernel()\ndef caller(x):\n    return 10 * helper(x)\n"
    ),
    "bystander.py": "NOTHING = 0\n",
}
ASK = """
import tiny.caller
print(tiny.caller.caller(1), sum(tiny.caller.caller.stats.cache_hits.values()))
"""


class Tiny:
    """A package of two kernels in files, run by a process of its own.

    ``warm=False``: a process started by itself, whose hashes of strings are others.
    """

    def __init__(self, folder, warm=FORKS, **environment):
        self.warm, self.runs = warm, itertools.count()
        self.root = folder / "tiny"
        self.root.mkdir()
        for name, text in FILES.items():
            (self.root / name).write_text(text)
        home = folder / "home"
        home.mkdir()
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("NUMBA", "XDG"))},
            "PYTHONPATH": os.pathsep.join([str(folder), str(PACKAGE.parent)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_CACHE_DIR": str(folder / "cache"),
            "HOME": str(home),
            **environment,
        }

    def ask(self, before=""):
        """The answer of the kernel, how often it came from the cache, and what was said."""
        done = self.run(before + ASK)
        answer, hits = done.stdout.split()
        return int(answer), int(hits), done.stderr

    def run(self, program):
        """Run a program beside the package, in a process of its own that ends well."""
        command, environment = [sys.executable, "-W", "error", "-c", program], self.environment
        folder = self.root.parent
        if self.warm:
            output = folder / f"output{next(self.runs)}"
            done = run_warm(program, folder, environment, output)
        else:
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment, cwd=folder
            )
        assert done.returncode == 0, done.stderr
        return done

    def edit(self, name, old, new):
        """Exchange text; size and time of the file stay what they were."""
        path = self.root / name
        before = path.stat()
        assert len(old) == len(new)
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def folders(tmp_path):
    return {p.name for p in (tmp_path / "cache").glob("tiny-kernels-*")}


@pytest.mark.full
def test_an_edit_anywhere_below_a_kernel_is_seen(tmp_path):
    tiny = Tiny(tmp_path)
    assert tiny.ask() == (20, 0, "")
    assert tiny.ask() == (20, 1, "")
    tiny.edit("helper.py", "x + STEP", "x - STEP")
    assert tiny.ask() == (0, 0, "")
    tiny.edit("constants.py", "STEP = 1", "STEP = 5")
    assert tiny.ask() == (-40, 0, "")
    tiny.edit("bystander.py", "NOTHING = 0", "NOTHING = 1")
    assert tiny.ask() == (-40, 1, "")
    assert len(folders(tmp_path)) == 3


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_damaged_files_are_made_anew(tmp_path, suffix):
    tiny = Tiny(tmp_path)
    tiny.ask()
    for path in (tmp_path / "cache").rglob(f"*{suffix}"):
        path.write_bytes(path.read_bytes()[:10] + b"damage")
    assert tiny.ask() == (20, 0, "")
    assert tiny.ask() == (20, 1, "")


def test_without_a_place_for_files_there_is_one_hint(tmp_path):
    nowhere = tmp_path / "file"
    nowhere.write_text("not a folder")
    places = dict.fromkeys(("NUMBA_CACHE_DIR", "HOME", "XDG_CACHE_HOME"), str(nowhere))
    tiny = Tiny(tmp_path, **places)
    (tiny.root / "__pycache__").write_text("not a folder either")
    (answer, hits, said) = tiny.ask()
    assert (answer, hits) == (20, 0)
    assert said.count("NUMBA_CACHE_DIR") == 1
    assert said.count("\n") == 1


def test_a_filled_folder_that_cannot_be_written_is_read(tmp_path):
    """The image of a container was filled when it was built, and its file system is read-only."""
    tiny = Tiny(tmp_path)
    tiny.ask()
    before = sorted(path.name for path in (tmp_path / "cache").rglob("*"))
    read_only = "import olsq.kernel_cache as k; k._can_write = lambda folder: False\n"
    assert tiny.ask(read_only) == (20, 1, "")
    assert sorted(path.name for path in (tmp_path / "cache").rglob("*")) == before
    # A kernel that the folder lacks, or has damaged, is compiled, and said to be so once.
    for path in (tmp_path / "cache").rglob("*.nbi"):
        path.write_bytes(path.read_bytes()[:10] + b"damage")
    answer, hits, hint = tiny.ask(read_only)
    assert (answer, hits) == (20, 0)
    assert hint.count("NUMBA_CACHE_DIR") == 1


def test_a_folder_that_can_be_written_completes_one_that_cannot(tmp_path):
    tiny = Tiny(tmp_path)
    tiny.ask()
    cache = str(tmp_path / "cache")
    elsewhere = "import olsq.kernel_cache as k; write = k._can_write\n"
    elsewhere += f"k._can_write = lambda path: {cache!r} not in str(path) and write(path)\n"
    assert tiny.ask(elsewhere) == (20, 1, "")
    for path in (tmp_path / "cache").rglob("*.nbi"):
        path.unlink()
    assert tiny.ask(elsewhere) == (20, 0, "")
    assert tiny.ask(elsewhere) == (20, 1, "")


def test_processes_fill_a_folder_at_once(tmp_path):
    tiny = Tiny(tmp_path)
    with ThreadPoolExecutor(4) as threads:
        answers = [done.result() for done in [threads.submit(tiny.ask) for _ in range(4)]]
    assert [answer for answer, _, _ in answers] == [20] * 4
    assert tiny.ask() == (20, 1, "")


KILLED = """
import builtins, os, shutil
import numba
import tiny.caller, tiny.helper

numba.njit(lambda x: x + 1)(1)  # what a first compilation loads, once for all

def killed_at(step):
    left = [step]
    def count(call):
        def counted(*args, **kwargs):
            if call is not opened or (len(args) > 1 and "w" in args[1]):
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), 9)
            return call(*args, **kwargs)
        return counted
    opened = builtins.open
    builtins.open, os.replace = count(opened), count(os.replace)

killed = 0
for kill in range(20):
    if kill == 10:
        shutil.rmtree(os.environ["NUMBA_CACHE_DIR"])
    child = os.fork()
    if child == 0:
        killed_at(kill % 5)
        assert tiny.caller.caller(1) == 20
        os._exit(0)
    killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
print(killed)
"""


@pytest.mark.full
@pytest.mark.skipif(not FORKS, reason="SIGKILL and fork are POSIX's")
def test_processes_killed_while_they_fill_a_folder_leave_it_usable(tmp_path):
    tiny = Tiny(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, text=True, env=tiny.environment,
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 8
    assert tiny.ask()[0] == 20
    assert tiny.ask() == (20, 1, "")


@pytest.mark.full
def test_another_processor_has_kernels_of_its_own(tmp_path):
    tiny = Tiny(tmp_path, warm=False)
    assert tiny.ask() == (20, 0, "")
    own = dict(tiny.environment)
    tiny.environment["NUMBA_CPU_NAME"] = "generic"
    assert tiny.ask() == (20, 0, "")
    assert tiny.ask() == (20, 1, "")
    tiny.environment = own
    assert tiny.ask() == (20, 1, "")


def test_kernels_saved_at_once_keep_their_own_code(tmp_path):
    """Numba numbers files, so that two processes may give one number to kernels of two types."""
    first, second = (_cache.CodeFile(str(tmp_path), "kernel-1", "") for _ in range(2))
    seen = first._load_index()
    first._load_index = lambda: dict(seen)  # before the second one saves
    second.save("floats", b"code for floats")
    first.save("integers", b"code for integers")
    reader = _cache.CodeFile(str(tmp_path), "kernel-1", "")
    assert reader.load("floats") in (None, b"code for floats")
    assert reader.load("integers") == b"code for integers"


WAITING = """
import logging, sys, time
from olsq import first_call
first_call.PATIENCE = 0.05
if sys.argv[1:] == ["logs"]:
    logging.basicConfig(level=logging.INFO, format="%(name)s logs %(message)s")
scope = {"__name__": "olsq.online.imagined"}
exec("def fit(compile, name): compile(name)\\ndef predict(compile, name): compile(name)", scope)

def compile(name):
    with first_call.waiting(name):
        with first_call.waiting("needed by it"):
            time.sleep(0.3)

for name in ("one", "two"):
    scope["fit"](compile, name)
scope["predict"](compile, "three")
exec("class Filter:\\n    def _read(self, compile, name): compile(name)", scope)
scope["Filter"]()._read(compile, "an attribute")
with first_call.waiting("four", first_call.PROGRAM):
    time.sleep(0.3)
"""


@pytest.mark.full
@pytest.mark.parametrize("how", ["", "logs"])
def test_who_waits_is_told_once_per_function(tmp_path, how):
    """On standard error, terminal or not, or by the logger of a program that shows its messages."""
    tiny = Tiny(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", WAITING, how], capture_output=True, text=True, env=tiny.environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    begin = "olsq logs " if how else "olsq: "
    kernels = "compiled, which happens once: they are kept on disk. `olsq compile --all` compiles"
    lines = done.stderr.splitlines()
    waits = "fit waits until one", "predict waits until three", "Filter waits until", "four waits"
    for line, waiting in zip(lines, waits, strict=True):
        assert line.startswith(begin + waiting)
        assert (kernels in line) == (waiting != "four waits")


@pytest.mark.full
def test_importing_compiles_nothing(tmp_path):
    program = (
        "import numba\n"
        "from numba.core import event\n"
        "with event.install_recorder('numba:compile') as recorder:\n"
        "    from olsq import compiled, distributed, local, online, polars, sequence\n"
        "    import olsq.river, olsq.tuning\n"
        "names = [e.data['dispatcher'].py_func.__module__ for _, e in recorder.buffer]\n"
        "from olsq.kernels import waiting_kernels\n"
        "print(len([n for n in names if n.startswith('olsq')]), len(waiting_kernels))\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "empty")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "3"]


def test_old_folders_are_few(tmp_path):
    for age in range(10):
        folder = tmp_path / f"tiny-kernels-{age}"
        folder.mkdir()
        os.utime(folder, (1e9 - age, 1e9 - age))
    (tmp_path / "tiny-other").mkdir()
    present = tmp_path / "tiny-kernels-9"
    _cache._remove_old_folders(tmp_path, "tiny", present)
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {"tiny-other", "tiny-kernels-9", *(f"tiny-kernels-{i}" for i in range(3))}


@pytest.mark.full
def test_every_kernel_file_of_the_package_counts():
    counted = _cache.kernel_sources(PACKAGE)
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_bytes())
        names = {
            getattr(d.func if isinstance(d, ast.Call) else d, "id", "")
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef)
            for d in node.decorator_list
        }
        if names & {"kernel", "njit", "jit_numba"}:
            assert path in counted, path
    assert PACKAGE / "sequence" / "numpy" / "blas.py" in counted


def test_the_packages_own_kernels_are_under_the_digest():
    from olsq.online.forms.factor.members import learn

    assert _cache.source_digest(PACKAGE) in str(learn._cache.cache_path)


@pytest.mark.slow
def test_a_kernel_holds_all_that_it_calls(tmp_path):
    """Else a process that compiled it computes other last bits than one that loaded it.

    Nothing but a cold run of the command line shows it: both copies of the called kernel are
    right, and which one runs is decided when the code is linked. A copy of its own is "private".
    """
    program = (
        "import numpy as np, olsq\n"
        "from olsq.online.forms.factor.members import learn\n"
        "X, y = np.eye(4, 3), np.ones(4)\n"
        "model = olsq.RecursiveLeastSquares(ridge=1.0, method='covariance', cov='sandwich')\n"
        "model.fit(X, y)\n"
        "print('compiled', sum(learn.stats.cache_misses.values()))\n"
        "print(*learn.inspect_llvm().values())\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    first, *code = done.stdout.splitlines()
    assert first == "compiled 1"
    calls = set(re.findall(r" call .*@(_ZN4olsq[A-Za-z0-9_]*)", "\n".join(code)))
    copies = re.findall(r"^define private .*@(_ZN4olsq\w*)", "\n".join(code), re.MULTILINE)
    assert not [call for call in calls - set(copies) if "members5learn" not in call]


INLINED = """
import tiny.caller
from tiny.helper import helper
for function in tiny.caller.caller, tiny.caller.second, helper:
    try:
        function(-1)
    except ValueError as error:
        print(error, end="; ")
print(tiny.caller.caller(1), tiny.caller.second(1), helper(1))
print(sum(helper.stats.cache_hits.values()), sum(helper.inside.stats.cache_hits.values()))
"""


@pytest.mark.full
def test_a_kernel_in_its_callers_is_the_one_that_python_calls(tmp_path):
    """Its errors too, whose texts hold a value; loaded from disk, and where a caller is missing."""
    tiny = Tiny(tmp_path)
    raises = "    if x < 0:\n        raise ValueError(f'below zero: {x}')\n    return"
    inlined = FILES["helper.py"].replace("kernel()", "kernel(forceinline=True, makes_arrays=True)")
    second = "\n\n@kernel()\ndef second(x):\n    return 3 * helper(x)\n"
    (tiny.root / "helper.py").write_text(inlined.replace("    return", raises))
    (tiny.root / "caller.py").write_text(FILES["caller.py"] + second)

    def ask():
        said, hits = tiny.run(INLINED).stdout.splitlines()
        assert said == "below zero: -1; " * 3 + "20 6 2"
        return hits

    assert ask() == "0 0"
    assert ask() == "1 0"  # callers are whole
    for path in (tmp_path / "cache").rglob("second*"):
        path.unlink()
    assert ask() == "1 1"
    assert ask() == "1 0"


REFERENCES = """
import numpy as np
from numba.core.errors import TypingError
from olsq.kernels import kernel

@kernel()
def make(n):
    return np.empty(n)

@kernel()
def cut(x):
    return x, x[1:]

@kernel()
def use_made(n):
    return make(n)[0]

@kernel()
def make_and_cut(n):
    return cut(np.empty(n))[1][0]

for call in (lambda: use_made(2), lambda: make_and_cut(2), lambda: cut(np.ones(2))):
    try:
        call()
    except TypingError as error:
        assert "makes_arrays=True" in str(error), error
        print("refused")
"""


def test_references_that_one_side_does_not_count_are_refused(tmp_path):
    """An array made for a caller that drops none; a view for one that drops it, or for Python."""
    assert Tiny(tmp_path).run(REFERENCES).stdout.split() == ["refused"] * 3

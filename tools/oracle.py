"""Random edits to a small project, where each load must equal a clean build by the compiler alone.

    python tools/oracle.py [--steps N | --minutes M] [--seed S] [--cuda]

A step changes one thing or a few: a header, which header is found first, a name that `__has_include` tests for, a
link, a flag, a variable, the compiler, the place of the project, the clock of the process, or the cache. Then the
module is loaded: by a new process, by one that stays, by two at once, or by one that works while the next edit is made.
The answer, a number or that it does not compile, has to be that of the compiler called directly with the same files and
flags; after an edit during a build, that of before or after the edit, and the next load has to have the latter.

`--cuda` has the same source compiled for GPUs; its host code answers. Ends with status 1 at the first difference, and
prints the steps of the project's life up to there.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import logging
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import tvm_ffi
import tvm_ffi.libinfo

from kjit.errors import CompileError, KjitError
from kjit.runtime import LAYOUT
from kjit.runtime.load import load_variant
from kjit.spec import Spec, Target, Variant

DEADLINE_S = 120.0
DOES_NOT_COMPILE = "it does not compile"

_SOURCE = """#include <tvm/ffi/c_api.h>
#include "one.h"
#if __has_include(<two.h>)
#include <two.h>
#endif
#if __has_include("maybe.h")
#include "maybe.h"
#endif
#ifdef ASKED
#if __has_include(ASKED)
#define FOUND 1
#endif
#endif
#ifdef NAMED
#include NAMED
#endif
#ifndef TWO
#define TWO 0
#endif
#ifndef MAYBE
#define MAYBE 0
#endif
#ifndef NUMBER
#define NUMBER 0
#endif
#ifndef COMPILER
#define COMPILER 0
#endif
#ifndef FOUND
#define FOUND 0
#endif
#ifdef __CUDACC__
static __global__ void fill(long* p) { *p = ONE + TWO; }
void launch() { fill<<<1, 1>>>(nullptr); }
#endif
extern "C" __attribute__((visibility("default")))
int __tvm_ffi_answer(void*, const TVMFFIAny*, int32_t, TVMFFIAny* r) {
  r->type_index = kTVMFFIInt;
  r->v_int64 = ((((ONE * 100L + TWO) * 100 + MAYBE) * 100 + NUMBER) * 100 + COMPILER) * 10 + FOUND;
  return 0;
}
"""

# The macro of each header, and the folders that have it at the beginning.
_HEADERS = {"one.h": "ONE", "two.h": "TWO", "maybe.h": "MAYBE", "sub/more.h": "NUMBER"}
_FOLDERS = ("csrc", "inc", "inc2", "../outside", "../cpath")
Answer = int | str


@dataclass
class Request:
    """A load: the project's folder, the flags, the variables, and the offset of the process's clock."""

    project: Path
    flags: list[str] = field(default_factory=list)
    includes: list[str] = field(default_factory=lambda: ["inc", "inc2", "../outside"])
    variables: dict[str, str] = field(default_factory=dict)
    clock_s: float = 0.0

    @property
    def source(self) -> Path:
        return self.project / "csrc" / "answer.cpp"

    @property
    def folders(self) -> list[str]:
        return [os.path.normpath(self.project / name) for name in self.includes]


def clean(request: Request) -> Answer:
    """The answer of a library that the compiler alone has built."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/answer.so"
        includes = [f"-I{each}" for each in (*request.folders, *tvm_ffi.libinfo.include_paths())]
        command = [
            request.variables.get("CXX", "c++"),
            "-std=c++20",
            "-O0",
            "-fPIC",
            "-shared",
            *request.flags,
            *includes,
        ]
        environment = {**os.environ, **request.variables}
        done = subprocess.run(
            [*command, request.source, "-o", library], env=environment, capture_output=True, check=False, cwd=folder
        )
        if done.returncode != 0:
            return DOES_NOT_COMPILE
        result = (ctypes.c_int64 * 2)()
        ctypes.CDLL(library)["__tvm_ffi_answer"](None, None, 0, result)
        return result[1]


def loaded(request: Request, is_cuda: bool) -> Answer:
    """The answer of the module that kjit loads, in this process."""
    files = {"cuda_files" if is_cuda else "cpp_files": [request.source]}
    # nvcc has another option for a file of options.
    of_nvcc = [re.sub("^@", "--options-file=", flag) for flag in request.flags]
    flags = {"extra_cuda_cflags": of_nvcc} if is_cuda else {"extra_cflags": request.flags}
    spec = Spec("answer", **files, **flags, extra_include_paths=request.folders)  # type: ignore[arg-type]
    variant = Variant(spec, Target.cuda("9.0a") if is_cuda else Target.cpu())
    for name in ("CXX", "CPATH", "CPLUS_INCLUDE_PATH"):
        os.environ.pop(name, None)
    os.environ.update(request.variables)
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + request.clock_s
    time.time_ns = lambda: now_ns() + int(request.clock_s * 1e9)
    try:
        answer: int = load_variant(variant).answer()
        return answer
    except CompileError:
        return DOES_NOT_COMPILE
    except KjitError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        time.time, time.time_ns = now, now_ns


class Process:
    """A forked process that answers requests until it is closed."""

    def __init__(self, is_cuda: bool) -> None:
        self._mine, theirs = multiprocessing.Pipe()
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            self._mine.close()
            _serve(theirs, is_cuda)
        theirs.close()

    def ask(self, request: Request) -> None:
        self._mine.send(request)

    def answer(self) -> Answer:
        if not self._mine.poll(DEADLINE_S):
            return "it hangs"
        try:
            answer: Answer = self._mine.recv()
        except EOFError:
            return "it crashed"
        return answer

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it crashed
            self._mine.send(None)
        self._mine.close()
        os.waitpid(self._pid, 0)


def _serve(connection: Connection, is_cuda: bool) -> None:
    logging.disable()
    status = 1
    try:
        while (request := connection.recv()) is not None:
            connection.send(loaded(request, is_cuda))
        status = 0
    finally:
        os._exit(status)


class World:
    """A project, its surroundings and a cache, and the edits to them. Each edit returns what it has done."""

    def __init__(self, home: Path, rng: random.Random) -> None:
        self.home, self.rng = home, rng
        self.cache = home / "cache"
        self.request = Request(home / "project")
        self._former: dict[Path, str] = {}
        for folder in _FOLDERS:
            (home / "project" / folder).mkdir(parents=True)
        (self.cache).mkdir(mode=0o700)
        (home / "project" / "pyproject.toml").touch()
        self.request.source.write_text(_SOURCE)
        self._write(home / "project" / "csrc" / "one.h", "#define ONE 1\n")
        self._write(home / "project" / "inc2" / "two.h", "#define TWO 2\n")
        for number in (1, 2):
            self._compiler(number, number)

    @property
    def edits(self) -> list[Callable[[], str]]:
        often = [self.edit, self.edit, self.add, self.add, self.remove]
        return [
            *often,
            *(self.undo, self.touch, self.replace, self.link, self.swap_folders, self.hide_folder, self.chain),
            *(self.flags, self.flags, self.includes, self.variable, self.compiler, self.move, self.clone),
            *(self.clock, self.damage, self.forget),
        ]

    def _place(self, name: str = "") -> Path:
        name = name or self.rng.choice(list(_HEADERS))
        return self.request.project / self.rng.choice(_FOLDERS) / name

    def _headers(self) -> list[Path]:
        places = [self.request.project / folder / name for folder in _FOLDERS for name in _HEADERS]
        return [path for path in places if path.is_file()]

    def _text(self, path: Path) -> str:
        macro = _HEADERS[path.name if path.name in _HEADERS else f"sub/{path.name}"]
        return f"#undef {macro}\n#define {macro} {self.rng.randrange(10, 100)}\n"

    def _write(self, path: Path, text: str) -> None:
        if path.is_file():
            self._former[path] = path.read_text()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def mend(self) -> str:
        """Make the project compile again."""
        self.request.flags = []
        path = self.request.project / "csrc" / "one.h"
        path.unlink(missing_ok=True)
        self._write(path, self._text(path))
        return f"no flags; write {path}"

    def edit(self) -> str:
        path = self.rng.choice(self._headers() or [self._place("one.h")])
        times = path.stat() if path.exists() and self.rng.random() < 0.4 else None
        self._write(path, self._text(path))
        if times is not None:
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        return f"edit {path}{'' if times is None else ', with its old time'}"

    def add(self) -> str:
        path = self._place()
        if path.is_symlink():
            path.unlink()
        self._write(path, self._text(path))
        return f"write {path}"

    def remove(self) -> str:
        path = self.rng.choice(self._headers() or [self._place("one.h")])
        path.unlink(missing_ok=True)
        return f"remove {path}"

    def undo(self) -> str:
        known = [path for path in self._former if path.parent.is_dir()]
        if not known:
            return "nothing"
        path = self.rng.choice(known)
        path.write_text(self._former[path])
        return f"undo {path}"

    def touch(self) -> str:
        path = self.rng.choice([self.request.source, *self._headers()])
        date = self.rng.choice([None, (1, 1), (time.time() + 1e6,) * 2])
        os.utime(path, date)
        return f"touch {path} {date}"

    def replace(self) -> str:
        path = self.rng.choice(self._headers() or [self._place("one.h")])
        other = self.home / "other.h"
        other.write_text(self._text(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            os.utime(other, ns=(path.stat().st_mtime_ns,) * 2)
        other.replace(path)
        return f"replace {path}"

    def link(self) -> str:
        path, number = self._place(), self.rng.randrange(2)
        target = self.home / f"target{number}" / path.name
        self._write(target, self._text(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)
        return f"link {path} to {target}"

    def swap_folders(self) -> str:
        one, two = (self.request.project / name for name in self.rng.sample(["inc", "inc2", "../outside"], 2))
        spare = self.home / "spare"
        for before, after in ((one, spare), (two, one), (spare, two)):
            before.rename(after)
        return f"swap {one} and {two}"

    def hide_folder(self) -> str:
        folder = self.request.project / self.rng.choice(["inc", "inc2"])
        hidden = folder.with_name(f"{folder.name}.away")
        if hidden.exists():
            shutil.rmtree(folder, ignore_errors=True)
            hidden.rename(folder)
            return f"bring back {folder}"
        shutil.copytree(folder, hidden, symlinks=True)
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return f"empty {folder}"

    def chain(self) -> str:
        """A header that includes another, or one outside of the project."""
        path = self._place("one.h")
        name = self.rng.choice(['"../outside/deep.h"', '"../../outside/deep.h"', '"sub/deep.h"', '"deep.h"'])
        deep = self.rng.choice(
            [self.home / "outside" / "deep.h", path.parent / "deep.h", path.parent / "sub" / "deep.h"]
        )
        path.unlink(missing_ok=True)
        self._write(path, f"#include {name}\n#define ONE DEEP\n")
        self._write(deep, f"#undef DEEP\n#define DEEP {self.rng.randrange(10, 100)}\n")
        return f"{path} includes {name}; write {deep}"

    def flags(self) -> str:
        name = self.rng.choice(["sub/more.h", "../sub/more.h", "more.h"])
        outside = os.path.normpath(self.request.project / "../outside")
        options = self.home / "options"
        options.write_text(f"-DNUMBER={self.rng.randrange(10, 100)}\n")
        choices = [
            [f"-DNUMBER={self.rng.randrange(10, 100)}"],
            [f'-DNAMED="{name}"'],
            [f"-DASKED=<{name}>"],
            ["-isystem", outside],
            [f"-iquote{outside}"],
            ["-include", f"{outside}/deep.h"],
            [f"@{options}"],
        ]
        self.request.flags = [word for words in self.rng.sample(choices, self.rng.randrange(3)) for word in words]
        return f"flags {self.request.flags}"

    def includes(self) -> str:
        names = ["inc", "inc2", "../outside"]
        self.request.includes = self.rng.sample(names, self.rng.randrange(1, 4))
        return f"includes {self.request.includes}"

    def variable(self) -> str:
        name = self.rng.choice(["CPATH", "CPLUS_INCLUDE_PATH"])
        if self.request.variables.pop(name, None) is None:
            self.request.variables[name] = os.path.normpath(self.request.project / "../cpath")
        return f"variables {self.request.variables}"

    def _compiler(self, number: int, says: int) -> Path:
        path = self.home / f"compiler{number}"
        path.write_text(f'#!/bin/sh\nexec {shutil.which("g++") or "c++"} -DCOMPILER={says} "$@"\n')
        path.chmod(0o755)
        return path

    def compiler(self) -> str:
        if self.request.variables.pop("CXX", None) is None or self.rng.random() < 0.5:
            path = self._compiler(self.rng.randrange(1, 3), self.rng.randrange(1, 100))
            self.request.variables["CXX"] = str(path)
        return f"variables {self.request.variables}"

    def move(self) -> str:
        here = self.request.project
        there = here.with_name("moved" if here.name == "project" else "project")
        if there.exists():
            shutil.rmtree(there)
        here.rename(there)
        self._former = {}
        self.request.project = there
        return f"move to {there}"

    def clone(self) -> str:
        here = self.request.project
        there = here.with_name("moved" if here.name == "project" else "project")
        shutil.rmtree(there, ignore_errors=True)
        shutil.copytree(here, there, symlinks=True)
        self.request.project = there
        return f"continue in the copy {there}"

    def clock(self) -> str:
        self.request.clock_s = self.rng.choice([0.0, -3600.0, 3600.0, -1.0])
        return f"clock {self.request.clock_s:+} s"

    def damage(self) -> str:
        files = [path for path in self.cache.rglob("*") if path.is_file() and path.suffix in (".so", ".json")]
        if not files:
            return "nothing"
        path = self.rng.choice(files)
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content[: self.rng.randrange(len(content) + 1)])
        return f"truncate {path}"

    def forget(self) -> str:
        folders = [path for path in (self.cache / LAYOUT).glob("*") if path.name not in ("support", "locks")]
        if not folders:
            return "nothing"
        path = self.rng.choice(folders)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        return f"remove {path}"


@dataclass
class Life:
    """Steps of a world, and the processes that watch it."""

    world: World
    is_cuda: bool
    told: list[str] = field(default_factory=list)
    loads: int = 0
    is_broken: bool = False

    def run(self, has_ended: Callable[[int], bool]) -> bool:
        """Make steps until `has_ended(number of steps)`; return whether all answers were right."""
        lasting = Process(self.is_cuda)
        rng, steps = self.world.rng, 0
        try:
            while not has_ended(steps):
                steps += 1
                for _ in range(rng.choice([1, 1, 1, 2, 3])):
                    self.told.append(rng.choice(self.world.edits)())
                if self.is_broken and rng.random() < 0.7:
                    self.told.append(self.world.mend())
                if rng.random() < 0.1:
                    lasting.close()
                    lasting = Process(self.is_cuda)
                if not self._is_right(lasting):
                    return False
            return True
        finally:
            lasting.close()

    def _is_right(self, lasting: Process) -> bool:
        rng, request = self.world.rng, self.world.request
        way = rng.choice(["new", "new", "lasting", "lasting", "two", "meanwhile"])
        expected = {clean(request)}
        with self._new(2 if way == "two" else 1) as new:
            asked = [lasting] if way == "lasting" else new
            for each in asked:
                each.ask(request)
            if way == "meanwhile":
                time.sleep(rng.random() * 0.5)
                self.told.append(
                    f"during the load: {rng.choice([self.world.edit, self.world.add, self.world.replace])()}"
                )
                expected.add(clean(request))
            if not self._are(way, [each.answer() for each in asked], expected):
                return False
        if way == "meanwhile":
            with self._new(1) as (after,):
                after.ask(request)
                return self._are("after", [after.answer()], {clean(request)})
        return True

    def _are(self, way: str, answers: list[Answer], expected: set[Answer]) -> bool:
        self.loads += len(answers)
        self.is_broken = DOES_NOT_COMPILE in answers
        self.told.append(f"    load ({way}): {answers}")
        if set(answers) <= expected:
            return True
        self.told.append(f"    WRONG: the compiler says {sorted(map(str, expected))}")
        return False

    @contextlib.contextmanager
    def _new(self, count: int) -> Iterator[list[Process]]:
        processes = [Process(self.is_cuda) for _ in range(count)]
        try:
            yield processes
        finally:
            for each in processes:
                each.close()


def live(seed: int, has_ended: Callable[[int], bool], *, is_cuda: bool = False) -> Life:
    """Run a life with its own world, until `has_ended` or the first wrong answer, which is then the last line told."""
    with tempfile.TemporaryDirectory(prefix="kjit-oracle-") as folder:
        life = Life(World(Path(folder), random.Random(seed)), is_cuda)
        os.environ["KJIT_CACHE_DIR"] = str(life.world.cache)
        life.run(has_ended)
        return life


def is_wrong(life: Life) -> bool:
    return bool(life.told) and "WRONG" in life.told[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="steps of each life; default 100")
    parser.add_argument("--minutes", type=float, help="go on with other seeds for so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cuda", action="store_true", help="compile for a GPU")
    options = parser.parse_args()
    end = time.monotonic() + 60 * (options.minutes or 0)
    seed, loads = options.seed, 0
    while True:
        life = live(seed, partial(lambda most, steps: steps >= most, options.steps), is_cuda=options.cuda)
        loads += life.loads
        if is_wrong(life):
            print("\n".join(life.told))
            print(f"seed {seed}: wrong")
            return 1
        print(f"seed {seed}: {life.loads} loads right, {loads} in all", flush=True)
        seed += 1
        if time.monotonic() >= end:
            return 0


if __name__ == "__main__":
    sys.exit(main())

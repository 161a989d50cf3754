"""Fault injection: kjit never loads a wrong module and never hangs, whatever happens to its cache and processes.

    python tools/faults.py [--count N | --minutes M] [--seed S] [--only FAULT ...] [--nvrtc] [--json]

Injects every fault that docs/faults.md lists, for real and at random points: builders are killed (SIGKILL), disks are
full (a small tmpfs), files are truncated while others work. After each, new processes load modules, and the number that
a module returns is compared with the number in its current source:

- a wrong load is a module that returns another number;
- a hang is a process that has not ended after two minutes (a second more for each of many variants);
- a crash is an exception that is not one of kjit's own errors, or an error after the fault has been removed.

Each must be zero. `--count` is the number of injections of each fault. A third of the builds run the machine's C++
compiler, the others a faster substitute (faults_compiler.cpp); ninja, locks, publication and loading are real.

Processes are forked from this one, which has imported kjit and builds nothing itself. Root can mount the small disk;
others need user namespaces, and without these the limit is one on the size of files.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import json
import logging
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import tvm_ffi  # noqa: F401 (imports torch: once here and not in every process)

import kjit
from kjit import env
from kjit.engine import pool
from kjit.engine.cache.store import Store
from kjit.engine.miss import ensure_built
from kjit.errors import KjitError
from kjit.runtime import LAYOUT, manifest
from kjit.runtime.load import load_variant
from kjit.spec import Spec, Target, Variant

DEADLINE_S = 120.0
VARIANTS = 1000
SETTLING_S = 0.1
_OPS = 4

_SOURCE = """#include "{name}.h"
#include <tvm/ffi/c_api.h>
#define MORE {more}
#if __has_include(<kjit/faults_version.h>)
#include <kjit/faults_version.h>
#endif
#ifndef VERSION
#define VERSION 0
#endif
#ifndef COMPILER
#define COMPILER 0
#endif
#ifndef VARIANT
#define VARIANT 0
#endif
#ifdef __CUDACC__
namespace {{
__global__ void fill(long* p) {{ *p = ANSWER; }}
void launch() {{ fill<<<1, 1>>>(nullptr); }}
}}
#endif
extern "C" __attribute__((visibility("default")))
int __tvm_ffi_answer(void*, const TVMFFIAny*, int32_t n, TVMFFIAny* r) {{
#ifdef __CUDACC__
  if (n > 0) launch();
#endif
  r->type_index = kTVMFFIInt;
  r->v_int64 = VARIANT * 1000000000L + VERSION * 100000000L + COMPILER * 1000000L + ANSWER * 1000L + MORE;
  return 0;
}}
"""

# What the stand-in for a compiler copies.
_TEMPLATE = """#include <tvm/ffi/c_api.h>
#include <stdlib.h>
static volatile const char text[] = "the number is 00000000000000000000";
extern "C" __attribute__((visibility("default")))
int __tvm_ffi_answer(void*, const TVMFFIAny*, int32_t, TVMFFIAny* r) {
  r->type_index = kTVMFFIInt;
  r->v_int64 = strtol(const_cast<const char*>(text) + 14, nullptr, 10);
  return 0;
}
"""


@dataclass
class Count:
    """One row of the table."""

    injected: int = 0
    loads: int = 0
    wrong: int = 0
    hangs: int = 0
    crashes: int = 0


@dataclass(frozen=True)
class Said:
    """The report of a process: the number that was loaded (or a requested folder), or the error."""

    number: int | str | None
    error: str
    is_kjits: bool


def _by_nvrtc() -> bool:
    return env.cuda_compiler() == "nvrtc"


def _variant(source: Path | str, *args: str, flags: Sequence[str] = (), **parts: Any) -> Variant:
    """The variant that is built from `source`."""
    if _by_nvrtc():
        spec = Spec("answer", *args, cuda_files=[source], extra_cuda_cflags=flags, **parts)
        return Variant(spec, Target.cuda("9.0a"))
    return Variant(Spec("answer", *args, cpp_files=[source], extra_cflags=flags, **parts), Target.cpu())


class Op:
    """A module whose number is computed from its two files."""

    def __init__(self, csrc: Path, index: int, rng: random.Random) -> None:
        self.rng = rng
        self.source = csrc / f"answer{index}.cpp"
        self.header = csrc / f"answer{index}.h"
        self.rewrite()

    def rewrite(self) -> None:
        self.write(self.source, _SOURCE.format(name=self.header.stem, more=self.rng.randrange(100, 1000)))
        self.edit()

    def edit(self) -> None:
        """Change the header to another of the same size, in one of the ways of editors and tools."""
        self.write(self.header, f"#define ANSWER {self.rng.randrange(100, 1000)}\n")

    def write(self, path: Path, text: str) -> None:
        how = self.rng.randrange(3) if path.exists() else 0
        if how == 0:
            path.write_text(text)
            return
        date = path.stat().st_mtime_ns
        other = path.with_name(f"{path.name}.new")
        other.write_text(text)
        if how == 1:  # as a tool does that keeps dates
            os.utime(other, ns=(date, date))
        other.replace(path)

    @property
    def number(self) -> int:
        return _after(self.header.read_text(), "ANSWER ") * 1000 + _after(self.source.read_text(), "MORE ")

    def variant(self, **parts: Any) -> Variant:
        return _variant(self.source, **parts)


class World:
    """A project with some ops, a cache, and a compiler."""

    def __init__(self, folder: Path, compiler: Path, rng: random.Random, *, name: str = "project") -> None:
        self.folder, self.compiler, self.rng = folder, compiler, rng
        self.cache = folder / "cache"
        self.temporary = folder / "tmp"
        self.csrc = folder / name / "csrc"
        for each in (self.csrc, self.temporary):
            each.mkdir(parents=True, exist_ok=True)
        (folder / name / "pyproject.toml").touch()
        self.ops = [Op(self.csrc, index, rng) for index in range(_OPS)]
        self.build_s = 0.5

    def op(self) -> Op:
        return self.rng.choice(self.ops)

    def artifacts(self) -> list[Path]:
        """The folders of all artifacts."""
        return [entry.folder for entry in Store(self.cache).entries()]

    @contextlib.contextmanager
    def environment(self) -> Iterator[None]:
        with _environment(KJIT_CACHE_DIR=str(self.cache), CXX=str(self.compiler), TMPDIR=str(self.temporary)):
            yield


class Process:
    """A process that loads a module of a world, or does something else there."""

    def __init__(self, world: World, work: Callable[[], int | str]) -> None:
        self._receive, send = multiprocessing.Pipe(duplex=False)
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            with world.environment():
                _in_child(work, send)
        send.close()
        self._said: Said | None = None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.join()

    def is_done(self) -> bool:
        return self._receive.poll(0)

    def join(self, deadline_s: float = DEADLINE_S) -> Said | None:
        """Its report; None if it was killed. A process that does not end is killed and counts as a hang."""
        if self._said is None and self._receive.poll(deadline_s):
            with contextlib.suppress(EOFError):
                self._said = Said(*self._receive.recv())
        elif self._said is None:
            os.kill(self.pid, signal.SIGKILL)
            self._said = Said(None, "hang", is_kjits=False)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._receive.close()
        self._receive, _ = multiprocessing.Pipe(duplex=False)
        return self._said


class Fault:
    """One fault, injected into a world repeatedly. The docstring of a subclass is its name in the table."""

    world: World
    count: Count
    problems: list[str]

    def __init__(self, folder: Path, compilers: Compilers, rng: random.Random) -> None:
        self.folder, self.compilers, self.rng = folder, compilers, rng
        self.count, self.problems = Count(), []
        self.worlds = [self.new_world(index, compiler) for index, compiler in enumerate(compilers.both)]

    def new_world(self, index: int, compiler: Path) -> World:
        world = World(self.folder / str(index), compiler, self.rng)
        shutil.copytree(self.compilers.known_of(compiler), world.cache)
        return world

    @classmethod
    def name(cls) -> str:
        return (cls.__doc__ or "").strip().rstrip(".")

    def run(self) -> None:
        """Inject once, then check the state."""
        self.world = self.worlds[self.count.injected % 3 != 0]
        self.inject()
        self.count.injected += 1

    def inject(self) -> None:
        raise NotImplementedError

    def load(self, op: Op) -> Process:
        return Process(self.world, lambda: _number(op.variant()))

    def check(self, op: Op) -> None:
        """Load in a new process, after the fault has been removed."""
        began = time.monotonic()
        self.judge(self.load(op).join(), op.number, must_load=True)
        self.world.build_s = 0.7 * self.world.build_s + 0.3 * (time.monotonic() - began)

    def judge(self, said: Said | None, *numbers: int, must_load: bool = False) -> None:
        self.count.loads += 1
        if said is None:
            problem = "died" if must_load else ""
        elif said.error == "hang":
            self.count.hangs += 1
            problem = "hangs"
        elif said.number is not None:
            problem = "" if said.number in numbers else f"answers {said.number} and not {numbers}"
            self.count.wrong += bool(problem)
            if problem:
                self.problems.append(problem)
            return
        else:
            problem = said.error if must_load or not said.is_kjits else ""
        if problem:
            self.count.crashes += problem != "hangs"
            self.problems.append(problem)

    def wait_random(self, most: float | None = None) -> None:
        time.sleep(self.rng.uniform(0, 1.2 * self.world.build_s if most is None else most))

    def artifact(self) -> tuple[Op, Path]:
        """A built op, and the folder of one of its artifacts."""
        op = self.world.op()
        self.check(op)
        said = Process(self.world, partial(_folder, op)).join()
        if said is None or said.number is None:
            raise RuntimeError(f"a module that was just loaded is not built: {said}")
        return op, Path(str(said.number))


class Killed(Fault):
    """builder killed with SIGKILL"""

    def inject(self) -> None:
        op = self.world.op()
        op.edit()
        first = self.load(op)
        others = [self.load(op) for _ in range(self.rng.choice((0, 0, 1, 3)))]
        self.wait_random()
        first.kill()
        for each in others:
            self.judge(each.join(), op.number, must_load=True)
        self.check(op)
        for folder in self.world.artifacts():
            if sorted(path.name for path in folder.iterdir()) != ["answer.so", "record.jsonl"]:
                self.count.wrong += 1
                self.problems.append(f"half an artifact: {folder}")


class DiskFull(Fault):
    """disk full while writing"""

    is_mounted: bool | None = None

    def inject(self) -> None:
        op = self.world.op()
        op.edit()
        whole = 1 << 20 if self.world.compiler == self.compilers.stand_in else 4 << 20
        limit = int(whole * self.rng.random() ** 3) + 1
        inodes = self.rng.choice((0, 0, self.rng.randrange(8, 80)))
        temporary = self.rng.random() < 0.3
        process = Process(self.world, lambda: self._on_small_disk(op, limit, inodes, temporary=temporary))
        # 1: built, and again on a disk that is large enough. 0: refused by kjit's own error, then built.
        self.judge(process.join(), 0, 1, must_load=True)

    def _on_small_disk(self, op: Op, limit: int, inodes: int, *, temporary: bool) -> int:
        if DiskFull.is_mounted is False:
            return self._with_small_files(op, limit)
        _own_mounts()
        folders = [self.world.cache, *([self.world.temporary] if temporary else [])]
        for folder in folders:
            folder.mkdir(exist_ok=True, mode=0o700)
            _mount(folder, f"size={limit},mode=700" + (f",nr_inodes={inodes}" if inodes else ""))
        fitted = True
        try:
            wrong = _number(op.variant()) != op.number
        except KjitError:
            wrong, fitted = False, False
        for folder in folders:
            _mount(folder, "size=64m,nr_inodes=10000", again=True)
        if wrong or _number(op.variant()) != op.number:
            return -1
        return int(fitted)

    def _with_small_files(self, op: Op, limit: int) -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        fitted = True
        try:
            wrong = _number(op.variant()) != op.number
        except KjitError:
            wrong, fitted = False, False
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        if wrong or _number(op.variant()) != op.number:
            return -1
        return int(fitted)


class Truncated(Fault):
    """library truncated"""

    def inject(self) -> None:
        op, folder = self.artifact()
        library = folder / "answer.so"
        os.truncate(library, self.rng.randrange(library.stat().st_size))
        self.check(op)


class Flipped(Fault):
    """bits flipped in library or record"""

    def inject(self) -> None:
        op, folder = self.artifact()
        path = folder / self.rng.choice(("answer.so", "record.jsonl"))
        content = bytearray(path.read_bytes())
        for _ in range(self.rng.randrange(1, 4)):
            content[self.rng.randrange(len(content))] ^= 1 << self.rng.randrange(8)
        path.write_bytes(content)
        self.check(op)
        # A record that no longer lists all files read would show only now.
        op.edit()
        self.check(op)


class Replaced(Fault):
    """library, record or both replaced by another's"""

    def inject(self) -> None:
        op, folder = self.artifact()
        other = self.rng.choice([each for each in self.world.ops if each is not op])
        self.check(other)
        donor = self.rng.choice([each for each in self.world.artifacts() if each != folder] or [folder])
        for name in self.rng.choice((["answer.so"], ["record.jsonl"], ["answer.so", "record.jsonl"])):
            shutil.copy(donor / name, folder / name)
        self.check(op)


class NoRecord(Fault):
    """record missing or garbage"""

    def inject(self) -> None:
        op, folder = self.artifact()
        record = folder / "record.jsonl"
        how = self.rng.randrange(5)
        if how == 0:
            record.unlink()
        elif how == 1:
            os.truncate(record, self.rng.randrange(record.stat().st_size))
        elif how == 2:
            record.write_bytes(self.rng.randbytes(self.rng.randrange(2000)))
        elif how == 3:
            record.write_text(self.rng.choice(("{}", "[]", "null", "1", '"x"', "[" * 100000, '{"a":' * 5000)))
        else:
            document = json.loads(record.read_text())
            _spoil(document, self.rng)
            record.write_text(json.dumps(document))
        self.check(op)
        op.edit()
        self.check(op)


class Deleted(Fault):
    """cache deleted while in use"""

    def inject(self) -> None:
        ops = [self.world.op() for _ in range(3)]
        for op in ops:
            if self.rng.random() < 0.7:
                op.edit()
        processes = [(op, self.load(op)) for op in ops]
        for _ in range(self.rng.randrange(1, 4)):
            self.wait_random(0.6 * self.world.build_s)
            folders = [self.world.cache, *self.world.cache.glob(f"{LAYOUT}/*"), *self.world.artifacts()]
            shutil.rmtree(self.rng.choice([folders[0], *folders]), ignore_errors=True)
        for op, process in processes:
            self.judge(process.join(), op.number)
        for op in set(ops):
            self.check(op)


class TwoVersions(Fault):
    """two versions of kjit on one cache"""

    def inject(self) -> None:
        self.world = self.worlds[0]  # the stand-in knows nothing of kjit's headers
        op = self.world.op()
        op.edit()
        newer = self.compilers.other_kjit(self.folder.parent)
        code = f"import faults; print(faults.load_here({str(op.source)!r}))"
        with self.world.environment(), _environment(PYTHONPATH=f"{newer}:{Path(__file__).parent}"):
            other = subprocess.Popen(
                [sys.executable, "-c", code], cwd=newer, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        self.wait_random(3 * self.world.build_s)
        self.check(op)
        try:
            out, error = other.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            other.kill()
            self.judge(Said(None, "hang", is_kjits=False))
            return
        said = Said(int(out), "", is_kjits=False) if out else Said(None, error.decode(), is_kjits=False)
        self.judge(said, op.number + 100000000, must_load=True)
        self.check(op)


class ClockSetBack(Fault):
    """clock set back"""

    def inject(self) -> None:
        op = self.world.op()
        op.edit()
        by, after = self.rng.choice((1, 60, 3600, 10**7)), self.rng.uniform(0, self.world.build_s)
        process = Process(self.world, lambda: _number_with_clock_set_back(op, by, after))
        before = op.number
        self.wait_random()
        if self.rng.random() < 0.7:
            op.edit()
        self.judge(process.join(), before, op.number)
        self.check(op)


class Edited(Fault):
    """sources edited during the build"""

    def inject(self) -> None:
        op = self.world.op()
        op.edit()
        process = self.load(op)
        numbers = [op.number]
        for _ in range(self.rng.randrange(1, 4)):
            self.wait_random()
            how = self.rng.randrange(4)
            if how == 0:
                op.rewrite()
            elif how == 1:  # as an atomic deployment does
                newer = self.world.csrc.with_name("newer")
                shutil.copytree(self.world.csrc, newer, copy_function=shutil.copy2)
                Op.edit(_at(op, newer))
                time.sleep(0.02)
                older = self.world.csrc.rename(self.world.csrc.with_name("older"))
                newer.rename(self.world.csrc)
                shutil.rmtree(older)
            else:
                op.edit()
            numbers.append(op.number)
            if how == 3:  # and back
                text = op.header.read_text()
                op.edit()
                op.write(op.header, text)
        # Any of the versions that existed is right, and a mixture of two is not: one compile reads header and source,
        # so only versions written together count, and at the end only the last.
        said = process.join()
        self.judge(said, *numbers, *_mixtures(numbers))
        self.check(op)


class CompilerReplaced(Fault):
    """compiler replaced, also during a build"""

    def new_world(self, index: int, compiler: Path) -> World:
        world = super().new_world(index, compiler)
        world.compiler = world.folder / "c++"
        self.replace(world, compiler, 1)
        return world

    def replace(self, world: World, compiler: Path, number: int) -> None:
        other = world.folder / "c++.new"
        other.write_text(f'#!/bin/sh\nexec {compiler} -DCOMPILER={number} "$@"\n')
        other.chmod(0o755)
        other.replace(world.compiler)
        world.number = number * 1000000  # type: ignore[attr-defined]

    def inject(self) -> None:
        op = self.world.op()
        op.edit()
        was = op.number + self.world.number  # type: ignore[attr-defined]
        process = self.load(op)
        self.wait_random()
        kept = self.world.compiler.stat()
        text = self.world.compiler.read_bytes()
        before = self.world.number  # type: ignore[attr-defined]
        real = self.compilers.both[self.worlds.index(self.world)]
        self.replace(self.world, real, self.rng.randrange(1, 10))
        self.judge(process.join(), was, op.number + self.world.number)  # type: ignore[attr-defined]
        if self.rng.random() < 0.5:  # the first one comes back, as when a package is downgraded
            self.world.compiler.write_bytes(text)
            os.utime(self.world.compiler, ns=(kept.st_atime_ns, kept.st_mtime_ns))
            self.world.number = before  # type: ignore[attr-defined]
        number = op.number + self.world.number  # type: ignore[attr-defined]
        self.judge(self.load(op).join(), number, must_load=True)


class OddNames(Fault):
    """folders with odd names"""

    def inject(self) -> None:
        letters = " '\"$`\\;&|()#%,=+-~!@äß漢🙂[]{}*?<>ab"
        name = "x" + "".join(self.rng.choice(letters) for _ in range(self.rng.randrange(1, 8)))
        cache = "c" + "".join(self.rng.choice(letters) for _ in range(self.rng.randrange(1, 8)))
        compiler = self.compilers.both[0]  # the stand-in takes paths as they are
        self.world = World(self.folder / f"odd{self.count.injected}", compiler, self.rng, name=name)
        self.world.cache = self.world.folder / cache
        shutil.copytree(self.worlds[0].cache, self.world.cache)
        op = self.world.op()
        self.check(op)
        op.edit()
        self.check(op)
        shutil.rmtree(self.world.folder)


class Copied(Fault):
    """copies of a tree that differ in one file"""

    # The include of a header outside of the project, and the flag that makes it found.
    ways = (
        ('"../../inc/{}"', ""),
        ('"link/../{}"', ""),
        ('"outer.h"', ""),
        ("<{}>", "-I{}/../inc"),
        ("<{}>", "--include-directory={}/csrc/../../inc"),
        ("<{}>", "@{}/options"),
        ("<stdint.h>", "-include{}/../inc/answer.h"),
    )
    # The same as nvcc spells it.
    of_nvcc = (("--include-directory=", "--include-path="), ("@", "--options-file="), ("-include{", "-include={"))

    def inject(self) -> None:
        self.world = self.worlds[0]  # the stand-in looks for a header beside the source only
        tree = self.folder / f"tree{self.count.injected}"
        include, flag = self.rng.choice(self.ways)
        first = self._plant(tree, include)
        copies = [first]
        for index in range(self.rng.randrange(1, 3)):
            copy = shutil.copytree(tree, tree.with_name(f"{tree.name}-copy{index}"), symlinks=True)
            copies.append(_at(first, copy / "pkg" / "csrc", copy / "inc"))
        for _ in range(self.rng.randrange(2, 4)):
            self.rng.choice(copies).edit()
            for op in self.rng.sample(copies, len(copies)):
                # What stands in a file of options means the first copy for all of them.
                number = (first if flag.startswith("@") else op).number
                spelled = flag
                for of_cxx, of_nvcc in self.of_nvcc if _by_nvrtc() else ():
                    spelled = spelled.replace(of_cxx, of_nvcc)
                flags = [spelled.format(op.source.parents[1])] if flag else []
                said = Process(self.world, partial(_number, op.variant(flags=flags))).join()
                self.judge(said, number, must_load=True)

    def _plant(self, tree: Path, include: str) -> Op:
        csrc, inc = tree / "pkg" / "csrc", tree / "inc"
        for folder in (csrc, inc / "deep"):
            folder.mkdir(parents=True)
        (tree / "pkg" / "pyproject.toml").touch()
        (tree / "pkg" / "options").write_text(f"-isystem '{inc}'\n")
        (csrc / "link").symlink_to("../../inc/deep")
        (csrc / "outer.h").write_text('#include "link/../answer.h"\n')
        op = Op.__new__(Op)
        op.rng, op.source, op.header = self.rng, csrc / "answer.cpp", inc / "answer.h"
        source = _SOURCE.format(name="answer", more=self.rng.randrange(100, 1000))
        op.source.write_text(source.replace('"answer.h"', include.format("answer.h")))
        op.edit()
        return op


class Exchanged(Fault):
    """sources, records, caches exchanged under what is known by times"""

    found = 0

    def inject(self) -> None:
        op = self.world.op()
        backup = self.folder / "backup"
        shutil.rmtree(backup, ignore_errors=True)
        for _ in range(2):
            self._check(op)
        shutil.copytree(self.world.cache, backup, symlinks=True)
        changes = (
            op.edit,
            op.rewrite,
            lambda: os.utime(op.header),
            lambda: self._exchange_sources(op),
            lambda: (self.world.csrc / f"new{self.count.injected}.txt").touch(),
            lambda: self._exchange_cache(backup),
            lambda: self._take_records_of(self.worlds[self.world is self.worlds[0]]),
            self._swap_records,
            self._spoil_record,
        )
        for change in self.rng.choices(changes, k=4):
            change()
            for _ in range(2):
                self._check(op)
        if self.count.injected == 20 and self.found < 20:
            self.problems.append(f"of {self.count.loads} modules {self.found} were found by times")
            self.count.crashes += 1

    def _check(self, op: Op) -> None:
        time.sleep(1.2 * SETTLING_S)
        said = Process(self.world, partial(_number_and_whether_found, op.variant())).join()
        if said is not None and isinstance(said.number, str):
            number, was_found = said.number.split()
            self.found += was_found == "True"
            said = Said(int(number), said.error, said.is_kjits)
        self.judge(said, op.number, must_load=True)

    def _exchange_sources(self, op: Op) -> None:
        """Replace the project's folder by another copy, in which the op's header differs."""
        other = self.world.csrc.with_name("other")
        shutil.copytree(self.world.csrc, other, symlinks=True)
        _at(op, other).edit()
        self.world.csrc.rename(self.world.csrc.with_name("away"))
        other.rename(self.world.csrc)
        shutil.rmtree(self.world.csrc.with_name("away"))

    def _exchange_cache(self, backup: Path) -> None:
        """Restore an earlier state of the cache."""
        shutil.rmtree(self.world.cache)
        shutil.copytree(backup, self.world.cache, symlinks=True)

    def _take_records_of(self, other: World) -> None:
        """Add the records of another machine, with another compiler and other files."""
        theirs, ours = (world.cache / LAYOUT / manifest.TOOLCHAINS for world in (other, self.world))
        if theirs.is_dir():
            shutil.copytree(theirs, ours, dirs_exist_ok=True)

    def _records(self) -> list[Path]:
        return sorted((self.world.cache / LAYOUT / manifest.TOOLCHAINS).glob("*"))

    def _swap_records(self) -> None:
        for path in self._records():
            other = self.rng.choice(self._records())
            content = path.read_bytes()
            path.write_bytes(other.read_bytes())
            other.write_bytes(content)

    def _spoil_record(self) -> None:
        for path in self._records():
            content = bytearray(path.read_bytes())
            for _ in range(self.rng.randrange(1, 4)):
                content[self.rng.randrange(len(content))] ^= 1 << self.rng.randrange(8)
            path.write_bytes(content[: self.rng.choice((len(content), self.rng.randrange(len(content))))])


class ManyVariants(Fault):
    """variants of one op, built by two processes at once"""

    def run(self) -> None:
        self.world = self.worlds[0]
        if not _by_nvrtc():
            self.world.compiler = self.compilers.stand_in
        count = self.variants
        op = self.world.op()
        op.edit()
        variants = [self._variant(op, index) for index in range(count)]
        orders = [variants, self.rng.sample(variants, count)]
        builders = [Process(self.world, partial(_build_all, order)) for order in orders]
        for builder in builders:
            self.judge(builder.join(DEADLINE_S + count), count, must_load=True)
        for index in self.rng.sample(range(count), min(count, 40)):
            said = Process(self.world, partial(_number, self._variant(op, index))).join()
            self.judge(said, index * 1000000000 + op.number, must_load=True)
        self.count.injected += count

    variants = VARIANTS

    def _variant(self, op: Op, index: int) -> Variant:
        return _variant(op.source, str(index), flags=[f"-DVARIANT={index}"])


FAULTS: tuple[type[Fault], ...] = (
    Killed,
    DiskFull,
    Truncated,
    Flipped,
    Replaced,
    NoRecord,
    Deleted,
    TwoVersions,
    ClockSetBack,
    Edited,
    CompilerReplaced,
    OddNames,
    Copied,
    Exchanged,
    ManyVariants,
)


@dataclass
class Compilers:
    """The machine's C++ compiler and its faster substitute."""

    folder: Path
    real: Path = field(init=False)
    stand_in: Path = field(init=False)

    def __post_init__(self) -> None:
        from kjit.engine.toolchain.compilers import find_cxx
        from kjit.engine.toolchain.locations import tvm_ffi_include, tvm_ffi_library

        with _environment(KJIT_CACHE_DIR=str(self.folder / "known")):
            self.real = find_cxx().path
        self.stand_in = self.folder / "stand-in"
        here = Path(__file__).with_name("faults_compiler.cpp")
        template = self.folder / "template.cpp"
        template.write_text(_TEMPLATE)
        library = tvm_ffi_library()
        link = ["-shared", "-fPIC", f"-I{tvm_ffi_include()}", str(library)]
        subprocess.run([self.real, "-O1", "-o", self.stand_in, here], check=True)
        subprocess.run([self.real, template, "-o", self.folder / "template.so", *link], check=True)
        os.environ["KJIT_FAULTS_TEMPLATE"] = str(self.folder / "template.so")

    def known_of(self, compiler: Path) -> Path:
        """A cache with a compiler's properties and with kjit's own code compiled by it; both take long, and no fault
        affects them."""
        folder = self.folder / f"known-{compiler.name}"
        if not folder.is_dir():
            world = World(self.folder / f"first-{compiler.name}", compiler, random.Random(0))
            said = Process(world, partial(_number, world.ops[0].variant())).join()
            if said is None or said.number != world.ops[0].number:
                raise SystemExit(f"a module cannot be built at all: {said}")
            (folder / LAYOUT).mkdir(parents=True, mode=0o700)
            folder.chmod(0o700)
            shutil.copy2(world.cache / LAYOUT / "compilers.json", folder / LAYOUT)
            shutil.copytree(world.cache / LAYOUT / "support", folder / LAYOUT / "support")
        return folder

    @property
    def both(self) -> tuple[Path, Path]:
        return self.real, self.real if _by_nvrtc() else self.stand_in

    def other_kjit(self, folder: Path) -> Path:
        """A folder with another version of kjit: another version number, and an additional header."""
        root = folder / "other-kjit"
        if not root.is_dir():
            package = Path(kjit.__file__).parent
            shutil.copytree(package, root / "kjit", ignore=shutil.ignore_patterns("__pycache__"))
            (root / "kjit" / "_version.py").write_text('__version__ = "99.0"\n')
            (root / "kjit" / "include" / "kjit" / "faults_version.h").write_text("#define VERSION 1\n")
        return root


def main(args: Sequence[str] | None = None) -> int:
    names = [fault.__name__ for fault in FAULTS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10, help="injections of each fault (10)")
    parser.add_argument("--minutes", type=float, help="run for this time instead")
    parser.add_argument("--variants", type=int, default=VARIANTS, help=f"variants of one op ({VARIANTS})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="FAULT", help=", ".join(names))
    parser.add_argument("--progress", action="store_true", help="print the time of each round")
    parser.add_argument("--nvrtc", action="store_true", help="modules for CUDA, compiled in two halves")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    options = parser.parse_args(args)
    logging.getLogger("kjit").setLevel(logging.CRITICAL)
    if options.nvrtc:
        os.environ[env.CUDA_COMPILER] = "nvrtc"
    began = time.monotonic()
    ManyVariants.variants = options.variants
    with tempfile.TemporaryDirectory(prefix="kjit-faults-", ignore_cleanup_errors=True) as folder:
        compilers = Compilers(Path(folder))
        DiskFull.is_mounted = _can_mount(Path(folder))
        faults = [
            each(Path(folder) / each.__name__, compilers, random.Random(f"{options.seed} {each.__name__}"))
            for each in FAULTS
            if each.__name__ in options.only
        ]
        for round_ in itertools.count():
            late = options.minutes is not None and time.monotonic() - began > 60 * options.minutes
            if late or (options.minutes is None and round_ == options.count):
                break
            for fault in faults:
                if not isinstance(fault, ManyVariants) or round_ == 0:
                    fault.run()
            if options.progress:
                print(f"{time.monotonic() - began:.0f} s: round {round_ + 1}", file=sys.stderr, flush=True)
    _print(faults, time.monotonic() - began, as_json=options.json)
    return int(any(fault.problems for fault in faults))


def load_here(source: str) -> int:
    """Load a module in this process (another kjit's, perhaps) and return its number."""
    return _number(_variant(source))


def _print(faults: Sequence[Fault], seconds: float, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({type(fault).__name__: vars(fault.count) for fault in faults}))
    else:
        width = max(len(fault.name()) for fault in faults)
        print(f"{'fault':<{width}}  injected   loads  wrong  hangs  crashes")
        for fault in faults:
            row = fault.count
            print(
                f"{fault.name():<{width}}  {row.injected:8}  {row.loads:6}  {row.wrong:5}  {row.hangs:5}"
                f"  {row.crashes:7}"
            )
        how = "a tmpfs of a few KB" if DiskFull.is_mounted else "a limit on the size of files"
        print(f"in {seconds:.0f} s; the full disk was {how}")
    for fault in faults:
        for problem in fault.problems[:10]:
            print(f"{type(fault).__name__}: {problem}", file=sys.stderr)


def _folder(op: Op) -> str:
    return str(ensure_built(op.variant()).folder)


def _number(variant: Variant) -> int:
    return int(load_variant(variant).answer())


def _number_and_whether_found(variant: Variant) -> str:
    """Load with times that count as old once they are older than a clock's tick, as all do after two seconds."""
    manifest._SETTLING_NS = int(SETTLING_S * 1e9)
    folder = os.environ["KJIT_CACHE_DIR"]
    was_found = manifest.find(variant, folder) is not None
    return f"{_number(variant)} {was_found}"


def _build_all(variants: list[Variant]) -> int:
    outcomes = pool.build_all(variants, Store.open())
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return len(outcomes)


def _number_with_clock_set_back(op: Op, by: float, after: float) -> int:
    """Load while the clock that Python reads is set back at some point; the kernel's times of files stay ahead."""
    moment = time.monotonic() + after
    real_time, real_ns, real_clock = time.time, time.time_ns, time.clock_gettime_ns

    def back() -> float:
        return by if time.monotonic() > moment else 0.0

    time.time = lambda: real_time() - back()
    time.time_ns = lambda: real_ns() - int(back() * 1e9)
    time.clock_gettime_ns = lambda clock: real_clock(clock) - int(back() * 1e9)
    return _number(op.variant())


def _in_child(work: Callable[[], int | str], send: Any) -> None:
    said: tuple[int | str | None, str, bool]
    try:
        said = (work(), "", False)
    except KjitError as error:
        said = (None, f"{type(error).__name__}: {error}", True)
    except BaseException:  # noqa: BLE001 (whatever it is, it is reported)
        said = (None, traceback.format_exc(), False)
    with contextlib.suppress(BrokenPipeError):
        send.send(said)
    os._exit(0)


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    tempfile.tempdir = None
    try:
        yield
    finally:
        tempfile.tempdir = None
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _can_mount(folder: Path) -> bool:
    def attempt() -> int:
        _own_mounts()
        (folder / "mount").mkdir(exist_ok=True)
        _mount(folder / "mount", "size=64k")
        return 1

    world = World(folder / "attempt", Path("c++"), random.Random(0))
    said = Process(world, attempt).join()
    return said is not None and said.number == 1


def _own_mounts() -> None:
    """Give this process a mount namespace of its own."""
    newuser, newns = 0x10000000, 0x20000
    uid, gid = os.getuid(), os.getgid()
    if _libc().unshare(newns | (0 if uid == 0 else newuser)) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    if uid != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    private = 0x4C000  # recursively
    if _libc().mount(None, b"/", None, private, None) != 0:
        raise OSError(ctypes.get_errno(), "mount --make-rprivate")


def _mount(folder: Path, options: str, *, again: bool = False) -> None:
    if _libc().mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 32 if again else 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount", str(folder))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _spoil(document: dict[str, Any], rng: random.Random) -> None:
    """Replace one value somewhere in a JSON document."""
    node: Any = document
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(node[key], (dict, list)) and node[key] and rng.random() < 0.8:
            node = node[key]
            continue
        if rng.random() < 0.2:
            del node[key]
        else:
            node[key] = rng.choice((None, True, -1, 0, 1.5, "", "x", [], {}, [[]], 10**30))
        return


def _at(op: Op, folder: Path, headers: Path | None = None) -> Op:
    """The same op in a copy of its folder, and of the folder of its header if that is another one."""
    other = Op.__new__(Op)
    other.rng, other.source, other.header = op.rng, folder / op.source.name, (headers or folder) / op.header.name
    return other


def _mixtures(numbers: list[int]) -> list[int]:
    """A header of one version with the source of another: the state between two writes."""
    return [one // 1000 * 1000 + other % 1000 for one in numbers for other in numbers]


def _after(text: str, before: str) -> int:
    return int(text.partition(before)[2].split()[0])


if __name__ == "__main__":
    sys.exit(main())

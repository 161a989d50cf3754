"""Builds of a program as a module, and runs of its `main`: by kjit's default compiler, by nvcc, by NVRTC without nvcc.

python tools/programs_built.py SPEC ARCH builds in this process, and prints the result as JSON.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from programs_found import CPP, Program
from programs_output import Run, run_limited

from kjit import env
from kjit.engine.compile import start_helper
from kjit.engine.miss import ensure_built
from kjit.engine.reports import compiler_of
from kjit.engine.toolchain.cuda import find_cuda
from kjit.engine.toolchain.locations import tvm_ffi_library
from kjit.errors import KjitError
from kjit.spec import Spec, Target, Variant

# `main` keeps its name, so that it may have any signature and end without `return`. The linker exports only names with
# this prefix; the function is called with ctypes, not by tvm-ffi.
ENTRY = """extern "C" [[gnu::visibility("hidden")]] int program_main(int, char**) __asm__("main");
extern "C" [[gnu::visibility("default")]] int __tvm_ffi_program(int n, char** words) { return program_main(n, words); }
"""
EMPTY = "__global__ void kernel() {}\nint main() { kernel<<<1, 1>>>(); }\n"
RUN = """import ctypes, os, sys
runtime, tvm_ffi, library, *words = sys.argv[1:]
for each in (runtime, tvm_ffi):
    ctypes.CDLL(each, mode=ctypes.RTLD_GLOBAL)
program = ctypes.CDLL(library)
buffers = [ctypes.create_string_buffer(os.fsencode(word)) for word in words]
argv = (ctypes.c_char_p * (len(words) + 1))(*map(ctypes.addressof, buffers), None)
status = getattr(program, "__tvm_ffi_program")(len(words), argv)
ctypes.CDLL(None).exit(status)  # flushes C's and C++'s streams, and runs destructors
"""
WAYS = ("default", "nvcc", "nvrtc")
BUILD_LIMIT_S = 600.0


@dataclass
class Build:
    """A build of a program: seconds, CPU seconds, the compiler of its kernels; or the first line of the error."""

    library: str = ""
    compiler: str = ""
    why_nvcc: str = ""
    error: str = ""
    seconds: float = 0.0
    cpu: float = 0.0


class Ways:
    """The ways to build programs, each with an environment and with a cache of the code that all modules share.

    Args:
        folder: an empty one, for caches.
        includes: folders for headers.
        flags: of nvcc and the link.
    """

    def __init__(self, folder: Path, arch: str, includes: Sequence[Path], flags: Sequence[str]) -> None:
        self._folder, self._arch, self._includes, self._flags = folder, arch, includes, flags
        self._entry = folder / "entry.cpp"
        self._entry.write_text(ENTRY)
        cuda, home = find_cuda(), folder / "cuda"
        self._libraries = (str(cuda.cudart), str(tvm_ffi_library()))
        home.mkdir()  # CUDA without nvcc
        (home / "include").symlink_to(cuda.include_dirs[0])
        (home / "lib").symlink_to(cuda.lib_dir)
        kept = {name: text for name, text in os.environ.items() if name == env.CUDA_HOME or "KJIT_" not in name}
        self._environments = {
            "default": kept,
            "nvcc": {**kept, env.CUDA_COMPILER: "nvcc"},
            "nvrtc": {**kept, env.CUDA_COMPILER: "nvrtc", env.CUDA_HOME: str(home)},
        }

    def share(self) -> dict[str, Build]:
        """Build the code that all modules share, and return builds, by nvcc and NVRTC, of a module with little else."""
        (self._folder / "empty").mkdir()
        source = self._folder / "empty" / "main.cu"
        source.write_text(EMPTY)
        spec = self._spec(Program("empty", source.parent, (source,)))
        found = {way: self._build(spec, way, self._shared(way)) for way in ("nvcc", "nvrtc")}
        shutil.copytree(self._shared("nvcc"), self._shared("default"))  # what nvcc needs if NVRTC fails
        self._build(spec, "default", self._shared("default"))
        return found

    def build(self, program: Program, repeat: int, first: int) -> dict[str, Build]:
        """Build a program in each way; the times are medians of `repeat` builds, in rotating order.

        Args:
            first: the index of the way that is the first, modulo their number.
        """
        spec = self._spec(program)
        results: dict[str, list[Build]] = {way: [] for way in WAYS}
        for turn in range(repeat):
            for index in range(len(WAYS)):
                way = WAYS[(first + turn + index) % len(WAYS)]
                cache = self._folder / f"cache-{way}"
                shutil.rmtree(cache, ignore_errors=True)
                shutil.copytree(self._shared(way), cache)
                results[way].append(self._build(spec, way, cache))
            if results["nvcc"][-1].error:
                break
        found = {way: next((each for each in builds if each.error), builds[-1]) for way, builds in results.items()}
        for way, builds in results.items():
            found[way].seconds = statistics.median([each.seconds for each in builds])
            found[way].cpu = statistics.median([each.cpu for each in builds])
        if "nvcc" in found["nvrtc"].compiler:
            found["nvrtc"].error = "nvcc built it although it was hidden"
        return found

    def run(self, program: Program, build: Build, limit: float) -> Run:
        """Run `main` of a program in its folder, for at most `limit` seconds."""
        words = (str(program.folder / program.folder.name), *program.words)
        command = [sys.executable, "-c", RUN, *self._libraries, build.library, *words]
        return run_limited(command, limit, os.environ, program.folder)

    def _shared(self, way: str) -> Path:
        return self._folder / f"shared-{way}"

    def _spec(self, program: Program) -> Spec:
        link = [flag for flag in self._flags if re.match(r"-[lL]|-Wl,", flag)]
        return Spec(
            "program",
            cuda_files=[path for path in program.sources if path.suffix == ".cu"],
            cpp_files=[*(path for path in program.sources if path.suffix in CPP), self._entry],
            extra_cuda_cflags=[flag for flag in self._flags if flag not in link],
            extra_cflags=[flag for flag in self._flags if re.match(r"-[DUI]|-std=", flag)],
            extra_ldflags=link,
            extra_include_paths=[program.folder, *self._includes],
        )

    def _build(self, spec: Spec, way: str, cache: Path) -> Build:
        """Build in a process of its own, with the cache in `cache`."""
        cache.mkdir(mode=0o700, exist_ok=True)
        fields = {name: getattr(spec, name) for name in spec._fields}
        command = [sys.executable, __file__, json.dumps(fields), self._arch]
        done = run_limited(command, BUILD_LIMIT_S, {**self._environments[way], env.CACHE_DIR: str(cache)})
        if done.status is None:
            return Build(error=f"the build takes more than {BUILD_LIMIT_S:.0f} s", seconds=BUILD_LIMIT_S)
        if done.status != 0:
            return Build(error=f"exit status {done.status}: {(done.errors.strip().splitlines() or [''])[-1]}")
        return Build(**json.loads(done.output.splitlines()[-1]))


def _build_here(fields: str, arch: str) -> None:
    """Build in this process, and print the `Build` as JSON."""
    result = Build()
    begin, cpu = time.perf_counter(), sum(os.times()[:4])
    try:
        artifact = ensure_built(Variant(Spec.of_fields(json.loads(fields)), Target.cuda(arch)))
        result.library, (result.compiler, result.why_nvcc) = artifact.library_path, compiler_of(artifact)
    except KjitError as error:
        result.error = _first_error(error.message)
    result.seconds = time.perf_counter() - begin
    start_helper.end()  # the CPU time of a process is known when it has ended
    result.cpu = sum(os.times()[:4]) - cpu
    print(json.dumps(asdict(result)))


def _first_error(message: str) -> str:
    lines = [line.strip() for line in message.splitlines()]
    errors = [line for line in lines if re.search(r"\berror\b|undefined|cannot|No such file", line)]
    return (errors or lines)[0][:300]


if __name__ == "__main__":
    _build_here(*sys.argv[1:])

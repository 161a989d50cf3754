"""C++ compilers: the search for one, and its capabilities.

A compiler is run for its version and capabilities only if its file is new (memo.py). Its identity in the key of every
artifact is its path, size and time, and those of the programs that it runs: the compiler proper, the assembler, the
linker. The file of a compiler cache (ccache) does not identify the compiler that it calls, so that compiler is used
directly. Nor does a script, but that is used, because its flags have a purpose: the commands that it would run are part
of the key. Each process asks for them, unless the script only passes on its arguments (`exec g++ -DX "$@"`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kjit import env
from kjit.engine.cache.staging import temporary_root
from kjit.engine.toolchain import probes
from kjit.engine.toolchain.memo import Stamp, is_unchanged, open_memo, stamp
from kjit.engine.toolchain.options import expand
from kjit.errors import ToolchainError
from kjit.spec import HOST_VARIABLE, NVCC_FLAGS

_CXX_FAMILIES = ("clang", "gcc")
_INSTALL_CXX = "install one (Debian, Ubuntu: `apt install g++`; Fedora: `dnf install gcc-c++`; conda: `gxx`) or set CXX"
_CACHING_WRAPPERS = ("ccache", "sccache", "distcc", "icecc")
_FOR_C = re.compile(r"(?:.*-)?(?:gcc|clang|cc)(?:-[\d.]+)?")
_ASK_TIMEOUT_S = 60


@dataclass(frozen=True)
class Compiler:
    """A compiler on disk and its properties.

    Attributes:
        path: not resolved, because `clang++` compiles C++ by its name.
        version_text: the output of `--version`.
        features: for a C++ compiler, `native` (accepts `-march=native`) and `openmp`; for nvcc, its architectures, such
            as `90`.
        parts: the programs that a C++ compiler runs.
        plan: for a script, a hash of the commands that it would run.
        may_change: whether it is a script that may run other commands the next time.
        variables: for a script, the variables in it, with their values.
    """

    path: Path
    family: str
    version: tuple[int, int]
    version_text: str
    size: int
    mtime_ns: int
    features: tuple[str, ...]
    parts: tuple[Stamp, ...] = ()
    plan: str = ""
    may_change: bool = False
    variables: tuple[tuple[str, str | None], ...] = ()

    @property
    def traits(self) -> Traits:
        """The differences between its family and others."""
        return TRAITS[self.family]

    @property
    def label(self) -> str:
        """For display: `gcc 12.2`."""
        return f"{self.family} {self.version[0]}.{self.version[1]}"

    def identity(self) -> dict[str, object]:
        """Its identity as JSON."""
        identity: dict[str, object] = {
            "path": str(self.path),
            "size": self.size,
            "mtime_ns": self.mtime_ns,
            "version": self.version_text,
        }
        if self.parts:
            identity["parts"] = [list(part) for part in self.parts]
        if self.plan:
            identity |= {"runs": self.plan, "variables": [list(each) for each in self.variables]}
        return identity

    def has_same_parts(self) -> bool:
        """Whether the programs that it runs are unchanged since it was found."""
        return all(map(is_unchanged, self.parts))

    def has_same_variables(self) -> bool:
        """Whether the variables in a script are unchanged."""
        return all(os.environ.get(name) == value for name, value in self.variables)


class Traits(NamedTuple):
    """The differences between compilers of two families.

    Attributes:
        banner: finds the version in the output of `--version`.
        oldest: the first release that compiles kjit's headers.
        newer: how to get a newer one, for a hint.
        features: asks a compiler for its features.
        names_as_written: lists a header of a system folder by the name that led to it (by default GCC lists
            `/app/pkg/../inc/a.h` as `/app/inc/a.h`, which hides that it moves with `pkg`).
        keeps_copy_loops: no replacement of copy loops by memcpy, which would hide their writes from kjit/streaming.h.
        variables_per_module: each library has variables of its own, also those of templates.
        volatile_is_no_race: for ThreadSanitizer, accesses of volatile variables do not race.
        accepts_unused: no warning about flags without effect.
        takes_host_halves: it compiles the host halves of CUDA units, and has the builtins that NVRTC has in the others.
        quiet_about_cpu: no warning about the compiler's own detection of this CPU, which clang has with AVX10, in each
            compile; the release that has the flag comes first.
    """

    banner: str
    oldest: tuple[int, int]
    newer: str
    features: Callable[[Path], list[str]]
    names_as_written: tuple[str, ...] = ()
    keeps_copy_loops: tuple[str, ...] = ()
    variables_per_module: tuple[str, ...] = ()
    volatile_is_no_race: tuple[str, ...] = ()
    accepts_unused: tuple[str, ...] = ()
    takes_host_halves: bool = False
    quiet_about_cpu: tuple[tuple[int, int], tuple[str, ...]] = ((0, 0), ())


def find_cxx() -> Compiler:
    """The C++ compiler: `CXX`, else the first of c++, g++ and clang++ on PATH.

    Raises:
        ToolchainError: there is none, `CXX` does not name one program, or it is too old for C++20.
    """
    named = os.environ.get("CXX", "").strip()
    if named:
        return inspect(_named_cxx(named))
    for name in ("c++", "g++", "clang++"):
        path = _which_compiler(name)
        if path is not None:
            return inspect(path)
    raise ToolchainError("No C++ compiler was found on PATH (c++, g++, clang++).", hint=_INSTALL_CXX)


def find_host_cxx() -> Compiler:
    """The C++ compiler for the host code of CUDA sources: the one in nvcc's own variables (`-ccbin` in its flags,
    `NVCC_CCBIN`), else that of `find_cxx`. nvcc and CUDA's headers reject one that is too new.

    Raises:
        ToolchainError: as for `find_cxx`, or a variable does not name a compiler.
    """
    path = _named_host()
    return find_cxx() if path is None else inspect(path)


def _named_host() -> Path | None:
    """The host compiler that a variable of nvcc names; None if none does.

    In nvcc's order of precedence: appended flags, prepended flags, `NVCC_CCBIN`. A folder means the compiler in it.
    """
    named: list[tuple[str, str]] = []
    for variable in reversed(NVCC_FLAGS):
        flags = (flag for flag, _ in expand(os.environ.get(variable, "").split(), "nvcc"))
        named += [(variable, flag.value) for flag in flags if flag.meaning == "host compiler"]
    named.append((HOST_VARIABLE, os.environ.get(HOST_VARIABLE, "").strip()))
    for variable, text in filter(lambda each: each[1], named):
        candidates = [f"{text}/{name}" for name in ("g++", "c++", "clang++")] if probes.is_folder(text) else [text]
        found = next(filter(None, map(_which_compiler, candidates)), None)
        if found is None:
            raise ToolchainError(
                f"{variable} names '{text}' as nvcc's host compiler, and there is none.",
                hint=f"correct {variable}, or unset it",
            )
        return found
    return None


def inspect(path: Path, *families: str) -> Compiler:
    """The properties of the compiler at `path`, which is run only if it has changed since the last time.

    Args:
        families: those that it may belong to (`TRAITS`); by default those of C++ compilers.

    Raises:
        ToolchainError: it does not exist, cannot be run, is not a compiler that kjit supports, or is too old.
    """
    try:
        seen = stamp(path)
    except OSError as error:
        raise ToolchainError(
            f"The compiler '{path}' cannot be read ({error.strerror}).",
            hint="reinstall it; `kjit doctor` shows what kjit finds",
        ) from None
    memo = open_memo()
    script = b"" if families else script_of(path)

    behind = _programs_behind(script)
    started = f" {list(_stamps_of(behind))}" if behind else ""

    def recall(question: str, answer: Callable[[], list[str]]) -> list[str]:
        return answer() if behind is None else memo.recall(seen, f"{question}{started}", answer)

    text = recall("version", lambda: [ask([str(path), "--version"]).strip()])[0]
    family, version = _read_version(path, families or _CXX_FAMILIES, text)
    traits = TRAITS[family]
    if version < traits.oldest:
        needed = ".".join(str(part) for part in traits.oldest if part)
        raise ToolchainError(
            f"'{path}' is {family} {version[0]}.{version[1]}; kjit needs {family} {needed} or newer.", hint=traits.newer
        )
    if families:
        features = memo.recall(seen, "features", lambda: traits.features(path))
        return Compiler(path, family, version, text, *seen[1:], tuple(features))
    environment = {name: os.environ.get(name) for name in _ENVIRONMENT_OF_PARTS}
    plan, *programs = recall(f"runs {environment}", lambda: _commands_of(path))
    plan = (plan or "unknown") if script else ""
    features = memo.recall(seen, f"features {plan}".rstrip(), lambda: traits.features(path))
    names = sorted({os.fsdecode(name) for name in _VARIABLE.findall(script)})
    values = tuple((name, os.environ.get(name)) for name in names)
    parts = _stamps_of([*programs, *(behind or ())])
    return Compiler(path, family, version, text, *seen[1:], tuple(features), parts, plan, behind is None, values)


_VARIABLE = re.compile(rb"\$\{?([A-Za-z_]\w*)")
_TEMPORARY_FILE = re.compile(r'[^\s"=]*/(?:cc|null-)\w{6}\.\w+')
_ENVIRONMENT_OF_PARTS = ("COMPILER_PATH", "GCC_EXEC_PREFIX")


def script_of(path: Path) -> bytes:
    """The text of a compiler that is a script; empty for a program."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        if (head := file.read(2)) == b"#!":
            return head + file.read()
    return b""


# A whole script that only passes on its arguments, without characters that a shell interprets.
_PASSES_ON = re.compile(rb'(?:[ \t]*(?:#[^\n]*)?\n)*(?:exec )?(?P<words>[\w./=+,:%-]+(?: [\w./=+,:%-]+)*) "\$@"\s*')


def _programs_behind(script: bytes) -> list[str] | None:
    """The programs that a script starts, if it only passes on its arguments to programs; None if it may do more."""
    if not script:
        return []
    match = _PASSES_ON.fullmatch(script)
    if match is None or os.environ.get("BASH_ENV"):  # a shell reads the file of that name first
        return None
    programs = list(filter(None, map(probes.which, match["words"].decode().split(" "))))
    return None if not programs or any(map(script_of, map(Path, programs))) else programs


def _commands_of(path: Path) -> list[str]:
    """A hash of the commands with which a C++ compiler makes a library, and the programs in them."""
    try:
        output = ask([str(path), "-###", "-shared", "-x", "c++", os.devnull, "-o", os.devnull], stderr=True)
        linker = ask([str(path), "-print-prog-name=ld"]).strip()
    except ToolchainError:
        return [""]  # it does not support these options
    # The commands are the indented lines.
    commands = [line for line in output.splitlines() if line.startswith(" ")]
    plan = "\n".join(_TEMPORARY_FILE.sub("file", command) for command in commands)
    return [hashlib.sha256(plan.encode()).hexdigest()[:32], *(shlex.split(each)[0] for each in commands), linker]


def _stamps_of(programs: list[str]) -> tuple[Stamp, ...]:
    """The stamps of existing programs, named by path or found on PATH."""
    found = (program if os.path.isabs(program) else probes.which(program) for program in dict.fromkeys(programs))
    stamps = []
    for program in found:
        with contextlib.suppress(OSError):
            stamps += [stamp(Path(program))] if program else []
    return tuple(stamps)


def ask(command: list[str], *, stderr: bool = False) -> str:
    """The output of a short command on stdout (or stderr), in English.

    Raises:
        ToolchainError: it cannot be run, fails, or does not end in time.
    """
    import subprocess

    try:
        done = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            # nvcc fails with an unclear message if TMPDIR is not writable.
            env={**os.environ, "LC_ALL": "C", "TMPDIR": temporary_root()},
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ToolchainError(f"'{' '.join(command)}' did not end within {_ASK_TIMEOUT_S} seconds.") from None
    except OSError as error:
        raise ToolchainError(f"'{command[0]}' cannot be run: {error.strerror or error}.") from None
    if done.returncode != 0:
        words = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise ToolchainError(f"'{' '.join(command)}' failed: {words[0] if words else f'exit {done.returncode}'}.")
    return os.fsdecode(done.stderr if stderr else done.stdout)


def _named_cxx(named: str) -> Path:
    found = _which_compiler(named)
    if found is not None and _FOR_C.fullmatch(found.name) is not None:
        raise ToolchainError(
            f"CXX is '{named}', which is a compiler for C: it does not link with C++'s library.",
            hint="set CXX to the one for C++: g++ or clang++",
        )
    if found is not None:
        return found
    first, *arguments = named.split()
    if arguments and (os.sep not in first or probes.which(first) is not None):
        raise ToolchainError(
            f"CXX is '{named}', a program with arguments; kjit needs the path of one program.",
            hint=f"name the compiler alone; flags go into the op's extra_cflags, ccache into {env.COMPILER_LAUNCHER}",
        )
    raise ToolchainError(f"CXX is '{named}', and there is no such program.", hint="correct CXX, or unset it")


def _which_compiler(name: str) -> Path | None:
    """The program `name`; if that is a link to a compiler cache, the compiler that the cache would call.

    The size and time of a cache do not identify that compiler in a key.
    """
    found = probes.which(name)
    if found is None or Path(found).resolve().name not in _CACHING_WRAPPERS:
        return None if found is None else Path(os.path.abspath(found))
    for folder in os.get_exec_path():
        candidate = probes.which(os.path.basename(name), path=folder)
        if candidate is not None and Path(candidate).resolve().name not in _CACHING_WRAPPERS:
            return Path(os.path.abspath(candidate))
    return None


def _read_version(path: Path, families: Sequence[str], text: str) -> tuple[str, tuple[int, int]]:
    for family in families:
        if (match := re.search(TRAITS[family].banner, text)) is not None:
            return family, (int(match[1]), int(match[2]))
    raise ToolchainError(
        f"The output of '{path} --version' is not that of {' or '.join(families)}.", hint="`kjit doctor` shows more"
    )


def _gcc_features(path: Path) -> list[str]:
    # GCC accepts -march=native on these two; a check would cost a compile.
    features = ["native"] if platform.machine() in ("x86_64", "aarch64") else []
    # For OpenMP it needs one file of its library, which may be in a separate package.
    has_openmp = os.path.isabs(ask([str(path), "-print-file-name=libgomp.spec"]).strip())
    return [*features, "openmp"] if has_openmp else features


def _clang_features(path: Path) -> list[str]:
    openmp = "#include <omp.h>\nint main() { return omp_get_num_procs(); }"
    checks = {
        "native": (["-march=native", "-fsyntax-only"], "int main() {}"),
        "openmp": (["-fopenmp", "-o", os.devnull], openmp),
    }
    return [feature for feature, (flags, source) in checks.items() if compiles(path, flags, source)]


def compiles(path: Path, flags: list[str], source: str) -> bool:
    """Whether the compiler accepts these flags and this source; the flags name the output."""
    import subprocess

    done = subprocess.run(
        [str(path), "-x", "c++", "-", *flags],
        input=source.encode(),
        env={**os.environ, "TMPDIR": temporary_root()},
        capture_output=True,
        timeout=_ASK_TIMEOUT_S,
        check=False,
    )
    return done.returncode == 0


def _nvcc_features(path: Path) -> list[str]:
    return re.findall(r"^sm_(\d+)$", ask([str(path), "--list-gpu-code"]), re.MULTILINE)


_NEWER_CXX = "set CXX to a newer compiler"
TRAITS: dict[str, Traits] = {
    "gcc": Traits(
        # The package's own version comes first, in brackets: `g++ (Debian 12.2.0-14) 12.2.0`.
        r"\)\s+(\d+)\.(\d+)(?=[\s\S]*Free Software Foundation)",
        (11, 0),
        _NEWER_CXX,
        _gcc_features,
        names_as_written=("-fno-canonical-system-headers",),
        keeps_copy_loops=("-fno-tree-loop-distribute-patterns",),
        variables_per_module=("-fno-gnu-unique",),
        volatile_is_no_race=("--param", "tsan-distinguish-volatile=1"),
        takes_host_halves=True,
    ),
    "clang": Traits(
        r"clang version (\d+)\.(\d+)",
        (16, 0),
        _NEWER_CXX,
        _clang_features,
        volatile_is_no_race=("-mllvm", "-tsan-distinguish-volatile=1"),
        accepts_unused=("-Qunused-arguments",),
        quiet_about_cpu=((18, 0), ("-Wno-invalid-feature-combination",)),
    ),
    "nvcc": Traits(r"release (\d+)\.(\d+)", (12, 8), "set KJIT_CUDA_HOME to a newer CUDA", _nvcc_features),
}
"""The traits of each family of compilers that are programs."""

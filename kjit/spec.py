"""What is built, as values: `Spec` (sources, exports, flags), `Target` (for which hardware), `Variant` (both).

Whatever can change the compiled library is a field of one of these, so that a key computed from them cannot forget
anything. Nothing here touches the disk, a compiler or torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kjit.errors import UsageError

Side = Literal["cpu", "cuda"]
"""A side of a `Spec`: its C++ sources or its CUDA sources."""

TargetKind = Literal["cpu", "cuda", "sim", "sim-check"]
"""`sim` runs the CUDA side on the CPU, in the simulator; `sim-check` also looks for mistakes in it while it runs."""

Export = tuple[str, str]
"""An export: the name that Python calls, and the C++ symbol (with its template arguments) behind it."""

StrPath = str | os.PathLike[str]

_ARCH = re.compile(
    r"(?:sm_|compute_)?(?P<digits>\d{2,3})(?P<suffix>[af]?)|(?P<major>\d{1,2})\.(?P<minor>\d)(?P<suffix2>[af]?)"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Files are called by it, with endings of nvcc's besides; a file system takes names of 255 bytes.
_LONGEST_NAME = 180
_LONGEST_FILE_NAME = 255


@dataclass(frozen=True, order=True)
class CudaArch:
    """A GPU architecture: compute capability `major.minor`, and `a` or `f` for code specific to it or its family."""

    major: int
    minor: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> CudaArch:
        """Read `9.0a`, `90a` or `sm_90a`.

        Raises:
            UsageError: `text` is none of these.
        """
        match = _ARCH.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"'{text}' is not a CUDA architecture.",
                hint="write it like 9.0a, 90a or sm_90a; for example 8.0,9.0a,10.0a",
            )
        if match["digits"]:
            return cls(int(match["digits"][:-1]), int(match["digits"][-1]), match["suffix"])
        return cls(int(match["major"]), int(match["minor"]), match["suffix2"])

    @property
    def digits(self) -> str:
        """As nvcc spells it after `sm_` or `compute_`: `90a`."""
        return f"{self.major}{self.minor}{self.suffix}"

    @property
    def number(self) -> int:
        """The value of `__CUDA_ARCH__` in code compiled for it: 900 for 9.0a."""
        return self.major * 100 + self.minor * 10

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}{self.suffix}"

    def runs_on(self, major: int, minor: int) -> bool:
        """Whether machine code for this architecture runs on a GPU of compute capability `major.minor`.

        Plain code runs on the same major and any minor at least as high; `a` code on exactly its own; `f` code within
        its family (same major, minor at least as high).
        Source: CUDA C++ Programming Guide, "Binary Compatibility" and "Family-Specific Architecture Features".
        """
        if self.suffix == "a":
            return (major, minor) == (self.major, self.minor)
        return major == self.major and minor >= self.minor

    @property
    def closeness(self) -> tuple[int, int]:
        """Of several that run on a GPU, the greatest is the closest to it."""
        return (self.minor, ("", "f", "a").index(self.suffix))

    def serves(self, other: CudaArch) -> bool:
        """Whether machine code for this architecture runs on every GPU that code for `other` runs on."""
        return self.runs_on(other.major, other.minor) and (self.suffix != "a" or other.suffix == "a")


@dataclass(frozen=True)
class Target:
    """What an artifact is built for: the CPU, one or more CUDA architectures, or the simulator.

    Attributes:
        arch: the CUDA architecture, the lowest one where there are several.
        others: further architectures of the same major version, whose machine code is in the same library. What is
            decided when the host part is compiled (`KJIT_CUDA_ARCH`) is decided for the lowest.
        level: for a CPU target, the instruction set that every CPU of that level has, as in `x86-64-v3` (the names are
            in build/cpu.py); None is this machine's CPU.
    """

    kind: TargetKind
    arch: CudaArch | None = None
    others: tuple[CudaArch, ...] = ()
    level: str | None = None

    def __post_init__(self) -> None:
        if (self.kind == "cuda") != (self.arch is not None):
            raise ValueError("a CUDA target has an architecture, and no other target has one")
        if any(self.arch is None or arch.major != self.arch.major for arch in self.others):
            raise ValueError("the architectures of one library have the same major version")
        if self.level is not None and self.kind != "cpu":
            raise ValueError("only a CPU target has a level")

    @classmethod
    def cpu(cls, level: str | None = None) -> Target:
        return cls("cpu", level=level)

    @classmethod
    def cuda(cls, arch: CudaArch | str, *others: CudaArch | str) -> Target:
        archs = sorted({CudaArch.parse(each) if isinstance(each, str) else each for each in (arch, *others)})
        return cls("cuda", archs[0], tuple(archs[1:]))

    @classmethod
    def sim(cls, *, check: bool = False) -> Target:
        """The simulated GPU; with `check` the one that reports mistakes in kernels."""
        return cls("sim-check" if check else "sim")

    @property
    def side(self) -> Side:
        """Which side of a `Spec` is built for it."""
        return "cpu" if self.kind == "cpu" else "cuda"

    @property
    def is_simulated(self) -> bool:
        return self.kind in ("sim", "sim-check")

    @property
    def archs(self) -> tuple[CudaArch, ...]:
        """All its CUDA architectures, the lowest first."""
        return () if self.arch is None else (self.arch, *self.others)

    def __str__(self) -> str:
        """`cpu`, `cpu:x86-64-v3`, `cuda:sm_90a`, `cuda:sm_80+sm_86`, `sim` or `sim-check`."""
        if self.level is not None:
            return f"{self.kind}:{self.level}"
        return f"{self.kind}:{'+'.join(f'sm_{arch.digits}' for arch in self.archs)}" if self.archs else self.kind


@dataclass(frozen=True, init=False)
class Spec:
    """One module: what is compiled and what it exports.

    `cuda_*` is its CUDA side and `cpp_*` its C++ side. `load_jit` builds all that it is given into one module; a
    declared op builds one module a target, from that target's side (`only`).

    Args:
        name: the op; a C++ and Python identifier, and the name of the library.
        args: what tells this variant from others of the op, usually `*make_cpp_args(...)`.
        cpp_files, cuda_files: sources, as absolute paths. With wrappers they are included into one generated unit,
            which exports the wrappers; without, each is compiled as it is and exports for itself (`KJIT_EXPORT`).
        cpp_wrappers, cuda_wrappers: `(export_name, cpp_symbol)` pairs.
        extra_cflags: for the C++ compiler. extra_cuda_cflags: for nvcc. extra_ldflags: for the link.
        extra_include_paths: absolute folders, searched before kjit's own.

    Raises:
        UsageError: the name or an export is not an identifier, or there is nothing to build.
    """

    name: str
    args: tuple[str, ...]
    cpp_files: tuple[str, ...]
    cuda_files: tuple[str, ...]
    cpp_wrappers: tuple[Export, ...]
    cuda_wrappers: tuple[Export, ...]
    extra_cflags: tuple[str, ...]
    extra_cuda_cflags: tuple[str, ...]
    extra_ldflags: tuple[str, ...]
    extra_include_paths: tuple[str, ...]

    def __init__(
        self,
        name: str,
        *args: str,
        cpp_files: Iterable[StrPath] = (),
        cuda_files: Iterable[StrPath] = (),
        cpp_wrappers: Iterable[Export] = (),
        cuda_wrappers: Iterable[Export] = (),
        extra_cflags: Iterable[str] = (),
        extra_cuda_cflags: Iterable[str] = (),
        extra_ldflags: Iterable[str] = (),
        extra_include_paths: Iterable[StrPath] = (),
    ) -> None:
        if _NAME.fullmatch(name) is None:
            raise UsageError(f"'{name}' cannot name a module: it must be an identifier (letters, digits, underscores).")
        if len(name) > _LONGEST_NAME:
            raise UsageError(
                f"'{name[:20]}...' cannot name a module: it has {len(name)} letters, and {_LONGEST_NAME} are possible.",
                hint="tell variants apart by their arguments, not by their names",
            )
        fields: dict[str, object] = {
            "name": name,
            "args": tuple(args),
            "cpp_files": _paths("cpp_files", cpp_files),
            "cuda_files": _paths("cuda_files", cuda_files),
            "cpp_wrappers": _exports("cpp_wrappers", cpp_wrappers),
            "cuda_wrappers": _exports("cuda_wrappers", cuda_wrappers),
            "extra_cflags": _strings("extra_cflags", extra_cflags),
            "extra_cuda_cflags": _strings("extra_cuda_cflags", extra_cuda_cflags),
            "extra_ldflags": _strings("extra_ldflags", extra_ldflags),
            "extra_include_paths": _paths("extra_include_paths", extra_include_paths),
        }
        _refuse_nul("args", args)
        for field, value in fields.items():
            object.__setattr__(self, field, value)
        if not self.kinds:
            raise UsageError(f"module '{name}' has no source: give cpp_files or cuda_files.")

    @property
    def kinds(self) -> tuple[Side, ...]:
        """The sides that this has, CUDA first."""
        kinds: list[Side] = []
        if self.cuda_files or self.cuda_wrappers:
            kinds.append("cuda")
        if self.cpp_files or self.cpp_wrappers:
            kinds.append("cpu")
        return tuple(kinds)

    def only(self, kind: Side) -> Spec:
        """One side of this spec.

        Raises:
            UsageError: it has no such side.
        """
        if kind not in self.kinds:
            missing = "CUDA" if kind == "cuda" else "CPU"
            raise UsageError(f"op '{self.name}' has no {missing} source, only {' and '.join(self.kinds)}.")
        if kind == "cuda":
            return _without(self, cpp_files=(), cpp_wrappers=())
        return _without(self, cuda_files=(), cuda_wrappers=())

    @property
    def label(self) -> str:
        """For people: `scale<fp32_t, 4>`."""
        return f"{self.name}<{', '.join(self.args)}>" if self.args else self.name


@dataclass(frozen=True)
class Variant:
    """One thing to build: a spec for a target."""

    spec: Spec
    target: Target

    @property
    def label(self) -> str:
        """For people: `scale<fp32_t> cuda:sm_90a`."""
        return f"{self.spec.label} {self.target}"


def _without(spec: Spec, **emptied: tuple[()]) -> Spec:
    copy = object.__new__(Spec)
    for field in spec.__dataclass_fields__:
        object.__setattr__(copy, field, emptied.get(field, getattr(spec, field)))
    return copy


def _strings(field: str, values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise UsageError(f"{field} must be a list of strings, not the one string '{values}'.")
    texts = tuple(str(value) for value in values)
    _refuse_nul(field, texts)
    return texts


def _refuse_nul(field: str, texts: Iterable[str]) -> None:
    for text in texts:
        if "\0" in text:
            raise UsageError(f"{field}: {text!r} has a NUL character in it.")


def _paths(field: str, values: Iterable[StrPath]) -> tuple[str, ...]:
    if isinstance(values, (str, os.PathLike)):
        raise UsageError(f"{field} must be a list of paths, not the one path '{os.fspath(values)}'.")
    paths = tuple(os.path.normpath(os.fspath(value)) for value in values)
    _refuse_nul(field, paths)
    for path in paths:
        if len(path) > _LONGEST_FILE_NAME // 4 and any(
            len(os.fsencode(part)) > _LONGEST_FILE_NAME for part in path.split(os.sep)
        ):
            raise UsageError(f"{field}: '{path[:40]}...' is no path: a name in it has over {_LONGEST_FILE_NAME} bytes.")
        if not os.path.isabs(path):
            raise UsageError(
                f"{field}: '{path}' is not an absolute path.",
                hint='write Path(__file__).parent / "csrc" / ... in the wrapper',
            )
    return paths


def _exports(field: str, values: Iterable[Export]) -> tuple[Export, ...]:
    exports = tuple((str(name), str(symbol)) for name, symbol in values)
    _refuse_nul(field, (symbol for _, symbol in exports))
    names = [name for name, _ in exports]
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{field}: the export '{twice}' is there twice.", hint="give one of them another name")
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise UsageError(f"{field}: the export name '{name}' is not an identifier.")
    return exports

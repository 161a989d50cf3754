"""Values that describe builds: `Spec` (sources, exports, flags), `Target` (hardware), `Variant` (both); and Python
values as C++ template arguments (`make_cpp_args`).

Everything that can change the compiled library is a field of one of these, so that a key computed from them is
complete. Nothing here uses the disk, a compiler or torch. Both parts are in one file because every hit needs them, and
each module costs a process that loads a kernel some tenths of a millisecond (tests/runtime/test_thin.py).

The classes behave like frozen dataclasses but are not: the code of a dataclass is generated on import, which takes
longer than everything else that a process does for its first kernel.

Template arguments must have exactly the same value in C++ as in Python. So a number beyond `int` has the suffix of its
type, and a float is written in hexadecimal, which is exact. C++ converts between integer types in a template argument
but never between floating types, so a Python `float`, which is a double, fits a template parameter of type `double` or
`auto` only. The trade-off: for a `float` parameter the caller writes the literal, as a string (`"0.5f"`).
"""

from __future__ import annotations

import math
import numbers
import os
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache, total_ordering
from typing import Any, ClassVar, Literal, NoReturn

import kjit

Side = Literal["cpu", "cuda"]
"""A side of a `Spec`: its C++ sources or its CUDA sources."""

SIDES: Mapping[Side, tuple[str, str, str]] = {
    "cuda": ("cuda_files", "cuda_wrappers", "extra_cuda_cflags"),
    "cpu": ("cpp_files", "cpp_wrappers", "extra_cflags"),
}
"""The fields of each side: sources, exports, and flags for its compiler."""

TargetKind = str
"""A name in `KINDS`."""

Export = tuple[str, str]
"""An export: its name in Python, and its C++ symbol with template arguments."""

Wrapper = Export | str
"""An export as an argument: a single string is the name and the symbol."""

StrPath = str | os.PathLike[str]


class Value:
    """An immutable value: compared and hashed by its fields."""

    __slots__ = ()
    _fields: ClassVar[tuple[str, ...]] = ()

    def _set(self, *values: object) -> None:
        for field, value in zip(self._fields, values, strict=True):
            object.__setattr__(self, field, value)

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, field) for field in self._fields])

    def __setattr__(self, name: str, value: object) -> None:
        _refuse_change(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        _refuse_change(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return self is other or self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        fields = ", ".join(f"{field}={value!r}" for field, value in zip(self._fields, self._values(), strict=True))
        return f"{type(self).__qualname__}({fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self._values())


def _restored(cls: type[Value], values: tuple[object, ...]) -> Value:
    """A pickled or copied value, created without `__init__`."""
    value = object.__new__(cls)
    value._set(*values)
    return value


def _refuse_change(message: str) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(message)


NVCC_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
"""Variables with flags for nvcc."""

HOST_VARIABLE = "NVCC_CCBIN"
"""The variable of nvcc that names its host compiler."""


class Kind:
    """A kind of target, as far as it is known before compilers are found. Its subclasses are values: to create a named
    tuple on import takes longer.

    Attributes:
        side: the side of a spec that is built for it.
        has_archs: whether a target names CUDA architectures.
        has_levels: whether it may name a level of processors.
        is_simulated: whether kernels run in the simulator.
        is_default: whether it is built for if no target is named.
        environment: the variables that its compilers read, in addition to those of every C++ compiler.
        search: the other variables that the search for its compilers reads.
        seconds: a rough time for the compile of a module, for one architecture.
        memory: an upper estimate of the memory for the compile of a unit, in bytes.
    """

    side: ClassVar[Side] = "cuda"
    has_archs = has_levels = is_simulated = is_default = False
    environment: ClassVar[tuple[str, ...]] = ()
    search: ClassVar[tuple[str, ...]] = ("KJIT_CUDA_HOME", "CUDA_HOME")
    seconds = 3.0
    # nvcc's front ends and ptxas run one after another; of FlashInfer's units, those of sampling take the most, 1.0 GB.
    memory = 3 << 29


class _Cpu(Kind):
    side = "cpu"
    has_levels = is_default = True
    search = ()
    seconds = 1.0
    memory = 1 << 29


class _Cuda(Kind):
    has_archs = is_default = True
    environment = (*NVCC_FLAGS, "CUDA_HOME")
    search = ("KJIT_CUDA_HOME", HOST_VARIABLE, "KJIT_CUDA_COMPILER")


class _Simulator(Kind):
    is_simulated = True
    seconds = 2.0
    memory = 3 << 28


class _Checker(_Simulator):
    seconds = 3.0
    memory = 1 << 30


KINDS: Mapping[TargetKind, type[Kind]] = {"cpu": _Cpu, "cuda": _Cuda, "sim": _Simulator, "sim-check": _Checker}
"""The kinds of targets. `sim` runs the CUDA side on the CPU, in the simulator; `sim-check` also looks for mistakes in
it while it runs."""


@total_ordering
class CudaArch(Value):
    """A GPU architecture: compute capability `major.minor`, and `a` or `f` for code specific to it or its family.

    Ordered by these three.
    """

    __slots__ = _fields = __match_args__ = ("major", "minor", "suffix")

    major: int
    minor: int
    suffix: str

    def __init__(self, major: int, minor: int, suffix: str = "") -> None:
        self._set(major, minor, suffix)

    def __lt__(self, other: CudaArch) -> bool:
        return self._values() < other._values() if isinstance(other, CudaArch) else NotImplemented

    @classmethod
    def parse(cls, text: str) -> CudaArch:
        """Read `9.0a`, `90a` or `sm_90a`.

        Raises:
            UsageError: `text` has another form.
        """
        word = text.strip()
        number, suffix = (word[:-1], word[-1]) if word.endswith(("a", "f")) else (word, "")
        digits = number.removeprefix("sm_") if number.startswith("sm_") else number.removeprefix("compute_")
        if len(digits) in (2, 3) and _is_decimal(digits):
            return cls(int(digits[:-1]), int(digits[-1]), suffix)
        major, _, minor = number.partition(".")
        if len(major) in (1, 2) and len(minor) == 1 and _is_decimal(major) and _is_decimal(minor):
            return cls(int(major), int(minor), suffix)
        raise kjit.UsageError(
            f"'{text}' is not a CUDA architecture.",
            hint="write it like 9.0a, 90a or sm_90a; for example 8.0,9.0a,10.0a",
        )

    @property
    def digits(self) -> str:
        """The spelling of nvcc after `sm_` or `compute_`: `90a`."""
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
        """A sort key: of several that run on a GPU, the greatest is the closest to it."""
        return (self.minor, ("", "f", "a").index(self.suffix))

    def serves(self, other: CudaArch) -> bool:
        """Whether machine code for this architecture runs on every GPU that code for `other` runs on."""
        return self.runs_on(other.major, other.minor) and (self.suffix != "a" or other.suffix == "a")


class Target(Value):
    """The target of a build: the CPU, one or more CUDA architectures, or the simulator.

    Attributes:
        arch: the CUDA architecture, or the lowest of several.
        others: further architectures of the same major version, with machine code in the same library. The host code is
            compiled for the lowest (`KJIT_CUDA_ARCH`).
        level: for a CPU target, the level, such as `x86-64-v3` (see engine/toolchain/cpu.py); None for this machine's
            CPU.
    """

    __slots__ = _fields = __match_args__ = ("kind", "arch", "others", "level")

    kind: TargetKind
    arch: CudaArch | None
    others: tuple[CudaArch, ...]
    level: str | None

    def __init__(
        self,
        kind: TargetKind,
        arch: CudaArch | None = None,
        others: tuple[CudaArch, ...] = (),
        level: str | None = None,
    ) -> None:
        self._set(kind, arch, others, level)
        if self.data.has_archs != (self.arch is not None):
            raise ValueError("a CUDA target has an architecture, and no other target has one")
        if any(self.arch is None or arch.major != self.arch.major for arch in self.others):
            raise ValueError("the architectures of one library have the same major version")
        if self.level is not None and not self.data.has_levels:
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
        """The simulated GPU; with `check`, mistakes in kernels are reported."""
        return cls("sim-check" if check else "sim")

    @property
    def data(self) -> type[Kind]:
        """The properties of its kind.

        Raises:
            KeyError: there is no such kind.
        """
        return KINDS[self.kind]

    @property
    def side(self) -> Side:
        """The side of a `Spec` that is built for it."""
        return self.data.side

    @property
    def is_simulated(self) -> bool:
        return self.data.is_simulated

    @property
    def is_checked(self) -> bool:
        """Whether the simulator looks for mistakes in kernels."""
        return self.kind == "sim-check"

    @property
    def archs(self) -> tuple[CudaArch, ...]:
        """All its CUDA architectures, lowest first."""
        return () if self.arch is None else (self.arch, *self.others)

    def __str__(self) -> str:
        """`cpu`, `cpu:x86-64-v3`, `cuda:sm_90a`, `cuda:sm_80+sm_86`, `sim` or `sim-check`."""
        if self.level is not None:
            return f"{self.kind}:{self.level}"
        return f"{self.kind}:{'+'.join(f'sm_{arch.digits}' for arch in self.archs)}" if self.archs else self.kind


class Spec(Value):
    """One module: its sources, flags and exports.

    `cuda_*` is its CUDA side and `cpp_*` its C++ side. `load_jit` builds both into one module; a declared op builds one
    module per target, from that target's side (`only`). `load_jit` and `jit` have the same keyword parameters
    (tests/test_spec.py).

    Args:
        name: the op; a C++ and Python identifier, and the name of the library.
        args: the arguments that distinguish this variant from others of the op, usually `*make_cpp_args(...)`.
        cpp_files: C++ sources, as absolute paths. With `cpp_wrappers` they are included in one generated unit with
            these exports; without, each is compiled separately and has its own exports (`KJIT_EXPORT`).
        cuda_files: CUDA sources, in the same way, with `cuda_wrappers`.
        cpp_wrappers: exports of the C++ sources: `(export_name, cpp_symbol)` pairs; a string is both.
        cuda_wrappers: exports of the CUDA sources, in the same form.
        extra_cflags: flags for the C++ compiler.
        extra_cuda_cflags: flags for nvcc.
        extra_ldflags: flags for the link.
        extra_include_paths: folders for headers, as absolute paths, searched before kjit's own.

    Raises:
        UsageError: the name or an export is not an identifier, an argument has another form, or there are no sources.
    """

    __slots__ = _fields = (
        "name",
        "args",
        "cpp_files",
        "cuda_files",
        "cpp_wrappers",
        "cuda_wrappers",
        "extra_cflags",
        "extra_cuda_cflags",
        "extra_ldflags",
        "extra_include_paths",
    )

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
        cpp_wrappers: Iterable[Wrapper] = (),
        cuda_wrappers: Iterable[Wrapper] = (),
        extra_cflags: Iterable[str] = (),
        extra_cuda_cflags: Iterable[str] = (),
        extra_ldflags: Iterable[str] = (),
        extra_include_paths: Iterable[StrPath] = (),
    ) -> None:
        if not _is_name(name):
            raise kjit.UsageError(
                f"'{name}' cannot name a module: it must be an identifier (letters, digits, underscores)."
            )
        self._set(
            name,
            tuple(args),
            _paths("cpp_files", cpp_files),
            _paths("cuda_files", cuda_files),
            _exports("cpp_wrappers", cpp_wrappers),
            _exports("cuda_wrappers", cuda_wrappers),
            _strings("extra_cflags", extra_cflags),
            _strings("extra_cuda_cflags", extra_cuda_cflags),
            _strings("extra_ldflags", extra_ldflags),
            _paths("extra_include_paths", extra_include_paths),
        )
        if not self.kinds:
            raise kjit.UsageError(f"module '{name}' has no source: give cpp_files or cuda_files.")

    @property
    def kinds(self) -> tuple[Side, ...]:
        """The sides with sources, CUDA first."""
        return tuple(side for side in SIDES if self.files(side) or self.wrappers(side))

    def files(self, side: Side) -> tuple[str, ...]:
        """The sources of a side."""
        files: tuple[str, ...] = getattr(self, SIDES[side][0])
        return files

    def wrappers(self, side: Side) -> tuple[Export, ...]:
        """The exports of a side."""
        wrappers: tuple[Export, ...] = getattr(self, SIDES[side][1])
        return wrappers

    def only(self, kind: Side) -> Spec:
        """One side of this spec.

        Raises:
            UsageError: it has no such side.
        """
        if kind not in self.kinds:
            missing = "CUDA" if kind == "cuda" else "CPU"
            raise kjit.UsageError(f"op '{self.name}' has no {missing} source, only {' and '.join(self.kinds)}.")
        others = [field for side, fields in SIDES.items() if side != kind for field in fields[:2]]
        return self.changed(**dict.fromkeys(others, ()))

    def changed(self, **fields: tuple[str, ...]) -> Spec:
        """This spec with other values of some fields, which are not checked."""
        copy = object.__new__(Spec)
        copy._set(*(fields.get(field, getattr(self, field)) for field in self._fields))
        return copy

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> Spec:
        """The inverse of `{field: getattr(spec, field) for field in spec._fields}`, after JSON.

        Raises:
            KeyError: a field is missing.
            TypeError, ValueError, UsageError: a field is invalid.
        """
        rest = {name: fields[name] for name in cls._fields if name not in ("name", "args")}
        for name in ("cpp_wrappers", "cuda_wrappers"):
            rest[name] = [tuple(each) for each in rest[name]]
        return cls(fields["name"], *fields["args"], **rest)

    @property
    def label(self) -> str:
        """For display: `scale<fp32_t, 4>`."""
        return f"{self.name}<{', '.join(self.args)}>" if self.args else self.name


class Variant(Value):
    """A spec for a target."""

    __slots__ = _fields = __match_args__ = ("spec", "target")

    spec: Spec
    target: Target

    def __init__(self, spec: Spec, target: Target) -> None:
        self._set(spec, target)

    @property
    def label(self) -> str:
        """For display: `scale<fp32_t> cuda:sm_90a`."""
        return f"{self.spec.label} {self.target}"


def _is_name(text: str) -> bool:
    """Whether it is an identifier in C++ and in Python."""
    return text.isascii() and text.isidentifier()


def _is_decimal(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _strings(field: str, values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise kjit.UsageError(f"{field} must be a list of strings, not the one string '{values}'.")
    return tuple(str(value) for value in values)


def _paths(field: str, values: Iterable[StrPath]) -> tuple[str, ...]:
    if isinstance(values, (str, os.PathLike)):
        raise kjit.UsageError(f"{field} must be a list of paths, not the one path '{os.fspath(values)}'.")
    paths = tuple(os.path.normpath(os.fspath(value)) for value in values)
    for path in paths:
        if not os.path.isabs(path):
            raise kjit.UsageError(
                f"{field}: '{path}' is not an absolute path.",
                hint='write Path(__file__).parent / "csrc" / ... in the wrapper',
            )
    return paths


def _exports(field: str, values: Iterable[Wrapper]) -> tuple[Export, ...]:
    if isinstance(values, str):
        raise kjit.UsageError(
            f"{field} must be a list of exports, not the one string '{values}'.", hint=f'write {field}=["{values}"]'
        )
    exports = tuple(_export(field, value) for value in values)
    names = [name for name, _ in exports]
    for name in names:
        if names.count(name) > 1:
            raise kjit.UsageError(f"{field}: the export name '{name}' is used twice.", hint="give one another name")
        if not _is_name(name):
            raise kjit.UsageError(
                f"{field}: the export name '{name}' is not an identifier.",
                hint=f'give the name that Python calls, then the C++ symbol: ("run", "{name}")',
            )
    return exports


def _export(field: str, value: object) -> Export:
    if isinstance(value, str):
        return (value, value)
    if isinstance(value, (tuple, list)) and len(value) == 2:
        name, symbol = value
        if isinstance(name, str) and isinstance(symbol, str):
            return (name, symbol)
    raise kjit.UsageError(
        f"{field}: {value!r} is not an export.",
        hint='an export is a name and a C++ symbol, as in ("run", "Scale<float>::run"), or one string for both',
    )


CPP_DTYPES = {
    "float64": "double",
    "float32": "fp32_t",
    "float16": "fp16_t",
    "bfloat16": "bf16_t",
    "float8_e4m3fn": "fp8_e4m3_t",
    "float8_e5m2": "fp8_e5m2_t",
    "float8_e4m3fnuz": "fp8_e4m3fnuz_t",
    "float8_e5m2fnuz": "fp8_e5m2fnuz_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "bool",
}
"""The names of torch's dtypes in kjit's C++ headers."""

_SUPPORTED = "bool, int (64 bits), float, str (a C++ token, as given) and the torch dtypes " + ", ".join(
    name for name in CPP_DTYPES
)


class CppArgs(tuple[str, ...]):
    """C++ template arguments, in order. `str(args)` joins them: `f"Scale<{args}>::run"`."""

    __slots__ = ()

    def __str__(self) -> str:
        return ", ".join(self)


def make_cpp_args(*values: object) -> CppArgs:
    """Write Python values as C++ template arguments.

    | value | written as |
    |---|---|
    | `True` | `true` |
    | `-7`, `2**40`, `2**63` | `-7`, `1099511627776LL`, `9223372036854775808ULL` |
    | `-2**63` | `(-9223372036854775807LL - 1)` |
    | `0.1` | `0x1.999999999999ap-4` (a `double`, exact) |
    | `math.inf`, `math.nan` | `__builtin_inf()`, `__builtin_nan("")` |
    | `"kRow"` | `kRow` |
    | `torch.bfloat16` | `bf16_t` |

    NumPy integers are converted to `int`. nvcc (13.0) accepts an infinity or a nan as an argument of a class or host
    function template, but not as a direct argument of a `__global__` function template.

    Returns: A tuple of strings whose `str()` is the list in C++.

    Raises:
        TypeError: a value has no C++ form; the message names it and lists the supported types.
    """
    return CppArgs(_write(value) for value in values)


def _write(value: object) -> str:
    if isinstance(value, str):
        return str.__str__(value)  # for a string enumeration, its value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return _write_int(int(value))
    if isinstance(value, float):
        return _write_float(value)
    name = _torch_dtypes().get(value) if _is_torch_dtype(value) else None
    if name is None:
        raise TypeError(f"{value!r} ({_type_name(value)}) cannot be a C++ template argument; supported: {_SUPPORTED}")
    return name


def _write_int(value: int) -> str:
    # C++ has no negative literals: -N is minus applied to N, so the lowest value of a type needs an expression.
    if value == -(2**31):
        return "(-2147483647 - 1)"
    if value == -(2**63):
        return "(-9223372036854775807LL - 1)"
    if -(2**31) < value < 2**31:
        return str(value)
    if -(2**63) < value < 2**63:
        return f"{value}LL"
    if 2**63 <= value < 2**64:
        return f"{value}ULL"
    raise TypeError(f"{value} does not fit in 64 bits and cannot be a C++ template argument; supported: {_SUPPORTED}")


def _write_float(value: float) -> str:
    if math.isnan(value):
        return '__builtin_nan("")'
    if math.isinf(value):
        return "__builtin_inf()" if value > 0 else "-__builtin_inf()"
    return float(value).hex()


def _is_torch_dtype(value: object) -> bool:
    # A torch.dtype exists only if torch is imported; importing it here would be slow.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.dtype)


@lru_cache(maxsize=1)
def _torch_dtypes() -> Mapping[object, str]:
    torch = sys.modules["torch"]
    # Older versions of torch lack some.
    return {getattr(torch, name): written for name, written in CPP_DTYPES.items() if hasattr(torch, name)}


def forget_dtypes() -> None:
    """Forget the dtypes, as torch was replaced (stand_in.py)."""
    _torch_dtypes.cache_clear()


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"

"""The names of SGLang's `sglang.kernels.jit.utils`, on kjit: a wrapper changes one import line, its sources nothing.

    from kjit.compat.sglang import cache_once, load_jit, make_cpp_args

`load_jit` puts forwarding headers `sgl_kernel/...` on the include path, which give kjit's headers SGLang's names. Where
SGLang is installed its own folder of headers follows, for those of single models (`sgl_kernel/deepseek_v4/...`).
Nothing else of kjit imports this, so that whoever does not use it pays nothing for it. It imports torch itself only
where a function is about tensors. Names are those of SGLang 0.5.23.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import kjit
from kjit import env
from kjit.compat.sglang.dependencies import include_folders, register_dependency
from kjit.runtime import load
from kjit.runtime.once import cache_once
from kjit.spec import CudaArch, Spec, StrPath, Target, Variant, make_cpp_args

if TYPE_CHECKING:
    import torch
    import tvm_ffi

    KERNEL_PATH: Path

R = TypeVar("R")
T = TypeVar("T")

INCLUDE = Path(__file__).parent / "include"
"""The forwarding headers."""

__all__ = [
    "KERNEL_PATH",
    "ArchInfo",
    "aligned_new_empty",
    "cache_once",
    "cuda_stubs_dir",
    "device_guard",
    "empty_sentinel",
    "get_activation_cuda_cflags",
    "get_jit_cuda_arch",
    "is_arch_support_pdl",
    "is_hip_runtime",
    "is_musa_runtime",
    "lazy_register_class",
    "load_jit",
    "make_cpp_args",
    "override_jit_cuda_arch",
    "parallel_compile",
    "register_dependency",
]


class ArchInfo(CudaArch):
    """A GPU architecture, with SGLang's words for it."""

    __slots__ = ()

    @property
    def target_name(self) -> str:
        """The architecture as text: `9.0a`."""
        return str(self)

    @property
    def jit_flag(self) -> str:
        """The macro that SGLang's builds define; kjit's do not need it."""
        return f"-DSGL_CUDA_ARCH={self.number}"


_override: ArchInfo | None = None
_registered: dict[type, type] = {}


def __getattr__(name: str) -> Any:
    if name != "KERNEL_PATH":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    found = _kernel_path()
    if found is None:
        raise kjit.UsageError(
            "KERNEL_PATH is the folder of SGLang's own sources, and SGLang is not installed here.",
            hint="name the folder of your sources: Path(__file__).parent",
        )
    return found


def load_jit(
    *args: object,
    extra_dependencies: Iterable[str] | None = None,
    header_only: bool = True,
    **parts: Any,
) -> tvm_ffi.Module:
    """`kjit.load_jit` with SGLang's arguments and headers.

    Args:
        args: the name of the module, then the arguments that distinguish it. `str()` is called on each.
        extra_dependencies: names of packages whose headers are searched: flashinfer, flashinfer_nv_internal, cutlass,
            mathdx, and what `register_dependency` adds.
        header_only: whether a generated unit exports the wrappers; otherwise the sources export for themselves.
        parts: those of `kjit.load_jit`, any of them None. A relative path in `cpp_files` and `cuda_files` is in the
            `csrc` folder beside the calling file or beside the nearest folder above it; if there is none, in that of
            the installed SGLang. `extra_include_paths` are searched after the forwarding headers, and before kjit's.

    Raises:
        UsageError: a dependency is unknown, wrappers are given with `header_only=False`, or as for `kjit.load_jit`.
        ToolchainError: the package of a dependency is not installed, or as for `kjit.load_jit`.
        CompileError: the sources do not compile.
    """
    caller = sys._getframe(1).f_globals.get("__file__")
    spec = spec_of(args, caller=caller, extra_dependencies=extra_dependencies, header_only=header_only, **parts)
    return load.load_variant(Variant(spec, _target(spec)), wrapper=caller)


def spec_of(
    args: Iterable[object],
    *,
    caller: str | None,
    extra_dependencies: Iterable[str] | None = None,
    header_only: bool = True,
    **parts: Any,
) -> Spec:
    """The spec that `load_jit` builds from these parts, for a `caller` in that file."""
    if not header_only and (parts.get("cpp_wrappers") or parts.get("cuda_wrappers")):
        raise kjit.UsageError(
            "wrappers are exported by the generated unit, and header_only=False asks for none.",
            hint="leave header_only out, or export in the source (KJIT_EXPORT or TVM_FFI_DLL_EXPORT_TYPED_FUNC)",
        )
    marks = [str(arg) for arg in args]
    if not marks:
        raise kjit.UsageError("the module has no name.", hint='load_jit("my_op", ...)')
    kernel_path = _kernel_path()
    given = {name: value or () for name, value in parts.items()}
    given |= {name: _sources(parts.get(name), caller) for name in ("cpp_files", "cuda_files")}
    given["extra_include_paths"] = [
        INCLUDE,
        *([] if kernel_path is None else [kernel_path / "include"]),
        *given.get("extra_include_paths", ()),
        *include_folders(extra_dependencies or ()),
    ]
    return Spec(_identifier(marks[0]), *marks[1:], **given)


def _identifier(mark: str) -> str:
    """A mark of any text as the name of a module."""
    name = re.sub(r"\W", "_", mark, flags=re.ASCII)
    return f"_{name}" if name[:1].isdigit() else name


def get_jit_cuda_arch() -> ArchInfo:
    """The architecture that kernels are compiled for; 0.0 in the simulator, and if it is unknown.

    Raises:
        UsageError: `KJIT_CUDA_ARCH_LIST` names architectures, and none of them runs on the GPU.
    """
    if _override is not None:
        return _override
    if load.mode() is not None or env.simulation() is not None:
        return ArchInfo(0, 0)
    return _arch_of_gpu(str(env.cuda_arch_list()))


@contextlib.contextmanager
def override_jit_cuda_arch(major: int, minor: int, suffix: str | None = None) -> Iterator[None]:
    """Inside it, `load_jit` compiles for another architecture, in every thread.

    Args:
        suffix: `a`, `f` or nothing; by default `a` from 9.0 on.
    """
    global _override
    arch = load.native_arch((major, minor))
    before = _override
    _override = ArchInfo(major, minor, arch.suffix if suffix is None else suffix)
    try:
        yield
    finally:
        _override = before


def is_arch_support_pdl() -> bool:
    """Whether kernels can be launched while the one before them still runs: from 9.0 on."""
    return get_jit_cuda_arch().major >= 9


def is_hip_runtime() -> bool:
    """Whether torch was built for ROCm, which kjit does not compile for."""
    import torch

    return bool(torch.version.hip)


def is_musa_runtime() -> bool:
    """Whether torch was built for MUSA, which kjit does not compile for."""
    import torch

    return getattr(torch.version, "musa", None) is not None


def get_activation_cuda_cflags() -> list[str]:
    """The flags of SGLang's activation kernels."""
    return ["--use_fast_math"]


def cuda_stubs_dir() -> str:
    """The folder of the stub of `libcuda.so`, for `extra_ldflags=[f"-L{cuda_stubs_dir()}", "-lcuda"]`.

    Raises:
        ToolchainError: there is no CUDA toolkit here, or it has no stubs (those from PyPI have none).
    """
    from kjit.engine.toolchain.cuda import find_cuda

    home = find_cuda().home
    for folder in ("lib64/stubs", "lib/stubs", f"targets/{os.uname().machine}-linux/lib/stubs"):
        if (Path(home) / folder / "libcuda.so").exists():
            return str(Path(home) / folder)
    raise kjit.ToolchainError(f"the CUDA toolkit in {home} has no stub of libcuda.so.")


def device_guard(t: torch.Tensor) -> contextlib.AbstractContextManager[object]:
    """`torch.cuda.device(t.device)`; nothing where that is the current device, or the CPU."""
    import torch

    if t.device.type != "cuda" or t.get_device() == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(t.device)


@functools.cache
def empty_sentinel(device: torch.device | str, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of shape (0,), the same one for each device and dtype: it stands for a tensor that is not there."""
    import torch

    return torch.empty(0, dtype=dtype, device=device)


def aligned_new_empty(
    shape: Sequence[int], dtype: torch.dtype, device: torch.device | str, *, alignment_bytes: int
) -> torch.Tensor:
    """An uninitialized tensor of `shape` whose rows begin at multiples of `alignment_bytes`.

    Raises:
        UsageError: `shape` is empty, or `alignment_bytes` is above 512 (what torch aligns a tensor to) or no multiple
            of the size of an element.
    """
    import torch

    if not shape:
        raise kjit.UsageError("a tensor without dimensions has no rows to align.")
    if not 0 < alignment_bytes <= 512 or alignment_bytes % dtype.itemsize:
        raise kjit.UsageError(
            f"rows of {dtype} cannot be aligned to {alignment_bytes} bytes: it must be a multiple of "
            f"{dtype.itemsize} up to 512."
        )
    step = alignment_bytes // dtype.itemsize
    *outer, size = shape
    return torch.empty((*outer, -(-size // step) * step), dtype=dtype, device=device)[..., :size]


def parallel_compile(builders: Iterable[Callable[[], R]], max_workers: int | None = None) -> list[R]:
    """Call functions that end in `load_jit` in parallel, and return their results, in order.

    All of them run to completion; then the first exception is raised.

    Args:
        max_workers: how many run at once; by default as many as this process may use cores.
    """
    from concurrent.futures import ThreadPoolExecutor

    calls = list(builders)
    if len(calls) <= 1:
        return [call() for call in calls]
    workers = max_workers or len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="kjit-build") as pool:
        running = [pool.submit(call) for call in calls]
    return [each.result() for each in running]


def lazy_register_class(name: str, init_fn: Callable[[], None]) -> Callable[[type[T]], type[T]]:
    """Register the decorated class under tvm-ffi's type key `name` when the first object is made, after `init_fn`."""

    def decorate(cls: type[T]) -> type[T]:
        make: Any = cls.__new__

        def new(cls: type[T], *args: object, **kwargs: object) -> T:
            if cls not in _registered:
                import tvm_ffi

                init_fn()
                _registered[cls] = tvm_ffi.register_object(name)(cls)
            made: T = make(_registered[cls], *args, **kwargs)
            return made

        cls.__new__ = new  # type: ignore[method-assign, assignment]
        return cls

    return decorate


def _target(spec: Spec) -> Target:
    if _override is None or spec.kinds[0] == "cpu":
        return load.only_target(spec)
    return Target.cuda(CudaArch(_override.major, _override.minor, _override.suffix))  # equal to other ones: no ArchInfo


@cache_once
def _arch_of_gpu(listed: str) -> ArchInfo:  # noqa: ARG001 (what the environment lists is part of the key)
    try:
        arch = load.runtime_target("cuda", None).arch
    except kjit.ToolchainError:
        return ArchInfo(0, 0)
    return ArchInfo(0, 0) if arch is None else ArchInfo(arch.major, arch.minor, arch.suffix)


@cache_once
def _kernel_path() -> Path | None:
    """The folder of SGLang's JIT kernels, if it is installed; SGLang is not imported for that."""
    spec = importlib.util.find_spec("sglang")
    for place in (None if spec is None else spec.submodule_search_locations) or ():
        folder = Path(place) / "kernels" / "jit"
        if (folder / "csrc").is_dir() and (folder / "include").is_dir():
            return folder
    return None


def _sources(files: Iterable[StrPath] | None, caller: str | None) -> Iterable[StrPath]:
    if isinstance(files, (str, os.PathLike)):
        return files  # Spec says what is wrong
    return [_source(Path(file), caller) for file in files or ()]


def _source(file: Path, caller: str | None) -> Path:
    if file.is_absolute():
        return file
    folders = [] if caller is None else [folder / "csrc" for folder in Path(caller).absolute().parents]
    kernel_path = _kernel_path()
    if kernel_path is not None:
        folders.append(kernel_path / "csrc")
    for folder in folders:
        if (folder / file).is_file():
            return folder / file
    raise kjit.UsageError(
        f"there is no source '{file}' in a folder csrc beside {caller or 'the calling code'} or above it"
        + (", and SGLang is not installed." if kernel_path is None else f", nor in {kernel_path / 'csrc'}."),
        hint='pass an absolute path: Path(__file__).parent / "csrc" / ...',
    )

"""From a request to a loaded module.

A request names a spec and a device; the device and `KJIT_SIM` determine the target (`target_of`). The module is
searched for in the bundle beside the wrapper, if there is one (bundle.py), then in the cache by the times of all files
(manifest.py), then by `kjit.engine.miss`, which compares contents, and compiles. Only the last imports the compiling
side of kjit. A hit starts no subprocess, needs no ninja and runs no compiler. tvm-ffi's loader imports torch; nothing
else here does.

The whole code of a hit is in this file, because each further module costs every process that loads a kernel some tenths
of a millisecond (tests/runtime/test_thin.py lists the modules).

A module stays loaded, and is found again by the path of its library. An edited source results in another path, so that
a notebook gets the new kernel, beside the old one.

`KJIT_SIM` is for a whole process, and affects only ops without a CPU kernel. `simulated()` is for tests: inside it,
every CUDA kernel called with CPU tensors runs in the simulator, even if the op has a CPU kernel. Modules loaded before
stay loaded, and are used again afterwards.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypedDict, TypeVar, cast

import kjit
from kjit import env
from kjit.spec import KINDS, CudaArch, Side, Spec, StrPath, Target, TargetKind, Variant, Wrapper

if TYPE_CHECKING:
    import torch
    import tvm_ffi

    from kjit.runtime.bundle import Refusal
    from kjit.runtime.used import Declared

    class OpStats(TypedDict):
        """The modules of an op that a process has loaded.

        Attributes:
            hits: modules that were already built, in a bundle or in a cache.
            compiles: modules that this process compiled.
            seconds: the time of these compiles.
        """

        hits: int
        compiles: int
        seconds: float


P = ParamSpec("P")
R = TypeVar("R")

_ATTEMPTS = 3

_log = logging.getLogger("kjit")
_loaded: dict[str, tvm_ffi.Module] = {}
_loading = threading.Lock()
_reported: set[Refusal] = set()
_bundles: list[str] = []
_stats: dict[str, OpStats] = {}
_inside: env.Simulation | None = None

compiled: set[Variant] = set()
"""The variants that this process has compiled."""

caches: weakref.WeakSet[Any] = weakref.WeakSet()
"""Objects that keep loaded modules by device; their `cache_clear` is called when a `simulated()` begins or ends."""


def _renew_lock_in_child() -> None:
    """In a forked child, replace a lock that a thread of the parent may hold, which the child does not have."""
    global _loading
    _loading = threading.Lock()


def _end_openmp_threads() -> None:
    """Before a fork, end the threads of GNU's OpenMP that wait for work of this thread: the child, which does not have
    them, would wait for them. Parent and child start new ones when they need some."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):  # it is not loaded, or of GCC 8
        ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD).omp_pause_resource_all(_OMP_PAUSE_SOFT)


os.register_at_fork(before=_end_openmp_threads, after_in_child=_renew_lock_in_child)


class Shared:
    """A loaded module: copies share it, and it cannot be pickled."""

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, _: object) -> Any:
        return self

    def __reduce_ex__(self, _: object) -> Any:
        raise kjit.UsageError(
            "a loaded module cannot be pickled: it is code in the memory of this process.",
            hint="load it where it is used (in `forward`: that is only a look-up), or leave it out in `__getstate__`",
        )


_OMP_PAUSE_SOFT = 1

INDEX = "index.json"
BUNDLE = "prebuilt"
"""The name of a bundle's folder: beside the wrapper, or in a package above it."""


def load_jit(
    *args: str,
    cpp_files: Iterable[StrPath] = (),
    cuda_files: Iterable[StrPath] = (),
    cpp_wrappers: Iterable[Wrapper] = (),
    cuda_wrappers: Iterable[Wrapper] = (),
    extra_cflags: Iterable[str] = (),
    extra_cuda_cflags: Iterable[str] = (),
    extra_ldflags: Iterable[str] = (),
    extra_include_paths: Iterable[StrPath] = (),
    build_directory: StrPath | None = None,
) -> tvm_ffi.Module:
    """Load a module of C++ and CUDA sources, compiling it if necessary.

    CUDA sources are compiled for the GPU of this machine, or for the simulator if `KJIT_SIM` is set. Sources with
    relative paths are kjit's own, in its `csrc/`.

    Args:
        args: the name of the module, then the arguments that distinguish it from others of that name
            (`*make_cpp_args(...)`).
        cpp_files: C++ sources, as absolute paths. With `cpp_wrappers` they are included in one generated unit with
            these exports; without, each is compiled separately and has its own exports (`KJIT_EXPORT`).
        cuda_files: CUDA sources, in the same way, with `cuda_wrappers`.
        cpp_wrappers: exports of the C++ sources: `(export_name, cpp_symbol)` pairs; a string is both.
        cuda_wrappers: exports of the CUDA sources, in the same form.
        extra_cflags: flags for the C++ compiler.
        extra_cuda_cflags: flags for nvcc.
        extra_ldflags: flags for the link.
        extra_include_paths: folders for headers, as absolute paths, searched before kjit's own.
        build_directory: the cache folder for this module, instead of the user's cache.

    Returns:
        The module; its exports are its attributes.

    Raises:
        UsageError: the arguments are invalid (no name, a missing source).
        CompileError: the sources do not compile.
        ToolchainError: a compiler is missing, or there is no GPU and no architecture is given.
        NotPrebuiltError: it is neither in a bundle nor in the cache, and `KJIT_NO_COMPILE` is set.
        CacheError: the cache cannot be used.
    """
    spec = _spec(
        args,
        cpp_files=cpp_files,
        cuda_files=cuda_files,
        cpp_wrappers=cpp_wrappers,
        cuda_wrappers=cuda_wrappers,
        extra_cflags=extra_cflags,
        extra_cuda_cflags=extra_cuda_cflags,
        extra_ldflags=extra_ldflags,
        extra_include_paths=extra_include_paths,
    )
    wrapper = sys._getframe(1).f_globals.get("__file__")
    return load_variant(Variant(spec, only_target(spec)), build_directory=build_directory, wrapper=wrapper)


def jit(
    *args: str,
    device: torch.device | str | None = None,
    cpp_files: Iterable[StrPath] = (),
    cuda_files: Iterable[StrPath] = (),
    cpp_wrappers: Iterable[Wrapper] = (),
    cuda_wrappers: Iterable[Wrapper] = (),
    extra_cflags: Iterable[str] = (),
    extra_cuda_cflags: Iterable[str] = (),
    extra_ldflags: Iterable[str] = (),
    extra_include_paths: Iterable[StrPath] = (),
    build_directory: StrPath | None = None,
) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[P, R]]:
    """Pass a compiled module to the decorated function as its first argument; callers pass the others.

        @kjit.jit("scale", cpp_files=[CSRC / "scale.cpp"], cpp_wrappers=[("scale", "scale<float>")])
        def scale(module, x: torch.Tensor, out: torch.Tensor) -> None:
            module.scale(x, out)

    The module is compiled at the first call: for the CPU from the C++ sources, for a GPU from the CUDA sources. Sources
    with relative paths are kjit's own, in its `csrc/`.

    Args:
        args: the name of the module, by default that of the function without leading underscores; then the arguments
            that distinguish it from others of that name (`*make_cpp_args(...)`).
        device: the device of the module; by default that of the tensors of each call, and without tensors the only kind
            of device that there is a source for. `"sim"` and `"sim-check"` are the simulated GPU.
        cpp_files, cuda_files, cpp_wrappers, cuda_wrappers, extra_cflags, extra_cuda_cflags, extra_ldflags,
        extra_include_paths, build_directory: as for `load_jit`.

    Raises:
        UsageError: at the call, tensors are on different devices, or on one that there is no source for. All other
            errors are those of `load_jit`.
    """

    def decorate(fn: Callable[Concatenate[Any, P], R]) -> Callable[P, R]:
        name = getattr(fn, "__name__", "module").lstrip("_")
        spec = _spec(
            args or (name,),
            cpp_files=cpp_files,
            cuda_files=cuda_files,
            cpp_wrappers=cpp_wrappers,
            cuda_wrappers=cuda_wrappers,
            extra_cflags=extra_cflags,
            extra_cuda_cflags=extra_cuda_cflags,
            extra_ldflags=extra_ldflags,
            extra_include_paths=extra_include_paths,
        )
        modules: dict[object, tvm_ffi.Module] = {}
        wrapper = getattr(fn, "__globals__", {}).get("__file__")

        @functools.wraps(fn)
        def call(*call_args: P.args, **call_kwargs: P.kwargs) -> R:
            where = device
            if where is None:
                where = _device_of(name, (*call_args, *call_kwargs.values()))
            key = (where, mode())
            module = modules.get(key)
            if module is None:
                # Two threads may get here at once: then one compiles and the other waits.
                target = target_of(spec, where)
                variant = Variant(spec.only(target.side), target)
                module = modules[key] = load_variant(variant, build_directory=build_directory, wrapper=wrapper)
            try:
                return fn(module, *call_args, **call_kwargs)
            except (RuntimeError, ValueError):
                if "torch" in sys.modules:
                    from kjit.runtime import unusable

                    unusable.explain(f"'{name}'", unusable.named(fn, (None, *call_args), call_kwargs))
                raise

        return call

    return decorate


def load_variant(
    variant: Variant,
    *,
    build_directory: StrPath | None = None,
    hint: str | None = None,
    wrapper: str | None = None,
    declared: Declared | None = None,
) -> tvm_ffi.Module:
    """The module of a variant: already loaded, from a bundle, from the cache, or compiled now.

    Args:
        build_directory: the cache folder to use instead of the user's.
        hint: the hint of the error if the module is missing and may not be compiled.
        wrapper: the path of the requesting file; bundles are searched for beside it.
        declared: the declared op of the variant, for the record of variants.

    Raises:
        KjitError: as for `load_jit`.
    """
    attach_log()
    if (file := env.variants_file()) is not None:
        from kjit.runtime import used

        used.record(file, variant, declared, wrapper)
    refusals: tuple[Refusal, ...] = ()
    if not variant.target.is_simulated and has_bundle(wrapper):
        prebuilt, refusals = _load_prebuilt(variant, wrapper)
        if prebuilt is not None:
            count_hit(variant)
            return prebuilt
    folder = cache_folder(build_directory)
    from kjit.runtime import manifest

    artifact = manifest.find(variant, folder)
    if artifact is not None:
        with contextlib.suppress(FileNotFoundError):  # the cache was emptied between the look-up and now
            module = load_library(manifest.library_in(artifact), variant)
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug("%s is in the cache: %s", variant.label, artifact)
            count_hit(variant)
            return module
    from kjit.engine import miss

    for _ in range(_ATTEMPTS):
        built = miss.ensure_built(variant, build_directory=build_directory, hint=hint, refusals=refusals)
        with contextlib.suppress(FileNotFoundError):
            return load_library(built.library_path, variant)
    raise kjit.KjitError(f"{variant.label} cannot be loaded: another process keeps emptying the cache.")


def cache_folder(build_directory: StrPath | None = None) -> str:
    """The folder of the cache to use, as an absolute path.

    Raises:
        UsageError: as for `env.cache_dir`.
    """
    if build_directory is None:
        return str(env.cache_dir())
    return str(env.absolute("build_directory", os.fspath(build_directory)))


def has_bundle(wrapper: str | None) -> bool:
    """Whether there is a bundle for a wrapper."""
    return any(os.path.exists(f"{folder}/{INDEX}") for folder in bundle_folders(wrapper))


def add_bundle(folder: str) -> None:
    """Use a bundle for all modules of this process, before those beside wrappers.

    Raises:
        UsageError: it is not a bundle.
    """
    folder = str(env.absolute("bundle", folder))
    if not os.path.isfile(f"{folder}/{INDEX}"):
        raise kjit.UsageError(
            f"'{folder}' is not a bundle: it has no {INDEX}.", hint=f"`kjit build --out {folder}` writes one"
        )
    if folder not in _bundles:
        _bundles.append(folder)


def bundle_folders(wrapper: str | None) -> tuple[str, ...]:
    """The folders where bundles of a wrapper may be: those of `add_bundle`, beside it, and in its parent packages.

    Args:
        wrapper: the path of the requesting file; None for a notebook, which has no folder.
    """
    if wrapper is None:
        return tuple(_bundles)
    # `__file__` may be relative with runpy.
    return (*_bundles, *_bundle_folders_beside(os.path.dirname(os.path.abspath(wrapper))))


@functools.lru_cache(maxsize=256)
def _bundle_folders_beside(folder: str) -> tuple[str, ...]:
    places = []
    while True:
        places.append(f"{folder}/{BUNDLE}")
        if not os.path.exists(f"{folder}/__init__.py"):
            return tuple(places)
        folder = os.path.dirname(folder)


def _load_prebuilt(variant: Variant, wrapper: str | None) -> tuple[tvm_ffi.Module | None, tuple[Refusal, ...]]:
    """The module from a bundle, or None, and the reasons why bundles do not serve it."""
    from kjit.runtime import bundle

    found = bundle.find(variant, wrapper)
    refusals = found.refusals
    if found.library is not None:
        try:
            module = load_library(found.library, variant)
        except (FileNotFoundError, kjit.KjitError) as error:
            # A system library that it needs is missing or too old; a library compiled here may not need it.
            reason = error.message if isinstance(error, kjit.KjitError) else f"{found.library} is gone"
            refusals = (*refusals, bundle.Refusal(os.path.dirname(found.library), (reason,)))
        else:
            _log.debug("%s is in a bundle: %s", variant.label, found.library)
            return module, ()
    for refusal in refusals:
        _report(refusal, variant)
    return None, refusals


def stats() -> dict[str, OpStats]:
    """The modules that this process has loaded, by op: how many were already built, how many were compiled, and the
    seconds of these compiles.

    For a server's metrics: after the warm-up, `compiles` must not grow.
    """
    with _loading:
        return {name: each.copy() for name, each in sorted(_stats.items())}


def count_hit(variant: Variant) -> None:
    """Count a module that was already built."""
    with _loading:
        _stats_of(variant)["hits"] += 1


def count_compile(variant: Variant, seconds: float) -> None:
    """Count a module that was compiled."""
    compiled.add(variant)
    with _loading:
        entry = _stats_of(variant)
        entry["compiles"] += 1
        entry["seconds"] += seconds


def _stats_of(variant: Variant) -> OpStats:
    return _stats.setdefault(variant.spec.name, {"hits": 0, "compiles": 0, "seconds": 0.0})


def target_of(spec: Spec, device: torch.device | str | None) -> Target:
    """The target for a device; for None, that of the one kind of device that `spec` has a source for.

    For the CPU it may be the simulator (`simulated_target`).

    Raises:
        UsageError: the spec has no source for that device, or sources for several and no device is given.
        ToolchainError: as for `runtime_target`.
    """
    if device is None:
        if len(spec.kinds) > 1:
            raise kjit.UsageError(
                f"op '{spec.name}' has sources for {' and '.join(spec.kinds)}, and no device was given.",
                hint="pass device=, for example the device of the tensor that the op is called with",
            )
        return only_target(spec)
    kind, index = _kind_and_index(device)
    if kind == "cpu" and (target := simulated_target(spec.kinds)) is not None:
        return target
    data = KINDS[kind]
    if data.side not in spec.kinds:
        files = ", ".join(os.path.basename(path) for path in (*spec.cuda_files, *spec.cpp_files))
        has = "a CUDA source" if spec.kinds == ("cuda",) else "a C++ source for the CPU"
        raise kjit.UsageError(
            f"op '{spec.name}' was called for device '{device}', and it has only {has} ({files or 'no file'}).",
            hint=(
                f"move the tensors to a GPU, or set {env.SIM}=1: it then runs in the simulator (slow, for tests)"
                if spec.kinds == ("cuda",)
                else "move the tensors to the CPU"
            ),
        )
    return Target(kind) if data.is_simulated else runtime_target(data.side, index)


def runtime_target(kind: Side, device_index: int | None) -> Target:
    """The target for this machine: the CPU, or CUDA device `device_index` (None: the current one).

    If the environment lists architectures, it is the closest that runs on the GPU, or the first without a GPU;
    otherwise the GPU's own.

    Raises:
        UsageError: none of the listed architectures runs on the GPU.
        ToolchainError: there is no such GPU and no list.
    """
    if kind == "cpu":
        return Target.cpu()
    capability = device_capability(device_index)
    listed = env.cuda_arch_list()
    if listed is None:
        if capability is None:
            which = "no GPU here" if device_index is None else f"no CUDA device {device_index} here"
            raise kjit.ToolchainError(
                f"There is {which}, and no architecture to compile for was named.",
                hint=f"set {env.CUDA_ARCH_LIST} (for example 9.0a), or work on a machine with a GPU",
            )
        return Target.cuda(native_arch(capability))
    variable, items = listed
    archs = [CudaArch.parse(item) for item in items]
    if capability is None:
        return Target.cuda(archs[0])
    fitting = [arch for arch in archs if arch.runs_on(*capability)]
    if not fitting:
        raise kjit.UsageError(
            f"{variable} lists {', '.join(map(str, archs))}, and none of them runs on this GPU "
            f"({capability[0]}.{capability[1]}).",
            hint=f"add {native_arch(capability)} to {variable}, or unset it",
        )
    return Target.cuda(max(fitting, key=lambda arch: arch.closeness))


def native_arch(capability: tuple[int, int]) -> CudaArch:
    """The architecture with all features of a GPU: from 9.0 on, the architecture-specific one (`a`)."""
    major, minor = capability
    return CudaArch(major, minor, "a" if major >= 9 else "")


def device_capability(index: int | None) -> tuple[int, int] | None:
    """The compute capability of CUDA device `index` (None: the current one); None if there is no such device.

    Initialises CUDA through torch only on a machine with different GPUs, whose order only CUDA knows.
    """
    torch = torch_with_cuda()
    if torch is None:
        from kjit.runtime import gpus

        capabilities = gpus.visible_capabilities()
        position = index or 0
        if len(set(capabilities)) <= 1:
            return capabilities[position] if position < len(capabilities) else None
        import torch
    if index is None:
        index = torch.cuda.current_device()
    return torch.cuda.get_device_capability(index) if index < torch.cuda.device_count() else None


def torch_with_cuda() -> Any:
    """torch, if this process has imported it and CUDA is initialised; else None."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    is_initialized = getattr(cuda, "is_initialized", None)
    return torch if is_initialized is not None and is_initialized() else None


def only_target(spec: Spec) -> Target:
    """The target of a module whose caller gives no device."""
    side = spec.kinds[0]
    chosen = mode() or env.simulation()
    return Target(chosen) if side == "cuda" and chosen is not None else runtime_target(side, None)


def _kind_and_index(device: torch.device | str) -> tuple[TargetKind, int | None]:
    text = str(device)  # 'cuda:1' for a torch.device as well, without importing torch
    for simulation in env.SIMULATIONS:
        if text == simulation:
            return simulation, None
    name, _, index = text.partition(":")
    if name not in ("cpu", "cuda") or not (index.isdecimal() or index == ""):
        raise kjit.UsageError(f"kjit does not build for device '{text}', but for cpu, cuda, cuda:N, sim and sim-check.")
    return ("cuda", int(index) if index else None) if name == "cuda" else ("cpu", None)


def _device_of(name: str, values: Iterable[object]) -> torch.device | None:
    """The one device of the tensors in a call's arguments, including lists and tuples of tensors."""
    imported = sys.modules.get("torch")
    if imported is None:
        return None  # without torch there are no tensors
    found: torch.device | None = None
    for value in values:
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(tensor, imported.Tensor):
                continue
            if found is not None and tensor.device != found:
                raise kjit.UsageError(
                    f"{name} was called with tensors on {found} and on {tensor.device}; they must be on one device.",
                    hint="move them to one device first (`x.to(device)`)",
                )
            found = tensor.device
    return found


def _spec(args: tuple[str, ...], **parts: Any) -> Spec:
    if not args:
        raise kjit.UsageError("the module has no name.", hint='load_jit("my_op", ...)')
    for value in args:
        if not isinstance(value, str):
            raise kjit.UsageError(
                f"the argument {value!r} of module '{args[0]}' is not a string.",
                hint="wrap values in kjit.make_cpp_args",
            )
    csrc = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "csrc")
    for side in ("cpp_files", "cuda_files"):
        if not isinstance(parts[side], (str, os.PathLike)):  # else Spec reports the error
            parts[side] = [os.path.join(csrc, path) for path in parts[side]]  # an absolute path is unchanged
    return Spec(*args, **parts)


def mode() -> env.Simulation | None:
    """The simulator selected by an enclosing `simulated()`, or None."""
    return _inside


def simulated_target(sides: tuple[Side, ...]) -> Target | None:
    """The simulator target, if calls with CPU tensors of an op with `sides` run in it.

    Raises:
        UsageError: the value of `KJIT_SIM` is invalid.
    """
    if "cuda" not in sides:
        return None
    chosen = _inside or (None if "cpu" in sides else env.simulation())
    return None if chosen is None else Target(chosen)


@contextlib.contextmanager
def simulated(*, check: bool = False) -> Iterator[None]:
    """Run CUDA kernels that are called with CPU tensors in the simulator, even if their ops have CPU kernels.

        with kjit.testing.simulated():
            scale(torch.ones(3))

    It affects all threads of the process.

    Args:
        check: run them with the simulator's checks for mistakes.
    """
    before = _inside
    _set_mode("sim-check" if check else "sim")
    try:
        yield
    finally:
        _set_mode(before)


def _set_mode(to: env.Simulation | None) -> None:
    global _inside
    if to != _inside:
        _inside = to
        for cache in list(caches):
            cache.cache_clear()


def _report(refusal: Refusal, variant: Variant) -> None:
    """Log once why a bundle is not used; at debug level if the module is not expected in it."""
    if refusal in _reported:
        return
    _reported.add(refusal)
    level = logging.WARNING if refusal.is_surprising else logging.DEBUG
    _log.log(level, "%s is not taken from the bundle %s: %s", variant.label, refusal.bundle, "; ".join(refusal.reasons))


def load_library(path: str, variant: Variant) -> tvm_ffi.Module:
    """The module of a library, which stays loaded.

    Raises:
        FileNotFoundError: the library is gone.
        KjitError: it cannot be loaded.
    """
    with _loading:
        module = _loaded.get(path)
        if module is None:
            module = _load(path, variant)
            _loaded[path] = module
    return module


def _load(path: str, variant: Variant) -> tvm_ffi.Module:
    import tvm_ffi

    path = os.fsencode(path).decode()  # tvm-ffi expects UTF-8, whatever the locale
    try:
        module = tvm_ffi.load_module(path)
    except RuntimeError as error:
        from kjit.engine import loading

        module = loading.load_again(error, path, variant)
    for method in (Shared.__deepcopy__, Shared.__reduce_ex__):
        setattr(module, method.__name__, functools.partial(method, cast("Any", module)))
    return module


def attach_log() -> None:
    """Log to stderr at the level of `KJIT_LOG`; not at all if it is unset.

    Raises:
        UsageError: it is neither `info` nor `debug`.
    """
    level = env.log_level()
    if level is not None:
        _attach_log_handler(level)


@functools.lru_cache(maxsize=2)
def _attach_log_handler(level: env.LogLevel) -> None:
    """Set the level of `KJIT_LOG`, and add a handler unless the program has set up logging itself."""
    _log.setLevel(logging.DEBUG if level == "debug" else logging.INFO)
    if not _log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("kjit: %(message)s"))
        _log.addHandler(handler)

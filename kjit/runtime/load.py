"""How does a spec become a loaded module?

One road, whoever walks it: first the bundle beside the wrapper is asked, then the cache (key, look-up), then it is
compiled; then it is loaded. A hit starts no subprocess, needs no ninja, runs no compiler and imports nothing of the
build but what reads bundles and the cache; only a miss imports the compile path. A hit in a bundle does not even look
for a compiler. tvm-ffi's loader imports torch by itself, and nothing else here does.

A module that was loaded stays loaded, and is found again by its library's path. A changed source has another path, so
that a notebook which edits a kernel and asks again gets the new one, beside the old.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Literal, NoReturn, ParamSpec, TypeVar

from kjit import env
from kjit.build import bundle
from kjit.build.bundle import Refusal
from kjit.build.key import Key
from kjit.build.store import Artifact, Lookup, Store
from kjit.build.toolchain import Toolchain, runtime_target
from kjit.errors import KjitError, NotPrebuiltError, ToolchainError, UsageError
from kjit.runtime import lazy_bits, raw_calls, simulation, unusable
from kjit.spec import Export, Spec, StrPath, Target, TargetKind, Variant

if TYPE_CHECKING:
    import torch
    import tvm_ffi

P = ParamSpec("P")
R = TypeVar("R")

_HINT_FOR_CPU_TENSORS = (
    f"move the tensors to a GPU, or set {env.SIM}=1: the kernel then runs in the simulator (slow, for tests)"
)
_SIMULATED: dict[str, TargetKind] = {"sim": "sim", "sim-check": "sim-check"}
_LONG_S = 1.0
_ATTEMPTS = 3
_MISSING_CUDA_RUNTIME = re.compile(r"libcudart\.so\.\d+(?=: cannot open shared object file)")

_log = logging.getLogger("kjit")
_loaded: dict[str, tvm_ffi.Module] = {}
_loading = threading.Lock()
_told: set[Refusal] = set()
_told_warnings: set[str] = set()
_origins: set[Literal["cache", "compiler"]] = set()


def _renew_lock_in_child() -> None:
    """Of a forked process only one thread goes on in the child: what another one held there, nobody will release."""
    global _loading
    _loading = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock_in_child)


def load_jit(
    *args: str,
    cpp_files: Iterable[StrPath] = (),
    cuda_files: Iterable[StrPath] = (),
    cpp_wrappers: Iterable[Export] = (),
    cuda_wrappers: Iterable[Export] = (),
    extra_cflags: Iterable[str] = (),
    extra_cuda_cflags: Iterable[str] = (),
    extra_ldflags: Iterable[str] = (),
    extra_include_paths: Iterable[StrPath] = (),
    build_directory: StrPath | None = None,
) -> tvm_ffi.Module:
    """Compile C++ and CUDA sources into one module, unless that was done before, and load it.

    CUDA sources are compiled for the GPU of this machine; where `KJIT_SIM` is set, for the simulator.

    Args:
        args: mark the module: its name first, then what tells it from others of that name (`*make_cpp_args(...)`).
        cpp_files, cuda_files: sources, as absolute paths; a relative path is one in kjit's own `csrc/`. With wrappers
            they are included into one generated unit; without, each exports for itself (`KJIT_EXPORT`).
        cpp_wrappers, cuda_wrappers: `(export_name, cpp_symbol)` pairs.
        extra_cflags: for the C++ compiler. extra_cuda_cflags: for nvcc. extra_ldflags: for the link.
        extra_include_paths: absolute folders that are searched before kjit's own.
        build_directory: keep this module here instead of in the user's cache.

    Returns:
        The module; its exports are its attributes.

    Raises:
        UsageError: the request is wrong (no name, a missing source).
        CompileError: the compiler refused the sources.
        ToolchainError: a compiler is missing, or there is no GPU and no architecture is named.
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
    return load_variant(Variant(spec, _only_target(spec)), build_directory=build_directory, wrapper=wrapper)


def jit(
    *args: str,
    device: torch.device | str | None = None,
    cpp_files: Iterable[StrPath] = (),
    cuda_files: Iterable[StrPath] = (),
    cpp_wrappers: Iterable[Export] = (),
    cuda_wrappers: Iterable[Export] = (),
    extra_cflags: Iterable[str] = (),
    extra_cuda_cflags: Iterable[str] = (),
    extra_ldflags: Iterable[str] = (),
    extra_include_paths: Iterable[StrPath] = (),
    build_directory: StrPath | None = None,
) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[P, R]]:
    """Give the decorated function a compiled module as its first argument; callers pass the others.

        @kjit.jit("scale", cpp_files=[CSRC / "scale.cpp"], cpp_wrappers=[("scale", "scale<float>")])
        def scale(module, x: torch.Tensor, out: torch.Tensor) -> None:
            module.scale(x, out)

    The module is compiled at the first call: for the CPU from the C++ side, for a GPU from the CUDA side.

    Args:
        args: as for `load_jit`; without any, the module is named as the function is (leading underscores taken away).
        device: where the module runs; by default the device of the tensors of each call, and without tensors the one
            kind of device that there is a source for. `"sim"` and `"sim-check"` are the simulated GPU.
        Everything else as for `load_jit`.

    Raises:
        UsageError: at the call: its tensors are on different devices, or on one that there is no source for. And all
            that `load_jit` raises.
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
            key = (where, simulation.mode())
            module = modules.get(key)
            if module is None:
                # Two threads may come here at once: below them one compiles and the other waits.
                target = target_of(spec, where)
                variant = Variant(spec.only(target.side), target)
                module = modules[key] = load_variant(variant, build_directory=build_directory, wrapper=wrapper)
            try:
                return fn(module, *call_args, **call_kwargs)
            except (RuntimeError, ValueError):
                if "torch" in sys.modules:
                    unusable.explain(f"'{name}'", _named_arguments(fn, call_args, call_kwargs))
                raise

        return call

    return decorate


def load_variant(
    variant: Variant, *, build_directory: StrPath | None = None, hint: str | None = None, wrapper: str | None = None
) -> tvm_ffi.Module:
    """The loaded module of a variant: from this process, from a bundle, from the cache, or compiled now.

    Args:
        build_directory: the cache folder to use instead of the user's.
        hint: what to do where the module is missing and may not be compiled.
        wrapper: the path of the file that asks; bundles are looked for beside it.

    Raises:
        KjitError: as for `load_jit`.
    """
    attach_log()
    found = bundle.find(variant, wrapper)
    refusals = found.refusals
    if found.library is not None:
        try:
            module = _loaded_from(found.library, variant, is_prebuilt=True)
        except (FileNotFoundError, KjitError) as error:
            # A library of this machine that it needs is missing or too old: what is compiled here may do without.
            reason = error.message if isinstance(error, KjitError) else f"{found.library} is gone"
            refusals = (*refusals, Refusal(os.path.dirname(found.library), (reason,)))
        else:
            _log.debug("%s is in a bundle: %s", variant.label, found.library)
            return module
    for refusal in refusals:
        _tell(refusal, variant)
    for _ in range(_ATTEMPTS):
        artifact = ensure_built(variant, build_directory=build_directory, hint=hint, refusals=refusals)
        with contextlib.suppress(FileNotFoundError):  # the cache was emptied between the look-up and now
            return _loaded_from(artifact.library_path, variant, is_prebuilt=False)
    raise KjitError(f"{variant.label} cannot be loaded: the cache is being emptied all the time.")


def ensure_built(
    variant: Variant,
    *,
    build_directory: StrPath | None = None,
    hint: str | None = None,
    refusals: tuple[Refusal, ...] = (),
) -> Artifact:
    """The artifact of a variant, compiled if there is none. A compile says so in the log.

    Args:
        refusals: why bundles do not serve it; an error tells that too.

    Raises:
        KjitError: as for `load_jit`.
    """
    attach_log()
    _origins.add("cache")
    folder = None if build_directory is None else env.absolute("build_directory", os.fspath(build_directory))
    store = Store.open(folder)
    found = _look_up(variant, store, refusals)
    if found.artifact is not None:
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("%s is in the cache: %s", variant.label, found.artifact.path)
        return found.artifact
    if env.no_compile():
        hint = hint or f"run this once on such a machine without {env.NO_COMPILE}, with the same cache folder"
        raise NotPrebuiltError(
            f"{variant.label} is not built, because {found.reason}, and {env.NO_COMPILE} is set."
            + "".join(map(str, refusals)),
            hint=f"{hint}, with `--out` into the bundle" if refusals else hint,
        )
    # Only a miss pays for these imports.
    from kjit.build import plan

    began = 0.0

    def say(started: plan.Started) -> None:
        nonlocal began
        began = time.perf_counter()
        _log.warning("kjit compiles %s: %s", variant.label, started.reason)

    outcome = plan.build(variant, store, on_start=say)
    took = time.perf_counter() - began
    _origins.add("compiler")
    if outcome.state == "built" and took > _LONG_S:
        _log.warning("kjit compiled %s in %.1f s", variant.label, took)
    # The next variant of the op would say the same.
    warnings = [warning for warning in plan.warnings_of([outcome]) if warning not in _told_warnings]
    if warnings:
        _told_warnings.update(warnings)
        _log.warning("what the compiler warns of in %s:\n%s", variant.label, "\n\n".join(warnings))
    assert outcome.artifact is not None  # `build` raises where there is none
    return outcome.artifact


def has_used_cache() -> bool:
    """Whether this process has asked for a module that was in no bundle."""
    return "cache" in _origins


def has_compiled() -> bool:
    """Whether this process has compiled a module that it was asked for."""
    return "compiler" in _origins


def target_of(spec: Spec, device: torch.device | str | None) -> Target:
    """The target that serves a device: for None, the one kind of device that `spec` has a source for.

    For the CPU it is the simulator where `simulation.py` says so.

    Raises:
        UsageError: the spec has no source for that device, or sources for several and no device is given.
        ToolchainError: as `runtime_target`.
    """
    if device is None:
        if len(spec.kinds) > 1:
            raise UsageError(
                f"op '{spec.name}' has sources for {' and '.join(spec.kinds)}, and no device was given.",
                hint="pass device=, for example the device of the tensor that the op is called with",
            )
        return _only_target(spec)
    kind, index = _kind_and_index(device)
    if kind == "cpu" and (target := simulation.simulated_target(spec.kinds)) is not None:
        return target
    if (kind if kind == "cpu" else "cuda") not in spec.kinds:
        files = ", ".join(os.path.basename(path) for path in (*spec.cuda_files, *spec.cpp_files))
        has = "a CUDA source" if spec.kinds == ("cuda",) else "a C++ source for the CPU"
        raise UsageError(
            f"op '{spec.name}' was called for device '{device}', and it has only {has} ({files or 'no file'}).",
            hint=_HINT_FOR_CPU_TENSORS if spec.kinds == ("cuda",) else "move the tensors to the CPU",
        )
    if kind == "cpu" or kind == "cuda":
        return runtime_target(kind, index)
    return Target(kind)


def _only_target(spec: Spec) -> Target:
    """Where a module runs whose caller names no device."""
    side = spec.kinds[0]
    chosen = simulation.mode() or env.simulation()
    return Target(chosen) if side == "cuda" and chosen is not None else runtime_target(side, None)


def _kind_and_index(device: torch.device | str) -> tuple[TargetKind, int | None]:
    text = str(device)  # 'cuda:1' for a torch.device as well, and torch is not needed to read it
    if text in _SIMULATED:
        return _SIMULATED[text], None
    name, _, index = text.partition(":")
    if name not in ("cpu", "cuda") or not (index.isdecimal() or index == ""):
        raise UsageError(f"device '{text}' is not one that kjit builds for: cpu, cuda, cuda:N, sim or sim-check.")
    return ("cuda", int(index) if index else None) if name == "cuda" else ("cpu", None)


def _named_arguments(
    fn: Callable[..., object], args: tuple[object, ...], named: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of a call of `fn` but for its first, the module."""
    bound = inspect.signature(fn).bind(None, *args, **named).arguments
    _, *others = bound.items()
    return dict(others)


def _device_of(name: str, values: Iterable[object]) -> torch.device | None:
    """The one device of the tensors among a call's arguments, lists and tuples of tensors included."""
    imported = sys.modules.get("torch")
    if imported is None:
        return None  # then nobody holds a tensor
    found: torch.device | None = None
    for value in values:
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if not isinstance(tensor, imported.Tensor):
                continue
            if found is not None and tensor.device != found:
                raise UsageError(
                    f"{name} was called with tensors on {found} and on {tensor.device}; they must be on one device.",
                    hint="move them to one device first (`x.to(device)`)",
                )
            found = tensor.device
    return found


def _spec(args: tuple[str, ...], **parts: Any) -> Spec:
    if not args:
        raise UsageError("the module has no name.", hint='load_jit("my_op", ...)')
    for value in args:
        if not isinstance(value, str):
            raise UsageError(
                f"{value!r} cannot mark module '{args[0]}': only strings can.", hint="wrap values in kjit.make_cpp_args"
            )
    csrc = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "csrc")
    for side in ("cpp_files", "cuda_files"):
        if not isinstance(parts[side], (str, os.PathLike)):  # else Spec says what is wrong
            parts[side] = [os.path.join(csrc, path) for path in parts[side]]  # an absolute path stays what it is
    return Spec(*args, **parts)


def _look_up(variant: Variant, store: Store, refusals: tuple[Refusal, ...]) -> Lookup:
    """Look into the cache, which needs to know the compilers: they are part of what an artifact was built from."""
    try:
        return store.fetch(Key.of(variant, Toolchain.for_target(variant.target)))
    except ToolchainError as error:
        if env.no_compile():
            without = error.message.rstrip(".")
            return Lookup(None, f"the cache is of no use without the compilers that filled it ({without})")
        raise ToolchainError(f"{error.message}{''.join(map(str, refusals))}", hint=error.hint) from None
    except UsageError as error:
        # A source is not there. So it is in a package that is shipped without them.
        if env.no_compile():
            return Lookup(None, error.message.rstrip("."))
        raise UsageError(f"{error.message}{''.join(map(str, refusals))}", hint=error.hint) from None


def _tell(refusal: Refusal, variant: Variant) -> None:
    """Say once why a bundle is passed over; quietly where nobody would expect the module in it."""
    if refusal in _told:
        return
    _told.add(refusal)
    level = logging.WARNING if refusal.is_surprising else logging.DEBUG
    _log.log(level, "%s is not taken from the bundle %s: %s", variant.label, refusal.bundle, "; ".join(refusal.reasons))


def _loaded_from(path: str, variant: Variant, *, is_prebuilt: bool) -> tvm_ffi.Module:
    """The module of a library; one that was loaded stays loaded.

    Raises:
        FileNotFoundError: the library is gone.
        KjitError: it cannot be loaded.
    """
    with _loading:
        module = _loaded.get(path)
        if module is None:
            module = _load(path, variant, is_prebuilt=is_prebuilt)
            lazy_bits.teach(module)
            raw_calls.watch(module)
            _loaded[path] = module
    return module


def _load(path: str, variant: Variant, *, is_prebuilt: bool) -> tvm_ffi.Module:
    import tvm_ffi

    try:
        path = os.fsencode(path).decode()  # tvm-ffi takes UTF-8, whatever this locale makes of it
    except UnicodeDecodeError:
        raise KjitError(
            f"{variant.label} is built and cannot be loaded: the path {path!r} is not UTF-8.",
            hint=f"set {env.CACHE_DIR} to a folder with another name",
        ) from None
    try:
        return tvm_ffi.load_module(path)
    except RuntimeError as error:
        missing = _MISSING_CUDA_RUNTIME.search(str(error))
        if missing is None or not _load_cuda_runtime(missing[0], None if is_prebuilt else variant.target):
            _explain(error, path, variant)
    try:
        return tvm_ffi.load_module(path)
    except RuntimeError as error:
        _explain(error, path, variant)


def _explain(error: RuntimeError, path: str, variant: Variant) -> NoReturn:
    if not os.path.exists(path):
        raise FileNotFoundError(path) from error
    from kjit.build.diagnostics import explain_load

    report = explain_load(str(error), path)
    raise KjitError(f"{variant.label} is built and cannot be loaded: {report.text}", hint=report.hint) from error


def _load_cuda_runtime(soname: str, linked_for: Target | None) -> bool:
    """Load the CUDA runtime into the process, which a library then finds by its soname.

    Mostly torch has done that. Where it has not (a torch for the CPU), the one that the module was linked with is
    taken (`linked_for` is its target, None where it was linked elsewhere), else what cuda-pathfinder finds in wheels,
    conda and system folders.
    """
    with contextlib.suppress(OSError, ToolchainError):
        cuda = None if linked_for is None else Toolchain.for_target(linked_for).cuda
        if cuda is not None:
            ctypes.CDLL(os.path.realpath(cuda.cudart), mode=ctypes.RTLD_GLOBAL)
            return True
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        found = load_nvidia_dynamic_lib("cudart")
    except DynamicLibNotFoundError as error:
        _log.debug("%s was not found: %s", soname, error)
        return False
    _log.debug("%s: %s", soname, found.abs_path)
    return True


def attach_log() -> None:
    """Write to stderr what `KJIT_LOG` asks for; nothing where it is not set.

    Raises:
        UsageError: it is neither `info` nor `debug`.
    """
    level = env.log_level()
    if level is not None:
        _attach_log_handler(level)


@functools.lru_cache(maxsize=2)
def _attach_log_handler(level: env.LogLevel) -> None:
    """What `KJIT_LOG` asks for; where the program has set up logging itself, only the level."""
    _log.setLevel(logging.DEBUG if level == "debug" else logging.INFO)
    if not _log.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("kjit: %(message)s"))
        _log.addHandler(handler)

"""Warm-up: modules loaded before the first request (`kjit.warm`).

The requested variants become calls of declared ops, with the values of a variant and a tensor of the device, so that
the calls of a server find their modules. The calls run in threads. If compiles are needed and allowed, as many run at
once as in `kjit build`.
"""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import kjit
from kjit import env
from kjit.runtime import load, used
from kjit.runtime.declared import DeclaredModule, declared_in, is_declared, values_of, wrapper_of
from kjit.spec import Spec, StrPath, Variant

if TYPE_CHECKING:
    import torch

_MOST_THREADS = 8

_log = logging.getLogger("kjit")

State = Literal["loaded", "compiled", "launched", "missing", "failed"]
_STATES: tuple[State, ...] = get_args(State)


class WarmedVariant(NamedTuple):
    """The result for one variant.

    Attributes:
        label: `rmsnorm<bf16_t> cuda:sm_90a`, or the name of an op whose declaration failed.
        state: `loaded` (it was already built), `compiled`, `launched` (a call of `calls`), `missing` (it is not built,
            and `KJIT_NO_COMPILE` is set), or `failed`.
        seconds: until it was loaded.
        error: for the last two states.
    """

    label: str
    state: State
    seconds: float
    error: kjit.KjitError | None = None


class Warmed(NamedTuple):
    """The result of `kjit.warm`.

    Attributes:
        variants: the result for each variant.
        seconds: the total time.
    """

    variants: tuple[WarmedVariant, ...]
    seconds: float

    def of(self, state: State) -> list[str]:
        """The labels of the variants in a state."""
        return [each.label for each in self.variants if each.state == state]

    def check(self) -> None:
        """Raise an error that lists missing and failed variants, if there are any.

        Raises:
            NotPrebuiltError: something is missing.
            KjitError: something has failed.
        """
        errors = [each.error for each in self.variants if each.error is not None]
        if not errors:
            return
        kind = kjit.NotPrebuiltError if self.of("missing") else kjit.KjitError
        what = f"{len(errors)} of {len(self.variants)} variants are not loaded:"
        hints = list(dict.fromkeys(error.hint for error in errors if error.hint is not None))
        more = f", and so on for {len(hints) - 1} more" if len(hints) > 1 else ""
        raise kind(
            "".join([what, *(f"\n  {error.message}" for error in errors)]), hint=hints[0] + more if hints else None
        )

    def __str__(self) -> str:
        counts = {state: len(self.of(state)) for state in _STATES}
        parts = [f"{count} {state}" for state, count in counts.items() if count]
        return f"{', '.join(parts) or 'nothing to load'} ({self.seconds:.1f} s)"


class _Wanted(NamedTuple):
    """A variant, and the call that loads it."""

    name: str
    variant: Variant | None = None
    wrapper: str | None = None
    call: Callable[[], object] | None = None
    error: kjit.KjitError | None = None


def warm(
    *ops: str | ModuleType | DeclaredModule[Any],
    recorded: StrPath | None = None,
    calls: StrPath | None = None,
    bundle: StrPath | None = None,
    device: torch.device | str | None = None,
    jobs: int | None = None,
) -> Warmed:
    """Load the modules of a server, so that its first request does not wait for them.

        kjit.warm("kernels", bundle="/srv/prebuilt").check()

    With `KJIT_NO_COMPILE=1` nothing is compiled: variants that are not built are `missing` in the result, and the
    others are loaded. Otherwise they are compiled, in parallel. Missing and failed variants are logged as errors.

    Args:
        ops: load the declared variants of these: packages and modules (`"kernels"`, `"kernels.scale"`, `kjit.ops.norm`)
            with all declared ops in them, or declared ops.
        recorded: a file written by a run with `KJIT_RECORD_VARIANTS`: load its variants, for the GPU here.
        calls: a folder written by a run with `KJIT_RECORD`: after loading, make each call once, on temporary tensors of
            zeros, so that CUDA has loaded the kernels too. The GPU must have enough free memory for them.
        bundle: a folder written by `kjit build --out`. From then on, this process looks there first for every module;
            bundles beside wrappers need not be given.
        device: the device of the modules. By default the current GPU if there is one and the op has a CUDA source, else
            the CPU, or the simulator if `KJIT_SIM` is set.
        jobs: the most compiles at once.

    Raises:
        UsageError: there is no such module, it declares nothing, the file cannot be read, or the folder is not a
            bundle.
    """
    began = time.perf_counter()
    load.attach_log()
    if bundle is not None:
        load.add_bundle(os.fspath(bundle))
    wanted = [each for op in ops for declared in _declared_by(op) for each in _declared_variants(declared, device)]
    if recorded is not None:
        wanted += [_recorded_variant(each, device) for each in used.read(os.fspath(recorded))]
    done = _load_all(wanted, jobs)
    if calls is not None:
        done += _launch_all(os.fspath(calls), device)
    warmed = Warmed(tuple(done), time.perf_counter() - began)
    for each in warmed.variants:
        if each.error is not None:
            _log.error("kjit.warm: %s", each.error)
    _log.info("kjit.warm: %s", warmed)
    return warmed


def _declared_by(op: str | ModuleType | DeclaredModule[Any]) -> list[DeclaredModule[Any]]:
    """The declared ops for the argument of `warm`.

    Raises:
        UsageError: there are none.
    """
    if is_declared(op):
        return [op]
    if not isinstance(op, (str, ModuleType)):
        raise kjit.UsageError(f"kjit.warm: {op!r} is neither a declared op nor a module, nor the name of a module.")
    module = _import(op) if isinstance(op, str) else op
    modules = [module]
    for folder in getattr(module, "__path__", ()):
        names = sorted(each.name for each in pkgutil.iter_modules([folder]) if not each.ispkg)
        modules += [_import(f"{module.__name__}.{name}") for name in names]
    found = [declared for each in modules for declared in declared_in(vars(each))]
    if not found:
        raise kjit.UsageError(
            f"kjit.warm: '{module.__name__}' declares no module (kjit.module).",
            hint="name the package or the module of the wrappers, as in an import statement",
        )
    return list(dict.fromkeys(found))


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # of another module, which this one needs
        raise kjit.UsageError(
            f"kjit.warm: there is no module '{name}'.",
            hint="name the package or the module of the wrappers, as in an import statement",
        ) from None


def _declared_variants(declared: DeclaredModule[Any], device: torch.device | str | None) -> Iterator[_Wanted]:
    for values in values_of(declared):
        try:
            spec = declared.spec(**values)
        except kjit.KjitError as error:
            yield _Wanted(declared.__name__, error=error)
            continue
        if device is None or _side_of(device) in spec.kinds or _side_of(device) == "cpu":
            yield _wanted(declared, values, spec, device, prefers_cpu=False)


def _recorded_variant(line: used.Used, device: torch.device | str | None) -> _Wanted:
    prefers_cpu = line.target.kind != "cuda"
    try:
        if line.error is not None:
            raise line.error
        if line.declared is None:
            assert line.spec is not None  # a line has one or the other
            spec, wrapper = line.spec, line.wrapper
            target = load.target_of(spec, _tensor_for(spec, device, prefers_cpu=prefers_cpu).device)
            variant = Variant(spec.only(target.side), target)
            return _Wanted(line.name, variant, wrapper, call=lambda: load.load_variant(variant, wrapper=wrapper))
        spec = used.spec_of(line.declared)
        declared = used.find_declared(line.declared)
    except kjit.KjitError as error:
        return _Wanted(line.name, error=error)
    return _wanted(declared, dict(line.declared.values), spec, device, prefers_cpu=prefers_cpu)


def _wanted(
    declared: DeclaredModule[Any],
    values: dict[str, object],
    spec: Spec,
    device: torch.device | str | None,
    *,
    prefers_cpu: bool,
) -> _Wanted:
    try:
        tensor = _tensor_for(spec, device, prefers_cpu=prefers_cpu)
        target = load.target_of(spec, tensor.device)
    except kjit.KjitError as error:
        return _Wanted(spec.label, error=error)
    variant = Variant(spec.only(target.side), target)
    return _Wanted(spec.label, variant, wrapper_of(declared), lambda: declared(**values, device=tensor))


def _tensor_for(spec: Spec, device: torch.device | str | None, *, prefers_cpu: bool) -> torch.Tensor:
    """An empty tensor on the expected device of calls of an op with this spec."""
    import torch

    if device is None:
        takes_cpu = "cpu" in spec.kinds or load.simulated_target(spec.kinds) is not None
        on_gpu = "cuda" in spec.kinds and not (prefers_cpu and takes_cpu) and torch.cuda.is_available()
        device = "cuda" if on_gpu else "cpu"
    return torch.empty(0, device=device)


def _side_of(device: torch.device | str) -> str:
    return "cpu" if str(device) == "cpu" else "cuda"


def _load_all(wanted: Iterable[_Wanted], jobs: int | None) -> list[WarmedVariant]:
    todo = list({each.variant or each.name: each for each in wanted}.values())
    threads = _MOST_THREADS
    absent = [] if env.no_compile() else [each.variant for each in todo if each.variant and not _is_at_hand(each)]
    if absent:
        from kjit.engine.compile.jobs import parallel_jobs

        threads = parallel_jobs(absent, jobs)

    def work(each: _Wanted) -> WarmedVariant:
        began = time.perf_counter()
        label = each.name if each.variant is None else each.variant.label
        try:
            if each.error is not None:
                raise each.error
            assert each.call is not None  # there is an error otherwise
            each.call()
        except kjit.KjitError as error:
            state: State = "missing" if isinstance(error, kjit.NotPrebuiltError) else "failed"
            return WarmedVariant(label, state, time.perf_counter() - began, error)
        state = "compiled" if each.variant in absent and each.variant in load.compiled else "loaded"
        return WarmedVariant(label, state, time.perf_counter() - began)

    with ThreadPoolExecutor(threads, thread_name_prefix="kjit-warm") as pool:
        return list(pool.map(work, todo))


def _launch_all(folder: str, device: torch.device | str | None) -> list[WarmedVariant]:
    import torch

    from kjit.runtime.calls import REFUSALS, Caller, one_line, read

    calls, errors = read([Path(folder)])
    done = [WarmedVariant(folder, "failed", 0.0, error) for error in errors]
    gpu = f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else None
    again = Caller(None, device=gpu if device is None else str(device), seed=None)
    for call in calls:
        began = time.perf_counter()
        error: kjit.KjitError | None = None
        state: State = "launched"
        try:
            again.run(call)
        except kjit.KjitError as caught:
            error, state = caught, "missing" if isinstance(caught, kjit.NotPrebuiltError) else "failed"
        except REFUSALS as caught:
            state = "failed"
            error = kjit.KjitError(f"{call.name} ({call.shapes()}) has failed: {one_line(caught)}")
        done.append(WarmedVariant(f"{call.name} ({call.shapes()})", state, time.perf_counter() - began, error))
    if gpu is not None:
        torch.cuda.empty_cache()
    return done


def _is_at_hand(each: _Wanted) -> bool:
    """Whether a variant is built, so that no compiler is needed."""
    from kjit.runtime import bundle, manifest

    assert each.variant is not None  # its call would not be known
    if bundle.find(each.variant, each.wrapper).library is not None:
        return True
    return manifest.find(each.variant, load.cache_folder()) is not None

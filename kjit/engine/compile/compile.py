"""The build of one variant: from its sources to a library, in a staging folder.

plan.py makes the commands, build_folder.py writes and reads their files, ninja.py runs them. tvm-ffi's headers, C
ABI, library and loader are used unchanged.

In commands, paths that a compiler would misread are replaced by links (quoting.py). If the staging folder's own path is
not plain, the build runs in a temporary folder.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kjit.engine.cache.failures import Rejection
from kjit.engine.cache.folders import NO_SPACE
from kjit.engine.compile import two_halves
from kjit.engine.compile.build_folder import (
    headers_read,
    keep_support,
    plain_root,
    prepare,
    restored,
    temporary_build_folder,
)
from kjit.engine.compile.device_compiler import THREADS
from kjit.engine.compile.jobs import most_jobs
from kjit.engine.compile.libraries import sought_by
from kjit.engine.compile.ninja import LAUNCHER_ENVIRONMENT, Ran, run_steps
from kjit.engine.compile.plan import plan
from kjit.engine.compile.quoting import PLAIN_FOR_NVCC, Links
from kjit.engine.compile.refusals import refuse_unfit
from kjit.engine.compile.steps import Step, leading_to
from kjit.engine.diagnostics.printed import (
    KernelResources,
    failed_steps,
    parse_resources,
    without_resources,
)
from kjit.engine.key.paths import collapse_slashes
from kjit.engine.toolchain.nvrtc import PROGRAMS, OnlyNvccError
from kjit.engine.toolchain.programs import find_launcher
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.engine.toolchain.unit_compilers import NvrtcUnits
from kjit.errors import CompileError, ToolchainError
from kjit.spec import Spec, Variant

_FEWEST_THREADS = 4  # of NVRTC for each device half; fewer are not worth their CPU time
_MOST_THREADS = 8

_log = logging.getLogger("kjit")


@dataclass(frozen=True)
class Built:
    """A built library and the report of its build.

    Attributes:
        headers: all files that the compilers have read, except generated ones, by the names that include them.
        others: other files that were read: files named by flags, libraries added by the linker, kjit's own programs.
        sought: the places where the linker may search for the libraries named by the op's flags.
        commands: the shell commands that ran, in order.
        resources: the resources of each CUDA kernel.
        warnings: the compilers' warnings; empty if there are none.
        compiler: the compiler of the kernels, or of the C++ if there are none: `NVRTC 13.0`.
        why_nvcc: why nvcc compiled the kernels although NVRTC is available, as the end of a sentence; empty otherwise.
    """

    library: Path
    headers: tuple[str, ...]
    others: tuple[str, ...]
    sought: tuple[str, ...]
    commands: tuple[str, ...]
    seconds: float
    resources: tuple[KernelResources, ...]
    warnings: str
    compiler: str
    why_nvcc: str = ""


def compile_variant(
    variant: Variant,
    toolchain: Toolchain,
    staging: Path,
    *,
    verbose: bool = False,
    cancel: threading.Event | None = None,
    on_refusal: Callable[[Rejection], object] = lambda _: None,
    jobs: int = 1,
) -> Built:
    """Build `variant` in the folder `staging`.

    With NVRTC and nvcc, the units decide which compiles them (kind.py); none is compiled by both.

    Args:
        toolchain: for `variant.target`.
        staging: an existing folder; files in it with names of this build are replaced.
        verbose: put the compilers' whole output and the command to repeat into the error's message.
        cancel: an event that ends the build when another thread sets it: Ctrl-C reaches only the main thread.
        on_refusal: called before a `CompileError` that would be raised again until one of the files read has changed.
        jobs: the number of commands that run in parallel.

    Raises:
        CompileError: a compiler or the linker rejected the sources, or was killed.
        UsageError: the name of a source or a flag cannot be passed to a compiler.
        ToolchainError: a compiler is missing, or ninja.
        CacheError: the disk is full.
        CancelledError: `cancel` was set.
    """
    started = time.perf_counter()
    arguments = (staging, verbose, cancel, on_refusal, jobs)
    reason = two_halves.why_nvcc(variant.spec, toolchain) if "cuda" in variant.spec.kinds else ""
    if not reason:
        try:
            built = _compile(variant, toolchain, *arguments)
        except OnlyNvccError as error:
            if not toolchain.chooses:
                assert isinstance(toolchain.gpu, NvrtcUnits)
                raise ToolchainError(f"{variant.label} needs nvcc: {error}.", hint=toolchain.gpu.use_nvcc) from None
            reason = str(error)
    if reason:
        built = _compile(variant, toolchain.with_nvcc(), *arguments)
        # By another version of kjit's rule it might be compiled with NVRTC.
        built = replace(built, others=(*built.others, *PROGRAMS), why_nvcc=reason)
    if toolchain.cuda is not None and "cuda" in variant.spec.kinds:
        _log.info("%s: compiled by %s%s", variant.label, built.compiler, reason and f", because {reason}")
    return replace(built, seconds=time.perf_counter() - started)


def _compile(
    variant: Variant,
    toolchain: Toolchain,
    staging: Path,
    verbose: bool,
    cancel: threading.Event | None,
    on_refusal: Callable[[Rejection], object],
    jobs: int,
) -> Built:
    """Like `compile_variant`, with the compilers of `toolchain` only.

    Raises:
        OnlyNvccError: the units are not NVRTC's.
    """
    launcher = find_launcher()
    refuse_unfit(variant, toolchain)
    links = Links()
    steps = plan(variant.spec, toolchain, links, () if launcher is None else (str(launcher),))
    library = staging / steps[-1].output
    try:
        with temporary_build_folder() as temporary:
            folder = staging if PLAIN_FOR_NVCC.fullmatch(os.path.realpath(staging)) else temporary
            made = prepare(folder, steps, links)
            # A server started by a launcher outlives the build, so its folder for temporary files must too.
            extra = {"TMPDIR": str(temporary)} if launcher is None else {**LAUNCHER_ENVIRONMENT, "TMPDIR": plain_root()}
            done = _run(made, jobs, folder, extra, cancel, toolchain)
            logs = [links.restore(done.logs.get(step.output, "")) for step in made]
            failed = failed_steps(done.said)
            if done.returncode == 0 or failed:  # otherwise ninja was stopped: an object may be incomplete
                keep_support(folder, made, failed)
            if done.returncode != 0 and toolchain.nvrtc is not None:
                two_halves.refuse_others(logs)
            if done.returncode != 0:
                from kjit.engine.compile.repeatable import lasting_refusal
                from kjit.engine.diagnostics.build_errors import explain

                printed = list(zip(made, logs, strict=True))
                error = explain(variant, toolchain, folder, steps, printed, links, done.said, verbose)
                if isinstance(error, CompileError):
                    broken = [(step, log) for step, log in printed if step.output in failed]
                    refusal = lasting_refusal(variant, folder, steps, broken, links, done.said)
                    if refusal is not None:
                        on_refusal(refusal)
                raise error
            headers = headers_read(folder, steps[:-1], links)  # the last one links
            if folder != staging:
                shutil.copyfile(folder / library.name, library)
    except OSError as error:
        if error.errno in NO_SPACE:
            from kjit.engine.diagnostics.build_errors import disk_full

            raise disk_full(staging) from None
        raise
    text = "".join(logs)
    warnings = [_warnings(text, variant, toolchain, folder, steps), _lack_of_exports(variant.spec, library)]
    return Built(
        library=library,
        headers=headers,
        others=tuple(dict.fromkeys(map(collapse_slashes, (path for step in steps for path in step.reads)))),
        sought=sought_by(variant.spec.extra_ldflags, toolchain),
        commands=tuple(step.command for step in made),
        seconds=0.0,
        resources=tuple(parse_resources(text)),
        warnings="\n\n".join(filter(None, warnings)),
        compiler=_compiler_of(variant.spec, toolchain),
    )


def _run(
    steps: list[Step],
    jobs: int,
    folder: Path,
    extra: Mapping[str, str],
    cancel: threading.Event | None,
    toolchain: Toolchain,
) -> Ran:
    """Run the commands. The messages of one half of a unit explain those of the other, so both are compiled.

    If that is interrupted, the helper and what it does end, too.
    """
    if toolchain.nvrtc is None:
        return run_steps(steps, jobs, folder, extra, cancel)
    from kjit.engine.compile import start_helper

    devices = sum(step.output.endswith(".cubin") for step in steps)
    threads = min(jobs // max(devices, 1), _MOST_THREADS)
    extra = {**extra, **start_helper.variables(toolchain.nvrtc)}
    if threads >= _FEWEST_THREADS:
        extra[THREADS] = str(threads)
    try:
        return run_steps(steps, jobs, folder, extra, cancel, keep_going=True)
    except BaseException:
        start_helper.end()
        raise


def _warnings(text: str, variant: Variant, toolchain: Toolchain, folder: Path, steps: list[Step]) -> str:
    """The compilers' warnings, formatted; the formatter is imported only if there are some."""
    if not without_resources(text).strip():
        return ""
    from kjit.engine.diagnostics.build_errors import files_of
    from kjit.engine.diagnostics.diagnostics import explain_warnings

    return explain_warnings(text, files_of(variant, toolchain, folder, steps))


def _compiler_of(spec: Spec, toolchain: Toolchain) -> str:
    return toolchain.compilers[spec.kinds[0]].label or toolchain.cxx.label


# An export, or a registration of functions with tvm-ffi or torch on load.
_OFFERED = re.compile(rb"\0(?:__tvm_ffi_(?!_library_)|TVMFFIFunctionSetGlobal|TVMFFITypeRegister|_ZN5torch7Library)")


def _lack_of_exports(spec: Spec, library: Path) -> str:
    """A warning about a library without exports; empty if it has some."""
    if spec.cpp_wrappers or spec.cuda_wrappers or _OFFERED.search(library.read_bytes()) is not None:
        return ""
    field = "cuda_wrappers" if spec.cuda_files else "cpp_wrappers"
    return (
        f"module '{spec.name}' exports no function: name some in {field}, or put KJIT_EXPORT(name, function) into a "
        "source"
    )


def ptx_of(variant: Variant, toolchain: Toolchain) -> str:
    """The PTX of a variant's kernels from NVRTC, for the first of its architectures.

    Raises:
        KjitError: it cannot be compiled.
    """
    from kjit.engine.diagnostics.build_errors import explain

    links = Links()
    steps = plan(variant.spec, toolchain, links, ())
    suffix = f".sm_{toolchain.target.archs[0].digits}.cubin"
    with temporary_build_folder() as folder:
        prepare(folder, steps, links)
        wanted = [two_halves.for_ptx(step) for step in steps if step.output.endswith(suffix)]
        halves = [each for step in wanted for each in leading_to(step, steps)]
        done = _run(halves, most_jobs([variant]), folder, {}, None, toolchain)
        if done.returncode != 0:
            made = [(step, links.restore(done.logs.get(step.output, ""))) for step in halves]
            raise explain(variant, toolchain, folder, steps, made, links, done.said, False)
        return "\n".join(restored(folder, links, step.output).rstrip("\0") for step in wanted)

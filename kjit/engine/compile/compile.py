"""The build of one variant: from its sources to a library.

The generated unit and a `build.ninja` are written into a staging folder, and ninja runs the compilers there. kjit
writes the ninja file itself instead of calling `tvm_ffi.cpp.build`, because that (0.1.15) imports torch, takes the
architecture and the compiler from process-wide environment variables, so that two architectures cannot be built side
by side, breaks on paths with spaces or `$`, begins every command with its own `-O2 -std=c++17`, and links
`-lcudart` from a folder that CUDA from PyPI does not have. Its headers, ABI, library and loader are used as they are.

What a compiler would misread in a command it sees under another name (quoting.py). Where the staging folder's own name
is not plain, the build runs in a temporary folder.

A launcher (`KJIT_COMPILER_LAUNCHER`, like sccache) is put before each command that makes an object, so that what a team
compiled once is fetched. Commands and units are the same in every build for that: names are relative to the folder of
the build, and generated units depend on nothing but the spec.

A unit for the simulator is compiled in three commands: the preprocessor, kjit's rewriter (rewrite.py), the compiler.
With NVRTC, so is each half of a CUDA unit (two_halves.py).

Each command writes to a log of its own, so that messages never mix. The whole build ends with this process, however
that ends (run.py). Those of a unit in two halves are run by a process that has NVRTC loaded, instead of ninja
(builders.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from kjit import env
from kjit.engine.cache.failures import Refusal
from kjit.engine.cache.folders import NO_SPACE, is_unclaimed, make_private, refuse_unsafe
from kjit.engine.cache.missing import asking, read_answer
from kjit.engine.cache.staging import temporary_folder, temporary_root
from kjit.engine.compile import builders, two_halves, unbound
from kjit.engine.compile.libraries import brought_in, files_named, linked_by, lists_what_it_links, resolve, sought_by
from kjit.engine.compile.quoting import PLAIN_FOR_CXX, PLAIN_FOR_NVCC, Links
from kjit.engine.compile.refusals import refuse_unfit
from kjit.engine.compile.run import run
from kjit.engine.compile.steps import Step, Unit, leading_to
from kjit.engine.compile.support import support_objects
from kjit.engine.diagnostics.printed import (
    KernelResources,
    failed_steps,
    parse_depfile,
    parse_resources,
    without_resources,
)
from kjit.engine.key.anchors import straight
from kjit.engine.key.flags import parse
from kjit.engine.key.key import digest
from kjit.engine.toolchain import machine
from kjit.engine.toolchain.compilers import HOST_VARIABLE
from kjit.engine.toolchain.cuda import INSTALL_CUDA
from kjit.engine.toolchain.nvrtc import Nvrtc, OnlyNvccError
from kjit.engine.toolchain.programs import find_launcher, find_ninja
from kjit.engine.toolchain.toolchain import EXPORTS_SCRIPT, Toolchain
from kjit.errors import CompileError, ToolchainError
from kjit.spec import Export, Spec, Variant

_log = logging.getLogger("kjit")

# `PyInit_` begins a module that Python loads itself (csrc/torch/).
_EXPORTS = "{ global: __tvm_ffi_*; PyInit_*; local: *; };\n"

# Set outside, these would change the output or the messages without being part of a key. The last ones are nvcc's own
# (nvcc.profile), by names that a Makefile may well export.
_DROPPED_ENVIRONMENT = (
    "CLICOLOR_FORCE",
    "DEPENDENCIES_OUTPUT",
    "LD_RUN_PATH",
    "MAKEFLAGS",
    "NINJA_STATUS",
    HOST_VARIABLE,  # which compiler that is, the command line says
    "SUNPRO_DEPENDENCIES",
    "CUDAFE_FLAGS",
    "INCLUDES",
    "LIBRARIES",
    "PTXAS_FLAGS",
    "SYSTEM_INCLUDES",
)

# For launchers. Their "direct" mode trusts the list of headers of an earlier compile, and so misses a new header that
# comes before one of them: kjit knows that it has to compile, and must not be given the old object. The folder of a
# build says nothing about it, and would make each look different to ccache.
_LAUNCHER_ENVIRONMENT = {"CCACHE_NODIRECT": "1", "CCACHE_NOHASHDIR": "1", "SCCACHE_DIRECT": "false"}

# CUDA's types by kjit's names and by their own, and the headers that define them, each of which includes those before
# it. They take over half as long to compile as an empty kernel, so kjit's headers only declare these types, and a unit
# includes the header that the types named in its exports need: behind its sources, which may have chosen kjit's own
# types by KJIT_LIGHT_TYPES.
_CUDA_TYPE_HEADERS = (
    (re.compile(r"\b(fp8\w*_t|__nv_fp8\w*)\b"), "cuda_fp8.h"),
    (re.compile(r"\b(bf16(x2)?_t|__nv_bfloat16\w*|nv_bfloat16\w*)\b"), "cuda_bf16.h"),
    (re.compile(r"\b(fp16(x2)?_t|__half2?|half2?)\b"), "cuda_fp16.h"),
)


@dataclass(frozen=True)
class Built:
    """A built library and what the build reported.

    Attributes:
        headers: every file that the compilers read, except generated ones; as they are called by what includes them.
        others: what was read besides: files that flags name, what the linker brought in, kjit's rewriter.
        sought: where the linker may look for the libraries that the op's flags name.
        commands: the shell commands that ran, in order.
        resources: what each CUDA kernel uses.
        warnings: what the compilers said besides, empty if nothing.
        compiler: what compiled the kernels, or the C++ where there are none: `NVRTC 13.0`.
        why_nvcc: why it was nvcc where NVRTC is here, as the end of a sentence; empty where it was not.
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
    on_refusal: Callable[[Refusal], object] = lambda _: None,
    jobs: int = 1,
) -> Built:
    """Build `variant` in the folder `staging`.

    What NVRTC cannot do is compiled by nvcc, where there is one, and so is from then on what has the same sources. What
    is a mistake in them is shown (limits.py).

    Args:
        toolchain: for `variant.target`.
        staging: an existing folder; what it holds under the names of this build is replaced.
        verbose: put the compilers' whole output and the command to repeat into the error's message.
        cancel: set by another thread, ends the build: a Ctrl-C reaches the main thread only.
        on_refusal: told before a `CompileError` that would come again, as long as what was read stays as it is.
        jobs: how many units are compiled at once. What takes little runs besides, as there are cores.

    Raises:
        CompileError: a compiler or the linker refused the sources, or was killed.
        UsageError: the name of a source or a flag cannot be handed to a compiler.
        ToolchainError: a compiler or ninja is missing.
        CacheError: the disk is full.
        CancelledError: `cancel` was set.
    """
    started = time.perf_counter()
    nvrtc = toolchain.nvrtc
    if nvrtc is None or not (variant.spec.cuda_files or variant.spec.cuda_wrappers):
        return _compile(variant, toolchain, staging, verbose, cancel, on_refusal, jobs)
    reason = two_halves.why_nvcc(variant.spec, nvrtc, find_launcher()) if toolchain.has_nvcc else None
    is_known, word = reason is not None, None
    if reason is None:
        try:
            return _compile(variant, toolchain, staging, verbose, cancel, on_refusal, jobs)
        except OnlyNvccError as error:
            if not toolchain.has_nvcc:
                raise ToolchainError(f"{variant.label} needs nvcc: {error}.", hint=INSTALL_CUDA) from None
            reason, word = str(error), error.word
    _log.info("%s: compiled by nvcc, because %s", variant.label, reason)
    built = _compile(variant, toolchain.with_nvcc(), staging, verbose, cancel, on_refusal, jobs)
    if not is_known:
        two_halves.remember_nvcc(variant.spec, nvrtc, reason, word)
    # With other programs it might have been NVRTC.
    others = (*built.others, *two_halves.PROGRAMS)
    return replace(built, others=others, seconds=time.perf_counter() - started, why_nvcc=reason)


def _compile(
    variant: Variant,
    toolchain: Toolchain,
    staging: Path,
    verbose: bool,
    cancel: threading.Event | None,
    on_refusal: Callable[[Refusal], object],
    jobs: int,
) -> Built:
    """As `compile_variant`, by the compilers of `toolchain`.

    Raises:
        OnlyNvccError: NVRTC is asked for something that it cannot do.
    """
    started = time.perf_counter()
    ninja, launcher = find_ninja(), find_launcher()
    refuse_unfit(variant, toolchain)
    links = Links()
    steps = _plan(variant.spec, toolchain, links, () if launcher is None else (str(launcher),))
    library = staging / steps[-1].output
    try:
        with _temporary_folder() as temporary:
            folder = staging if PLAIN_FOR_NVCC.fullmatch(os.path.realpath(staging)) else temporary
            # The halves of a unit are compiled side by side.
            halves = 1 if toolchain.nvrtc is None else 1 + len(toolchain.target.archs)
            made = _prepare(folder, steps, links)
            # A server that a launcher starts outlives the build, and so must its folder for temporary files.
            extra = (
                {"TMPDIR": str(temporary)} if launcher is None else {**_LAUNCHER_ENVIRONMENT, "TMPDIR": _plain_root()}
            )
            done = _run(ninja, made, jobs * halves, folder, extra, cancel, toolchain.nvrtc)
            read = partial(_restored, folder, links)
            logs = [two_halves.said(step, read(step.log), read) for step in made]
            _keep_support(folder, made, done)
            if done.returncode != 0:
                from kjit.engine.diagnostics.build_errors import explain, files_of
                from kjit.engine.diagnostics.limits import Halves

                printed = _with_warnings(list(zip(made, logs, strict=True)))
                error = explain(variant, toolchain, folder, steps, printed, links, done.stdout, verbose)
                if isinstance(error, CompileError):
                    broken = [(step, log) for step, log in printed if step.output in failed_steps(done.stdout)]
                    if toolchain.nvrtc is not None:
                        names = files_of(variant, toolchain, folder, steps)
                        error = two_halves.limited(error, toolchain, Halves(broken, steps, names, read).limit())
                    _ask(ninja, folder, steps, broken, extra, cancel)
                    refusal = _refusal(variant, folder, steps, broken, links, done.stdout)
                    if refusal is not None:
                        on_refusal(refusal)
                raise error
            if not (folder / library.name).is_file():
                said = logs[-1].strip() or "nothing"
                raise CompileError(
                    f"{variant.label} does not link.\nThe linker made no library, and says: {said}",
                    log="".join(logs),
                    command=steps[-1].command,
                    hint="take out of extra_ldflags what makes it do something else",
                )
            headers = _headers(folder, steps, links)
            linked = brought_in(links.restore(_read(folder / steps[-1].depfile)), toolchain)
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
        others=tuple(dict.fromkeys(map(straight, [*(path for step in steps for path in step.reads), *linked]))),
        sought=sought_by(variant.spec.extra_ldflags, toolchain),
        commands=tuple(step.command for step in made),
        seconds=time.perf_counter() - started,
        resources=tuple(parse_resources(text)),
        warnings="\n\n".join(filter(None, warnings)),
        compiler=_compiler_of(variant.spec, toolchain),
    )


def _warnings(text: str, variant: Variant, toolchain: Toolchain, folder: Path, steps: list[Step]) -> str:
    """What the compilers said besides resources; what formats it is imported where there is something."""
    if not without_resources(text).strip():
        return ""
    from kjit.engine.diagnostics.build_errors import files_of
    from kjit.engine.diagnostics.diagnostics import explain_warnings

    return explain_warnings(text, files_of(variant, toolchain, folder, steps))


def _compiler_of(spec: Spec, toolchain: Toolchain) -> str:
    if toolchain.cuda is None or not (spec.cuda_files or spec.cuda_wrappers):
        return toolchain.cxx.label
    return toolchain.cuda.nvcc.label if toolchain.nvrtc is None else toolchain.nvrtc.label


def _with_warnings(printed: list[tuple[Step, str]]) -> list[tuple[Step, str]]:
    """What the commands printed, where a failed link begins with the compilers' warnings: one may tell why."""
    *compiled, (link, log) = printed
    if "undefined" in log:
        log = "".join([*(said for _, said in compiled if "warning" in said), log])
    return [*compiled, (link, log)]


# An export, an entry point for Python, or code that tells tvm-ffi or torch of its functions when it is loaded.
_OFFERED = re.compile(
    rb"\0(?:__tvm_ffi_(?!_library_|_kjit_)|PyInit_|TVMFFIFunctionSetGlobal|TVMFFITypeRegister|_ZN5torch7Library)"
)


def _lack_of_exports(spec: Spec, library: Path) -> str:
    """What to say of a library that nobody can call; empty where somebody can."""
    if spec.cpp_wrappers or spec.cuda_wrappers or _OFFERED.search(library.read_bytes()) is not None:
        return ""
    field = "cuda_wrappers" if spec.cuda_files else "cpp_wrappers"
    return (
        f"module '{spec.name}' exports no function: name some in {field}, or put KJIT_EXPORT(name, function) into a "
        "source"
    )


def _plan(spec: Spec, toolchain: Toolchain, links: Links, launcher: tuple[str, ...]) -> list[Step]:
    """The commands to run, the link last; `launcher` is put before those that make objects."""
    steps: list[Step] = []
    if toolchain.target.is_simulated and (spec.cuda_files or spec.cuda_wrappers):
        compiler = (str(toolchain.cxx.path), *links.flags(toolchain.sim_flags(spec), PLAIN_FOR_CXX))
        for unit in _units(spec, "cuda", "cu", spec.cuda_files, spec.cuda_wrappers, links, PLAIN_FOR_CXX):
            steps += _simulated_steps(unit, compiler, launcher, files_named(spec.extra_cuda_cflags, "nvcc"))
    elif toolchain.nvrtc is not None and (spec.cuda_files or spec.cuda_wrappers):
        for unit in _units(spec, "cuda", "cu", spec.cuda_files, spec.cuda_wrappers, links, PLAIN_FOR_CXX):
            steps += two_halves.steps_of(unit, spec, toolchain, links, launcher)
    elif spec.cuda_files or spec.cuda_wrappers:
        if toolchain.cuda is None:
            raise ValueError(f"'{spec.name}' has CUDA sources, and the toolchain is for {toolchain.target}")
        # nvcc builds the names of its parts from its own, so that must be plain too, up to the toolkit's home.
        nvcc_path = toolchain.cuda.nvcc.path
        nvcc = os.path.join(links.folder(str(nvcc_path.parent.parent), PLAIN_FOR_NVCC), *nvcc_path.parts[-2:])
        flags = (*links.flags(toolchain.nvcc_flags(spec), PLAIN_FOR_NVCC, "nvcc"), "-x", "cu")
        reads = files_named([*spec.extra_cuda_cflags, *toolchain.flags_from_environment()], "nvcc")
        for unit in _units(spec, "cuda", "cu", spec.cuda_files, spec.cuda_wrappers, links, PLAIN_FOR_NVCC):
            if launcher:
                unit = _with_lasting_path(unit)
            steps.append(_compile_step(unit, launcher, (nvcc, *flags), reads, "nvcc"))
    if spec.cpp_files or spec.cpp_wrappers:
        flags = (*links.flags(toolchain.cxx_flags(spec), PLAIN_FOR_CXX), "-x", "c++")
        for unit in _units(spec, "cpp", "cpp", spec.cpp_files, spec.cpp_wrappers, links, PLAIN_FOR_CXX):
            compiler = (str(toolchain.cxx.path), *flags)
            steps.append(_compile_step(unit, launcher, compiler, files_named(spec.extra_cflags)))
    steps = [replace(step, is_of_unit=True) for step in steps]
    for support in support_objects(toolchain):
        make = ("-MD", "-MF", f"{support.output}.d", "-c", str(support.source), "-o", support.output)
        steps.append(Step(support.output, (*launcher, *support.arguments, *make), support=support))
    objects = tuple(step.output for step in steps if step.output.endswith(".o"))
    if unbound.asks(spec.extra_ldflags):
        steps += _unbound_steps(spec, toolchain, objects)
        objects = (*objects, steps[-1].output)
    library = f"{spec.name}.so"
    step = Step(library, (), objects, ((EXPORTS_SCRIPT, _EXPORTS),), reads=linked_by(spec.extra_ldflags))
    listing = [f"-Wl,--dependency-file={step.depfile}"] if lists_what_it_links(spec, toolchain) else []
    libraries = resolve(toolchain.link_flags(spec), toolchain)
    link = (str(toolchain.cxx.path), "-o", library, *objects, *libraries, *listing)
    return [*steps, replace(step, arguments=link)]


def _unbound_steps(spec: Spec, toolchain: Toolchain, objects: tuple[str, ...]) -> Iterator[Step]:
    """What takes the place of functions that nothing defines."""
    library, unit, output = f"{spec.name}.unbound.so", f"{spec.name}.unbound.cpp", f"{spec.name}.unbound.o"
    compiler = str(toolchain.cxx.path)
    libraries = resolve(toolchain.link_flags(spec), toolchain)
    # Last, and so what counts: say what is undefined, by symbol, and link all the same.
    told = ("-Wl,-z,lazy", "-Wl,-z,defs", "-Wl,--warn-unresolved-symbols", "-Wl,--no-demangle")
    link = (compiler, "-o", library, *objects, *libraries, *told)
    program = str(Path(unbound.__file__).resolve())
    version_script = ((EXPORTS_SCRIPT, _EXPORTS),)
    yield Step(
        unit, (sys.executable, "-I", "-S", program, library, unit, *link), objects, version_script, reads=(program,)
    )
    flags = ("-fPIC", "-fvisibility=hidden", "-std=c++17", "-O1")
    yield Step(output, (compiler, *flags, "-c", unit, "-o", output), (unit,))


def _with_lasting_path(unit: Unit) -> Unit:
    """`unit` with a path that is the same in every build and every cache.

    nvcc hands the absolute path of its source on to the programs that it is made of, which is part of what a launcher
    compares. The path follows from the text, so that builds that run side by side may share the file.
    """
    if unit.text is None or not is_unclaimed(lasting_folder()):
        return unit  # somebody else has the name: a launcher finds less, and the build goes on
    folder = lasting_folder() / digest(unit.text.encode(errors="surrogateescape"))
    return replace(unit, path=str(folder / unit.path))


def lasting_folder() -> Path:
    """Where the generated units of builds with a launcher are: in `/tmp`, which no variable moves, where that can be
    written."""
    root = "/tmp" if os.access("/tmp", os.W_OK) else temporary_root()
    return Path(root) / f"kjit-units-{os.geteuid()}"


def _units(
    spec: Spec,
    side: str,
    suffix: str,
    files: tuple[str, ...],
    wrappers: tuple[Export, ...],
    links: Links,
    plain: re.Pattern[str],
) -> Iterator[Unit]:
    paths = [links.source(path, plain) for path in files]
    units: list[tuple[str, str | None]]
    if wrappers:
        units = [(f"{spec.name}.{suffix}", wrapper_unit(paths, wrappers, with_cuda_types=side == "cuda"))]
    else:
        # A source is compiled as it is; one with an odd name from a unit that includes it.
        units = [
            (path, None) if plain.fullmatch(path) else (f"{spec.name}{index}.{suffix}", f'#include "{path}"\n')
            for index, path in enumerate(paths)
        ]
    for index, (path, text) in enumerate(units):
        yield Unit(f"{side}{index}", path, text)


def _compile_step(
    unit: Unit,
    launcher: tuple[str, ...],
    compiler: tuple[str, ...],
    reads: tuple[str, ...],
    dialect: Literal["c++", "nvcc"] = "c++",
) -> Step:
    output = f"{unit.name}.o"
    arguments = (*launcher, *compiler, "-MD", "-MF", f"{output}.d", "-c", unit.path, "-o", output)
    ask = (*compiler, *asking(dialect, output), unit.path)
    return Step(output, arguments, generated=unit.generated, reads=reads, asking=ask)


def _simulated_steps(
    unit: Unit, compiler: tuple[str, ...], launcher: tuple[str, ...], reads: tuple[str, ...]
) -> Iterator[Step]:
    """A CUDA unit for the simulator: preprocessed, rewritten, and compiled as C++."""
    from kjit.engine.compile.rewrite import rewrite  # no other build needs it

    plain, rewritten, output = f"{unit.name}.ii", f"{unit.name}.sim.ii", f"{unit.name}.o"
    dependencies = ("-MD", "-MF", f"{plain}.d", "-MT", plain)
    preprocess = (*compiler, "-x", "c++", "-E", unit.path)
    ask = (*compiler, "-x", "c++", *asking("c++", plain), unit.path)
    yield Step(plain, (*preprocess, *dependencies, "-o", plain), generated=unit.generated, reads=reads, asking=ask)
    # -I and -S: Python starts without looking for packages.
    rewriter = Path(rewrite.__file__).resolve()
    program = (sys.executable, "-I", "-S", str(rewriter))
    read = tuple(map(str, sorted(rewriter.parent.glob("*.py"))))
    architecture = f"-D__CUDA_ARCH__={rewrite.ARCHITECTURE}"
    ask = (*compiler, architecture, "-x", "c++", *asking("c++", rewritten), unit.path)
    yield Step(rewritten, (*program, plain, rewritten, *preprocess), (plain,), reads=read, asking=ask)
    # What -include names has been read, and would be once more.
    flags = [word for flag in parse(compiler) if flag.meaning != "header" for word in flag.words()]
    yield Step(output, (*launcher, *flags, "-x", "c++-cpp-output", "-c", rewritten, "-o", output), (rewritten,))


def wrapper_unit(paths: list[str], wrappers: tuple[Export, ...], *, with_cuda_types: bool) -> str:
    """The one unit of a module with wrappers: its sources and its exports."""
    includes = [f'#include "{path}"' for path in paths]
    symbols = " ".join(symbol for _, symbol in wrappers)
    needed = [header for types, header in _CUDA_TYPE_HEADERS if types.search(symbols)]
    if needed:
        includes.append("#include <kjit/dtype.h>")
    if needed and with_cuda_types:
        includes += ["#if KJIT_CUDA_TYPES", f"#include <{needed[0]}>", "#endif"]
    # In parentheses, because a comma between template arguments would end the macro's argument.
    exports = [f"KJIT_EXPORT({name}, ({symbol}))" for name, symbol in wrappers]
    return "\n".join(["#include <kjit/ffi.h>", *includes, "namespace kjit {", *exports, "}", ""])


def _prepare(folder: Path, steps: list[Step], links: Links) -> list[Step]:
    """Write into `folder` what the commands of a build read, and return the steps that are to run."""
    run: list[Step] = []
    for step in steps:
        for name in (step.output, step.log, step.depfile):
            (folder / name).unlink(missing_ok=True)
        _write_generated(folder, step)
        if step.support is None or not step.support.fetch(folder):
            run.append(step)
    for target, name in links.names.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)
    return run


def _write(folder: Path, steps: list[Step], at_once: int) -> None:
    """Write what ninja runs, `at_once` of those steps that compile units."""
    # `exec` spares a process, and the compiler's own exit status arrives.
    commands = {step.output: f"exec {step.command} >{step.log} 2>&1" for step in steps}
    in_pool = {step.output for step in steps if step.is_of_unit}
    _write_commands(folder, commands, {step.output: step.inputs for step in steps}, in_pool, at_once)


def _write_commands(
    folder: Path,
    commands: Mapping[str, str],
    inputs: Mapping[str, tuple[str, ...]],
    in_pool: Container[str] = (),
    at_once: int = 1,
) -> None:
    """Write what ninja runs: shell commands by what they make, and what they make it from; `at_once` of those in the
    pool."""
    lines = ["pool units", f"  depth = {at_once}", "rule run", "  command = $run"]
    for output, command in commands.items():
        lines.append(f"build {output}: run {' '.join(inputs.get(output, ()))}".rstrip())
        lines.append("  run = " + command.replace("$", "$$"))
        if output in in_pool:
            lines.append("  pool = units")
    (folder / ".ninja_log").unlink(missing_ok=True)
    _write_text(folder / "build.ninja", "\n".join([*lines, ""]))


def _ask(
    ninja: Path,
    folder: Path,
    steps: list[Step],
    broken: list[tuple[Step, str]],
    extra: Mapping[str, str],
    cancel: threading.Event | None,
) -> None:
    """Ask the compilers that ended without a list what they have read. That they end so again is no failure."""
    reading = [each for step, _ in broken for each in leading_to(step, steps)]
    asked = [step for step in reading if step.asking and not _read(folder / step.depfile).endswith("\n")]
    if asked:
        _write_commands(
            folder, {step.answer: f"{shlex.join(step.asking)} >{step.answer} 2>&1 || :" for step in asked}, {}
        )
        _run_ninja(ninja, folder, _environment(extra), cancel)


def _write_generated(folder: Path, step: Step) -> None:
    for name, text in step.generated:
        if os.path.isabs(name):
            _write_lasting(Path(name), text)
        else:
            _write_text(folder / name, text)


def _write_text(path: Path, text: str) -> None:
    # Names of files may hold bytes that are no UTF-8, or that this locale does not know; they arrive as they are.
    path.write_text(text, encoding="utf-8", errors="surrogateescape")


def _write_lasting(path: Path, text: str) -> None:
    """Write a file of `lasting_folder`, which another build may be reading now.

    Raises:
        CacheError: the folder belongs to somebody else, who could put other code there.
    """
    for folder in (path.parent.parent, path.parent):
        make_private(folder)
        refuse_unsafe(folder, follow=False)
    if _read(path) != text:
        with tempfile.TemporaryDirectory(dir=path.parent) as beside:
            _write_text(Path(beside, path.name), text)
            os.replace(Path(beside, path.name), path)


def _keep_support(folder: Path, made: list[Step], done: subprocess.CompletedProcess[str]) -> None:
    """Keep what was compiled for all modules, also where this module failed: the next try need not wait for it."""
    failed = failed_steps(done.stdout)
    if done.returncode != 0 and not failed:
        return  # ninja itself was stopped: what is there may be half of an object
    for step in made:
        if step.support is not None and step.output not in failed and (folder / step.output).exists():
            step.support.keep(folder)


def _temporary_folder() -> contextlib.AbstractContextManager[Path]:
    """A folder for the compilers' own temporary files.

    In the system's temporary folder, which is on a fast disk where a cache in a home folder may not be.
    """
    return temporary_folder(_plain_root())


def _plain_root() -> str:
    """The system's temporary folder, or `/tmp` where nvcc would misread its name."""
    root = temporary_root()
    if PLAIN_FOR_NVCC.fullmatch(os.path.realpath(root)) is None and os.access("/tmp", os.W_OK):
        return "/tmp"
    return root


def _run(
    ninja: Path,
    steps: list[Step],
    at_once: int,
    folder: Path,
    extra: Mapping[str, str],
    cancel: threading.Event | None,
    nvrtc: Nvrtc | None,
) -> subprocess.CompletedProcess[str]:
    """Run `steps`, `at_once` of those that compile units: with NVRTC by a builder, else by ninja."""
    environment = _environment(extra)
    if nvrtc is None:
        _write(folder, steps, at_once)
        return _run_ninja(ninja, folder, environment, cancel)
    try:
        return builders.run(steps, at_once, folder, environment, cancel, nvrtc)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        raise ToolchainError(f"Python ('{sys.executable}') cannot be run: {error.strerror}.") from None


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED_ENVIRONMENT}
    return {**environment, "LC_ALL": "C", **extra}


def _run_ninja(
    ninja: Path, folder: Path, environment: Mapping[str, str], cancel: threading.Event | None
) -> subprocess.CompletedProcess[str]:
    try:
        # Not its own two more than there are cores: what all modules share would slow down what takes longest.
        return run([str(ninja), f"-j{machine.cores()}"], folder, environment, cancel)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        raise ToolchainError(
            f"ninja ('{ninja}') cannot be run: {error.strerror}.", hint="install it with `pip install ninja`"
        ) from None


def _headers(folder: Path, steps: list[Step], links: Links) -> tuple[str, ...]:
    generated = {name for step in steps for name, _ in step.generated}
    found: dict[str, None] = {}  # and no Path for each: a CUDA unit reads four hundred files
    for step in steps[:-1]:  # the last one links
        names = parse_depfile(_read(folder / step.depfile))
        if not names and "-MD" in step.arguments:
            # Without the list no later look-up could tell that a header changed.
            raise ToolchainError(
                f"'{step.arguments[0]}' made {step.output} and did not write which headers were read (-MD).",
                hint=f"unset {env.COMPILER_LAUNCHER}, or use a launcher that leaves the compiler's options alone",
            )
        # nvcc calls what `-include` names `./pre.h`.
        names = [name.removeprefix("./") for name in names]
        found.update(dict.fromkeys(_called(links.restore(name)) for name in names if name not in generated))
    return tuple(found)


def _called(path: str) -> str:
    """The name of a file in a list of what was read: clang and nvcc write a backslash in it as a slash."""
    if not os.path.exists(path):
        parts = path.split("/")
        for folders in range(len(parts) - 1, 0, -1):
            name = f"{'/'.join(parts[:folders])}/{chr(92).join(parts[folders:])}"
            if os.path.exists(name):
                return name
    return straight(path)


def _read(path: Path) -> str:
    try:
        # As Python decodes the names of files, in whatever locale: what is read here is full of them.
        return os.fsdecode(path.read_bytes()).replace("\r\n", "\n")
    except FileNotFoundError:
        return ""


def ptx_of(variant: Variant, toolchain: Toolchain) -> str | None:
    """The PTX that NVRTC makes of a variant's kernels for the first of its architectures; None if nvcc compiles them.

    Raises:
        KjitError: it cannot be compiled.
    """
    from kjit.engine.diagnostics.build_errors import explain

    nvrtc = toolchain.nvrtc
    if nvrtc is None or (toolchain.has_nvcc and two_halves.why_nvcc(variant.spec, nvrtc, find_launcher())):
        return None
    links = Links()
    try:
        steps = _plan(variant.spec, toolchain, links, ())
    except OnlyNvccError:
        return None
    suffix = f".sm_{toolchain.target.archs[0].digits}.cubin"
    texts = []
    with _temporary_folder() as folder:
        _prepare(folder, steps, links)
        for step in (two_halves.for_ptx(step) for step in steps if step.output.endswith(suffix)):
            for each in leading_to(step, steps):
                environment = {**os.environ, "LC_ALL": "C"}
                done = run(each.arguments, folder, environment, None)
                if done.returncode != 0:
                    said = f"FAILED: {each.output} "
                    raise explain(
                        variant, toolchain, folder, steps, [(each, links.restore(done.stdout))], links, said, False
                    )
            texts.append(_restored(folder, links, step.output).rstrip("\0"))
    return "\n".join(texts)


def _restored(folder: Path, links: Links, name: str) -> str:
    """The content of a file in the folder of a build, with the names of files as they are."""
    return links.restore(_read(folder / name))


def explain_again(
    variant: Variant, toolchain: Toolchain, folder: Path, logs: Mapping[str, str], *, verbose: bool = False
) -> CompileError | None:
    """The error that `compile_variant` raised when its commands printed `logs`, as `failures.py` remembers them; None
    where these are not its commands.

    Args:
        folder: an empty one.
    """
    from kjit.engine.diagnostics.build_errors import compile_error

    launcher = find_launcher()
    links = Links()
    steps: list[Step] = []
    broken: list[tuple[Step, str]] = []
    # By NVRTC, or by nvcc in its place.
    for each in (toolchain, *([toolchain.with_nvcc()] if toolchain.nvrtc is not None and toolchain.has_nvcc else [])):
        with contextlib.suppress(OnlyNvccError):
            steps = _plan(variant.spec, each, links, () if launcher is None else (str(launcher),))
            broken = [(step, logs[step.output]) for step in steps if step.output in logs]
        if len(broken) == len(logs):
            toolchain = each
            break
    else:
        return None
    for step in steps:
        _write_generated(folder, step)
    error = compile_error(variant, toolchain, folder, steps, broken, links, verbose)
    error.is_repeated = True
    return error


# A place in a file, and that it is refused; in lower case, unlike what the assembler says.
_REFUSED_AT = re.compile(
    r"^(?P<file>\S[^\n]*?)(?::\d+(?::\d+)?|\(\d+\)): (?:fatal |catastrophic )?error\b", re.MULTILINE
)
# What assemblers refuse of what a compiler made, whose source is known.
_REFUSED_BY_ASSEMBLER = re.compile(
    r"^(?:\S+:\d+: Error: |ptxas (?:\S+, line \d+; )?(?:error|fatal) +: (?:Unresolved extern|\(C\d+\)|Entry function"
    r"|(?:Ptx|PTX) assembly aborted))",
    re.MULTILINE,
)
_REFUSED_BY_LINKER = re.compile(
    r"undefined reference to |multiple definition of |undefined symbol: |duplicate symbol: |undefined hidden symbol: "
)
# Where one of these is said, it may be another time that it fails, or no time.
_MAY_PASS = re.compile(
    r"internal (?:compiler )?error|out of memory|memory exhausted|[Cc]annot allocate|[Kk]illed|signal"
    r"|Segmentation fault|Bus error|[Tt]imed out|PLEASE submit a bug report"
)
_BY_SIGNAL = range(129, 193)  # exit statuses of what a signal ended, as shells say it; nvcc's for an error is 255


def _refused_lines(text: str) -> set[str]:
    return {line for line in text.splitlines() if _REFUSED_AT.match(line)}


def _refusal(
    variant: Variant,
    folder: Path,
    steps: list[Step],
    broken: list[tuple[Step, str]],
    links: Links,
    ninja_output: str,
) -> Refusal | None:
    """What compilers said to sources that they would refuse again; None where that is not known for sure."""
    # A ninja older than 1.13 does not say with what status a command has ended, which may have been a signal.
    statuses = re.findall(r"^FAILED: (?:\[code=(\d+)\])?", ninja_output, re.MULTILINE)
    if not broken or any(not status or int(status) in _BY_SIGNAL for status in statuses):
        return None
    # What flags of the op's own have the linker read is not all known where it fails.
    of_link = [step for step, _ in broken] == steps[-1:] and not variant.spec.extra_ldflags
    reading = steps[:-1] if of_link else [each for step, _ in broken for each in leading_to(step, steps)]
    generated = {name for step in steps for name, _ in step.generated}
    logs = {step.output: log for step, log in broken}
    files: dict[str, None] = {}
    sought: dict[str, None] = {}
    for step in reading:
        if not of_link and (step.support is not None or step is steps[-1]):
            return None
        listing = _read(folder / step.depfile)
        names = parse_depfile(listing)
        missed = None
        if step.asking and not listing.endswith("\n"):
            # The preprocessor has failed, as when a header is missing, or the compiler was ended when it wrote this.
            answer = links.restore(_read(folder / step.answer))
            missed, refused = read_answer(answer), _refused_lines(logs.get(step.output, ""))
            if missed is None or not refused or not refused <= _refused_lines(answer):
                return None
            names = [*missed.files, step.asking[-1]]
        names = [name.removeprefix("./") for name in names]
        read = dict.fromkeys(_called(links.restore(name)) for name in names if name not in generated)
        files.update(read)
        if missed is not None:
            sought.update(dict.fromkeys(replace(missed, files=tuple(read)).places()))
    for log in logs.values():
        named = {match["file"] for match in _REFUSED_AT.finditer(log)} - generated
        places = {_called(os.path.join(folder, name)) for name in named}
        telling = (_REFUSED_BY_LINKER,) if of_link else (_REFUSED_AT, _REFUSED_BY_ASSEMBLER)
        if not any(each.search(log) for each in telling) or _MAY_PASS.search(log) or not places <= files.keys():
            return None
    if not all(map(os.path.isabs, files)) or not {*variant.spec.cuda_files, *variant.spec.cpp_files} & files.keys():
        return None
    others = dict.fromkeys(straight(path) for step in reading for path in step.reads)
    return Refusal(logs, tuple(files), tuple(others), tuple(sought))

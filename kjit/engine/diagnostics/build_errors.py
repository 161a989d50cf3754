"""Exceptions for failed builds.

Usually a compiler rejected the sources, as shown by diagnostics.py. Other causes are a full disk and a compiler that
disappeared. If no tool reports why it failed, the free space is checked, and the conclusion is presented as a guess, as
temporary files are gone by then.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from kjit import env
from kjit.engine.cache.staging import temporary_root
from kjit.engine.compile.quoting import Links
from kjit.engine.compile.steps import Step, leading_to
from kjit.engine.diagnostics import diagnostics
from kjit.engine.diagnostics.files import Files
from kjit.engine.diagnostics.hints import Given
from kjit.engine.diagnostics.printed import failed_steps
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CacheError, CompileError, KjitError, ToolchainError
from kjit.spec import Variant

# Less than the temporary files of one large unit may need.
_LITTLE_ROOM = 64 << 20

# Programs that kjit has the build run, by the word that names them.
_OWN_PROGRAM = re.compile(r"; sys\.exit\(run\('(?P<module>\w+)', |/kjit/engine/compile/(?:\w+/)?(?P<file>\w+)\.py$")
# Errors about NVRTC itself, from device_compiler.py; those about options have more lines, from NVRTC.
_BY_NVRTC = re.compile(
    r"^nvrtc: error: (?!unrecognized |invalid |unsupported |missing |failed with an internal)(?P<words>.*?)\.?$",
    re.MULTILINE,
)


def explain(
    variant: Variant,
    toolchain: Toolchain,
    folder: Path,
    steps: Sequence[Step],
    made: Sequence[tuple[Step, str]],
    links: Links,
    ninja_output: str,
    verbose: bool,
) -> KjitError:
    """The exception for a failed build.

    Args:
        folder: the working directory of the tools. steps: all commands of the build.
        made: the commands that ran, with their output.
        verbose: whether the message includes the compilers' whole output and the command to repeat.
    """
    broken = [(step, log) for step, log in made if step.output in failed_steps(ninja_output)]
    everything = "".join(log for _, log in made)
    if diagnostics.is_disk_full(everything + ninja_output):
        return disk_full(folder)
    compilers = [toolchain.compilers[side] for side in variant.spec.kinds]
    tools = {toolchain.cxx.path: os.X_OK}
    for compiler in compilers:
        tools |= compiler.programs
    gone = next((path for path, mode in tools.items() if not os.access(path, mode)), None)
    if gone is not None:
        return ToolchainError(
            f"The compiler '{gone}' disappeared during the build.", hint="`kjit doctor` shows what kjit finds now"
        )
    broke = next(filter(None, (_breakdown(variant, step, log) for step, log in broken)), None)
    if broke is not None:
        return broke
    if not broken:
        return CompileError(
            f"{variant.label}: ninja failed: {ninja_output.strip() or 'without a word'}",
            log=everything + ninja_output,
            command=_to_repeat(links, steps),
        )
    if not diagnostics.says_why("".join(log for _, log in broken)) and (full := _nearly_full(folder)) is not None:
        return full
    # If NVRTC rejected a unit, its host half is not shown: nvcc would not have started the host compiler.
    refused = {step.output.partition(".")[0] for step, _ in broken if step.output.endswith(".cubin")}
    halves = [step.output.partition(".")[0] if step.output.endswith(".host.o") else None for step, _ in broken]
    log = "".join(log for half, (_, log) in zip(halves, broken, strict=True) if half not in refused)
    files, given = files_of(variant, toolchain, folder, steps), _given(variant, toolchain)
    report = diagnostics.explain(log, files, str(variant.target), given)
    command = _to_repeat(links, leading_to(broken[0][0], steps))
    verb = "link" if any(name.endswith(".o") for name in broken[0][0].inputs) else "compile"
    message = f"{variant.label} does not {verb}.\n{report.text}"
    if verbose:
        message += f"\n\nthe compiler's whole output:\n{log.rstrip()}\n\nto repeat:\n{command}"
    return CompileError(
        message,
        log=log,
        command=command,
        hint=next(filter(None, (each.explain(log, toolchain) for each in compilers)), report.hint),
    )


def _breakdown(variant: Variant, step: Step, log: str) -> KjitError | None:
    """The error for a command that failed because kjit's own program broke off, or because NVRTC cannot be used: it
    says nothing about the sources. None for others."""
    program = next(filter(None, map(_OWN_PROGRAM.search, step.arguments)), None)
    if program is None:
        return None
    without = f"{env.CUDA_COMPILER}=nvcc does without it"
    if (failure := _BY_NVRTC.search(log)) is not None:
        message = f"{variant.label} is not built: NVRTC cannot be used ({failure['words']})."
        return ToolchainError(message, hint=f"`kjit doctor` shows what kjit finds; {without}")
    if "Traceback (most recent call last):\n" not in log:
        return None
    name = program["module"] or program["file"]
    last = next((line for line in reversed(log.splitlines()) if re.match(r"[\w.]+(?::|$)", line)), "without a word")
    if last.startswith("MemoryError"):
        return KjitError(f"{variant.label} is not built: no memory was left for kjit's own program '{name}'.",
                         hint=diagnostics.FEWER_AT_ONCE)  # fmt: skip
    hint = "this is a mistake in kjit, or in how it is installed (`kjit doctor`)"
    return KjitError(
        f"{variant.label} is not built: kjit's own program '{name}' broke off. It says: {last}",
        hint=hint if variant.target.is_simulated else f"{hint}; {without}",
    )


def disk_full(staging: Path) -> CacheError:
    """The error for a full disk."""
    return CacheError(
        f"No space is left on the disk to compile in '{staging}' (or in '{temporary_root()}', where compilers "
        "keep temporary files).",
        hint="free some space (`kjit clean-cache` empties kjit's cache)",
    )


def files_of(variant: Variant, toolchain: Toolchain, folder: Path, steps: Sequence[Step]) -> Files:
    """The owners of the files that compilers name."""
    sources = (*variant.spec.cuda_files, *variant.spec.cpp_files)
    generated = frozenset(name for step in steps for name, _ in step.generated)
    return Files(sources, generated, folder, toolchain.library_dirs())


def _nearly_full(folder: Path) -> CacheError | None:
    """The error for a nearly full disk, if one that was written to is."""
    for place in dict.fromkeys((str(folder), temporary_root())):
        state = os.statvfs(place)
        room = state.f_bavail * state.f_frsize
        if room < _LITTLE_ROOM or (state.f_files and state.f_favail < 16):
            return CacheError(
                f"The compiler failed without saying why. The disk of '{place}' has {room / 1024**2:.1f} MiB left, "
                "which is probably too little to compile.",
                hint="free some space (`kjit clean-cache`), or set "
                f"{env.CACHE_DIR if place == str(folder) else 'TMPDIR'} to a folder on another disk",
            )
    return None


def _given(variant: Variant, toolchain: Toolchain) -> Given:
    """The flags that are not kjit's, by source."""
    given: dict[str, Sequence[str]] = {"extra_ldflags": variant.spec.extra_ldflags}
    for compiler in toolchain.compilers.values():
        given |= compiler.given(variant.spec, toolchain.environment())
    return {name: flags for name, flags in given.items() if flags}


def _to_repeat(links: Links, steps: Sequence[Step]) -> str:
    """A shell command that repeats `steps` in an empty folder, as the staging folder is removed after a failure."""
    parts = ['cd "$(mktemp -d)"']
    parts += [f"ln -s {shlex.quote(folder)} {name}" for folder, name in links.names.items()]
    written: set[str] = set()
    for step in steps:
        for name, text in step.generated:
            if name not in written:
                written.add(name)
                parts.append(f"printf '%s' {shlex.quote(text)} >{name}")
        parts.append(step.command)
    return " &&\n".join(parts)

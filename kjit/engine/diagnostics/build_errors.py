"""Exceptions for failed builds.

Usually a compiler rejected the sources, as shown by diagnostics.py. Other causes are a full disk and kjit's own
programs.
"""

from __future__ import annotations

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
from kjit.engine.diagnostics.printed import failed_steps
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CacheError, CompileError, KjitError, ToolchainError
from kjit.spec import Variant

# The words that name programs of kjit.
_OWN_PROGRAM = re.compile(r"; sys\.exit\(run\('|/kjit/engine/compile/(?:\w+/)?\w+\.py$")
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
    broke = next(filter(None, (_breakdown(variant, step, log) for step, log in broken)), None)
    if broke is not None:
        return broke
    if not broken:
        return CompileError(
            f"{variant.label}: ninja failed: {ninja_output.strip() or 'without a word'}",
            log=everything + ninja_output,
            command=_to_repeat(links, steps),
        )
    # If NVRTC rejected a unit, its host half is not shown: nvcc would not have started the host compiler.
    refused = {step.output.partition(".")[0] for step, _ in broken if step.output.endswith(".cubin")}
    halves = [step.output.partition(".")[0] if step.output.endswith(".host.o") else None for step, _ in broken]
    log = "".join(log for half, (_, log) in zip(halves, broken, strict=True) if half not in refused)
    report = diagnostics.explain(log, files_of(variant, toolchain, folder, steps), str(variant.target))
    of_compilers = (toolchain.compilers[side].explain(log) for side in variant.spec.kinds)
    command = _to_repeat(links, leading_to(broken[0][0], steps))
    verb = "link" if any(name.endswith(".o") for name in broken[0][0].inputs) else "compile"
    message = f"{variant.label} does not {verb}.\n{report.text}"
    if verbose:
        message += f"\n\nthe compiler's whole output:\n{log.rstrip()}\n\nto repeat:\n{command}"
    return CompileError(message, log=log, command=command, hint=next(filter(None, of_compilers), report.hint))


def _breakdown(variant: Variant, step: Step, log: str) -> KjitError | None:
    """The error for a command that failed because kjit's own program broke off, or because NVRTC cannot be used: it
    says nothing about the sources. None for others."""
    if not any(map(_OWN_PROGRAM.search, step.arguments)):
        return None
    hint = "`kjit doctor` shows what kjit finds"
    if not variant.target.is_simulated:
        hint += f"; {env.CUDA_COMPILER}=nvcc does without it"
    if (failure := _BY_NVRTC.search(log)) is not None:
        return ToolchainError(f"{variant.label} is not built: NVRTC cannot be used ({failure['words']}).", hint=hint)
    if "Traceback (most recent call last):\n" not in log:
        return None
    last = next((line for line in reversed(log.splitlines()) if re.match(r"[\w.]+(?::|$)", line)), "without a word")
    return KjitError(f"{variant.label} is not built: kjit's own program broke off. It says: {last}", hint=hint)


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

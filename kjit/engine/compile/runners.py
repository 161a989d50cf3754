"""Runners for the commands of a build: ninja, or a process with NVRTC loaded (servers.py).

Each command writes to a log of its own, so that messages never mix. A build ends with this process, even if that is
killed (run.py). kjit writes the ninja file itself instead of calling `tvm_ffi.cpp.build`, which (0.1.15) imports torch,
takes the architecture and the compiler from process-wide environment variables, so that two architectures cannot be
built in parallel, breaks on paths with spaces or `$`, begins every command with its own `-O2 -std=c++17`, and links
`-lcudart` from a folder that CUDA from PyPI does not have.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from kjit.engine.cache.folders import NO_SPACE
from kjit.engine.compile import servers
from kjit.engine.compile.build_folder import write_text
from kjit.engine.compile.run import run
from kjit.engine.compile.steps import Step
from kjit.engine.toolchain import machine
from kjit.engine.toolchain.compilers import HOST_VARIABLE
from kjit.engine.toolchain.nvrtc import Nvrtc
from kjit.engine.toolchain.programs import find_ninja
from kjit.errors import ToolchainError

# Variables that change the output or the messages, and are not part of a key. The last five are nvcc's (nvcc.profile);
# Makefiles export variables of these names.
_DROPPED_ENVIRONMENT = (
    "CLICOLOR_FORCE",
    "DEPENDENCIES_OUTPUT",
    "LD_RUN_PATH",
    "MAKEFLAGS",
    "NINJA_STATUS",
    HOST_VARIABLE,  # the command line has that compiler
    "SUNPRO_DEPENDENCIES",
    "CUDAFE_FLAGS",
    "INCLUDES",
    "LIBRARIES",
    "PTXAS_FLAGS",
    "SYSTEM_INCLUDES",
)

# For launchers. Their "direct" mode relies on the list of headers of an earlier compile, and misses a new header that
# shadows one of them; kjit has decided to compile, and must not get the old object. ccache would hash the folder of the
# build, which differs each time.
LAUNCHER_ENVIRONMENT = {"CCACHE_NODIRECT": "1", "CCACHE_NOHASHDIR": "1", "SCCACHE_DIRECT": "false"}


def run_steps(
    steps: list[Step],
    at_once: int,
    folder: Path,
    extra: Mapping[str, str],
    cancel: threading.Event | None,
    nvrtc: Nvrtc | None,
) -> subprocess.CompletedProcess[str]:
    """Run `steps`, with at most `at_once` that compile units in parallel: with NVRTC in a server, else with ninja."""
    environment = _environment(extra)
    if nvrtc is None:
        ninja = find_ninja()
        _write(folder, steps, at_once)
        return _run_ninja(ninja, folder, environment, cancel)
    try:
        return servers.run(steps, at_once, folder, environment, cancel, nvrtc)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        raise ToolchainError(f"Python ('{sys.executable}') cannot be run: {error.strerror}.") from None


def _write(folder: Path, steps: list[Step], at_once: int) -> None:
    """Write the ninja file, with at most `at_once` steps that compile units in parallel."""
    lines = ["pool units", f"  depth = {at_once}", "rule run", "  command = $run"]
    for step in steps:
        lines.append(f"build {step.output}: run {' '.join(step.inputs)}".rstrip())
        # `exec` saves a process, and passes on the compiler's exit status.
        lines.append("  run = " + f"exec {step.command} >{step.log} 2>&1".replace("$", "$$"))
        if step.is_of_unit:
            lines.append("  pool = units")
    (folder / ".ninja_log").unlink(missing_ok=True)
    write_text(folder / "build.ninja", "\n".join([*lines, ""]))


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED_ENVIRONMENT}
    return {**environment, "LC_ALL": "C", **extra}


def _run_ninja(
    ninja: Path, folder: Path, environment: Mapping[str, str], cancel: threading.Event | None
) -> subprocess.CompletedProcess[str]:
    try:
        # Not ninja's default of two more than the cores: the objects shared by all modules would slow down the units.
        return run([str(ninja), f"-j{machine.cores()}"], folder, environment, cancel)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise
        raise ToolchainError(
            f"ninja ('{ninja}') cannot be run: {error.strerror}.", hint="install it with `pip install ninja`"
        ) from None

"""kjit.engine.compile.helper: the work of commands, done by a process that keeps NVRTC loaded; and without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_until

from kjit.engine.compile import start_helper
from kjit.engine.compile.helper import VARIABLE
from kjit.engine.toolchain import build_flags
from kjit.engine.toolchain.nvrtc import Nvrtc, command_of
from kjit.spec import CudaArch

# The helper starts without NVRTC, too: commands report what is missing.
NONE = Nvrtc(Path("/no/libnvrtc.so.13"), Path("/no/libnvrtc-builtins.so.13.0"), (13, 0), ())
HEADER = "".join(f"__attribute__((device)) inline int function_{i}(int x) {{ return x + {i}; }}\n" for i in range(3000))
UNIT = f"""# 1 "op.cu"

# 1 "/lib/header.h" 1 3
{HEADER}# 2 "op.cu" 2
__attribute__((global)) void fill(int* out) {{ *out = function_7(1); }}
"""


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    start_helper.end()
    yield
    start_helper.end()


def pid() -> int:
    assert start_helper._helper is not None
    return start_helper._helper.process.pid


def folder() -> Path:
    assert start_helper._helper is not None
    return Path(start_helper._helper.path).parent


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def command(nvrtc: Nvrtc, where: Path, unit: str = UNIT) -> list[str]:
    (where / "op.ii").write_text(unit)
    options = build_flags._nvrtc_options(nvrtc, CudaArch.parse("9.0"))
    return [*command_of("device_compiler"), str(nvrtc.library), str(nvrtc.builtins), "op.ii", "op.cubin", "", *options]


def run(words: list[str], where: Path, variables: dict[str, str]) -> tuple[int, str]:
    """The status and the output of a command."""
    done = subprocess.run(
        words, cwd=where, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return done.returncode, done.stdout.decode()


def test_a_unit_is_the_same_with_precompiled_headers(nvrtc: Nvrtc, tmp_path: Path) -> None:
    words = command(nvrtc, tmp_path)
    status, said = run(words, tmp_path, {})
    assert status == 0
    plain = (tmp_path / "op.cubin").read_bytes()
    variables = start_helper.variables(nvrtc)
    wait_until(Path(variables[VARIABLE]).exists, "there is no helper")
    assert run(words, tmp_path, variables)[0] == 0
    wait_until(lambda: bool(list(folder().glob("*/headers.pch"))), "no headers are precompiled")
    (tmp_path / "op.cubin").unlink()
    again, said_again = run(words, tmp_path, variables)
    assert again == 0
    assert (tmp_path / "op.cubin").read_bytes() == plain
    assert [line for line in said_again.splitlines() if "time" not in line] == [
        line for line in said.splitlines() if "time" not in line
    ]


def test_a_process_has_one_helper_which_works_where_and_as_its_command_would(tmp_path: Path) -> None:
    words = [*command_of("kernels_object"), "g++", "no.o", "no.s", ""]
    variables = start_helper.variables(NONE)
    wait_until(Path(variables[VARIABLE]).exists, "there is no helper")
    assert start_helper.variables(NONE) == variables
    status, said = run(words, tmp_path, variables)
    assert status == 1
    assert said.endswith("FileNotFoundError: [Errno 2] No such file or directory: 'no.o'\n")


@pytest.mark.parametrize("how", ["killed", "never there"])
def test_a_command_does_without_one(how: str, nvrtc: Nvrtc, tmp_path: Path) -> None:
    variables = {VARIABLE: str(tmp_path / "socket")}
    if how == "killed":
        variables = start_helper.variables(nvrtc)
        os.kill(pid(), signal.SIGKILL)
    assert run(command(nvrtc, tmp_path), tmp_path, variables)[0] == 0
    assert (tmp_path / "op.cubin").exists()


def test_one_that_has_ended_is_replaced() -> None:
    first = start_helper.variables(NONE)
    before = pid()
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: has_ended(before), "it goes on")
    assert start_helper.variables(NONE) != first
    assert pid() != before
    assert not Path(first[VARIABLE]).parent.exists()


def test_it_is_replaced_if_nvrtc_has_changed() -> None:
    start_helper.variables(NONE)
    before = pid()
    start_helper.variables(Nvrtc(NONE.library, NONE.builtins, (13, 0), (("/no/libnvrtc.so.13", 1, 2),)))
    assert has_ended(before)


def test_its_end_is_that_of_what_it_does(nvrtc: Nvrtc, tmp_path: Path) -> None:
    kernels = "".join(
        f"__attribute__((global)) void f{i}(float* p) {{ for (int j = 0; j < 99; ++j) p[j] += {i} * p[j * j]; }}\n"
        for i in range(2000)
    )
    words = command(nvrtc, tmp_path, f'# 1 "op.cu"\n{kernels}')
    variables = start_helper.variables(nvrtc)
    wait_until(Path(variables[VARIABLE]).exists, "there is no helper")
    process = subprocess.Popen(words, cwd=tmp_path, env={**os.environ, **variables})
    children = Path(f"/proc/{pid()}/task/{pid()}/children")
    wait_until(lambda: bool(children.read_text()), "it does not work")
    fork = int(children.read_text())
    process.kill()
    process.wait()
    start_helper.end()
    wait_until(lambda: has_ended(fork), "it goes on")


_FORKS = """
import os, sys, time
sys.path.append(sys.argv[1])
from test_helper import NONE, pid, start_helper

first = start_helper.variables(NONE)
if os.fork() == 0:
    assert start_helper.variables(NONE) == first
    print(pid(), flush=True)
    if sys.argv[2] == "killed":
        time.sleep(600)  # with all that the first process has open
    sys.exit()
os.wait()
print("waited", flush=True)
"""


@pytest.mark.parametrize("how", ["ends", "killed"])
def test_forks_of_a_process_share_its_helper_which_ends_with_it(how: str) -> None:
    words = [sys.executable, "-c", _FORKS, os.path.dirname(__file__), how]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    helper = int(process.stdout.readline())
    if how == "killed":
        process.kill()
    else:
        assert process.stdout.readline() == "waited\n"
    process.wait()
    try:
        wait_until(lambda: has_ended(helper), "it goes on")
    finally:
        if how == "killed":
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()

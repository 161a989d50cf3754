"""Modules in unusual surroundings: a deleted folder, a locale that cannot express the project's folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from forked import Forks

from kjit.engine.toolchain.compilers import find_cxx
from kjit.runtime import LAYOUT
from kjit.spec import Spec

WriteOp = Callable[..., Spec]
_ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

_LOAD = """
import os, sys
import torch, kjit
if len(sys.argv) > 2:
    os.chdir(sys.argv[2])
    os.rmdir(sys.argv[2])
try:
    print(kjit.load_jit("answer", cpp_files=[sys.argv[1]]).answer())
except kjit.KjitError as error:
    print(type(error).__name__, error)
"""


def load_anew(spec: Spec, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a Python that starts with this environment."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _LOAD, spec.cpp_files[0], *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def gone(tmp_path: Path) -> str:
    (tmp_path / "gone").mkdir()
    return str(tmp_path / "gone")


def test_a_module_with_absolute_paths_is_built_and_loaded_where_the_current_folder_is_gone(
    tmp_path: Path, answer_op: WriteOp, cache_dir: Path, gone: str, forked: Forks
) -> None:
    del cache_dir
    done = forked.run(_LOAD, answer_op(tmp_path / "project").cpp_files[0], gone)
    assert done.stdout == "42\n", done.stderr


def test_a_compile_error_there_names_absolute_paths(
    tmp_path: Path, answer_op: WriteOp, cache_dir: Path, gone: str, forked: Forks
) -> None:
    del cache_dir
    spec = answer_op(tmp_path / "project")
    header = Path(spec.cpp_files[0]).with_suffix(".h")
    header.write_text("#define ANSWER oops\n")
    source = header.with_suffix(".cpp")
    # g++ names the macro, clang its use.
    place = f"{source}:6:16" if find_cxx().family == "clang" else f"{header}:1:16"
    assert re.search(f"^{re.escape(place)}: error: .*'oops'", forked.run(_LOAD, source, gone).stdout, re.MULTILINE)


def test_a_relative_cache_folder_there_is_an_error_that_says_so(
    tmp_path: Path, answer_op: WriteOp, cache_dir: Path, gone: str, forked: Forks
) -> None:
    del cache_dir
    done = forked.run(_LOAD, answer_op(tmp_path / "project").cpp_files[0], gone, KJIT_CACHE_DIR="cache")
    assert done.stdout.startswith("UsageError KJIT_CACHE_DIR is 'cache', and the current folder")


def test_a_folder_that_the_locale_cannot_name_is_built_in_and_cached_in(
    tmp_path: Path, answer_op: WriteOp, cache_dir: Path
) -> None:
    del cache_dir
    spec = answer_op(tmp_path / "gr\u00fcn")
    cache = tmp_path / "kl\u00f6tze"
    done = load_anew(spec, **_ASCII, KJIT_CACHE_DIR=str(cache))
    assert done.stdout == "42\n", done.stderr
    assert list(cache.glob(f"{LAYOUT}/cpu/answer/*/*/answer.so"))
    header = Path(spec.cpp_files[0]).with_suffix(".h")
    header.write_text("#define ANSWER 43\n")
    assert load_anew(spec, **_ASCII, KJIT_CACHE_DIR=str(cache)).stdout == "43\n"
    header.write_text("#define ANSWER oops\n")
    assert "'oops'" in load_anew(spec, **_ASCII, KJIT_CACHE_DIR=str(cache)).stdout


def test_what_the_locale_cannot_print_is_escaped(tmp_path: Path) -> None:
    environment = {**os.environ, **_ASCII, "KJIT_CACHE_DIR": str(tmp_path / "gr\u00fcn")}
    done = subprocess.run(
        [sys.executable, "-m", "kjit", "cache", "path"], env=environment, capture_output=True, check=True
    )
    assert done.stdout == f"{tmp_path}/gr\\udcc3\\udcbcn\n".encode()


@pytest.mark.parametrize("before", ["add_constant(x)", "x * 2"])
def test_a_forked_child_does_not_wait_for_openmp_threads_of_its_parent(before: str, forked: Forks) -> None:
    from kjit.ops.add_constant import add_constant

    add_constant(torch.ones(1))  # builds it, in the cache of all tests
    done = forked.run(f"""
import os, signal, torch
from kjit.ops.add_constant import add_constant
torch.set_num_threads(2)
x = torch.ones(1 << 22)
add_constant(x[:1])
{before}
child = os.fork()
signal.alarm(60)  # else a child that hangs would do so for ever
print(int(add_constant(x).sum()) // x.numel(), flush=True)
if child:
    assert os.waitpid(child, 0)[1] == 0
""")
    assert (done.stdout, done.stderr) == ("2\n2\n", "")


@pytest.mark.parametrize("command", [["cache", "path"], ["--help"]])
def test_output_that_cannot_be_written_is_one_error(command: list[str]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kjit", *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: No space left on device.\n")
    assert "Exception" not in done.stderr

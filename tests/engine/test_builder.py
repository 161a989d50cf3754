"""One variant: hits, builds, failures, sources and caches that change meanwhile."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

from kjit.engine import builder, reports
from kjit.engine.builder import build
from kjit.engine.cache.store import Lookup, Store
from kjit.engine.compile import compile as compile_module
from kjit.engine.key.key import Key
from kjit.engine.outcomes import Started
from kjit.engine.pool import look_up_all
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import CacheError, CompileError
from kjit.runtime import LAYOUT
from kjit.spec import Spec, Target, Variant

WriteOp = Callable[..., Spec]
CPU = Target.cpu()


def header_of(spec: Spec) -> Path:
    return Path(spec.cpp_files[0]).with_suffix(".h")


class TestBuild:
    def test_a_variant_is_built_once_and_found_from_then_on(
        self, store: Store, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        variant = Variant(answer_op(tmp_path), CPU)
        first, second = build(variant, store), build(variant, store)
        assert (first.state, second.state) == ("built", "hit")
        assert first.artifact is not None
        assert second.artifact is not None
        assert first.artifact.library == second.artifact.library

    def test_the_headers_that_the_compiler_read_are_compared(
        self, store: Store, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        spec = answer_op(tmp_path)
        build(Variant(spec, CPU), store)
        header_of(spec).write_text("#define ANSWER 43\n")
        (outcome,) = look_up_all([Variant(spec, CPU)], store)
        assert (outcome.state, outcome.reason) == ("stale", "csrc/answer.h changed")
        assert build(Variant(spec, CPU), store).state == "built"

    def test_a_compile_is_announced_with_its_reason_and_a_hit_is_not(
        self, store: Store, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        variant = Variant(answer_op(tmp_path), CPU)
        started: list[Started] = []
        build(variant, store, on_start=started.append)
        build(variant, store, on_start=started.append)
        assert started == [Started(variant, "it was never built here")]

    def test_an_earlier_look_up_is_not_repeated_unless_the_key_has_changed(
        self, store: Store, tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        variant = Variant(answer_op(tmp_path), CPU)
        looked_up: list[Key] = []
        fetch = Store.fetch
        monkeypatch.setattr(Store, "fetch", lambda self, key: [looked_up.append(key), fetch(self, key)][1])
        key = Key.of(variant, Toolchain.for_target(CPU))
        build(variant, store, missed=Lookup(None, "it was never built here", "another key"))
        assert [each.key1 for each in looked_up] == [key.key1]
        header_of(variant.spec).write_text("#define ANSWER 43\n")
        started: list[Started] = []
        build(variant, store, missed=Lookup(None, "csrc/answer.h changed", key.key1), on_start=started.append)
        assert len(looked_up) == 1
        assert started == [Started(variant, "csrc/answer.h changed")]

    def test_a_failure_leaves_nothing_behind(self, store: Store, tmp_path: Path, answer_op: WriteOp) -> None:
        spec = answer_op(tmp_path)
        header_of(spec).write_text("#error broken\n")
        with pytest.raises(CompileError):
            build(Variant(spec, CPU), store)
        assert list(store.entries()) == []
        assert list((store.root / LAYOUT / "staging").iterdir()) == []

    def test_a_cancelled_build_leaves_nothing_behind(self, store: Store, tmp_path: Path, answer_op: WriteOp) -> None:
        cancel = threading.Event()
        spec = answer_op(tmp_path)
        os.mkfifo(header_of(spec).with_name("never"))
        header_of(spec).write_text('#include "never"\n')  # nobody writes into the pipe: the compiler waits
        with pytest.raises(CancelledError):
            build(Variant(spec, CPU), store, on_start=lambda _: cancel.set(), cancel=cancel)
        assert list(store.entries()) == []
        assert list((store.root / LAYOUT / "staging").iterdir()) == []


def test_a_cache_that_is_removed_during_the_compile_is_filled_again(
    store: Store, tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant, real = Variant(answer_op(tmp_path / "project"), CPU), compile_module.compile_variant

    def compile_variant(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(builder, "compile_variant", real)
        shutil.rmtree(store.root)
        return real(*args, **kwargs)

    monkeypatch.setattr(builder, "compile_variant", compile_variant)
    assert build(variant, store).state == "built"
    assert build(variant, store).state == "hit"


def test_a_cache_that_is_removed_all_the_time_is_an_error(
    store: Store, tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_variant(*args: Any, **kwargs: Any) -> Any:
        shutil.rmtree(store.root)
        return compile_module.compile_variant(*args, **kwargs)

    monkeypatch.setattr(builder, "compile_variant", compile_variant)
    with pytest.raises(CacheError, match="another process keeps emptying the cache"):
        build(Variant(answer_op(tmp_path / "project"), CPU), store)


@pytest.mark.nvcc
def test_what_kernels_need_is_kept_in_the_artifact(store: Store, tmp_path: Path) -> None:
    (tmp_path / "fill.cu").write_text("__global__ void fill(float* p) { p[threadIdx.x] = 1; }\n")
    variant = Variant(Spec("fill", cuda_files=[tmp_path / "fill.cu"]), Target.cuda("9.0a"))
    build(variant, store)
    outcome = build(variant, store)
    assert outcome.state == "hit"
    assert outcome.artifact is not None
    _, (kernel,), _ = reports.report_of(outcome.artifact)
    assert (kernel.kernel, kernel.arch) == ("fill", "sm_90a")
    assert kernel.registers > 0

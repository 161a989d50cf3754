"""kjit.engine.key.key: changes that result in another key, and changes that do not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kjit
from kjit.engine.key import key as key_module
from kjit.engine.key.differences import differences
from kjit.engine.key.key import Key
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import UsageError
from kjit.runtime import manifest, read_file
from kjit.spec import Spec, Target, Variant

WriteOp = Callable[..., Spec]


def key_of(spec: Spec, toolchain: Toolchain | None = None) -> Key:
    toolchain = toolchain or Toolchain.for_target(Target.cpu())
    return Key.of(Variant(spec, toolchain.target), toolchain)


def test_each_part_of_a_spec_and_its_place_make_another_key(tmp_path: Path, answer_op: WriteOp) -> None:
    spec = answer_op(tmp_path / "project", "answer", 42, "fp32_t")
    (tmp_path / "project" / "other").mkdir()
    copy = shutil.copy(spec.cpp_files[0], tmp_path / "project" / "other" / "answer.cpp")
    source = spec.cpp_files
    specs = [
        spec,
        answer_op(tmp_path / "clone", "answer", 42, "fp32_t"),
        Spec("answer", "fp32_t", cpp_files=[copy]),
        Spec("answer", cpp_files=source),
        Spec("answer", "fp16_t", cpp_files=source),
        Spec("answer2", "fp32_t", cpp_files=source),
        Spec("answer", "fp32_t", cpp_files=source, extra_cflags=["-O1", "-O2"]),
        Spec("answer", "fp32_t", cpp_files=source, extra_cflags=["-O2", "-O1"]),
        Spec("answer", "fp32_t", cpp_files=source, extra_cuda_cflags=["-lineinfo"]),
        Spec("answer", "fp32_t", cpp_files=source, extra_ldflags=["-lm"]),
        Spec("answer", "fp32_t", cpp_files=source, extra_include_paths=["/opt/include"]),
        Spec("answer", "fp32_t", cpp_files=source, cpp_wrappers=["answer"]),
    ]
    assert len({key_of(each).key1 for each in (*specs, *specs)}) == len(specs)


def test_a_source_of_kjit_has_the_same_key_in_another_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []
    for name in ("one", "two"):
        package = tmp_path / name / "kjit"
        (package / "csrc").mkdir(parents=True)
        (package / "csrc" / "op.cpp").write_text("int op;\n")
        monkeypatch.setattr(manifest, "_homes", lambda package=package: ((f"{package}/", "{kjit}"),))
        keys.append(key_of(Spec("op", cpp_files=[package / "csrc" / "op.cpp"])).source_key)
    assert keys[0] == keys[1]


def test_a_variable_that_is_unset_again_makes_the_first_key_and_its_document_again(
    tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = answer_op(tmp_path)
    monkeypatch.delenv("CPATH", raising=False)
    before = key_of(spec)
    with monkeypatch.context() as patch:
        patch.setenv("CPATH", "/somewhere")
        assert key_of(spec).inputs != before.inputs
    assert (key_of(spec).key1, key_of(spec).inputs) == (before.key1, before.inputs)


@pytest.mark.parametrize("field", ["path", "size", "mtime_ns", "version_text"])
def test_another_compiler_makes_another_key(tmp_path: Path, answer_op: WriteOp, field: str) -> None:
    spec = answer_op(tmp_path)
    toolchain = Toolchain.for_target(Target.cpu())
    other: Any = {"path": Path("/other/c++"), "size": 1, "mtime_ns": 1, "version_text": "another"}[field]
    replaced = replace(toolchain, cxx=replace(toolchain.cxx, **{field: other}))
    assert key_of(spec, replaced).key1 != key_of(spec, toolchain).key1


def test_another_version_of_kjit_and_of_tvm_ffi_make_another_key(
    tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = answer_op(tmp_path)
    keys = {key_of(spec).key1}
    monkeypatch.setattr(kjit, "__version__", "99")
    keys.add(key_of(spec).key1)
    monkeypatch.setattr(key_module, "tvm_ffi_version", lambda: "99")
    keys.add(key_of(spec).key1)
    assert len(keys) == 3


def test_the_version_of_tvm_ffi_is_the_one_that_would_be_imported() -> None:
    import tvm_ffi

    assert key_module.tvm_ffi_version() == tvm_ffi.__version__


def test_the_version_of_tvm_ffi_is_asked_for_where_no_one_folder_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tvm_ffi

    monkeypatch.setattr(key_module, "tvm_ffi_include", lambda: tmp_path / "tvm_ffi" / "include")
    for name in ("", "apache_tvm_ffi-1.dist-info", "apache_tvm_ffi-2.dist-info"):
        (tmp_path / name).mkdir(exist_ok=True)
        key_module.tvm_ffi_version.cache_clear()
        assert key_module.tvm_ffi_version() == ("1" if name.endswith("1.dist-info") else tvm_ffi.__version__)
    key_module.tvm_ffi_version.cache_clear()


@pytest.mark.parametrize("size", [0, 1, 65_536, 200_000])
def test_a_file_of_any_length_is_read_whole(tmp_path: Path, size: int) -> None:
    (tmp_path / "file").write_bytes(content := bytes(index % 251 for index in range(size)))
    read, status = read_file(str(tmp_path / "file"))
    assert (read, status.st_size) == (content, size)


def test_the_source_key_does_not_depend_on_the_compiler(tmp_path: Path, answer_op: WriteOp) -> None:
    spec = answer_op(tmp_path)
    toolchain = Toolchain.for_target(Target.cpu())
    replaced = replace(toolchain, cxx=replace(toolchain.cxx, size=1))
    assert key_of(spec, replaced).source_key == key_of(spec, toolchain).source_key


def test_a_missing_source_is_named_with_its_module(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the source '.*/no.cpp' of module 'answer' cannot be read"):
        key_of(Spec("answer", cpp_files=[tmp_path / "no.cpp"]))


class TestDifferences:
    def between(self, before: Key, after: Key) -> list[str]:
        return differences(before.inputs, after.inputs, after.project)

    def test_a_changed_source_is_named(self, tmp_path: Path, answer_op: WriteOp) -> None:
        spec = answer_op(tmp_path)
        before = key_of(spec)
        Path(spec.cpp_files[0]).write_text("int changed;\n")
        assert self.between(before, key_of(spec)) == ["csrc/answer.cpp changed"]

    def test_flags_that_came_and_went_are_named(self, tmp_path: Path, answer_op: WriteOp) -> None:
        one, other = (key_of(answer_op(tmp_path, extra_cflags=[flag])) for flag in ("-O1", "-O2"))
        assert self.between(one, other) == ["extra flags for c++: without -O1 with -O2"]

    def test_of_many_changes_in_a_list_a_few_are_named(self, tmp_path: Path, answer_op: WriteOp) -> None:
        one, other = (key_of(answer_op(tmp_path, extra_cflags=flags)) for flags in ([], [f"-DX{i}" for i in range(9)]))
        (line,) = self.between(one, other)
        assert line == "extra flags for c++: with -DX0 -DX1 -DX2 -DX3 and 5 more"

    def test_a_new_version_of_kjit_is_named(
        self, tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = key_of(answer_op(tmp_path)).inputs
        version = kjit.__version__
        monkeypatch.setattr(kjit, "__version__", "99")
        assert differences(before, key_of(answer_op(tmp_path)).inputs) == [f"kjit was {version} and is 99"]

    def test_a_compiler_that_is_used_or_no_longer_used_is_named(self) -> None:
        with_nvrtc = {"toolchain": {"NVRTC": {"path": "/usr/lib/libnvrtc.so", "version": "NVRTC 13.0"}}}
        without: dict[str, object] = {"toolchain": {}}
        assert differences(with_nvrtc, without) == ["NVRTC is no longer used"]
        assert differences(without, with_nvrtc) == ["NVRTC is used now"]

    def test_another_compiler_is_named(self, tmp_path: Path, answer_op: WriteOp) -> None:
        toolchain = Toolchain.for_target(Target.cpu())
        newer = replace(toolchain, cxx=replace(toolchain.cxx, version_text="g++ 99.1\nmore", size=1))
        spec = answer_op(tmp_path)
        (line,) = self.between(key_of(spec, toolchain), key_of(spec, newer))
        assert line.startswith("the compiler was ")
        assert line.endswith(" and is g++ 99.1")

    def test_a_compiler_that_was_replaced_by_the_same_version_is_named(
        self, tmp_path: Path, answer_op: WriteOp
    ) -> None:
        toolchain = Toolchain.for_target(Target.cpu())
        rebuilt = replace(toolchain, cxx=replace(toolchain.cxx, mtime_ns=1))
        spec = answer_op(tmp_path)
        assert self.between(key_of(spec, toolchain), key_of(spec, rebuilt)) == [f"'{toolchain.cxx.path}' was replaced"]

    def test_a_variable_of_the_environment_is_named(
        self, tmp_path: Path, answer_op: WriteOp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spec = answer_op(tmp_path)
        monkeypatch.delenv("CPATH", raising=False)
        before = key_of(spec)
        monkeypatch.setenv("CPATH", "/x")
        assert self.between(before, key_of(spec)) == ["environment CPATH was none and is /x"]

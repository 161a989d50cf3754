"""kjit.engine.toolchain.toolchain: the compilers of a target, and their identity."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pytest
from fakes import calls, write_gcc

from kjit.engine.toolchain import compilers, memo, toolchain
from kjit.engine.toolchain.build_flags import nvcc_flags
from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError, UsageError
from kjit.runtime.manifest import variables
from kjit.spec import Spec, Target


@pytest.fixture(autouse=True)
def alone(no_programs: None) -> None:
    """No compilers but those that a test writes."""


@pytest.mark.usefixtures("cxx", "cuda")
class TestToolchain:
    def test_nvccs_host_compiler_is_the_one_that_was_found(self, cxx: Path) -> None:
        flags = nvcc_flags(Toolchain.for_target(Target.cuda("9.0a")), Spec("op", cuda_files=["/x.cu"]))
        assert flags[flags.index("-ccbin") + 1] == str(cxx)

    def test_an_unknown_architecture_is_refused_before_a_compile(self) -> None:
        with pytest.raises(UsageError, match=r"does not build for architecture 5\.0"):
            Toolchain.for_target(Target.cuda("5.0"))

    def test_a_compiler_that_went_away_is_looked_for_again(self, cxx: Path) -> None:
        Toolchain.for_target(Target.cpu())
        cxx.unlink()
        with pytest.raises(ToolchainError, match=r"No C\+\+ compiler"):
            Toolchain.for_target(Target.cpu())

    def test_it_starts_no_process_once_the_compilers_are_known(
        self, cxx: Path, cuda: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(compilers, "script_of", lambda _: b"")  # what a test writes is one
        Toolchain.for_target(Target.cuda("9.0a"))
        before = len(calls(cxx)) + len(calls(cuda / "bin" / "nvcc"))
        memo._open.cache_clear()
        toolchain._discover.cache_clear()
        Toolchain.for_target(Target.cuda("9.0a"))
        assert len(calls(cxx)) + len(calls(cuda / "bin" / "nvcc")) == before

    def test_it_is_one_object_as_long_as_nothing_changes(self, cxx: Path) -> None:
        first = Toolchain.for_target(Target.cpu())
        assert Toolchain.for_target(Target.cpu()) is first
        write_gcc(cxx, "13.10.0")
        assert Toolchain.for_target(Target.cpu()) != first

    @pytest.mark.parametrize("target", [Target.cpu(), Target.sim(), Target.cuda("9.0a")], ids=str)
    def test_every_variable_that_the_search_reads_is_in_the_list_of_its_kind(
        self, target: Target, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(compilers, "script_of", lambda _: b"")  # what a test writes is one
        with contextlib.suppress(ToolchainError):  # what a test writes has no headers for the simulator
            Toolchain.for_target(target)
        read: set[str | bytes] = set()

        class Recorder(dict[str, str]):
            def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
                read.add(name)
                return super().get(name, default)

            def __getitem__(self, name: str) -> str:
                read.add(name)
                return super().__getitem__(name)

        monkeypatch.setattr(os, "environ", Recorder(os.environ))
        toolchain._discover.cache_clear()
        with contextlib.suppress(ToolchainError):
            toolchain._discover_now(target, (None,) * len(variables(target.kind)))
        assert {"CXX", *target.data.search[:1]} <= read
        assert read - {*variables(target.kind), b"PATH"} == set()

    def test_it_keeps_the_environment_that_it_was_found_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CPATH", "/one")
        toolchain = Toolchain.for_target(Target.cpu())
        monkeypatch.setenv("CPATH", "/two")
        assert toolchain.environment()["CPATH"] == "/one"
        assert Toolchain.for_target(Target.cpu()).environment()["CPATH"] == "/two"

    @pytest.mark.parametrize("name", ["CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH"])
    def test_its_identity_holds_the_environment_that_compilers_read(
        self, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.delenv(name, raising=False)
        before = Toolchain.for_target(Target.cpu()).identity()
        monkeypatch.setenv(name, "/x")
        assert Toolchain.for_target(Target.cpu()).identity() != before

    def test_what_nvcc_reads_is_part_of_a_cuda_identity_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        targets = (Target.cpu(), Target.cuda("9.0a"))
        before = [Toolchain.for_target(target).identity() for target in targets]
        monkeypatch.setenv("NVCC_APPEND_FLAGS", "-G")
        after = [Toolchain.for_target(target).identity() for target in targets]
        assert [one == other for one, other in zip(before, after, strict=True)] == [True, False]
        assert json.loads(json.dumps(after)) == after

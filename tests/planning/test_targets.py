"""Targets to build for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kjit.engine.toolchain.toolchain import Toolchain
from kjit.errors import ToolchainError, UsageError
from kjit.planning import targets
from kjit.planning.targets import choose_targets
from kjit.spec import Spec, Target

CPU = Target.cpu()


class TestChooseTargets:
    CPP = Spec("cpp", cpp_files=["/x.cpp"])
    CUDA = Spec("cuda", cuda_files=["/x.cuh"])

    @pytest.fixture
    def no_cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def find_cuda() -> None:
            raise ToolchainError("No CUDA compiler (nvcc) was found.")

        monkeypatch.setattr(targets, "find_cuda", find_cuda)

    @pytest.fixture
    def cuda(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(targets, "find_cuda", lambda: None)
        archs = lambda names: [Target.cuda(name).arch for name in names or ["8.0"]]  # noqa: E731
        monkeypatch.setattr(targets, "resolve_archs", archs)

    @pytest.mark.usefixtures("cuda")
    def test_by_default_what_there_are_sources_for(self) -> None:
        assert choose_targets([self.CPP]) == ([CPU], [])
        assert choose_targets([self.CUDA, self.CPP]) == ([Target.cuda("8.0"), CPU], [])

    @pytest.mark.usefixtures("no_cuda")
    def test_by_default_cuda_is_left_out_without_a_compiler_and_that_is_said(self) -> None:
        targets, left_out = choose_targets([self.CUDA, self.CPP])
        assert targets == [CPU]
        assert left_out == ["cuda is left out (cuda): No CUDA compiler (nvcc) was found."]

    @pytest.mark.usefixtures("no_cuda")
    @pytest.mark.parametrize("ask", [{"kinds": ["cuda"]}, {"archs": ["9.0a"]}])
    def test_what_was_asked_for_is_never_left_out(self, ask: dict[str, Any]) -> None:
        with pytest.raises(ToolchainError, match="No CUDA compiler"):
            choose_targets([self.CUDA, self.CPP], **ask)

    @pytest.mark.usefixtures("cuda")
    def test_an_op_without_the_source_that_was_asked_for_is_named(self) -> None:
        targets, left_out = choose_targets([self.CUDA, self.CPP], ["cpu"])
        assert targets == [CPU]
        assert left_out == ["cuda has no C++ source, and is not built for cpu"]

    @pytest.mark.usefixtures("cuda")
    def test_no_op_with_the_source_that_was_asked_for_is_an_error(self) -> None:
        with pytest.raises(UsageError, match=r"none of these ops has a CUDA source"):
            choose_targets([self.CPP], ["cuda"])

    @pytest.mark.usefixtures("cuda")
    def test_the_simulator_is_built_for_when_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = Toolchain(Target.sim(), None, None)  # type: ignore[arg-type]
        monkeypatch.setattr(Toolchain, "for_target", lambda target: replace(found, target=target))
        assert choose_targets([self.CUDA], ["sim", "sim-check"])[0] == [Target.sim(), Target.sim(check=True)]
        _, left_out = choose_targets([self.CUDA, self.CPP], ["sim"])
        assert left_out == ["cpp has no CUDA source, and is not built for sim"]
        monkeypatch.setenv("KJIT_SIM", "check")
        targets, _ = choose_targets([self.CUDA])
        assert targets == [Target.cuda("8.0"), Target.sim(check=True)]

    @pytest.mark.usefixtures("no_cuda")
    def test_where_nothing_may_be_left_out_a_missing_compiler_is_an_error_that_says_both_ways_out(self) -> None:
        with pytest.raises(ToolchainError, match=r"No CUDA compiler(.|\n)*`--target cpu` leaves cuda out"):
            choose_targets([self.CUDA, self.CPP], needs_all=True)
